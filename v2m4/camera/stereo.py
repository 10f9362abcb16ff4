"""The guess of a stereo network: DUSt3R or VGGT sees the frame beside drawings from known poses (paper section 3.2).

The network gives a point for every pixel of every picture, all in one frame of reference of its own. What point of the
mesh a pixel of a drawing shows is known, so the similarity from the network's frame to the mesh is a least-squares fit
over given pairs, with RANSAC against what the network got wrong; the official code searches it by Chamfer distance in
2,000 steps. Through it the frame's own pixels name points of the mesh, and PnP gives the pose.

Networks see two like sides of an object as one. So the pose turned by half a turn about the mesh's up axis goes along,
and drawing both decides, further on.
"""

from __future__ import annotations

import numpy as np

from v2m4.camera import correspond
from v2m4.camera.subject import Subject
from v2m4.camera.view import View
from v2m4.protocols import StereoModel
from v2m4.transforms import nearest_rotation

#: Drawings that go in beside the frame, as in the paper.
REFERENCES = 7
#: Pairs used at most for the similarity, and for PnP.
MOST_PAIRS = 4000
#: A pair fits the similarity when it misses by less than this share of the mesh's radius.
INLIER = 0.1
#: A similarity that fewer of the pairs agree on is no answer.
LEAST_SHARE = 0.2

_HALF_TURN = np.diag([-1.0, 1.0, -1.0])  # about +Y, the mesh's up


def guess(
    view: View, subject: Subject, rotations: np.ndarray, positions: np.ndarray, model: StereoModel
) -> tuple[np.ndarray, np.ndarray]:
    """Poses (N,3,3), (N,3) in the ``view``: what ``model`` sees, and the same from behind.

    The first ``REFERENCES`` of the poses given are drawn. Nothing (N = 0) when the network's answer fits no pose.
    """
    rotations, positions = rotations[:REFERENCES], positions[:REFERENCES]
    drawings = subject.draw(rotations, positions, view.K, view.size)[..., :3]
    surface = subject.points(rotations, positions, view.K, view.size)
    pictures = np.concatenate([view.pixels[None, ..., :3], drawings])
    maps = model.point_maps(np.round(np.clip(pictures, 0, 1) * 255).astype(np.uint8))
    known = np.isfinite(surface).all(-1)
    pairs = _usable(maps.points[1:], maps.confidence[1:], known)
    nothing = np.zeros((0, 3, 3)), np.zeros((0, 3))
    if len(pairs) < correspond.LEAST_MATCHES:
        return nothing
    seen, weight = maps.points[1:][tuple(pairs.T)], maps.confidence[1:][tuple(pairs.T)]
    fitted = similarity(seen, surface[tuple(pairs.T)], weight, INLIER * subject.radius)
    own = _usable(maps.points[:1], maps.confidence[:1], view.coverage[None] > 0.5)
    if fitted is None or len(own) < correspond.LEAST_MATCHES:
        return nothing
    scale, rotation, shift = fitted
    points = scale * maps.points[0][own[:, 1], own[:, 2]].astype(np.float64) @ rotation.T + shift
    pose = correspond.solve_pnp(correspond.Matches(points, own[:, 2:0:-1] + 0.5), view.K, view.size)
    if pose is None:
        return nothing
    return np.stack([pose[0], pose[0] @ _HALF_TURN]), np.stack([pose[1], pose[1]])


def _usable(points: np.ndarray, confidence: np.ndarray, where: np.ndarray) -> np.ndarray:
    """(M,3) picture, row and column of the pixels to use, evenly thinned out."""
    index = np.argwhere(where & np.isfinite(points).all(-1) & (confidence > 0))
    return index[:: max(1, -(-len(index) // MOST_PAIRS))]


def similarity(
    source: np.ndarray, target: np.ndarray, weight: np.ndarray, tolerance: float, rounds: int = 300
) -> tuple[float, np.ndarray, np.ndarray] | None:
    """Scale, rotation (3,3) and shift (3,) that take ``source`` (M,3) to ``target`` (M,3), by RANSAC and then robust
    least squares; ``weight`` (M,). None when less than ``LEAST_SHARE`` of the pairs agree within ``tolerance``."""
    source, target, weight = source.astype(np.float64), target.astype(np.float64), weight.astype(np.float64)
    rng = np.random.default_rng(0)
    draws = rng.integers(0, len(source), (rounds, 4))
    best: tuple[int, tuple[float, np.ndarray, np.ndarray]] | None = None
    for four in draws:
        candidate = _umeyama(source[four], target[four], np.ones(4))
        if candidate is None:
            continue
        count = int((_misses(candidate, source, target) < tolerance).sum())
        if best is None or count > best[0]:
            best = count, candidate
    if best is None or best[0] < LEAST_SHARE * len(source):
        return None
    fitted = best[1]
    for _ in range(10):
        robust = weight / (1 + (_misses(fitted, source, target) / (0.5 * tolerance)) ** 2) ** 2
        again = _umeyama(source, target, robust)
        if again is None:
            break
        fitted = again
    return fitted


def _misses(fitted: tuple[float, np.ndarray, np.ndarray], source: np.ndarray, target: np.ndarray) -> np.ndarray:
    scale, rotation, shift = fitted
    return np.linalg.norm(scale * source @ rotation.T + shift - target, axis=1)


def _umeyama(source: np.ndarray, target: np.ndarray, weight: np.ndarray) -> tuple[float, np.ndarray, np.ndarray] | None:
    """Weighted least squares (Umeyama 1991); None for points that lie on each other."""
    weight = weight / weight.sum()
    a, b = source - weight @ source, target - weight @ target
    spread = float(weight @ (a**2).sum(1))
    if not spread > 1e-12:
        return None
    covariance = (b * weight[:, None]).T @ a
    rotation = nearest_rotation(covariance)
    scale = float(np.trace(rotation.T @ covariance)) / spread
    if scale <= 0:
        return None
    return scale, rotation, weight @ target - scale * rotation @ (weight @ source)
