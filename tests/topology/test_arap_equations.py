"""The energies and their equations against what they must be: zero for rigid motion, equal to finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from v2m4.topology.graph import Graph, State, build_graph, deform
from v2m4.topology.solve import Pattern, Rigidity, Terms, equations, moved_by
from v2m4.topology.surface import Surface
from v2m4.transforms import nearest_rotation, rotation_from_vector


@pytest.fixture(scope="module")
def graph() -> Graph:
    import trimesh

    ball = trimesh.creation.icosphere(1)
    return build_graph(Surface(ball.vertices * [0.5, 0.3, 0.2], np.asarray(ball.faces)), 9)


def random_state(graph: Graph, amount: float, seed: int) -> State:
    rng = np.random.default_rng(seed)
    turn = rotation_from_vector(amount * rng.normal(size=(len(graph.nodes), 3)))
    return State(turn, graph.nodes + amount * 0.1 * rng.normal(size=graph.nodes.shape))


def rigid_copy(state: State, vector: np.ndarray, shift: np.ndarray) -> State:
    turn = rotation_from_vector(np.asarray(vector, float))
    return State(turn @ state.rotation, state.position @ turn.T + shift)


@pytest.mark.parametrize("vector", [[0.0, 0.3, 0.0], [1.0, -2.0, 0.5], [0.0, 0.0, np.pi]])
def test_a_rigid_motion_costs_nothing(graph: Graph, vector: list[float]) -> None:
    state = rigid_copy(graph.rest(), np.array(vector), np.array([3.0, -1.0, 2.0]))
    _, gradient, energy = equations(graph, Pattern(graph), state, None, Rigidity(5.0, 3.0))
    assert energy < 1e-26 * 5 * len(graph.edges) * 100
    assert np.abs(gradient).max() < 1e-12


def test_a_rigid_motion_of_the_neighbour_costs_nothing(graph: Graph) -> None:
    neighbour = random_state(graph, 0.4, 1)
    state = rigid_copy(neighbour, np.array([0.4, 0.8, -0.2]), np.array([1.0, 0.0, 0.5]))
    _, _, energy = equations(graph, Pattern(graph), state, None, Rigidity(5.0, 3.0, neighbour, 0.0))
    assert energy < 1e-20


def test_stretching_costs(graph: Graph) -> None:
    stretched = State(graph.rest().rotation, graph.nodes * 1.1)
    _, _, energy = equations(graph, Pattern(graph), stretched, None, Rigidity(1.0, 1.0))
    lengths = np.linalg.norm(graph.nodes[graph.edges[:, 0]] - graph.nodes[graph.edges[:, 1]], axis=1)
    assert energy == pytest.approx(2 * graph.edge_weights[0] * 0.01 * (lengths**2).sum(), rel=1e-9)


def energy_of(graph: Graph, state: State, wanted: np.ndarray, ids: np.ndarray, planes: np.ndarray) -> float:
    """The whole objective at a state, from its definition."""
    moved, _ = deform(graph, state)
    gap = moved[ids] - wanted
    data = 0.7 * ((gap * planes).sum(1) ** 2).sum() + 0.2 * (gap**2).sum()
    g, R, p = graph.nodes, state.rotation, state.position
    total = data
    for (j, k), w in zip(graph.edges, graph.edge_weights, strict=True):
        total += 1.5 * w * ((R[j] @ (g[k] - g[j]) - (p[k] - p[j])) ** 2).sum()
        total += 1.5 * w * ((R[k] @ (g[j] - g[k]) - (p[j] - p[k])) ** 2).sum()
        total += 0.8 * graph.spacing**2 * w * (3 - np.trace(R[j] @ R[k].T))
    return float(total)


def test_energy_and_gradient_against_finite_differences(graph: Graph) -> None:
    rng = np.random.default_rng(4)
    state = random_state(graph, 0.5, 2)
    ids = rng.integers(0, len(graph.points), 40)  # repeats on purpose
    wanted = graph.points[ids] + 0.05 * rng.normal(size=(40, 3))
    planes = rng.normal(size=(40, 3))

    data = Terms(len(graph.points))
    gap = deform(graph, state)[0][ids] - wanted
    data.add_plane(ids, planes, (gap * planes).sum(1), np.full(40, 0.7))
    data.add_position(ids, gap, np.full(40, 0.2))
    _, gradient, energy = equations(graph, Pattern(graph), state, data, Rigidity(1.5, 0.8))
    assert energy == pytest.approx(energy_of(graph, state, wanted, ids, planes), rel=1e-10)
    numeric = np.empty_like(gradient)
    h = 1e-5
    for n in range(len(graph.nodes)):
        for axis in range(6):
            step = np.zeros_like(gradient)
            step[n, axis] = h
            up = energy_of(graph, moved_by(state, step), wanted, ids, planes)
            down = energy_of(graph, moved_by(state, -step), wanted, ids, planes)
            numeric[n, axis] = (up - down) / (2 * h) / 2  # the equations hold J^T r, half of the slope
    assert np.allclose(gradient, numeric, atol=1e-7 * np.abs(numeric).max() + 1e-8)


def test_matrix_is_symmetric_and_matches_the_curvature_where_residuals_vanish(graph: Graph) -> None:
    """At zero residual Gauss-Newton's matrix is the exact second derivative (of half the energy)."""
    turn = np.array([0.3, -0.7, 0.2])
    state = rigid_copy(graph.rest(), turn, np.array([0.1, 0.2, 0.3]))
    moved, _ = deform(graph, state)
    ids, planes = np.arange(0, len(moved), 3), np.tile([0.6, 0.0, 0.8], (len(moved[::3]), 1))
    wanted = moved[ids]

    data = Terms(len(moved))
    data.add_plane(ids, planes, np.zeros(len(ids)), np.full(len(ids), 0.7))
    data.add_position(ids, np.zeros((len(ids), 3)), np.full(len(ids), 0.2))
    pattern = Pattern(graph)
    H, _, _ = equations(graph, pattern, state, data, Rigidity(1.5, 0.8))
    full = pattern.matrix(H).toarray()
    assert np.array_equal(full, full.T)
    rng = np.random.default_rng(0)
    for _ in range(3):
        step = rng.normal(size=(len(graph.nodes), 6))
        h = 1e-4
        up = energy_of(graph, moved_by(state, h * step), wanted, ids, planes)
        down = energy_of(graph, moved_by(state, -h * step), wanted, ids, planes)
        curvature = step.ravel() @ full @ step.ravel()
        assert curvature == pytest.approx((up + down) / 2 / h**2, rel=1e-3)


def test_banded_solution_is_the_dense_one(graph: Graph) -> None:
    pattern = Pattern(graph)
    H, _, _ = equations(graph, pattern, random_state(graph, 0.2, 5), None, Rigidity(1.0, 0.5))
    right = np.random.default_rng(1).normal(size=(len(graph.nodes), 6))
    wanted = np.linalg.solve(pattern.matrix(H).toarray(), right.ravel()).reshape(right.shape)
    got = pattern.solve(pattern.factor(H), right)
    assert np.allclose(got, wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted).max())


def test_a_singular_matrix_is_lifted_not_refused(graph: Graph) -> None:
    pattern = Pattern(graph)
    H = np.zeros((len(pattern.indices), 6, 6))
    step = pattern.solve(pattern.factor(H), np.ones((len(graph.nodes), 6)))
    assert np.isfinite(step).all()


def test_steps_keep_rotations_proper(graph: Graph) -> None:
    state = random_state(graph, 0.5, 3)
    for seed in range(50):
        state = moved_by(state, 5 * np.random.default_rng(seed).normal(size=(len(graph.nodes), 6)))
    assert np.allclose(state.rotation, nearest_rotation(state.rotation), atol=1e-12)
    assert np.allclose(np.linalg.det(state.rotation), 1.0)
