"""Coarse alignment: one rotation, one translation, one scale on request, by two-way point-to-plane ICP.

Normals are those of the *moved* surface, partners that are far away or face the other way are dropped, and further
start rotations are only tried where the near one fails.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from v2m4.topology.surface import Samples
from v2m4.transforms import rotation_from_vector

#: (steps, gate, robust scale) in working units, coarse to fine.
SCHEDULE = ((6, 0.5, 0.20), (6, 0.25, 0.10), (8, 0.12, 0.05))
NORMAL = 0.1
LEAST_COSINE = 0.3
FAR = 0.2
#: A fit worse than this (mean distance both ways, working units) is worth other start rotations.
POOR = 0.09


@dataclass(frozen=True)
class Similarity:
    """x -> scale * rotation @ x + translation, in working units, with the fit it reached."""

    scale: float
    rotation: np.ndarray
    translation: np.ndarray
    residual: float = np.inf

    def apply(self, points: np.ndarray) -> np.ndarray:
        """Points (...,3)."""
        return self.scale * points @ self.rotation.T + self.translation


def align(source: Samples, target: Samples, *, scale: bool = False, starts: str = "auto") -> Similarity:
    """The similarity that carries ``source`` onto ``target``.

    ``starts``: "near" only from where it is; "auto" also from turns about the vertical and the other axes when the near
    start ends in a poor fit; the best (smallest residual) wins, the near one on a tie.
    """
    best = _icp(source, target, _centred(source, target, np.eye(3)), scale)
    if starts == "near" or best.residual < POOR:
        return best
    for turn in _turns():
        other = _icp(source, target, _centred(source, target, turn), scale)
        if other.residual < 0.8 * best.residual:
            best = other
    return best


def _turns() -> list[np.ndarray]:
    """Quarter turns about the vertical, then half turns about the other axes."""
    vectors = [[0, np.pi, 0], [0, np.pi / 2, 0], [0, -np.pi / 2, 0], [np.pi, 0, 0], [0, 0, np.pi]]
    return [rotation_from_vector(np.array(v)) for v in vectors]


def _centred(source: Samples, target: Samples, rotation: np.ndarray) -> Similarity:
    return Similarity(1.0, rotation, target.points.mean(0) - rotation @ source.points.mean(0))


def _icp(source: Samples, target: Samples, start: Similarity, scale: bool) -> Similarity:
    tree = cKDTree(np.concatenate([target.points, NORMAL * target.normals], 1), balanced_tree=False)
    current = start
    for steps, gate, robust in SCHEDULE:
        for _ in range(steps):
            rows = _rows(source, target, tree, current, gate, robust)
            current, moved = _step(current, rows, scale)
            if moved < 1e-5:
                break
    points = current.apply(source.points)
    out = np.minimum(cKDTree(target.points).query(points)[0], FAR).mean()
    back = np.minimum(cKDTree(points).query(target.points)[0], FAR).mean()
    return Similarity(current.scale, current.rotation, current.translation, float(out + back))


def _rows(source, target, tree, current, gate, robust):
    """Moved points, partner points, partner normals, weights: from both directions."""
    points, normals = current.apply(source.points), source.normals @ current.rotation.T
    mine = np.concatenate([points, NORMAL * normals], 1)
    _, there = tree.query(mine)
    _, here = cKDTree(mine, balanced_tree=False).query(np.concatenate([target.points, NORMAL * target.normals], 1))
    moved = np.concatenate([points, points[here]])
    own = np.concatenate([normals, normals[here]])
    partner = np.concatenate([target.points[there], target.points])
    plane = np.concatenate([target.normals[there], target.normals])
    square = ((moved - partner) ** 2).sum(1)
    good = (square < gate**2) & ((own * plane).sum(1) > LEAST_COSINE)
    return moved, partner, plane, good * (robust**2 / (robust**2 + square)) ** 2


def _step(current: Similarity, rows, scale: bool) -> tuple[Similarity, float]:
    """One Gauss-Newton step about the centroid; a weak point-to-point part keeps symmetric shapes from sliding."""
    moved, partner, plane, weight = rows
    if weight.sum() < 1e-6:
        return current, 0.0
    centre = (weight[:, None] * moved).sum(0) / weight.sum()
    arm = moved - centre
    gap = moved - partner
    size = 7 if scale else 6
    A, b = 1e-9 * weight.sum() * np.eye(size), np.zeros(size)
    for direction, share in [(plane, 1.0)] + [(np.tile(np.eye(3)[k], (len(arm), 1)), 0.1) for k in range(3)]:
        J = np.concatenate([np.cross(arm, direction), direction], 1)
        if scale:
            J = np.concatenate([J, (arm * direction).sum(1)[:, None]], 1)
        A += share * (J * weight[:, None]).T @ J
        b -= share * (J * weight[:, None]).T @ (gap * direction).sum(1)
    step = np.linalg.solve(A, b)
    turn = rotation_from_vector(step[:3])
    grow = float(np.exp(np.clip(step[6], -0.2, 0.2))) if scale else 1.0
    translation = grow * turn @ (current.translation - centre) + centre + step[3:6]
    return Similarity(grow * current.scale, turn @ current.rotation, translation), float(np.abs(step).max())
