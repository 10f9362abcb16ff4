"""Points of the background as every frame sees them, and the rotation that two frames' views of them agree on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from v2m4.transforms import nearest_rotation

#: Points that must be seen in a frame before anything is said about it, and tracks in the clip.
LEAST_POINTS = 20


@dataclass(frozen=True)
class Tracks:
    """``track`` (P,) and ``frame`` (P,) numbers, ``xy`` (P,2) pixels of the full picture."""

    track: np.ndarray
    frame: np.ndarray
    xy: np.ndarray


@dataclass(frozen=True)
class Table:
    """``rays`` (T,J,2) of J tracks in T frames, tangents of the camera's axes; NaN where a track is not seen."""

    rays: np.ndarray

    @classmethod
    def of(cls, tracks: Tracks, K: np.ndarray, count: int) -> Table:
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
        return float(np.nanmedian(np.linalg.norm(turned - robust_mean(turned), axis=-1)))


def robust_mean(turned: np.ndarray) -> np.ndarray:
    """(J,3) unit vectors in the middle of each track's directions (T,J,3)."""
    mean = np.nanmedian(turned, 0)
    return mean / np.maximum(np.linalg.norm(mean, axis=-1, keepdims=True), 1e-12)


def fit_rotation(source: np.ndarray, target: np.ndarray, index: np.ndarray) -> np.ndarray | None:
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
