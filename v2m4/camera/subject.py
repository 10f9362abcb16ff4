"""A mesh ready to be drawn many times, and its poses.

A pose here is a rotation ``R`` (3,3) and the position ``t`` (3,) of the mesh's centre in front of a camera, at scale 1:
``x_camera = R (x_mesh - centre) + t``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from v2m4.render import ZBuffer, masks
from v2m4.types import Mesh

#: Pixels drawn in one go, to bound memory.
BATCH_PIXELS = 2_000_000


@dataclass(frozen=True)
class Subject:
    """``vertices`` (V,3) float64 about ``centre`` (3,), ``faces`` (F,3), ``colors`` (V,3) float32 in [0, 1] or None."""

    vertices: np.ndarray
    faces: np.ndarray
    colors: np.ndarray | None
    centre: np.ndarray

    @classmethod
    def of(cls, mesh: Mesh) -> Subject:
        """Unused vertices do not count; the centre is the middle of the box."""
        used = mesh.vertices[np.unique(mesh.faces)].astype(np.float64)
        centre = (used.min(0) + used.max(0)) / 2
        colors = None if mesh.colors is None else mesh.colors.astype(np.float32) / 255
        return cls(mesh.vertices.astype(np.float64) - centre, mesh.faces, colors, centre)

    @cached_property
    def radius(self) -> float:
        """Distance of the farthest used vertex from the centre."""
        return float(np.linalg.norm(self.vertices[np.unique(self.faces)], axis=1).max())

    def placed(self, rotations: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Poses (N,3,3), (N,3) -> points (N,V,3) float32 in camera coordinates."""
        points = np.einsum("nij,vj->nvi", rotations, self.vertices) + positions[:, None]
        return points.astype(np.float32)

    def masks(self, rotations: np.ndarray, positions: np.ndarray, K: np.ndarray, size: int) -> np.ndarray:
        """(N,S,S) bool silhouettes."""
        parts = [
            masks(self.placed(rotations[part], positions[part]), self.faces, K, size, size)
            for part in _parts(len(rotations), size)
        ]
        return np.concatenate(parts)

    def draw(self, rotations: np.ndarray, positions: np.ndarray, K: np.ndarray, size: int) -> np.ndarray:
        """(N,S,S,4) float32: colour (0 without colours) premultiplied by coverage, and coverage."""
        parts = [self._draw(rotations[part], positions[part], K, size) for part in _parts(len(rotations), size)]
        return np.concatenate(parts)

    def _draw(self, rotations: np.ndarray, positions: np.ndarray, K: np.ndarray, size: int) -> np.ndarray:
        out = np.zeros((len(rotations), size, size, 4), np.float32)
        if self.colors is None:
            out[..., 3] = self.masks(rotations, positions, K, size)
            return out
        found = ZBuffer().rasterize(self.placed(rotations, positions), self.faces, K, size, size)
        hit = found.face >= 0
        corners = self.colors[self.faces[found.face[hit]]]
        out[hit, :3] = np.einsum("pk,pkc->pc", found.barycentric[hit], corners)
        out[hit, 3] = 1
        return out


def _parts(count: int, size: int) -> list[slice]:
    step = max(1, BATCH_PIXELS // (size * size))
    return [slice(start, start + step) for start in range(0, count, step)]
