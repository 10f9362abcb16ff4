"""Root motion apart from shape: where the object goes, and how it turns, as a game engine wants it.

The root is a rigid frame that follows the object smoothly: on the ground under the middle of the surface, with the
object's own axes. What is left after taking it out is the change of shape, with what a generator jitters from mesh to
mesh. Only keyframes whose pose is trusted have a say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from v2m4.camera.smooth import smooth
from v2m4.camera.subject import centroid
from v2m4.transforms import apply, rigid, rotation_angle_deg
from v2m4.types import Mesh

if TYPE_CHECKING:
    from scipy.spatial.transform import Rotation

#: Changes faster than this many seconds are shape, or jitter, not root motion.
SMOOTH_S = 0.5
#: An object that goes less far than this share of its size, and turns less than this, moves in place.
IN_PLACE_SHARE, IN_PLACE_DEG = 0.15, 15.0


@dataclass(frozen=True)
class Root:
    """``root_to_world`` (K,4,4) rigid. ``travel`` is how far apart two of its places on the ground are at most, in the
    world's units, ``turn_deg`` how far two of its directions; ``in_place`` when neither is much."""

    root_to_world: np.ndarray
    travel: float
    turn_deg: float
    in_place: bool


def root_motion(mesh_to_world: np.ndarray, meshes: list[Mesh], times_s: np.ndarray, trusted: np.ndarray) -> Root:
    """The root of ``meshes`` placed by similarities ``mesh_to_world`` (K,4,4); ``trusted`` (K,) bool, if none is, all
    count. The ground is y = 0."""
    good = trusted if trusted.any() else np.ones(len(meshes), bool)
    scales = np.cbrt(np.linalg.det(mesh_to_world[:, :3, :3]))
    rotations = _smooth_rotations(mesh_to_world[:, :3, :3] / scales[:, None, None], times_s, good)
    middles = np.stack([
        apply(matrix, centroid(mesh.vertices.astype(np.float64), mesh.faces)[None])[0]
        for matrix, mesh in zip(mesh_to_world, meshes, strict=True)
    ])  # fmt: skip
    middles[~good] = 0
    places = np.stack([_curve(middles[:, axis], times_s, good) for axis in range(3)], 1)
    places[:, 1] -= float(np.median(places[good, 1]))  # it keeps to the ground, and leaves it in a jump
    root = np.stack([rigid(r, p) for r, p in zip(rotations, places, strict=True)])
    size = float(np.median([np.ptp(m.vertices, axis=0).max() * s for m, s in zip(meshes, scales, strict=True)]))
    travel = float(np.linalg.norm(places[:, None, [0, 2]] - places[None][:, :, [0, 2]], axis=-1).max())
    turn = float(rotation_angle_deg(np.swapaxes(rotations[:, None], -1, -2) @ rotations[None]).max())
    return Root(root, travel, turn, travel < IN_PLACE_SHARE * size and turn < IN_PLACE_DEG)


def _curve(values: np.ndarray, times_s: np.ndarray, good: np.ndarray) -> np.ndarray:
    """(K,) smoothed; two values tell nothing of what is smooth, so what lies between them is taken."""
    if good.sum() < 3:
        return np.interp(times_s, times_s[good], values[good])
    return smooth(values, times_s, good.astype(float), SMOOTH_S)


def _smooth_rotations(rotations: np.ndarray, times_s: np.ndarray, good: np.ndarray) -> np.ndarray:
    """Rotations (K,3,3) smoothed as quaternions about a steady turn, so that any number of full turns goes through."""
    from scipy.spatial.transform import Rotation

    if good.sum() < 3:
        nearest = np.abs(times_s[:, None] - times_s[good]).argmin(1)
        return rotations[np.flatnonzero(good)[nearest]]
    weights = good.astype(float)
    given = Rotation.from_matrix(np.where(good[:, None, None], rotations, np.eye(3)))
    steady = _steady_turn(given, times_s, np.flatnonzero(good))
    quaternions = _one_sign((steady.inv() * given).as_quat(), good)
    smoothed = np.stack([smooth(quaternions[:, axis], times_s, weights, SMOOTH_S) for axis in range(4)], 1)
    curve = steady * Rotation.from_quat(smoothed)
    # a sudden turn is no straight line among quaternions: what was missed of it is added
    missed = (curve.inv() * given).as_rotvec()
    missed[~good] = 0
    more = np.stack([smooth(missed[:, axis], times_s, weights, SMOOTH_S) for axis in range(3)], 1)
    return (curve * Rotation.from_rotvec(more)).as_matrix()


def _steady_turn(given: Rotation, times_s: np.ndarray, good: np.ndarray) -> Rotation:
    """K rotations that turn at the median rate of the ``given`` ones; ``good`` are the indices of those believed."""
    from scipy.spatial.transform import Rotation

    first = int(good[0])
    rates = (given[good[:-1]].inv() * given[good[1:]]).as_rotvec() / np.diff(times_s[good])[:, None]
    return given[first] * Rotation.from_rotvec(np.median(rates, 0) * (times_s - times_s[first])[:, None])


def _one_sign(quaternions: np.ndarray, good: np.ndarray) -> np.ndarray:
    """Of q and -q, the one near the three before it: a single turned mesh does not change the sign of all that follow.
    Those not ``good`` become 0."""
    signed = np.zeros_like(quaternions)
    before: list[np.ndarray] = []
    for k in np.flatnonzero(good):
        signed[k] = quaternions[k] if not before or quaternions[k] @ sum(before) >= 0 else -quaternions[k]
        before = [*before, signed[k]][-3:]
    return signed
