"""Motion as morph targets: few absolute poses, linear in between, at most two of them active at any time.

Target ``k`` holds pose ``k`` minus the first pose. Its weight is a hat over time: 1 at its own time, 0 at the times of
its neighbours, linear in between. The first pose needs no target: it is what all weights at zero show. So every weight
lies in [0, 1], two weights at most are not zero, and a player that interpolates weights linearly shows exactly the
linear path of every vertex.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from v2m4.errors import InputError
from v2m4.types import AnimatedMesh

#: A target that moves no vertex by more than this part of the box diagonal is the first pose itself.
ZERO_TARGET = 1e-7
#: Vertices on which the choice of poses is made; the reported error is measured on all of them.
SAMPLED_VERTICES = 128
SAMPLED_POSES = 32


@dataclass(frozen=True)
class Reduction:
    """How far linear interpolation between the kept poses is from all poses, in per cent of the box diagonal.

    ``poses`` were given, ``kept`` (k,) are their numbers in time order, ``mean_percent`` is over poses and vertices.
    """

    poses: int
    kept: np.ndarray
    mean_percent: float
    max_percent: float


@dataclass(frozen=True)
class MorphTrack:
    """Which poses become targets, and how strong each is at each key.

    ``targets`` (N,) pose numbers, without the first pose and without poses equal to it; ``key_times_s`` (T,) float32,
    first 0; ``weights`` (T,N) float32. Without motion N is 0 and there are no keys. ``frame_times_s`` (T,) and
    ``kept_times_s`` (k,) are the times of all frames and of the kept poses in float64, from the first frame on.
    """

    frame_times_s: np.ndarray
    kept_times_s: np.ndarray
    targets: np.ndarray
    key_times_s: np.ndarray
    weights: np.ndarray
    reduction: Reduction


def morph_track(animation: AnimatedMesh, frame_times_s: np.ndarray, max_targets: int) -> MorphTrack:
    """Choose targets and write their weights at every frame of the clip.

    ``frame_times_s`` (T,) holds the time of every frame, the pose times among them. InputError when a pose belongs to
    no frame, or when two frames have the same time in float32, which is what glTF stores.
    """
    frame_times, pose_times = _on_frames(animation.times_s, np.asarray(frame_times_s, float))
    positions = animation.positions
    kept = choose_poses(positions, pose_times, max_targets + 1)
    mean, worst = interpolation_error(positions, pose_times, kept)
    reduction = Reduction(len(positions), kept, mean, worst)
    weights = hat_weights(pose_times[kept], frame_times)
    moves = np.array([np.abs(positions[k] - positions[0]).max(initial=0.0) for k in kept])
    used = moves > ZERO_TARGET * box_diagonal(positions)
    keys = frame_times.astype(np.float32)
    if not used.any():
        empty = np.zeros(0, np.float32)
        still = np.zeros(0, np.int32), empty, np.zeros((0, 0), np.float32)
        return MorphTrack(frame_times, pose_times[kept], *still, reduction)
    if np.any(np.diff(keys) <= 0):
        frame = int(np.argmax(np.diff(keys) <= 0)) + 1
        raise InputError(f"frame {frame} is too close in time to the frame before it for glTF (32-bit seconds)")
    moving = kept[used].astype(np.int32), keys, weights[:, used].astype(np.float32)
    return MorphTrack(frame_times, pose_times[kept], *moving, reduction)


def _on_frames(pose_times: np.ndarray, frame_times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(frame times, pose times), both counted from the first frame; poses snap to the frame they were made from."""
    if len(frame_times) == 0:
        raise InputError("there are no frames to animate")
    nearest = np.abs(pose_times[:, None] - frame_times).argmin(1)
    if np.abs(frame_times[nearest] - pose_times).max() > 1e-4:
        pose = int(np.abs(frame_times[nearest] - pose_times).argmax())
        raise InputError(f"pose {pose} at {pose_times[pose]:.4f} s belongs to no frame of the clip")
    frame_times = frame_times - frame_times[0]
    return frame_times, frame_times[nearest]


def box_diagonal(positions: np.ndarray) -> float:
    """Diagonal of the first pose's bounding box; ``positions`` (T,V,3)."""
    first = positions[0].astype(float)
    return float(np.linalg.norm(first.max(0) - first.min(0))) if len(first) else 0.0


def hat_weights(pose_times: np.ndarray, key_times: np.ndarray) -> np.ndarray:
    """(T,k) float64 shares of k poses at T times: linear between neighbours, held before the first and after the last.

    Every row sums to 1 and has two entries at most that are not 0.
    """
    pose_times, key_times = np.asarray(pose_times, float), np.asarray(key_times, float)
    out = np.zeros((len(key_times), len(pose_times)))
    rows = np.arange(len(key_times))
    if len(pose_times) == 1:
        out[:, 0] = 1.0
        return out
    left = np.clip(np.searchsorted(pose_times, key_times, "right") - 1, 0, len(pose_times) - 2)
    share = (key_times - pose_times[left]) / (pose_times[left + 1] - pose_times[left])
    share = np.clip(share, 0.0, 1.0)
    out[rows, left] = 1.0 - share
    out[rows, left + 1] = share
    return out


def interpolation_error(positions: np.ndarray, times: np.ndarray, kept: np.ndarray) -> tuple[float, float]:
    """(mean, maximum) distance of all poses (T,V,3) from the lines between the kept ones, per cent of the diagonal."""
    weights = hat_weights(times[kept], times)
    total, worst = 0.0, 0.0
    for pose, row in zip(positions, weights, strict=True):
        active = np.flatnonzero(row)
        shown = np.einsum("k,kvc->vc", row[active], positions[kept[active]].astype(float))
        distance = np.linalg.norm(pose - shown, axis=1)
        total += float(distance.mean()) if len(distance) else 0.0
        worst = max(worst, float(distance.max(initial=0.0)))
    scale = 100.0 / max(box_diagonal(positions), 1e-30)
    return total / len(positions) * scale, worst * scale


def choose_poses(positions: np.ndarray, times: np.ndarray, budget: int) -> np.ndarray:
    """Numbers of at most ``budget`` (2 or more) poses, first and last among them, that interpolate the others best.

    The largest distance is minimised exactly (dynamic programming over all segments), then the sum of squares among
    the choices that reach it. Exact for the sampled vertices and for segments of up to eight times the average length.
    """
    count = len(positions)
    if count <= budget:
        return np.arange(count)
    reach = max(32, 8 * -(-count // (budget - 1)))
    cost = _segment_costs(_telling_vertices(positions), times, reach)
    limit, _ = _best_path(cost, budget - 1, worst=True)
    _, path = _best_path(np.where(cost <= limit, cost.astype(float) ** 2, np.inf), budget - 1, worst=False)
    return path


def _telling_vertices(positions: np.ndarray) -> np.ndarray:
    """(T,S,3) float32: the trajectories that differ most from each other (farthest-first, deterministic)."""
    poses = np.unique(np.linspace(0, len(positions) - 1, SAMPLED_POSES).round().astype(int))
    motion = (positions[poses] - positions[0]).transpose(1, 0, 2).reshape(positions.shape[1], -1)
    distance = np.square(motion).sum(1)
    chosen: list[int] = []
    for _ in range(min(SAMPLED_VERTICES, len(motion))):
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, np.square(motion - motion[chosen[-1]]).sum(1))
    return positions[:, sorted(set(chosen))].astype(np.float32)


def _segment_costs(sample: np.ndarray, times: np.ndarray, reach: int) -> np.ndarray:
    """(T,T) float32: largest distance of the poses between a and b from the line a-b; inf where b - a > ``reach``."""
    count = len(sample)
    cost = np.full((count, count), np.inf, np.float32)
    for a in range(count):
        from_a = sample[a : a + reach + 1] - sample[a]
        for b in range(a + 1, min(a + reach, count - 1) + 1):
            share = ((times[a + 1 : b] - times[a]) / (times[b] - times[a])).astype(np.float32)
            off = from_a[1 : b - a] - share[:, None, None] * from_a[b - a]
            cost[a, b] = np.sqrt(np.einsum("tvc,tvc->tv", off, off).max(initial=0.0))
    return cost


def _best_path(cost: np.ndarray, segments: int, worst: bool) -> tuple[float, np.ndarray]:
    """Cheapest way from pose 0 to the last in at most ``segments`` steps; the cost of a way is its worst step or the
    sum of its steps. Ties go to the earlier pose."""
    count = len(cost)
    best = np.full(count, np.inf)
    best[0] = 0.0
    steps = []
    for _ in range(segments):
        ways = np.maximum(best[:, None], cost) if worst else best[:, None] + cost
        ways[np.arange(count), np.arange(count)] = best  # standing still: fewer segments are allowed
        steps.append(ways.argmin(0))
        best = ways.min(0)
    path = [count - 1]
    for step in reversed(steps):
        path.append(int(step[path[-1]]))
    return float(best[-1]), np.unique(path)
