"""The stereo guess that needs no network: match drawing and frame, and solve for the pose from the matches.

A drawing of the mesh near the right pose looks much like the frame. Dense optical flow from the drawing to the frame
says where each pixel has gone (2D-2D); the drawing knows which point of the mesh each pixel shows (2D-3D); PnP with
RANSAC finds the pose that most of these agree on, and a robust fit over them makes it exact. Drawn again from there,
the next round starts nearer. A round costs one drawing and one flow, and reaches as far as the flow: a pose that is 10
to 20 degrees off is brought to 2 or 3.

The paper's guess (section 3.2) asks DUSt3R for the same; see :mod:`v2m4.camera.stereo` for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from v2m4.camera.subject import Subject
from v2m4.camera.view import View, color_spread, mean_color
from v2m4.flow import fetch, flow, one_thread
from v2m4.transforms import rotation_from_vector

#: Matches fewer than this tell no pose.
LEAST_MATCHES = 40
#: Flow there and back may miss the start by this share of the picture.
ROUND_TRIP = 0.012
#: PnP's inliers miss by less than this share of the picture.
INLIER = 0.03
#: Residuals of the robust fit beyond this share of the picture count less and less (Cauchy).
CAUCHY = 0.01
#: Matches used at most: they are dense, and neighbours say the same.
MOST_MATCHES = 2500


@dataclass(frozen=True)
class Matches:
    """``points`` (M,3) of the mesh about its centre and where the view shows them, ``pixels`` (M,2)."""

    points: np.ndarray
    pixels: np.ndarray


def guess(
    view: View, subject: Subject, rotations: np.ndarray, positions: np.ndarray, rounds: int = 2
) -> tuple[np.ndarray, np.ndarray]:
    """Better poses (N,3,3), (N,3) in the ``view`` from those given; one that cannot be matched comes back as it was."""
    better, placed = rotations.copy(), positions.copy()
    alive = np.ones(len(rotations), bool)
    goal = _grey(view.pixels, mean_color(view.pixels), view.contrast)
    for _ in range(rounds):
        index = np.flatnonzero(alive)
        if not len(index):
            break
        drawings = subject.draw(better[index], placed[index], view.K, view.size)
        points = subject.points(better[index], placed[index], view.K, view.size)
        for k, drawing, surface in zip(index, drawings, points, strict=True):
            found = matches(view, goal, drawing, surface)
            pose = None if found is None else solve_pnp(found, view.K, view.size, (better[k], placed[k]))
            if pose is None:
                alive[k] = False
            else:
                better[k], placed[k] = pose
    return better, placed


def matches(view: View, goal: np.ndarray, drawing: np.ndarray, surface: np.ndarray) -> Matches | None:
    """Follow each pixel of a ``drawing`` (S,S,4), which shows ``surface`` (S,S,3), into the view, whose grey picture is
    ``goal`` (S,S) uint8; None when too few come back to where they started."""
    spread = max(color_spread(drawing), 0.3 * view.contrast)
    drawn = _grey(drawing, mean_color(drawing), spread)
    there, back = flow(drawn, goal, fine=True), flow(goal, drawn, fine=True)
    miss = np.linalg.norm(there + fetch(back, there), axis=-1)
    rows, columns = np.nonzero((miss < ROUND_TRIP * view.size) & np.isfinite(surface).all(-1))
    at = np.stack([columns, rows], -1) + there[rows, columns]
    seen = np.clip(np.round(at).astype(int), 0, view.size - 1)
    good = (view.coverage[seen[:, 1], seen[:, 0]] > 0.5) & (view.inside[seen[:, 1], seen[:, 0]] > 0.5)
    if good.sum() < LEAST_MATCHES:
        return None
    step = -(-int(good.sum()) // MOST_MATCHES)
    rows, columns, at = rows[good][::step], columns[good][::step], at[good][::step]
    return Matches(surface[rows, columns].astype(np.float64), at.astype(np.float64) + 0.5)


def solve_pnp(
    found: Matches, K: np.ndarray, size: int, start: tuple[np.ndarray, np.ndarray] | None = None
) -> tuple[np.ndarray, np.ndarray] | None:
    """The pose most matches agree on, then the robust least-squares fit near it; ``start`` is a rotation and a position
    to begin with. None when they agree on none."""
    first: tuple[Any, Any] = (None, None)
    if start is not None:
        first = cv2.Rodrigues(start[0])[0], start[1].reshape(3, 1).astype(np.float64)
    with one_thread():
        ok, turn, shift, inliers = cv2.solvePnPRansac(
            found.points,
            found.pixels.astype(np.float64),
            K,
            None,
            *first,
            useExtrinsicGuess=start is not None,
            iterationsCount=60 if start is not None else 300,
            reprojectionError=INLIER * size,
            flags=cv2.SOLVEPNP_EPNP if start is None else cv2.SOLVEPNP_ITERATIVE,
        )
    if not ok or inliers is None or len(inliers) < LEAST_MATCHES or not np.isfinite(shift).all() or shift[2, 0] <= 0:
        return None
    pose = fit(found, K, cv2.Rodrigues(turn)[0], shift[:, 0], CAUCHY * size)
    return pose if pose[1][2] > 0 else None


def fit(
    found: Matches, K: np.ndarray, rotation: np.ndarray, position: np.ndarray, cauchy: float, steps: int = 8
) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Newton on the reprojection of ``found`` with Cauchy weights (``cauchy`` in pixels)."""
    focal, middle = K[0, 0], K[:2, 2]
    for _ in range(steps):
        turned = found.points @ rotation.T
        x, y, z = (turned + position).T
        z = np.maximum(z, 1e-6)
        residual = np.stack([focal * x / z, focal * y / z], -1) + middle - found.pixels
        weight = 1 / (1 + (residual**2).sum(-1) / cauchy**2)
        zero = np.zeros_like(z)
        # d(pixel)/d(point), then a small turn w of the object about its centre moves a point by w x turned
        u = np.stack([focal / z, zero, -focal * x / z**2], -1)
        v = np.stack([zero, focal / z, -focal * y / z**2], -1)
        jacobian = np.stack([np.concatenate([np.cross(turned, g), g], -1) for g in (u, v)], 1)
        normal = np.einsum("mki,m,mkj->ij", jacobian, weight, jacobian)
        gradient = np.einsum("mki,m,mk->i", jacobian, weight, residual)
        step = -np.linalg.solve(normal + 1e-9 * np.trace(normal) * np.eye(6), gradient)
        rotation = rotation_from_vector(step[:3]) @ rotation
        position = position + step[3:]
        if np.abs(step).max() < 1e-5:
            break
    return rotation, position


def _grey(pixels: np.ndarray, mean: np.ndarray, spread: float) -> np.ndarray:
    """(S,S) uint8: the object about middle grey, free of tint and exposure, on black, so that its rim counts too."""
    coverage = pixels[..., 3]
    tone = (pixels[..., :3] - coverage[..., None] * mean).mean(-1) / max(spread, 1e-3)
    return np.clip(coverage * 140 + 45 * tone, 0, 255).astype(np.uint8)
