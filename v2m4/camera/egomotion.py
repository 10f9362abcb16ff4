"""Did the camera move, or the object? What the background does from frame to frame tells.

A background that stands still: so does the camera. One that moves as a turning camera makes it move, near and far
alike: the camera turned. Else the camera travelled, and the points of the background have depths: they are triangulated
from two frames far apart, all other frames are placed against them by PnP, and both are adjusted together. How far it
travelled is then known up to one factor, which the object's own path decides (:func:`fit_scale`).

In doubt the camera is taken as fixed and all motion is given to the object.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from v2m4.flow import one_thread
from v2m4.transforms import apply, nearest_rotation, rigid, rotation_angle_deg, rotation_from_vector

#: Points that must be seen in a frame before anything is said about it, and tracks in the clip.
LEAST_POINTS = 20
#: A camera is still when the background moves less than this, and a model explains the tracks when half of them miss by
#: less, as a share of the picture's longer side. Half a pixel of 640.
STILL, EXPLAINED = 0.0015, 0.0015
#: A travelling camera must explain the tracks this much better than a turning one.
MUST_GAIN = 0.5
#: Frames adjusted together; those between are placed against the points.
MOST_FRAMES = 24
#: The factor of the travel must make the object's path this much smoother, else it is not determined.
SMOOTHER = 0.5


@dataclass(frozen=True)
class Tracks:
    """``track`` (P,) and ``frame`` (P,) numbers, ``xy`` (P,2) pixels of the full picture."""

    track: np.ndarray
    frame: np.ndarray
    xy: np.ndarray


@dataclass(frozen=True)
class Egomotion:
    """``kind``: "still", "turning", "moving" or "unknown". ``camera_to_start`` (T,4,4) takes camera coordinates of each
    frame to those of frame 0; translations of a moving camera are in units of their own."""

    kind: str
    camera_to_start: np.ndarray

    @property
    def fixed(self) -> bool:
        return self.kind in ("still", "unknown")

    def scaled(self, factor: float) -> Egomotion:
        """With translations times ``factor``."""
        moved = self.camera_to_start.copy()
        moved[:, :3, 3] *= factor
        return Egomotion(self.kind, moved)


def solve(tracks: Tracks, K: np.ndarray, count: int) -> Egomotion:
    """What the camera did over ``count`` frames, from tracks of the background seen through ``K`` (3,3)."""
    unknown = Egomotion("unknown", np.tile(np.eye(4), (count, 1, 1)))
    seen = np.bincount(tracks.frame, minlength=count)[:count]
    if count < 2 or len(tracks.track) == 0 or seen.min() < LEAST_POINTS:
        return unknown
    table = _Table.of(tracks, K, count)
    span = float(max(2 * K[0, 2], 2 * K[1, 2]))
    if table.shift() * K[0, 0] < STILL * span:
        return Egomotion("still", unknown.camera_to_start)
    turning = _turning(table)
    if turning is None:
        return unknown
    missed = table.turn_misses(turning) * K[0, 0] / span
    if missed < EXPLAINED:
        small = max(float(rotation_angle_deg(r)) for r in turning) < 0.2
        poses = np.stack([rigid(r, np.zeros(3)) for r in turning])
        return Egomotion("still", unknown.camera_to_start) if small else Egomotion("turning", poses)
    moving = _moving(table, EXPLAINED * span / K[0, 0])
    if moving is None or moving[1] * K[0, 0] / span > min(EXPLAINED, MUST_GAIN * missed):
        return unknown
    return Egomotion("moving", moving[0])


def fit_scale(positions: np.ndarray, motion: Egomotion, keyframes: list[int]) -> float | None:
    """The factor for a moving camera's travel that makes the object's path smoothest: ``positions`` (K,3) of the object
    in the camera of each of the ``keyframes``. None when no factor makes it much smoother."""
    if len(keyframes) < 4:
        return None
    poses = motion.camera_to_start[keyframes]
    path = np.einsum("kij,kj->ki", poses[:, :3, :3], positions)
    bend, travel = np.diff(path, 2, axis=0), np.diff(poses[:, :3, 3], 2, axis=0)
    total = float((travel**2).sum())
    if total <= 1e-12 * max(float((bend**2).sum()), 1e-12):
        return None
    weight = np.ones(len(bend))
    factor = 0.0
    for _ in range(10):
        factor = -float(np.einsum("k,ki,ki->", weight, bend, travel) / np.einsum("k,ki,ki->", weight, travel, travel))
        miss = np.linalg.norm(bend + factor * travel, axis=1)
        weight = 1 / (1 + (miss / max(1.4826 * float(np.median(miss)), 1e-9)) ** 2)
    before = float(np.median(np.linalg.norm(bend, axis=1)))
    return factor if factor > 0 and float(np.median(miss)) < SMOOTHER * before else None


# --- tracks by frame --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Table:
    """``rays`` (T,J,2) of J tracks in T frames, tangents of the camera's axes; NaN where a track is not seen."""

    rays: np.ndarray

    @classmethod
    def of(cls, tracks: Tracks, K: np.ndarray, count: int) -> _Table:
        names, number = np.unique(tracks.track, return_inverse=True)
        rays = np.full((count, len(names), 2), np.nan)
        rays[tracks.frame, number] = (tracks.xy - K[:2, 2]) / (K[0, 0], K[1, 1])
        return cls(rays)

    @property
    def seen(self) -> np.ndarray:
        """(T,J) bool."""
        return np.isfinite(self.rays[..., 0])

    def both(self, a: int, b: int) -> np.ndarray:
        """Numbers of the tracks seen in two frames."""
        return np.flatnonzero(self.seen[a] & self.seen[b])

    def shift(self) -> float:
        """How far the background ever is from where it was: the largest median, over frames, of a track's way from its
        place in the clip on average."""
        away = np.linalg.norm(self.rays - np.nanmedian(self.rays, 0), axis=-1)
        return float(np.nanmax(np.nanmedian(away, 1)))

    def directions(self) -> np.ndarray:
        """(T,J,3) unit vectors, NaN where not seen."""
        ones = np.where(self.seen, 1.0, np.nan)[..., None]
        out = np.concatenate([self.rays, ones], -1)
        return out / np.linalg.norm(out, axis=-1, keepdims=True)

    def turn_misses(self, turns: np.ndarray) -> float:
        """Median over all sightings of how far (tangent) a track misses the direction it has on average."""
        turned = np.einsum("tij,tkj->tki", turns, self.directions())
        return float(np.nanmedian(np.linalg.norm(turned - _robust_mean(turned), axis=-1)))


def _robust_mean(turned: np.ndarray) -> np.ndarray:
    """(J,3) unit vectors in the middle of each track's directions (T,J,3)."""
    mean = np.nanmedian(turned, 0)
    return mean / np.maximum(np.linalg.norm(mean, axis=-1, keepdims=True), 1e-12)


def _turning(table: _Table) -> np.ndarray | None:
    """(T,3,3) rotations to the start for a camera that only turns: frame by frame, then against common directions."""
    rays = table.directions()
    turns = [np.eye(3)]
    for t in range(1, len(rays)):
        step = _rotation(rays[t], rays[t - 1], table.both(t - 1, t))
        if step is None:
            return None
        turns.append(turns[-1] @ step)
    found = np.stack(turns)
    for _ in range(5):  # what was chained drifts
        goal = _robust_mean(np.einsum("tij,tkj->tki", found, rays))
        again = [_rotation(rays[t], goal, np.flatnonzero(table.seen[t])) for t in range(len(rays))]
        if any(a is None for a in again):
            return None
        found = np.stack([a for a in again if a is not None])
        found = found[0].T @ found
    return found


def _rotation(source: np.ndarray, target: np.ndarray, index: np.ndarray) -> np.ndarray | None:
    """The rotation that takes directions ``source`` (J,3) to ``target`` for most of the tracks ``index``."""
    if len(index) < LEAST_POINTS // 2:
        return None
    a, b = source[index], target[index]
    draws = np.random.default_rng(0).integers(0, len(index), (60, 3))
    candidates = [nearest_rotation(b[d].T @ a[d]) for d in draws]
    misses = [np.linalg.norm(a @ r.T - b, axis=1) for r in candidates]
    rotation = candidates[int(np.argmin([np.median(m) for m in misses]))]
    for _ in range(8):
        miss = np.linalg.norm(a @ rotation.T - b, axis=1)
        weight = 1 / (1 + (miss / max(2 * float(np.median(miss)), 1e-5)) ** 2) ** 2
        rotation = nearest_rotation((b * weight[:, None]).T @ a)
    return rotation


# --- a camera that travels --------------------------------------------------------------------------------------------


def _moving(table: _Table, tolerance: float) -> tuple[np.ndarray, float] | None:
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


def _two_frames(table: _Table, tolerance: float) -> tuple[dict[int, np.ndarray], np.ndarray] | None:
    """Poses of frame 0 and of the frame that sees most parallax against it, and points (J,3), NaN where unknown."""
    best: tuple[float, int] | None = None
    rays = table.directions()
    for t in range(1, len(rays)):
        index = table.both(0, t)
        turn = _rotation(rays[t], rays[0], index) if len(index) >= 2 * LEAST_POINTS else None
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


def _extend(table: _Table, poses: dict[int, np.ndarray], points: np.ndarray, tolerance: float) -> bool:
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


def _place(table: _Table, points: np.ndarray, t: int, tolerance: float, near: np.ndarray) -> np.ndarray | None:
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


def _triangulate(table: _Table, poses: dict[int, np.ndarray], points: np.ndarray, tolerance: float) -> None:
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


def _misses(table: _Table, points: np.ndarray, t: int, pose: np.ndarray) -> np.ndarray:
    index = np.flatnonzero(table.seen[t] & np.isfinite(points[:, 0]))
    placed = apply(pose, points[index])
    return np.linalg.norm(placed[:, :2] / placed[:, 2:] - table.rays[t][index], axis=1)


def _drop(table: _Table, poses: dict[int, np.ndarray], points: np.ndarray, frames: list[int], tolerance: float) -> None:
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
    table: _Table, poses: dict[int, np.ndarray], points: np.ndarray, frames: list[int], tolerance: float
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
