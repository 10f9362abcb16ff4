"""Surfaces as registration sees them: float64 arrays, areas, normals and random samples.

Everything in this package works in the clip's own normalised units (the largest extent of the object is 1), so that no
weight or gate depends on metres.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from v2m4.types import Mesh


@dataclass(frozen=True)
class Normalisation:
    """World -> working units: ``(world - offset) / size``, with ``offset`` (3,) in metres and ``size`` in metres."""

    offset: np.ndarray
    size: float

    def to_unit(self, points: np.ndarray) -> np.ndarray:
        """World points (...,3) -> working units, float64."""
        return (np.asarray(points, np.float64) - self.offset) / self.size

    def to_world(self, points: np.ndarray) -> np.ndarray:
        """Working units (...,3) -> world points, float64."""
        return points * self.size + self.offset

    def similarity_to_world(self, matrix: np.ndarray) -> np.ndarray:
        """A similarity (4,4) of working units as one of the world."""
        out = np.array(matrix, np.float64)
        out[:3, 3] = self.size * out[:3, 3] + self.offset - out[:3, :3] @ self.offset
        return out


def normalisation(meshes: list[Mesh]) -> Normalisation:
    """The units of a clip: medians over the keyframes, so that one broken mesh does not set the scale."""
    used = [np.asarray(m.vertices, np.float64)[np.unique(m.faces)] for m in meshes]
    size = float(np.median([np.ptp(v, axis=0).max() for v in used]))
    centre = np.median([(v.min(0) + v.max(0)) / 2 for v in used], axis=0)
    return Normalisation(centre, size if size > 0 else 1.0)


@dataclass(frozen=True)
class Surface:
    """One keyframe's mesh in working units: ``vertices`` (V,3) float64, ``faces`` (F,3), ``colors`` (V,3) in [0, 1]."""

    vertices: np.ndarray
    faces: np.ndarray
    colors: np.ndarray | None = None


def to_surface(mesh: Mesh, units: Normalisation) -> Surface:
    """A mesh in working units."""
    colors = None if mesh.colors is None else mesh.colors.astype(np.float64) / 255
    return Surface(units.to_unit(mesh.vertices), np.asarray(mesh.faces, np.int64), colors)


def face_vectors(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """(F,3) normals whose length is twice the face's area."""
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    return np.cross(b - a, c - a)


def face_areas(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """(F,)"""
    return np.linalg.norm(face_vectors(vertices, faces), axis=1) / 2


def unit(vectors: np.ndarray) -> np.ndarray:
    """Unit vectors (...,3); a zero vector stays zero, so that it agrees with nothing."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(length > 1e-20, length, 1.0)


def point_normals(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Unit normals (V+F,3) of the vertices (area weighted), then of the face centroids."""
    vectors = face_vectors(vertices, faces)
    corners = faces.T.ravel()
    sums = np.stack([np.bincount(corners, np.tile(vectors[:, axis], 3), len(vertices)) for axis in range(3)], 1)
    return unit(np.concatenate([sums, vectors]))


def volume(vertices: np.ndarray, faces: np.ndarray) -> float:
    """Signed volume; positive when faces are counter-clockwise from outside."""
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    return float(np.einsum("ij,ij->", np.cross(a, b), c) / 6)


def edges_of(faces: np.ndarray) -> np.ndarray:
    """(E,2) undirected edges, sorted."""
    return np.unique(np.sort(faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), axis=1), axis=0)


@dataclass(frozen=True)
class Samples:
    """Random points of a surface: ``points`` (n,3), unit ``normals`` (n,3), ``colors`` (n,3) minus their mean."""

    points: np.ndarray
    normals: np.ndarray
    colors: np.ndarray


def sample(surface: Surface, count: int, seed: int) -> Samples:
    """``count`` area-weighted points in random order (any prefix is a fair sample too)."""
    rng = np.random.default_rng(seed)
    vertices, faces = surface.vertices, surface.faces
    areas = face_areas(vertices, faces)
    total = areas.sum()
    chance = areas / total if total > 0 else np.full(len(faces), 1 / len(faces))
    face = faces[rng.choice(len(faces), count, p=chance)]
    root, along = np.sqrt(rng.random(count)), rng.random(count)
    weights = np.stack([1 - root, root * (1 - along), root * along], 1)[..., None]
    normals = point_normals(vertices, faces)[: len(vertices)]
    colors = np.zeros((count, 3))
    if surface.colors is not None:
        colors = (surface.colors[face] * weights).sum(1)
        colors -= colors.mean(0)
    return Samples((vertices[face] * weights).sum(1), unit((normals[face] * weights).sum(1)), colors)
