"""All keyframes together: data, ARAP to the rest shape, and smooth node paths over real times.

The chain leaves drift and tremble; here every keyframe pulls at once. The smoothness is a robust third difference of
the node positions: a walk is made of arcs, and their accelerations are no noise. What a mesh gets wrong as a whole is
solved for beside the motion (:mod:`noise`). One Gauss-Newton step is a block-diagonal matrix plus the smoothness,
solved by conjugate gradients with one banded factorisation per keyframe as preconditioner.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from v2m4.topology.graph import Graph, State, deform
from v2m4.topology.noise import POSE, NoiseOptions, error_basis, field_modes
from v2m4.topology.solve import Pattern, Rigidity, Terms, clean, equations, moved_by


class FrameTerms(Protocol):
    """What is known of each keyframe ``k``; points are those of the graph (M,3) in working units."""

    def mesh(self, k: int, moved: np.ndarray, terms: Terms) -> None:
        """Add the rows of the keyframe's own mesh."""
        ...

    def video(self, k: int, moved: np.ndarray, terms: Terms) -> None:
        """Add the rows of the keyframe's picture."""
        ...

    def eye(self, k: int) -> np.ndarray | None:
        """Where the camera is (3,), None if nobody knows."""
        ...

    def hidden(self, k: int, moved: np.ndarray) -> np.ndarray:
        """(N,) bool: the nodes whose surface looks away from the camera."""
        ...


@dataclass(frozen=True)
class TemporalOptions:
    """Weights of the pass over all keyframes (working units)."""

    smoothness: float = 0.3
    order: int = 3  #: of the differences that are to be small
    jolt: float = 0.1  #: robust scale of a difference: stronger jolts count less
    arap: float = 0.2
    turn: float = 0.1
    steps: int = 6
    rounds: int = 60  #: of conjugate gradients, at most
    noise: NoiseOptions = field(default_factory=NoiseOptions)


@dataclass(frozen=True)
class Solution:
    """``states`` of all keyframes; ``errors`` (K,m) coefficients of their meshes' errors, m = 0 without the model."""

    states: list[State]
    errors: np.ndarray


def differences(times_s: np.ndarray, order: int) -> np.ndarray:
    """(K-order,K): the order-th differences of a path sampled at ``times_s``, in median intervals.

    At even times the rows are (1, -2, 1), (-1, 3, -3, 1), ... Each row is weighted by the root of the time it stands
    for. A clip with too few keyframes has none.
    """
    count = len(times_s)
    out = np.zeros((max(count - order, 0), count))
    if not len(out):
        return out
    at = (times_s - times_s[0]) / np.median(np.diff(times_s))
    for i in range(len(out)):
        t = at[i : i + order + 1]
        gaps = t[:, None] - t[None] + np.eye(order + 1)
        out[i, i : i + order + 1] = math.factorial(order) / gaps.prod(1) * np.sqrt((t[-1] - t[0]) / order)
    return out


def gain(order: int) -> float:
    """What white noise becomes: sqrt of the sum of squares of a row of differences at even times."""
    return math.sqrt(math.comb(2 * order, order))


def solve_together(
    graph: Graph, pattern: Pattern, states: list[State], times_s: np.ndarray, data: FrameTerms, options: TemporalOptions
) -> Solution:
    """The states of all keyframes after the joint pass, from ``states`` (two or more)."""
    order = min(options.order, max(len(states) - 1, 1))
    # the same white noise costs the same whatever the order
    D = differences(times_s, order) * (gain(2) / gain(order)) if len(states) > 2 else np.zeros((0, len(states)))
    model = options.noise.prior > 0
    modes = (
        field_modes(graph.nodes, options.noise.length, options.noise.rank) if model else np.zeros((len(graph.nodes), 0))
    )
    errors = np.zeros((len(states), POSE + 3 * modes.shape[1] if model else 0))
    rigidity = Rigidity(options.arap, options.turn)
    for _ in range(options.steps):
        paths = np.stack([s.position for s in states])
        bend = np.einsum("st,tnc->snc", D, paths)
        weight = options.smoothness * (options.jolt**2 / (options.jolt**2 + (bend**2).sum(2))) ** 2
        pulled = np.einsum("st,snc->tnc", D, weight[..., None] * bend)
        own = np.einsum("st,sn->tn", D**2, weight)
        systems = []
        for k, state in enumerate(states):
            basis = np.zeros((len(graph.nodes), 3, 0))
            if model:
                moved, _ = deform(graph, state)
                basis = error_basis(state.position, data.eye(k), modes, data.hidden(k, moved), options.noise)
            fault = _Error(basis, errors[k], options.noise.prior)
            systems.append(_System(graph, pattern, state, data, k, rigidity, fault, pulled[k], own[k]))
        step = _conjugate_gradients(systems, (D, weight), options.rounds)
        if not np.isfinite(step).all():
            break
        states = [moved_by(state, step[k]) for k, state in enumerate(states)]
        errors = np.stack([one.error_after(step[k]) for k, one in enumerate(systems)])
        if np.abs(step[..., 3:]).max() < 1e-3:
            break
    return Solution([clean(state) for state in states], errors)


@dataclass(frozen=True)
class _Error:
    """What one keyframe's mesh gets wrong: ``basis`` (N,3,m), its ``coefficients`` (m,) so far, weight of the prior."""

    basis: np.ndarray
    coefficients: np.ndarray
    prior: float


class _System:
    """One keyframe's part of a Gauss-Newton step, with the errors of its mesh eliminated.

    With motion x, errors e, the mesh's matrix H, the rest's R, and the basis B the mesh wants H (x - B e) = -g, and the
    prior a small e. With E = -H B and C = B^T H B + prior, the motion alone has the matrix H + R - E C^-1 E^T.
    """

    def __init__(
        self, graph: Graph, pattern: Pattern, state: State, data: FrameTerms, k: int, rigidity: Rigidity, error: _Error,
        pulled: np.ndarray, own: np.ndarray,
    ) -> None:  # fmt: skip
        """``pulled`` (N,3) and ``own`` (N,) are gradient and diagonal of the smoothness in this keyframe."""
        self.pattern, self.error = pattern, error
        moved, _ = deform(graph, state)
        off = error.basis @ error.coefficients
        mesh, video = Terms(len(moved)), Terms(len(moved))
        data.mesh(k, moved - (graph.point_weights[..., None] * off[graph.point_nodes]).sum(1), mesh)
        data.video(k, moved, video)
        H, gradient, _ = equations(graph, pattern, state, video, rigidity)
        of_mesh, pull, _ = equations(graph, pattern, state, mesh, None)
        H = H + of_mesh
        self.matrix = pattern.matrix(H)
        H = H.copy()
        for axis in range(3, 6):
            H[pattern.diagonal, axis, axis] += own
        self.factor = pattern.factor(H)
        gradient = gradient + pull
        gradient[:, 3:] += pulled
        count = error.basis.shape[2]
        lifted = np.concatenate([np.zeros_like(error.basis), error.basis], 1).reshape(gradient.size, count)
        self.E = -(pattern.matrix(of_mesh) @ lifted)
        C = error.prior * np.eye(count) - lifted.T @ self.E
        self.C_inverse = np.linalg.inv(C)
        self.error_gradient = error.prior * error.coefficients - lifted.T @ pull.ravel()
        self.right = -gradient + (self.E @ (self.C_inverse @ self.error_gradient)).reshape(gradient.shape)
        self.W = pattern.solve(self.factor, self.E) if count else self.E
        self.S = np.linalg.inv(C - self.E.T @ self.W)

    def multiply(self, x: np.ndarray) -> np.ndarray:
        """The motion's matrix, without the smoothness, times x (N,6)."""
        out = self.matrix @ x.ravel() - self.E @ (self.C_inverse @ (self.E.T @ x.ravel()))
        return out.reshape(x.shape)

    def precondition(self, r: np.ndarray) -> np.ndarray:
        """The inverse, with the keyframe's own part of the smoothness (Woodbury), times r (N,6)."""
        return self.pattern.solve(self.factor, r) + (self.W @ (self.S @ (self.W.T @ r.ravel()))).reshape(r.shape)

    def error_after(self, step: np.ndarray) -> np.ndarray:
        """The coefficients that go with a step (N,6) of the motion."""
        return self.error.coefficients - self.C_inverse @ (self.error_gradient + self.E.T @ step.ravel())


def _conjugate_gradients(systems: list[_System], smooth: tuple[np.ndarray, np.ndarray], rounds: int) -> np.ndarray:
    """x (K,N,6) with (blocks + smoothness) x = right; the factors hold each keyframe's own part of both."""
    D, weight = smooth

    def multiply(x: np.ndarray) -> np.ndarray:
        out = np.stack([system.multiply(v) for system, v in zip(systems, x, strict=True)])
        out[..., 3:] += np.einsum("st,snc->tnc", D, weight[..., None] * np.einsum("st,tnc->snc", D, x[..., 3:]))
        return out

    def precondition(r: np.ndarray) -> np.ndarray:
        return np.stack([system.precondition(v) for system, v in zip(systems, r, strict=True)])

    right = np.stack([system.right for system in systems])
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
