"""Cleaning: counts are told, colours and places are kept, closed meshes stay closed (cases R01, R02, R14)."""

from __future__ import annotations

import numpy as np
import pytest

from v2m4.errors import InputError
from v2m4.models.clean import clean, decimate, is_closed, part_edges, volume
from v2m4.types import Mesh

TETRA = np.array([(0, 2, 1), (0, 1, 3), (1, 2, 3), (0, 3, 2)])


def sphere(level: int = 3) -> Mesh:
    import trimesh

    ball = trimesh.creation.icosphere(subdivisions=level, radius=0.5)
    vertices = np.asarray(ball.vertices, np.float32)
    colors = np.clip(np.rint((vertices + 0.5) * 255), 0, 255).astype(np.uint8)  # colour says where it is
    return Mesh(vertices, np.asarray(ball.faces), colors)


def test_an_unwelded_mesh_is_welded_to_the_original() -> None:
    ball = sphere()
    split = Mesh(
        ball.vertices[ball.faces.ravel()], np.arange(ball.faces.size).reshape(-1, 3), ball.colors[ball.faces.ravel()]
    )
    cleaned = clean(split)
    assert is_closed(cleaned.mesh.faces)
    assert len(cleaned.mesh.vertices) == len(ball.vertices)
    assert volume(cleaned.mesh) == pytest.approx(volume(ball), rel=1e-6)
    np.testing.assert_array_equal(cleaned.mesh.vertices[cleaned.mesh.faces], ball.vertices[ball.faces])
    np.testing.assert_array_equal(cleaned.mesh.colors[cleaned.mesh.faces], ball.colors[ball.faces])
    assert cleaned.notes == (f"welded {ball.faces.size} vertices into {len(ball.vertices)} places",)


def test_minus_zero_is_welded_to_zero() -> None:
    vertices = np.array([(0.0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (-0.0, 0, 0)], np.float32)
    faces = TETRA.copy()
    faces[1] = (4, 1, 3)
    assert is_closed(clean(Mesh(vertices, faces)).mesh.faces)


def test_duplicate_flat_and_unused_items_are_counted_and_gone() -> None:
    ball = sphere(2)
    n = len(ball.vertices)
    vertices = np.concatenate([ball.vertices, [[9, 9, 9], [8, 8, 8]]])
    faces = np.concatenate([ball.faces, ball.faces[:3], np.roll(ball.faces[5:6], 1, 1), [[0, 0, 1]], [[4, 4, 4]]])
    cleaned = clean(Mesh(vertices, faces))
    np.testing.assert_array_equal(cleaned.mesh.faces, ball.faces)
    np.testing.assert_array_equal(cleaned.mesh.vertices, ball.vertices)
    assert cleaned.notes == (
        "dropped 2 faces without area",
        "dropped 4 duplicate faces",
        f"dropped {len(vertices) - n} vertices no face uses",
    )


def test_a_clean_mesh_is_left_alone() -> None:
    ball = sphere(2)
    cleaned = clean(ball, 8000)
    assert cleaned.notes == ()
    np.testing.assert_array_equal(cleaned.mesh.vertices, ball.vertices)
    np.testing.assert_array_equal(cleaned.mesh.faces, ball.faces)


def test_three_vertices_on_a_line_do_not_open_a_crack() -> None:
    # Vertex 4 lies in the middle of edge 0-1; only one side knows it, a flat face closes the crack.
    vertices = np.array([(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0.5, 0, 0)])
    faces = np.array([(0, 2, 4), (4, 2, 1), (0, 1, 3), (0, 4, 1), (1, 2, 3), (0, 3, 2)])
    assert is_closed(faces)
    cleaned = clean(Mesh(vertices, faces))
    assert is_closed(cleaned.mesh.faces)
    assert volume(cleaned.mesh) == pytest.approx(1 / 6)
    a, b, c = (cleaned.mesh.vertices[cleaned.mesh.faces[:, k]] for k in range(3))
    assert np.linalg.norm(np.cross(b - a, c - a), axis=1).min() > 0.1
    assert cleaned.notes == ("turned the long edge of 1 face without area",)


def test_reducing_keeps_shape_closedness_frame_and_colours() -> None:
    ball = sphere(5)
    moved = ball.moved(ball.vertices * 0.1 + np.float32([3, 4, 5]))
    cleaned = clean(moved, 1000)
    assert 900 <= len(cleaned.mesh.faces) <= 1000
    assert is_closed(cleaned.mesh.faces)
    assert volume(cleaned.mesh) == pytest.approx(volume(moved), rel=0.02)
    offset = (cleaned.mesh.vertices - np.float32([3, 4, 5])) / 0.1
    assert np.abs(np.linalg.norm(offset, axis=1) - 0.5).max() < 0.01
    expected = np.clip((offset + 0.5) * 255, 0, 255)
    assert np.abs(cleaned.mesh.colors - expected).max() < 4
    assert cleaned.notes == (f"reduced from {len(ball.faces)} to {len(cleaned.mesh.faces)} faces",)


@pytest.mark.parametrize(("count", "words"), [(1, "1 usable triangle;"), (3, "3 usable triangles;")])
def test_too_few_faces_are_rejected_with_the_reason(count: int, words: str) -> None:
    corners = np.array([(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)])
    with pytest.raises(InputError, match=f"{words} a body needs at least 4"):
        clean(Mesh(corners, TETRA[:count]))


def test_a_mesh_shrunk_to_a_point_is_rejected() -> None:
    with pytest.raises(InputError, match="0 usable triangles"):
        clean(Mesh(np.ones((4, 3)), TETRA))


def test_two_bodies_that_share_an_edge_are_taken_apart() -> None:
    # Two tetrahedra back to back over edge 0-1: four faces on it.
    vertices = np.array([(0, 0, 0), (0, 0, 1), (1, 1, 0.5), (1, -1, 0.5), (-1, 1, 0.5), (-1, -1, 0.5)], float)
    faces = np.array([(0, 1, 2), (0, 3, 1), (0, 2, 3), (1, 3, 2), (0, 1, 5), (0, 4, 1), (0, 5, 4), (1, 4, 5)])
    faces = faces[:, ::-1] if volume(Mesh(vertices, faces)) < 0 else faces
    before = volume(Mesh(vertices, faces))
    assert not is_closed(faces)
    parted = Mesh(*part_edges(vertices, faces))
    assert is_closed(parted.faces)
    assert volume(parted) == pytest.approx(before, rel=0.1)
    assert is_closed(clean(parted).mesh.faces)  # the new points do not weld together again


def test_decimating_is_repeatable() -> None:
    ball = sphere(4)
    first, second = (decimate(ball.vertices, ball.faces, 500) for _ in range(2))
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1], second[1])


def test_a_body_that_is_inside_out_is_turned_and_said_so() -> None:
    ball = sphere(2)
    far = ball.moved(ball.vertices + np.float32(100))  # the sign does not depend on where it stands
    for mesh in (ball, far):
        cleaned = clean(Mesh(mesh.vertices, mesh.faces[:, ::-1], mesh.colors))
        np.testing.assert_array_equal(cleaned.mesh.faces, mesh.faces)
        assert cleaned.notes == (f"turned {len(ball.faces)} faces: the mesh was inside out",)
    open_bowl = Mesh(ball.vertices, ball.faces[:-5, ::-1], ball.colors)
    assert not any("inside out" in note for note in clean(open_bowl).notes)
