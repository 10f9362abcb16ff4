"""The joint pass: differences over real times, errors eliminated exactly, and errors told from motion."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import trimesh

from v2m4.topology.graph import Graph, State, build_graph
from v2m4.topology.noise import POSE, NoiseOptions, error_basis, field_modes, pose_correction
from v2m4.topology.solve import Pattern, Rigidity, Terms
from v2m4.topology.surface import Normalisation, Surface
from v2m4.topology.temporal import TemporalOptions, _Error, _System, differences, gain, solve_together
from v2m4.transforms import apply

EYE = np.array([0.3, 0.2, 3.0])


@pytest.fixture(scope="module")
def graph() -> Graph:
    ball = trimesh.creation.icosphere(2)
    return build_graph(Surface(ball.vertices * [0.5, 0.3, 0.2], np.asarray(ball.faces)), 20)


class Points:
    """Every keyframe's mesh says where each point of the graph is; there is no picture."""

    def __init__(self, graph: Graph, there: np.ndarray) -> None:
        self.graph, self.there = graph, there

    def mesh(self, k: int, moved: np.ndarray, terms: Terms) -> None:
        terms.add_position(np.arange(len(moved)), moved - self.there[k], self.graph.areas)

    def video(self, k: int, moved: np.ndarray, terms: Terms) -> None:
        pass

    def eye(self, k: int) -> np.ndarray:
        return EYE

    def hidden(self, k: int, moved: np.ndarray) -> np.ndarray:
        return self.graph.nodes[:, 2] < 0


@pytest.mark.parametrize("order", [2, 3, 4])
def test_differences_forget_lower_powers_and_give_the_derivative_at_uneven_times(order: int) -> None:
    times = np.array([0.0, 0.1, 0.25, 0.3, 0.5, 0.6, 0.7, 0.85])
    D = differences(times, order)
    unit = np.median(np.diff(times))
    for power in range(order):
        assert np.abs(D @ times**power).max() < 1e-9
    span = (times[order:] - times[:-order]) / unit / order
    wanted = np.prod(np.arange(1, order + 1)) * unit**order * np.sqrt(span)
    assert np.allclose(D @ times**order, wanted)


def test_even_differences_are_the_binomial_rows_and_their_gain_is_that_of_noise() -> None:
    D = differences(np.arange(6) / 12, 3)
    assert np.allclose(D[0, :4], [-1, 3, -3, 1])
    assert gain(3) == pytest.approx(np.linalg.norm(D[0]))
    assert differences(np.arange(3) / 12, 3).shape == (0, 3)


def test_eliminated_errors_are_those_of_the_whole_system(graph: Graph) -> None:
    """Schur complement and Woodbury against one dense system in motion and errors."""
    rng = np.random.default_rng(0)
    there = graph.points[None] + 0.02 * rng.normal(size=(1, *graph.points.shape))
    pattern, options = Pattern(graph), NoiseOptions()
    modes = field_modes(graph.nodes, 0.3, 6)
    basis = error_basis(graph.nodes, EYE, modes, graph.nodes[:, 2] < 0, options)
    count = basis.shape[2]
    error = _Error(basis, 0.3 * rng.normal(size=count), options.prior)
    own, pulled = rng.random(len(graph.nodes)), rng.normal(size=(len(graph.nodes), 3))
    data = Points(graph, there)
    system = _System(graph, pattern, graph.rest(), data, 0, Rigidity(0.2, 0.1), error, pulled, own)
    none = _Error(np.zeros((len(graph.nodes), 3, 0)), np.zeros(0), options.prior)
    off = (graph.point_weights[..., None] * (basis @ error.coefficients)[graph.point_nodes]).sum(1)
    plain = _System(graph, pattern, graph.rest(), Points(graph, there + off), 0, Rigidity(0.2, 0.1), none, pulled, own)
    A = plain.matrix.toarray()
    smooth = np.zeros((len(graph.nodes), 6))
    smooth[:, 3:] = own[:, None]
    A = A + np.diag(smooth.ravel())
    C = np.linalg.inv(system.C_inverse)
    whole = np.block([[A, system.E], [system.E.T, C]])
    right = np.concatenate([plain.right.ravel(), -system.error_gradient])
    wanted = np.linalg.solve(whole, right)
    step = system.precondition(system.right)
    assert np.allclose(step.ravel(), wanted[: A.shape[0]], atol=1e-7 * np.abs(wanted).max())
    assert np.allclose(system.error_after(step) - error.coefficients, wanted[A.shape[0] :], atol=1e-6)
    back = system.multiply(step) + smooth * step
    assert np.allclose(back, system.right, atol=1e-7 * np.abs(system.right).max())


def _shaken(graph: Graph, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A steadily moving body, and its meshes with errors of the modelled kind: (truth, meshes, coefficients)."""
    rng = np.random.default_rng(seed)
    options = NoiseOptions()
    truth = graph.points[None] + np.linspace(0, 0.2, 10)[:, None, None] * [1.0, 0.0, 0.0]
    modes = field_modes(graph.nodes, options.length, options.rank)
    coefficients = rng.normal(size=(10, POSE + 3 * modes.shape[1]))
    meshes = []
    for k in range(10):
        nodes = graph.nodes + truth[k, 0] - graph.points[0]
        off = error_basis(nodes, EYE, modes, graph.nodes[:, 2] < 0, options) @ coefficients[k]
        meshes.append(truth[k] + (graph.point_weights[..., None] * off[graph.point_nodes]).sum(1))
    return truth, np.stack(meshes), coefficients


def test_errors_of_the_meshes_are_told_from_motion(graph: Graph) -> None:
    truth, meshes, _ = _shaken(graph, 1)
    states = [State(graph.rest().rotation, graph.nodes + t[0] - graph.points[0]) for t in meshes]
    pattern, times = Pattern(graph), np.arange(10) / 12

    def error(options: TemporalOptions) -> tuple[float, float]:
        """How far the paths are off, and how much they tremble: the body moves steadily."""
        found = solve_together(graph, pattern, states, times, Points(graph, meshes), options).states
        paths = np.stack([s.position for s in found])
        wanted = graph.nodes + truth[:, :1] - graph.points[0]
        off, bend = paths - wanted, np.diff(paths, 2, axis=0)
        return float(np.linalg.norm(off, axis=2).mean()), float(np.linalg.norm(bend, axis=2).mean())

    without = error(TemporalOptions(noise=dataclasses.replace(NoiseOptions(), prior=0.0)))
    off, tremble = error(TemporalOptions())
    assert off < without[0] and tremble < 0.7 * without[1]


def test_a_pose_correction_undoes_the_pose_error(graph: Graph) -> None:
    options, rng = NoiseOptions(), np.random.default_rng(2)
    coefficients = rng.normal(size=POSE)
    basis = error_basis(graph.nodes, EYE, np.zeros((len(graph.nodes), 0)), np.zeros(len(graph.nodes), bool), options)
    wrong = graph.nodes + basis @ coefficients
    mended = apply(pose_correction(coefficients, graph.nodes, EYE, options), wrong)
    before = np.abs(wrong - graph.nodes).max()
    assert before > 0.02 and np.abs(mended - graph.nodes).max() < 0.1 * before  # first order


def test_a_similarity_of_working_units_is_one_of_the_world() -> None:
    units = Normalisation(np.array([1.0, 2.0, -3.0]), 2.5)
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = 1.1 * np.eye(3)[[1, 2, 0]], [0.1, 0.2, 0.3]
    points = np.random.default_rng(0).normal(size=(5, 3))
    wanted = units.to_world(apply(matrix, units.to_unit(points)))
    assert np.allclose(apply(units.similarity_to_world(matrix), points), wanted)
