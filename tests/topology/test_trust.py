"""Bad keyframes are found, good ones are not accused."""

from __future__ import annotations

import numpy as np
import trimesh

from v2m4.topology.graph import build_graph
from v2m4.topology.surface import Surface, sample
from v2m4.topology.trust import MISSING_SHARE, judge, jump_flags, missing_share, picture_flags


def swing(angle: float) -> Surface:
    """A body with an arm at ``angle``: an honest, fast motion."""
    arm = trimesh.creation.box((0.6, 0.1, 0.1)).subdivide().subdivide().apply_translation((0.3, 0, 0))
    arm.apply_transform(trimesh.transformations.rotation_matrix(angle, [0, 0, 1]))
    body = trimesh.util.concatenate([trimesh.creation.box((0.3, 0.8, 0.3)).subdivide(), arm])
    return Surface(np.asarray(body.vertices, float), np.asarray(body.faces))


SEEDS = list(range(8))


def test_a_fast_swing_is_believed() -> None:
    assert not any(judge([swing(0.35 * k) for k in range(8)], SEEDS, None))


def test_a_missing_arm_a_turned_mesh_and_a_small_one_are_found() -> None:
    surfaces = [swing(0.05 * k) for k in range(8)]
    body = trimesh.creation.box((0.3, 0.8, 0.3)).subdivide()
    surfaces[2] = Surface(np.asarray(body.vertices, float), np.asarray(body.faces))
    surfaces[5] = Surface(surfaces[5].vertices * [-1, 1, -1], surfaces[5].faces)
    flags = jump_flags(surfaces, SEEDS)
    assert list(np.nonzero(flags)[0]) == [2, 5]
    surfaces[7] = Surface(surfaces[7].vertices * 0.3, surfaces[7].faces)
    assert "size" in judge(surfaces, SEEDS, None)[7]


def test_the_picture_is_a_witness() -> None:
    good = [(0.9 + 0.01 * (k % 3), 0.8 - 0.02 * (k % 2)) for k in range(8)]
    assert not picture_flags(good).any()
    bad = list(good)
    bad[3], bad[6] = (0.7, 0.8), (0.9, 0.3)
    assert list(np.nonzero(picture_flags(bad))[0]) == [3, 6]


def test_one_keyframe_is_always_left() -> None:
    surfaces = [swing(0.0), Surface(swing(0.0).vertices * 0.2, swing(0.0).faces)]
    assert "" in judge(surfaces, SEEDS[:2], [(0.1, 0.1), (0.2, 0.1)])
    assert judge(surfaces[:1], SEEDS[:1], [(0.0, 0.0)]) == [""]


def test_a_missing_part_is_told_from_one_that_lies_elsewhere() -> None:
    whole = swing(0.0)
    graph = build_graph(whole, 60)
    reach = 0.3  # the arm beyond it
    cut = Surface(whole.vertices, whole.faces[whole.vertices[whole.faces].mean(1)[:, 0] < reach])
    assert missing_share(graph, graph.points, sample(whole, 8000, 0)) <= 0
    assert missing_share(graph, graph.points, sample(cut, 8000, 0)) > MISSING_SHARE
    elsewhere = graph.points + (graph.points[:, :1] > reach) * np.array([0.0, 0.0, 0.3])
    assert missing_share(graph, elsewhere, sample(whole, 8000, 0)) < MISSING_SHARE
