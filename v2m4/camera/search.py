"""Sampling: from which direction, and with which roll, was the mesh seen?

The mesh is drawn once from each of a few hundred directions. Distance and position follow in closed form from the area
and the centroid of its silhouette, and a roll is a turn of the target's picture, so all rolls of all directions are
compared by a handful of matrix products.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np

from v2m4.camera.objective import COLOR_WEIGHT, CONTRAST_FLOOR, prior
from v2m4.camera.subject import Subject
from v2m4.camera.view import View
from v2m4.transforms import look_at, rotation_angle_deg, rotation_from_vector


@dataclass(frozen=True)
class SearchOptions:
    """``directions`` on the sphere, ``rolls`` in a full turn, ``size`` of the pictures in pixels, ``keep`` hypotheses
    that are at least ``apart_deg`` apart. The mesh is drawn with about ``faces`` triangles."""

    directions: int = 300
    rolls: int = 36
    size: int = 64
    keep: int = 6
    apart_deg: float = 25.0
    faces: int = 1200


@dataclass(frozen=True)
class Sample:
    """A pose in the view, and its score."""

    rotation: np.ndarray
    position: np.ndarray
    score: float


def fibonacci_directions(count: int) -> np.ndarray:
    """(N,3) unit vectors, evenly spread over the sphere; none of them is a pole."""
    k = np.arange(count) + 0.5
    height = 1 - 2 * k / count
    angle = np.pi * (1 + np.sqrt(5)) * k
    flat = np.sqrt(1 - height**2)
    return np.stack([flat * np.sin(angle), height, flat * np.cos(angle)], -1)


@lru_cache(maxsize=4)
def level_rotations(count: int) -> np.ndarray:
    """(N,3,3) mesh-to-camera rotations of level cameras that look at the mesh from each of the directions."""
    return np.stack([look_at(d)[:3, :3] for d in fibonacci_directions(count)])


def search(view: View, subject: Subject, options: SearchOptions) -> list[Sample]:
    """The best poses of ``subject`` in ``view``, best first, apart from each other in angle."""
    small, subject = view.resized(options.size), subject.simplified(options.faces)
    level = level_rotations(options.directions)
    positions = fit_positions(small, subject, level)
    drawings = subject.draw(level, positions, small.K, small.size)
    angles = 2 * np.pi * np.arange(options.rolls) / options.rolls
    scores = _scores(drawings, _turned(small, -angles))
    spin = rotation_from_vector(np.outer(angles, [0, 0, 1.0]))
    rotations = np.einsum("rij,djk->drik", spin, level)
    scores = scores + prior(view.rotation.T @ rotations)
    turned = np.einsum("rij,dj->dri", spin, positions)
    order = np.argsort(-scores, axis=None, kind="stable")
    return _apart(order, rotations.reshape(-1, 3, 3), turned.reshape(-1, 3), scores.ravel(), options)


def fit_positions(view: View, subject: Subject, rotations: np.ndarray, passes: int = 2) -> np.ndarray:
    """Positions (N,3) at which silhouettes of ``subject`` at ``rotations`` (N,3,3) have the area and the centroid of
    the view's. Each pass draws once; perspective makes the first one inexact."""
    area, centroid = _moments(view.coverage[None])
    radius = view.size / 2 / view.focal  # tangent of the view's half angle
    positions = np.zeros((len(rotations), 3))
    positions[:, 2] = subject.radius * (1 / (0.9 * radius) + 1)
    for _ in range(passes):
        drawn, at = _moments(subject.masks(rotations, positions, view.K, view.size).astype(np.float32))
        ratio = np.sqrt(np.maximum(drawn, 1) / max(float(area[0]), 1e-6))
        aside = positions[:, :2] / positions[:, 2:] - (at - view.size / 2) / view.focal  # mesh centre from centroid
        middle = (centroid - view.size / 2) / view.focal + aside / ratio[:, None]
        depth = np.maximum(positions[:, 2] * ratio, 1.05 * subject.radius)
        positions = np.concatenate([middle * depth[:, None], depth[:, None]], 1)
    return positions


def _moments(masks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(N,S,S) -> area (N,) and centroid (N,2) in pixels; an empty mask has its centroid in the middle."""
    size = masks.shape[-1]
    grid = np.arange(size, dtype=np.float32) + 0.5
    area = masks.sum((1, 2))
    x, y = masks.sum(1) @ grid, masks.sum(2) @ grid
    safe = np.maximum(area, 1e-6)
    return area, np.where(area[:, None] > 0, np.stack([x / safe, y / safe], -1), size / 2)


def _turned(view: View, angles: np.ndarray) -> np.ndarray:
    """The view turned about its middle by each of ``angles``: (R,S,S,5), the last channel is ``inside``."""
    size, image = view.size, np.concatenate([view.pixels, view.inside[..., None]], -1)
    out = np.empty((len(angles), size, size, 5), np.float32)
    middle = (size - 1) / 2
    for k, angle in enumerate(angles):
        # positive angles turn x towards y; warpAffine is given the map from target to source
        c, s = np.cos(-angle), np.sin(-angle)
        turn = np.array([[c, -s], [s, c]])
        matrix = np.concatenate([turn, (np.full(2, middle) - turn @ np.full(2, middle))[:, None]], 1)
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        out[k] = np.concatenate(
            [
                cv2.warpAffine(image[..., :4], matrix, (size, size), flags=flags),
                cv2.warpAffine(image[..., 4], matrix, (size, size), flags=flags, borderValue=1.0)[..., None],
            ],
            -1,
        )
    return out


def _scores(drawings: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Silhouette IoU and colour agreement of all drawings (D,S,S,4) with all targets (R,S,S,5): (D,R)."""
    flat = drawings.reshape(len(drawings), -1, 4)
    goal = targets.reshape(len(targets), -1, 5)
    drawn, seen, inside = flat[..., 3], goal[..., 3], goal[..., 4]
    both = drawn @ seen.T
    union = drawn @ inside.T + seen.sum(1) - both
    iou = both / np.maximum(union, 1e-6)
    if not flat[..., :3].any():
        return iou
    return iou + COLOR_WEIGHT * _color_scores(flat, goal, np.maximum(both, 1e-6))


def _color_scores(flat: np.ndarray, goal: np.ndarray, both: np.ndarray) -> np.ndarray:
    """The concordance of :func:`objective.color_agreement` for all pairs at once, from sums over common pixels."""
    drawn, seen = flat[..., 3], goal[..., 3]
    covariance, spread = np.zeros_like(both), np.zeros_like(both)
    for channel in range(3):
        a, b = flat[..., channel], goal[..., channel]
        sum_a, sum_b = a @ seen.T, drawn @ b.T
        covariance += (a @ b.T - sum_a * sum_b / both) / (3 * both)
        squares = (a * a) @ seen.T + drawn @ (b * b / np.maximum(seen, 1e-3)).T
        spread += (squares - (sum_a**2 + sum_b**2) / both) / (3 * both)
    return 2 * covariance / (np.maximum(spread, 0) + CONTRAST_FLOOR**2)


def _apart(
    order: np.ndarray, rotations: np.ndarray, positions: np.ndarray, scores: np.ndarray, options: SearchOptions
) -> list[Sample]:
    """Go down ``order`` and take what is not near something better."""
    chosen: list[int] = []
    alive = np.ones(len(order), bool)
    for index in order:
        if not alive[index]:
            continue
        chosen.append(int(index))
        if len(chosen) == options.keep:
            break
        alive &= rotation_angle_deg(rotations, rotations[index]) >= options.apart_deg
    return [Sample(rotations[k], positions[k], float(scores[k])) for k in chosen]
