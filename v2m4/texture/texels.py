"""Texels: which point of the surface does each texel of the map show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from v2m4.protocols import Rasterizer


@dataclass(frozen=True)
class Texels:
    """The texels that belong to the surface, in row order.

    ``index`` (N,) int64 flat position in the ``size`` x ``size`` picture; ``face`` (N,) int32; ``barycentric`` (N,3)
    float32, never negative.
    """

    size: int
    index: np.ndarray
    face: np.ndarray
    barycentric: np.ndarray

    def __len__(self) -> int:
        return len(self.index)

    def points(self, part: slice | np.ndarray, values: np.ndarray, faces: np.ndarray) -> np.ndarray:
        """``values`` (V,C) at the vertices of ``faces`` (F,3) -> (n,C) at the texels ``part``."""
        corners = values[faces[self.face[part]]]
        return np.einsum("nk,nkc->nc", self.barycentric[part], corners)

    def parts(self, length: int = 1 << 18) -> list[slice]:
        """Slices that cover all texels, so that memory does not grow with the picture."""
        return [slice(start, min(start + length, len(self))) for start in range(0, len(self), length)]


def texels(uv: np.ndarray, uv_faces: np.ndarray, size: int, rasterizer: Rasterizer) -> Texels:
    """The surface points shown by a ``size`` x ``size`` picture under a UV map ``uv`` (U,2), ``uv_faces`` (F,3).

    Texels whose centre lies just outside a chart (within about one texel) are taken to show the nearest point of it:
    bilinear filtering reads them at every seam, so they must be painted, not merely smeared.
    """
    uv = np.asarray(uv, np.float64)
    points = np.concatenate([uv * size, np.ones((len(uv), 1))], 1)[None].astype(np.float32)
    found = rasterizer.rasterize(points, np.asarray(uv_faces, np.int32), np.eye(3), size, size)
    face = np.array(found.face[0], np.int32)
    _claim_for_faces_without_texel(face, uv, uv_faces, size)
    _grow(face)
    index = np.flatnonzero(face.reshape(-1) >= 0)
    owner = face.reshape(-1)[index]
    surface = Texels(size, index, owner, np.empty((len(index), 3), np.float32))
    for part in surface.parts():
        centre = np.stack([index[part] % size + 0.5, index[part] // size + 0.5], 1)
        surface.barycentric[part] = _clamped_barycentric(centre, uv * size, uv_faces[owner[part]])
    return surface


def _claim_for_faces_without_texel(face: np.ndarray, uv: np.ndarray, uv_faces: np.ndarray, size: int) -> None:
    """Charts thinner than a texel may hold no texel centre; the texel under each such face's centre becomes theirs."""
    missing = np.setdiff1d(np.arange(len(uv_faces)), face)
    cell = np.clip((uv[uv_faces[missing]].mean(1) * size).astype(int), 0, size - 1)
    free = face[cell[:, 1], cell[:, 0]] < 0
    face[cell[free, 1], cell[free, 0]] = missing[free]


def _grow(face: np.ndarray) -> None:
    """Texels beside (or diagonally beside) a surface texel take over its face."""
    padded = np.pad(face, 1, constant_values=-1)
    height, width = face.shape
    out = face.copy()
    steps = [(0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1)]
    for dy, dx in steps:
        neighbour = padded[1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]
        out = np.where(out < 0, neighbour, out)
    face[:] = out


def _clamped_barycentric(points: np.ndarray, uv_px: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    """Barycentrics (N,3) float32 of ``points`` (N,2) in their triangles, pulled into the triangle where outside."""
    a, b, c = (uv_px[triangles[:, k]] for k in range(3))
    edge1, edge2, offset = b - a, c - a, points - a
    area = edge1[:, 0] * edge2[:, 1] - edge1[:, 1] * edge2[:, 0]
    safe = np.where(np.abs(area) < 1e-9, 1.0, area)
    second = (offset[:, 0] * edge2[:, 1] - offset[:, 1] * edge2[:, 0]) / safe
    third = (edge1[:, 0] * offset[:, 1] - edge1[:, 1] * offset[:, 0]) / safe
    inside = np.stack([1 - second - third, second, third], 1)
    outside = (inside < 0).any(1) | (np.abs(area) < 1e-9)
    inside[outside] = _nearest_on_outline(points[outside], a[outside], b[outside], c[outside])
    return inside.astype(np.float32)


def _nearest_on_outline(points: np.ndarray, *corners: np.ndarray) -> np.ndarray:
    """Barycentrics (n,3) of the point on the outline of each triangle (three (n,2) corners) nearest to ``points``."""
    best = np.full(len(points), np.inf)
    out = np.zeros((len(points), 3))
    for k in range(3):
        start, end = corners[k], corners[(k + 1) % 3]
        edge = end - start
        t = np.clip(((points - start) * edge).sum(1) / np.maximum((edge**2).sum(1), 1e-18), 0, 1)
        distance = np.linalg.norm(start + t[:, None] * edge - points, axis=1)
        nearer = distance < best
        best[nearer] = distance[nearer]
        out[nearer] = 0
        out[nearer, k], out[nearer, (k + 1) % 3] = 1 - t[nearer], t[nearer]
    return out
