"""All keyframes together: data, ARAP to the rest shape, and smooth node paths over real times.

The chain leaves drift and tremble; here every keyframe pulls at once. The smoothness is the second difference of the
node positions with a robust weight, so that a real jolt survives. One Gauss-Newton step is a block-diagonal matrix
plus the smoothness, solved by conjugate gradients with one banded factorisation per keyframe as preconditioner.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from v2m4.topology.graph import Graph, State
from v2m4.topology.solve import Pattern, Rigidity, Terms, clean, equations, moved_by

FrameTerms = Callable[[int, np.ndarray, Terms], None]


@dataclass(frozen=True)
class TemporalOptions:
    """Weights of the pass over all keyframes (working units)."""

    smoothness: float = 0.3
    jolt: float = 0.1  #: robust scale of a second difference: stronger jolts count less
    arap: float = 0.2
    turn: float = 0.1
    steps: int = 6
    rounds: int = 60  #: of conjugate gradients, at most


def second_differences(times_s: np.ndarray) -> np.ndarray:
    """(K-2,K): accelerations of a path sampled at ``times_s``, times the median interval squared.

    At even times the rows are (1, -2, 1). Each row is weighted by the root of the time it stands for.
    """
    count = len(times_s)
    out = np.zeros((max(count - 2, 0), count))
    if count < 3:
        return out
    gaps = np.diff(times_s) / np.median(np.diff(times_s))
    for i, (before, after) in enumerate(itertools.pairwise(gaps)):
        row = np.array([1 / before, -1 / before - 1 / after, 1 / after]) * 2 / (before + after)
        out[i, i : i + 3] = row * np.sqrt((before + after) / 2)
    return out


def solve_together(
    graph: Graph, pattern: Pattern, states: list[State], times_s: np.ndarray, data: FrameTerms, options: TemporalOptions
) -> list[State]:
    """The states of all keyframes after the joint pass. ``data(k, moved, terms)`` adds keyframe k's rows."""
    D = second_differences(times_s)
    rigidity = Rigidity(options.arap, options.turn)
    for _ in range(options.steps):
        paths = np.stack([s.position for s in states])
        bend = np.einsum("st,tnc->snc", D, paths)
        weight = options.smoothness * (options.jolt**2 / (options.jolt**2 + (bend**2).sum(2))) ** 2
        pulled = np.einsum("st,snc->tnc", D, weight[..., None] * bend)
        own = np.einsum("st,sn->tn", D**2, weight)
        matrices, factors, rights = [], [], []
        for k, state in enumerate(states):
            H, gradient, _ = equations(graph, pattern, state, functools.partial(data, k), rigidity)
            gradient[:, 3:] += pulled[k]
            matrices.append(pattern.matrix(H))
            H = H.copy()
            for axis in range(3, 6):
                H[pattern.diagonal, axis, axis] += own[k]
            factors.append(pattern.factor(H))
            rights.append(-gradient)
        step = _conjugate_gradients(pattern, matrices, factors, np.stack(rights), (D, weight), options.rounds)
        if not np.isfinite(step).all():
            break
        states = [moved_by(state, step[k]) for k, state in enumerate(states)]
        if np.abs(step[..., 3:]).max() < 1e-3:
            break
    return [clean(state) for state in states]


def _conjugate_gradients(pattern, matrices, factors, right, smooth, rounds) -> np.ndarray:
    """x (K,N,6) with (blocks + smoothness) x = right; the factors hold each keyframe's own part of both."""
    D, weight = smooth

    def multiply(x: np.ndarray) -> np.ndarray:
        out = np.stack([(m @ v.ravel()).reshape(v.shape) for m, v in zip(matrices, x, strict=True)])
        out[..., 3:] += np.einsum("st,snc->tnc", D, weight[..., None] * np.einsum("st,tnc->snc", D, x[..., 3:]))
        return out

    def precondition(r: np.ndarray) -> np.ndarray:
        return np.stack([pattern.solve(f, v) for f, v in zip(factors, r, strict=True)])

    x = np.zeros_like(right)
    residual = right
    z = precondition(residual)
    direction = z
    old = first = float((residual * z).sum())
    for _ in range(rounds):
        if old <= 1e-4 * first or old <= 0:
            break
        product = multiply(direction)
        length = old / float((direction * product).sum())
        x = x + length * direction
        residual = residual - length * product
        z = precondition(residual)
        new = float((residual * z).sum())
        direction = z + new / old * direction
        old = new
    return x
