"""Which keyframe's topology carries the whole clip.

The anchor must show the object with its limbs apart: where two legs are fused, no motion can part them. The signs are a
large surface, separate parts, no handles, and few places where two sheets face each other at a small distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from v2m4.errors import InputError
from v2m4.topology.surface import Surface, edges_of, face_areas, point_normals

CONTACT = 0.04  #: two facing sheets closer than this (working units) are as good as touching
CRUMB = 0.005  #: a part with less than this share of the surface is noise


@dataclass(frozen=True)
class AnchorCues:
    """What one keyframe looks like as an anchor: surface in working units, counts, share of vertices in contact."""

    area: float
    parts: int
    handles: float
    contact: float


def cues(surface: Surface) -> AnchorCues:
    """Measure one keyframe."""
    vertices, faces = surface.vertices, surface.faces
    edges = edges_of(faces)
    count = len(vertices)
    graph = sp.coo_matrix((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), (count, count))
    _, label = connected_components(graph, directed=False)
    areas = face_areas(vertices, faces)
    used = np.unique(faces)
    share = np.bincount(label[faces[:, 0]], areas, label.max() + 1) / max(areas.sum(), 1e-12)
    euler = len(used) - len(edges) + len(faces)
    handles = max((2 * len(np.unique(label[used])) - euler) / 2, 0.0)
    return AnchorCues(float(areas.sum()), max(int((share > CRUMB).sum()), 1), handles, _contact(vertices, faces))


def _contact(vertices: np.ndarray, faces: np.ndarray) -> float:
    """Share of vertices that another sheet faces closely."""
    used = np.unique(faces)
    points, normals = vertices[used], point_normals(vertices, faces)[used]
    if len(used) > 20000:  # a fair sample is enough, and the number of pairs grows with the square of the density
        step = -(-len(used) // 20000)
        points, normals = points[::step], normals[::step]
    pairs = cKDTree(points).query_pairs(CONTACT, output_type="ndarray")
    if not len(pairs):
        return 0.0
    a, b = pairs.T
    gap = points[b] - points[a]
    opposite = (normals[a] * normals[b]).sum(1) < -0.3
    outside = ((normals[a] * gap).sum(1) > 0) & ((normals[b] * gap).sum(1) < 0)
    return len(np.unique(pairs[opposite & outside])) / len(points)


def anchor_scores(measured: Sequence[AnchorCues]) -> np.ndarray:
    """(K,) the higher the better. A chain from the middle of the clip is shorter, which counts a little."""
    area = np.array([c.area for c in measured])
    parts = np.array([c.parts for c in measured], float)
    middle = (len(measured) - 1) / 2
    off_centre = np.abs(np.arange(len(measured)) - middle) / max(middle, 1)
    return (
        area / max(np.median(area), 1e-12)
        - np.array([c.contact for c in measured])
        - 0.01 * np.minimum([c.handles for c in measured], 20)
        + 0.05 * np.clip(parts - np.median(parts), -2, 2)
        - 0.02 * off_centre
    )


def choose_anchor(wish: str, keyframes: Sequence[int], surfaces: Sequence[Surface], trusted: np.ndarray) -> int:
    """Position (not frame index) of the anchor. ``wish``: auto, first, or a frame index that is a keyframe."""
    if wish == "first":
        return 0
    if wish != "auto":
        index = int(wish) if wish.isdigit() else -1
        if index not in keyframes:
            known = ", ".join(str(k) for k in keyframes)
            raise InputError(f"topology.anchor = {wish} is not a keyframe", f"use auto, first or one of {known}")
        return list(keyframes).index(index)
    scores = anchor_scores([cues(s) for s in surfaces])
    return int(np.argmax(np.where(trusted, scores, -np.inf)))
