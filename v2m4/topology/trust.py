"""Which keyframes can be believed.

A generated mesh can be turned the wrong way, lack a limb, or be no object at all. Two independent witnesses: the
picture (silhouette and colours from the clip's camera), and time (a mesh that is far from both of its neighbours while
these are close to each other). A part that is missing shows when all keyframes were solved together: the motion has it
and the mesh has not, while the motion covers all that the mesh has.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from v2m4.topology.graph import Graph
from v2m4.topology.surface import Samples, Surface, sample, volume

#: An outlier is below the median by more than this many scaled median deviations, and by more than the floor.
DEVIATIONS = 4.0
IOU_FLOOR = 0.06
COLOR_FLOOR = 0.12
JUMP_POINTS = 1500
#: A keyframe has jumped when both neighbours are this many times further from it than from each other ...
JUMP_RATIO = 1.8
#: ... and at least this far (mean of the far tail, working units).
JUMP_LEAST = 0.05

#: A piece of the surface has no partner beyond this distance (working units), and is missing when it is more than this
#: share of the surface.
APART = 0.035
MISSING_SHARE = 0.02


def missing_share(graph: Graph, moved: np.ndarray, mesh: Samples) -> float:
    """Share of the moved surface (points (M,3)) that ``mesh`` lacks in one piece, less what of the mesh the surface
    does not cover: a limb that lies elsewhere is not missing."""
    used = graph.areas > 0
    gap = cKDTree(mesh.points).query(moved)[0]
    ids, weights = graph.point_nodes, graph.point_weights * graph.areas[:, None]
    whole = np.bincount(ids.ravel(), weights.ravel(), len(graph.nodes))
    lost = np.bincount(ids.ravel(), (weights * (gap > APART)[:, None]).ravel(), len(graph.nodes)) > whole / 2
    if not lost.any():
        return 0.0
    links = sp.coo_matrix((np.ones(len(graph.edges)), graph.edges.T), (len(graph.nodes), len(graph.nodes))).tocsr()
    _, piece = connected_components(links[lost][:, lost], directed=False)
    largest = np.bincount(piece, whole[lost]).max() / whole.sum()
    elsewhere = float((cKDTree(moved[used]).query(mesh.points)[0] > APART).mean())
    return float(largest) - elsewhere


def low_outliers(values: np.ndarray, floor: float) -> np.ndarray:
    """(K,) bool: far below the median."""
    middle = np.median(values)
    spread = 1.48 * np.median(np.abs(values - middle))
    return values < middle - max(floor, DEVIATIONS * spread)


def picture_flags(scores: Sequence[tuple[float, float]]) -> np.ndarray:
    """(K,) bool: keyframes whose (silhouette IoU, colour correlation) are outliers of the clip."""
    table = np.asarray(scores, float).reshape(-1, 2)
    if len(table) < 3:
        return np.zeros(len(table), bool)
    return low_outliers(table[:, 0], IOU_FLOOR) | low_outliers(table[:, 1], COLOR_FLOOR)


def jump_flags(surfaces: Sequence[Surface], seeds: Sequence[int]) -> np.ndarray:
    """(K,) bool: keyframes that are far from both neighbours although these are close to each other.

    Each cloud is centred first, so that the way through the world does not count.
    """
    count = len(surfaces)
    flags = np.zeros(count, bool)
    if count < 3:
        return flags
    clouds = []
    for surface, seed in zip(surfaces, seeds, strict=True):
        points = sample(surface, JUMP_POINTS, seed).points
        clouds.append(points - points.mean(0))
    trees = [cKDTree(c) for c in clouds]

    def far(i: int, j: int) -> float:
        gaps = np.concatenate([trees[i].query(clouds[j])[0], trees[j].query(clouds[i])[0]])
        return float(np.sort(gaps)[-len(gaps) // 5 :].mean())

    # At the ends of the clip the two nearest neighbours on one side stand in.
    for k in range(count):
        a, b = (k - 1, k + 1) if 0 < k < count - 1 else ((1, 2) if k == 0 else (count - 2, count - 3))
        near = min(far(k, a), far(k, b))
        flags[k] = near > JUMP_LEAST and near > JUMP_RATIO * far(a, b)
    return flags


def broken_flags(surfaces: Sequence[Surface]) -> np.ndarray:
    """(K,) bool: meshes whose size or volume is nothing like that of the others."""
    extent = np.array([np.ptp(s.vertices[np.unique(s.faces)], axis=0).max() for s in surfaces])
    bulk = np.cbrt(np.abs([volume(s.vertices - s.vertices.mean(0), s.faces) for s in surfaces]))
    flags = (extent < 0.5) | (extent > 2.0)
    middle = np.median(bulk)
    if middle > 0.02:  # open sheets have no volume to compare
        flags |= (bulk < 0.5 * middle) | (bulk > 2.0 * middle)
    return flags if not flags.all() else np.zeros(len(surfaces), bool)


def judge(surfaces: Sequence[Surface], seeds: Sequence[int], scores: Sequence[tuple[float, float]] | None) -> list[str]:
    """Why each keyframe is not trusted ("" when it is). At least one keyframe, the best seen, always stays."""
    witnesses = [("its size or volume does not fit the others", broken_flags(surfaces))]
    if scores is not None:
        witnesses.append(("it does not agree with its picture", picture_flags(scores)))
    witnesses.append(("it differs from both of its neighbours", jump_flags(surfaces, seeds)))
    reasons = ["; ".join(text for text, flags in witnesses if flags[k]) for k in range(len(surfaces))]
    if all(reasons):
        best = int(np.argmax([s[0] for s in scores])) if scores is not None else 0
        reasons[best] = ""
    return reasons
