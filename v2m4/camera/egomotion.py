"""Did the camera move, or the object? What the background does from frame to frame tells.

A background that stands still: so does the camera. One that moves as a turning camera makes it move, near and far
alike: the camera turned. Else the camera travelled, and the points of the background have depths: they are triangulated
from two frames far apart, all other frames are placed against them by PnP, and both are adjusted together. How far it
travelled is then known up to one factor, which the object's own path decides (:func:`fit_scale`).

In doubt the camera is taken as fixed and all motion is given to the object.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from v2m4.camera.sightings import LEAST_POINTS, Table, Tracks, fit_rotation, robust_mean
from v2m4.camera.travel import travelled
from v2m4.transforms import rigid, rotation_angle_deg

#: A camera is still when the background moves less than this, and a model explains the tracks when half of them miss by
#: less, as a share of the picture's longer side. Half a pixel of 640.
STILL, EXPLAINED = 0.0015, 0.0015
#: A travelling camera must explain the tracks this much better than a turning one.
MUST_GAIN = 0.5
#: The factor of the travel must make the object's path this much straighter, over pieces of so many seconds, else it is
#: not determined.
SMOOTHER, PIECE_S = 0.5, 2.0


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
    table = Table.of(tracks, K, count)
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
    moving = travelled(table, EXPLAINED * span / K[0, 0])
    if moving is None or moving[1] * K[0, 0] / span > min(EXPLAINED, MUST_GAIN * missed):
        return unknown
    return Egomotion("moving", moving[0])


def fit_scale(positions: np.ndarray, motion: Egomotion, keyframes: list[int], times_s: np.ndarray) -> float | None:
    """The factor for a moving camera's travel that makes the object's path straightest, piece by piece: ``positions``
    (K,3) of the object in the camera of each of the ``keyframes``, at ``times_s`` (K,). None when no factor makes it
    much straighter: a camera that goes along a line beside the object tells nothing."""
    if len(keyframes) < 4:
        return None
    poses = motion.camera_to_start[keyframes]
    pieces = _pieces(times_s)
    bend = np.concatenate([_off_line(p, times_s, np.einsum("kij,kj->ki", poses[:, :3, :3], positions)) for p in pieces])
    travel = np.concatenate([_off_line(p, times_s, poses[:, :3, 3]) for p in pieces])
    if float((travel**2).sum()) <= 1e-6 * float((bend**2).sum()) or not travel.any():
        return None
    weight = np.ones(len(bend))
    for _ in range(10):
        factor = -float(np.einsum("k,ki,ki->", weight, bend, travel) / np.einsum("k,ki,ki->", weight, travel, travel))
        miss = np.linalg.norm(bend + factor * travel, axis=1)
        weight = 1 / (1 + (miss / max(2 * 1.4826 * float(np.median(miss)), 1e-9)) ** 2)
    before = float(np.median(np.linalg.norm(bend, axis=1)))
    return factor if factor > 0 and float(np.median(miss)) < SMOOTHER * before else None


def _pieces(times_s: np.ndarray) -> list[np.ndarray]:
    """Indices of the keyframes in pieces of ``PIECE_S`` seconds that overlap by half, four in each at least."""
    starts = np.arange(times_s[0], max(times_s[-1] - PIECE_S / 2, times_s[0]) + 1e-9, PIECE_S / 2)
    pieces = [np.flatnonzero((times_s >= start - 1e-9) & (times_s <= start + PIECE_S)) for start in starts]
    return [p for p in pieces if len(p) >= 4] or [np.arange(len(times_s))]


def _off_line(piece: np.ndarray, times_s: np.ndarray, path: np.ndarray) -> np.ndarray:
    """How far a piece of a path (K,3) is from going straight at one speed."""
    along = np.stack([np.ones(len(piece)), times_s[piece] - times_s[piece].mean()], 1)
    return path[piece] - along @ np.linalg.lstsq(along, path[piece], rcond=None)[0]


def _turning(table: Table) -> np.ndarray | None:
    """(T,3,3) rotations to the start for a camera that only turns: frame by frame, then against common directions."""
    rays = table.directions()
    turns = [np.eye(3)]
    for t in range(1, len(rays)):
        step = fit_rotation(rays[t], rays[t - 1], table.both(t - 1, t))
        if step is None:
            return None
        turns.append(turns[-1] @ step)
    found = np.stack(turns)
    for _ in range(5):  # what was chained drifts
        goal = robust_mean(np.einsum("tij,tkj->tki", found, rays))
        again = [fit_rotation(rays[t], goal, np.flatnonzero(table.seen[t])) for t in range(len(rays))]
        if any(a is None for a in again):
            return None
        found = np.stack([a for a in again if a is not None])
        found = found[0].T @ found
    return found
