"""A mesh ready to be drawn many times, and its poses.

A pose here is a rotation ``R`` (3,3) and the position ``t`` (3,) of the mesh's centre in front of a camera, at scale 1:
``x_camera = R (x_mesh - centre) + t``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from v2m4.render import ZBuffer, masks
from v2m4.transforms import scale_K
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
        """The centre is the centroid of the surface: a limb that reaches out moves it much less than the box's middle,
        so its path through the clip is smooth."""
        vertices = mesh.vertices.astype(np.float64)
        centre = centroid(vertices, mesh.faces)
        colors = None if mesh.colors is None else mesh.colors.astype(np.float32) / 255
        return cls(vertices - centre, mesh.faces, colors, centre)

    def simplified(self, faces: int) -> Subject:
        """The same object in about ``faces`` triangles, for small pictures; colours come from the nearest vertex."""
        if len(self.faces) <= faces:
            return self
        from fast_simplification import simplify
        from scipy.spatial import cKDTree

        points, triangles = simplify(self.vertices.astype(np.float32), self.faces, target_count=faces)
        if len(triangles) < faces // 4:  # not a surface that can be simplified; draw it as it is
            return self
        colors = None
        if self.colors is not None:
            used = np.unique(self.faces)
            colors = self.colors[used[cKDTree(self.vertices[used]).query(points)[1]]]
        return Subject(points.astype(np.float64), triangles.astype(np.int32), colors, self.centre)

    @cached_property
    def radius(self) -> float:
        """Distance of the farthest used vertex from the centre."""
        return float(np.linalg.norm(self.vertices[np.unique(self.faces)], axis=1).max())

    def placed(self, rotations: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Poses (N,3,3), (N,3) -> points (N,V,3) float32 in camera coordinates."""
        turned = self.vertices.astype(np.float32) @ np.swapaxes(rotations, 1, 2).astype(np.float32)
        return turned + positions[:, None].astype(np.float32)

    def masks(self, rotations: np.ndarray, positions: np.ndarray, K: np.ndarray, size: int) -> np.ndarray:
        """(N,S,S) bool silhouettes."""
        parts = [
            masks(self.placed(rotations[part], positions[part]), self.faces, K, size, size)
            for part in _parts(len(rotations), size)
        ]
        return np.concatenate(parts)

    def draw(
        self, rotations: np.ndarray, positions: np.ndarray, K: np.ndarray, size: int, supersample: int = 1
    ) -> np.ndarray:
        """(N,S,S,4) float32: colour (0 without colours) premultiplied by coverage, and coverage; each pixel is the mean
        of ``supersample``² samples."""
        fine, lens = size * supersample, scale_K(K, supersample)
        parts = []
        for part in _parts(len(rotations), fine):
            drawn = self._draw(rotations[part], positions[part], lens, fine)
            if supersample > 1:
                drawn = drawn.reshape(-1, size, supersample, size, supersample, 4).mean((2, 4), dtype=np.float32)
            parts.append(drawn)
        return np.concatenate(parts)

    def points(self, rotations: np.ndarray, positions: np.ndarray, K: np.ndarray, size: int) -> np.ndarray:
        """(N,S,S,3) float32: the point of the mesh, about its centre, that each pixel centre shows; NaN where none."""
        out = np.full((len(rotations), size, size, 3), np.nan, np.float32)
        corners = self.vertices[self.faces].astype(np.float32)
        for part in _parts(len(rotations), size):
            found = ZBuffer().rasterize(self.placed(rotations[part], positions[part]), self.faces, K, size, size)
            hit = found.face >= 0
            out[part][hit] = np.einsum("pk,pkc->pc", found.barycentric[hit], corners[found.face[hit]])
        return out

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


def centroid(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """(3,) area-weighted centroid of the triangles; of their vertices where there is no area."""
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    area = np.linalg.norm(np.cross(b - a, c - a), axis=1)
    middles = (a + b + c) / 3
    return middles.mean(0) if area.sum() <= 0 else (area[:, None] * middles).sum(0) / area.sum()


def _parts(count: int, size: int) -> list[slice]:
    step = max(1, BATCH_PIXELS // (size * size))
    return [slice(start, start + step) for start in range(0, count, step)]
