"""How far away is the object, and how large is each mesh?

One camera measures the ratio of the two only. Generators scale each mesh to its own box, so the scale of the meshes
jumps from keyframe to keyframe, while the object keeps its size and moves smoothly: what is smooth in time is the
distance, what remains is the scale of the mesh. The meshes say something themselves: an animal that stretches out
keeps its volume. If correcting by volume or by surface makes the distances smoother, the correction is used.

Where one and the same mesh stands for the object in every keyframe, its scale is one, and all is distance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from v2m4.camera.smooth import smooth
from v2m4.types import Mesh

#: A size measure must make the distances smoother by this factor before it is believed.
MUST_GAIN = 0.9
#: One and the same mesh shows changes of distance directly: they are smoothed over this share of the usual period only.
SAME_MESH_SHARE = 0.2


@dataclass(frozen=True)
class Distances:
    """``distance`` (K,) smooth in time and ``scale`` (K,) of each mesh, median 1; ``measure`` names what told them
    apart: "none", "volume", "area" or "same mesh"."""

    distance: np.ndarray
    scale: np.ndarray
    measure: str


def split(
    apparent: np.ndarray, meshes: list[Mesh], times_s: np.ndarray, good: np.ndarray, smooth_s: float
) -> Distances:
    """Tell distances from scales.

    ``apparent`` (K,) are the distances if every mesh had scale 1; ``good`` (K,) bool are believed; changes slower than
    ``smooth_s`` seconds belong to the distance. ``distance / scale == apparent`` holds exactly for good keyframes,
    unless all meshes are one and the same: then every scale is 1 and the distance is a little smoothed.
    """
    if not good.any():
        return Distances(apparent.copy(), np.ones(len(apparent)), "none")
    if len(meshes) > 1 and all(_same(meshes[0], m) for m in meshes[1:]):
        curve = np.interp(times_s, times_s[good], np.log(apparent[good]))
        if good.sum() >= 3:
            curve = smooth(curve, times_s, good.astype(float), SAME_MESH_SHARE * smooth_s)
        return Distances(np.exp(curve), np.ones(len(apparent)), "same mesh")
    best: tuple[float, str, np.ndarray] | None = None
    for name, size in _sizes(meshes).items():
        if not (np.isfinite(size[good]).all() and (size[good] > 0).all()):
            continue
        series = np.log(apparent) - np.where(good, np.log(np.where(good, size, 1.0)), 0.0)
        curve = smooth(series, times_s, good.astype(float), smooth_s)
        rough = _spread((series - curve)[good])
        if best is None or rough < MUST_GAIN * best[0]:
            best = (rough, name, curve)
    assert best is not None  # "none" is always usable
    distance = np.exp(best[2])
    scale = distance / apparent
    unit = float(np.median(scale[good]))
    return Distances(distance / unit, scale / unit, best[1])


def _same(a: Mesh, b: Mesh) -> bool:
    return np.array_equal(a.faces, b.faces) and np.array_equal(a.vertices, b.vertices)


def _sizes(meshes: list[Mesh]) -> dict[str, np.ndarray]:
    """Size of each mesh by several measures: (K,)."""
    volume, area = np.array([_volume_and_area(m) for m in meshes]).T
    return {
        "none": np.ones(len(meshes)),
        "volume": np.cbrt(np.maximum(volume, 0)),
        "area": np.sqrt(area),
    }


def _volume_and_area(mesh: Mesh) -> tuple[float, float]:
    a, b, c = (mesh.vertices[mesh.faces[:, k]].astype(np.float64) for k in range(3))
    normal = np.cross(b - a, c - a)
    return float(np.einsum("fi,fi->", a, normal)) / 6, float(np.linalg.norm(normal, axis=1).sum()) / 2


def _spread(residual: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.minimum(residual**2, (3 * np.median(np.abs(residual)) * 1.4826) ** 2))))
