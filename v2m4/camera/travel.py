"""The way of a camera that travels, from points of the background: two frames far apart give a first pair of poses and
points, all other frames are placed against these by PnP, and both are adjusted together (Hartley & Zisserman, ch.
18)."""

from __future__ import annotations

import cv2
import numpy as np

from v2m4.camera.sightings import LEAST_POINTS, Table, fit_rotation
from v2m4.flow import one_thread
from v2m4.transforms import apply, rigid, rotation_from_vector

#: Frames adjusted together; those between are placed against the points.
MOST_FRAMES = 24


def travelled(table: Table, tolerance: float) -> tuple[np.ndarray, float] | None:
    """(T,4,4) poses to the start and the median miss (tangent), or None when the frames cannot be put together."""
    with one_thread():
        start = _two_frames(table, tolerance)
        if start is None:
            return None
        poses, points = start  # poses take points to the cameras
        if not _extend(table, poses, points, tolerance):
            return None
    chosen = sorted({round(k) for k in np.linspace(0, len(table.rays) - 1, min(MOST_FRAMES, len(table.rays)))})
    _adjust(table, poses, points, chosen, tolerance)
    _drop(table, poses, points, chosen, tolerance)
    _adjust(table, poses, points, chosen, tolerance)
    for t in range(len(table.rays)):
        if t not in chosen:
            placed = _place(table, points, t, tolerance, poses[t])
            if placed is not None:
                poses[t] = placed
    first = poses[0]
    misses = [_misses(table, points, t, poses[t]) for t in range(len(table.rays))]
    to_start = np.stack([first @ np.linalg.inv(poses[t]) for t in range(len(table.rays))])
    return to_start, float(np.median(np.concatenate(misses)))


def _two_frames(table: Table, tolerance: float) -> tuple[dict[int, np.ndarray], np.ndarray] | None:
    """Poses of frame 0 and of the frame that sees most parallax against it, and points (J,3), NaN where unknown."""
    best: tuple[float, int] | None = None
    rays = table.directions()
    for t in range(1, len(rays)):
        index = table.both(0, t)
        turn = fit_rotation(rays[t], rays[0], index) if len(index) >= 2 * LEAST_POINTS else None
        if turn is not None:
            parallax = float(np.median(np.linalg.norm(rays[t][index] @ turn.T - rays[0][index], axis=1)))
            if best is None or parallax > best[0]:
                best = parallax, t
    if best is None:
        return None
    t = best[1]
    index = table.both(0, t)
    a, b = table.rays[0][index], table.rays[t][index]
    cv2.setRNGSeed(0)
    essential, inside = cv2.findEssentialMat(a, b, np.eye(3), cv2.RANSAC, 0.999, tolerance)
    if essential is None or essential.shape != (3, 3):
        return None
    good, rotation, shift, _ = cv2.recoverPose(essential, a, b, np.eye(3), mask=inside)
    if good < LEAST_POINTS:
        return None
    poses = {0: np.eye(4), t: rigid(rotation, shift[:, 0])}
    points = np.full((table.rays.shape[1], 3), np.nan)
    _triangulate(table, poses, points, tolerance)
    return poses, points


def _extend(table: Table, poses: dict[int, np.ndarray], points: np.ndarray, tolerance: float) -> bool:
    """Place every frame, those near placed ones first, and triangulate what they see. Whether all found a place."""
    while len(poses) < len(table.rays):
        rest = [t for t in range(len(table.rays)) if t not in poses]
        t = min(rest, key=lambda t: min(abs(t - p) for p in poses))
        near = poses[min(poses, key=lambda p: abs(p - t))]
        placed = _place(table, points, t, tolerance, near)
        if placed is None:
            return False
        poses[t] = placed
        if len(poses) % 4 == 0:
            _triangulate(table, poses, points, tolerance)
    return True


def _place(table: Table, points: np.ndarray, t: int, tolerance: float, near: np.ndarray) -> np.ndarray | None:
    index = np.flatnonzero(table.seen[t] & np.isfinite(points[:, 0]))
    if len(index) < LEAST_POINTS // 2:
        return None
    turn, shift = cv2.Rodrigues(near[:3, :3])[0], near[:3, 3:].copy()
    ok, turn, shift, inside = cv2.solvePnPRansac(
        points[index], table.rays[t][index], np.eye(3), None, turn, shift, True, 100, 3 * tolerance
    )
    if not ok or inside is None or len(inside) < LEAST_POINTS // 2:
        return None
    good = index[inside[:, 0]]
    turn, shift = cv2.solvePnPRefineLM(points[good], table.rays[t][good], np.eye(3), None, turn, shift)
    return rigid(cv2.Rodrigues(turn)[0], shift[:, 0])


def _triangulate(table: Table, poses: dict[int, np.ndarray], points: np.ndarray, tolerance: float) -> None:
    """Points (J,3) from the two placed frames farthest apart that see each, where they see it under an angle."""
    frames = np.array(sorted(poses))
    seen = table.seen[frames]
    for j in np.flatnonzero((seen.sum(0) >= 2) & ~np.isfinite(points[:, 0])):
        mine = frames[seen[:, j]]
        a, b = int(mine[0]), int(mine[-1])
        found = cv2.triangulatePoints(poses[a][:3], poses[b][:3], table.rays[a, j][:, None], table.rays[b, j][:, None])[
            :, 0
        ]
        if abs(found[3]) < 1e-12:
            continue
        point = found[:3] / found[3]
        eyes = [-poses[t][:3, :3].T @ poses[t][:3, 3] for t in (a, b)]
        one, two = point - eyes[0], point - eyes[1]
        angle = np.arctan2(np.linalg.norm(np.cross(one, two)), one @ two)
        front = all((poses[t] @ np.append(point, 1))[2] > 0 for t in (a, b))
        close = all(_miss(point, table.rays[t, j], poses[t]) < 4 * tolerance for t in (a, b))
        if angle > np.radians(1.0) and front and close:
            points[j] = point


def _miss(point: np.ndarray, ray: np.ndarray, pose: np.ndarray) -> float:
    x, y, z = (pose @ np.append(point, 1))[:3]
    return float(np.hypot(x / z - ray[0], y / z - ray[1]))


def _misses(table: Table, points: np.ndarray, t: int, pose: np.ndarray) -> np.ndarray:
    index = np.flatnonzero(table.seen[t] & np.isfinite(points[:, 0]))
    placed = apply(pose, points[index])
    return np.linalg.norm(placed[:, :2] / placed[:, 2:] - table.rays[t][index], axis=1)


def _drop(table: Table, poses: dict[int, np.ndarray], points: np.ndarray, frames: list[int], tolerance: float) -> None:
    """Forget points that move by themselves: they fit no place, though each seems to have one from two frames."""
    known = np.flatnonzero(np.isfinite(points[:, 0]))
    miss = np.full((len(frames), len(points)), np.nan)
    for k, t in enumerate(frames):
        index = known[table.seen[t, known]]
        miss[k, index] = _misses(table, points, t, poses[t])
    own = np.full(len(points), np.inf)
    seen = np.isfinite(miss).any(0)
    own[seen] = np.nanmedian(miss[:, seen], 0)
    points[own > max(1.5 * tolerance, 3 * float(np.median(own[known])))] = np.nan


def _adjust(
    table: Table, poses: dict[int, np.ndarray], points: np.ndarray, frames: list[int], tolerance: float
) -> None:
    """Bundle adjustment of the poses of ``frames`` and of the points they see, with robust weights; frame 0 stays."""
    from scipy.optimize import least_squares
    from scipy.sparse import lil_matrix

    known = np.flatnonzero(np.isfinite(points[:, 0]) & (table.seen[frames].sum(0) >= 2))
    where = [(f, t, j) for f, t in enumerate(frames) for j in np.flatnonzero(table.seen[t, known])]
    f, t, j = np.array(where).T
    start = np.stack([poses[k] for k in frames])
    seen = table.rays[t, known[j]]
    count = len(frames)

    def unpacked(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        moved = np.concatenate([np.zeros((1, 6)), x[: 6 * (count - 1)].reshape(-1, 6)])
        rotations = rotation_from_vector(moved[:, :3]) @ start[:, :3, :3]
        return rotations, start[:, :3, 3] + moved[:, 3:], x[6 * (count - 1) :].reshape(-1, 3)

    def residual(x: np.ndarray) -> np.ndarray:
        rotations, shifts, where3 = unpacked(x)
        placed = np.einsum("pij,pj->pi", rotations[f], where3[j]) + shifts[f]
        return ((placed[:, :2] / np.maximum(placed[:, 2:], 1e-6) - seen) / (0.3 * tolerance)).ravel()

    pattern = lil_matrix((2 * len(f), 6 * (count - 1) + 3 * len(known)), dtype=np.int8)
    row = np.arange(len(f))
    for axis in range(2):
        for c in range(6):
            moving = f > 0
            pattern[2 * row[moving] + axis, 6 * (f[moving] - 1) + c] = 1
        for c in range(3):
            pattern[2 * row + axis, 6 * (count - 1) + 3 * j + c] = 1
    first = np.concatenate([np.zeros(6 * (count - 1)), points[known].ravel()])
    done = least_squares(residual, first, jac_sparsity=pattern, loss="cauchy", max_nfev=30, x_scale="jac")
    rotations, shifts, where3 = unpacked(done.x)
    for k, frame in enumerate(frames):
        poses[frame] = rigid(rotations[k], shifts[k])
    points[known] = where3
