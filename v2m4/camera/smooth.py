"""Curves over the clip that follow slow changes and leave out fast ones."""

from __future__ import annotations

import numpy as np


def smooth(
    values: np.ndarray, times_s: np.ndarray, weights: np.ndarray, period_s: float, rounds: int = 8
) -> np.ndarray:
    """A curve (K,) through ``values`` (K,) that halves waves of ``period_s`` seconds and follows slower ones; outliers
    count less, and ``weights`` (K,) 0 are bridged. Straight lines pass unchanged; fewer than three values tell no
    slope from noise, so their mean is taken."""
    count = len(values)
    if (weights > 0).sum() < 3:
        return np.full(count, float(np.mean(values[weights > 0])))
    gaps = np.diff(times_s)
    slope = np.diff(np.eye(count), axis=0) / gaps[:, None]
    middles = (gaps[1:] + gaps[:-1]) / 2
    bend = np.diff(slope, axis=0) / middles[:, None]
    stiff = (period_s / (2 * np.pi)) ** 4 / float(np.mean(gaps))
    penalty = stiff * bend.T @ (middles[:, None] * bend)
    robust = weights.astype(float)
    curve = values
    for _ in range(rounds):
        curve = np.linalg.solve(np.diag(robust) + penalty + 1e-12 * np.eye(count), robust * values)
        residual = values - curve
        scale = max(1.4826 * float(np.median(np.abs(residual[weights > 0]))), 1e-4)
        robust = weights / (1 + (residual / (2 * scale)) ** 2)
    return curve
