"""The edge table."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh

from v2m4.render import Edges


@pytest.mark.parametrize(
    "mesh", [trimesh.creation.box(), trimesh.creation.icosphere(3), trimesh.creation.torus(1, 0.3)]
)
def test_closed_meshes_have_two_faces_an_edge_running_opposite_ways(mesh):
    edges = Edges(mesh.faces)
    np.testing.assert_array_equal(edges.ends, np.unique(np.sort(mesh.edges, 1), axis=0))
    np.testing.assert_array_equal(edges.start, np.arange(len(edges.ends) + 1) * 2)
    pairs = edges.sides.reshape(-1, 2)
    np.testing.assert_array_equal((pairs & 1).sum(1), 1)
    for e, (a, b) in zip(edges.ends, pairs >> 1, strict=True):
        assert a != b and set(e) <= set(mesh.faces[a]) & set(mesh.faces[b])


def test_boundaries_and_fins():
    edges = Edges([[0, 1, 2], [1, 0, 3], [0, 1, 4]])  # three faces at the edge 0-1
    assert edges.ends.tolist() == [[0, 1], [0, 2], [0, 3], [0, 4], [1, 2], [1, 3], [1, 4]]
    assert np.diff(edges.start).tolist() == [3, 1, 1, 1, 1, 1, 1]
    assert edges.sides[:3].tolist() == [0, 3, 4]
    assert len(Edges(np.zeros((0, 3))).ends) == 0
