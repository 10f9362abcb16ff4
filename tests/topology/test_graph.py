"""The deformation graph follows the surface, not the space around it."""

from __future__ import annotations

import numpy as np
import trimesh

from v2m4.topology.graph import build_graph, deform, deform_vertices
from v2m4.topology.surface import Surface
from v2m4.transforms import rotation_from_vector


def box(extents: tuple[float, float, float], at: tuple[float, float, float], rounds: int = 3) -> trimesh.Trimesh:
    body = trimesh.creation.box(extents)
    for _ in range(rounds):
        body = body.subdivide()
    return body.apply_translation(at)


def surface_of(body: trimesh.Trimesh) -> Surface:
    return Surface(np.asarray(body.vertices, float), np.asarray(body.faces, np.int64))


def test_weights_are_a_partition_of_one_and_rest_is_rest() -> None:
    graph = build_graph(surface_of(box((1, 0.4, 0.2), (0, 0, 0))), 40)
    assert np.allclose(graph.point_weights.sum(1), 1) and (graph.point_weights >= 0).all()
    moved, _ = deform(graph, graph.rest())
    assert np.allclose(moved, graph.points, atol=1e-15)
    assert len(graph.nodes) == 40
    assert np.isclose(graph.areas.sum(), 40)


def test_a_rigid_state_moves_every_point_rigidly() -> None:
    from v2m4.topology.graph import State

    graph = build_graph(surface_of(box((1, 0.4, 0.2), (0, 0, 0))), 30)
    turn, shift = rotation_from_vector(np.array([0.3, 1.0, -0.4])), np.array([0.2, 5.0, 1.0])
    state = State(np.tile(turn, (30, 1, 1)), graph.nodes @ turn.T + shift)
    assert np.allclose(deform_vertices(graph, state), graph.surface.vertices @ turn.T + shift, atol=1e-12)


def test_two_legs_side_by_side_do_not_share_nodes() -> None:
    """A U of two bars 0.04 apart, joined at the top: feet are near in space, far along the surface."""
    left, right = box((0.1, 1.0, 0.1), (-0.07, 0, 0)), box((0.1, 1.0, 0.1), (0.07, 0, 0))
    top = box((0.24, 0.1, 0.1), (0, 0.55, 0))
    body = trimesh.util.concatenate([left, right, top])
    body.merge_vertices()
    graph = build_graph(surface_of(body), 120)
    foot = graph.points[:, 1] < 0.0
    is_left, is_right = foot & (graph.points[:, 0] < -0.02), foot & (graph.points[:, 0] > 0.02)
    used_left, used_right = np.unique(graph.point_nodes[is_left]), np.unique(graph.point_nodes[is_right])
    assert len(used_left) and len(used_right)
    assert not np.intersect1d(used_left, used_right).size


def test_separate_parts_are_bridged_at_their_nearest_points() -> None:
    body = trimesh.util.concatenate([box((1, 0.2, 0.2), (0, 0, 0)), box((0.2, 0.2, 0.2), (0.75, 0, 0), 2)])
    graph = build_graph(surface_of(body), 60)
    assert 1 <= graph.bridges <= 4
    assert np.isfinite(graph.point_weights).all()
    import scipy.sparse as sp
    from scipy.sparse.csgraph import connected_components

    pairs = sp.coo_matrix((np.ones(len(graph.edges)), graph.edges.T), (60, 60))
    assert connected_components(pairs, directed=False)[0] == 1


def test_a_tetrahedron_and_unused_vertices_have_a_graph() -> None:
    vertices = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [9, 9, 9]], float)
    faces = np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [0, 3, 2]])
    graph = build_graph(Surface(vertices, faces), 250)
    assert len(graph.nodes) == 5
    assert np.allclose(deform_vertices(graph, graph.rest()), vertices)
    assert np.allclose(graph.point_weights.sum(1), 1)


def test_many_crumbs_do_not_take_many_rounds() -> None:
    rng = np.random.default_rng(0)
    crumbs = [box((0.02, 0.02, 0.02), tuple(rng.uniform(-1, 1, 3)), 0) for _ in range(150)]
    body = trimesh.util.concatenate([box((1, 1, 1), (0, 0, 0), 2), *crumbs])
    graph = build_graph(surface_of(body), 100)
    assert np.isfinite(graph.offsets).all() and graph.bridges >= 150
