from __future__ import annotations

import numpy as np
import pytest

from v2m4.errors import InputError
from v2m4.export.seams import split_seams
from v2m4.types import Texture

PICTURE = np.zeros((2, 2, 3), np.uint8)


def test_faces_keep_their_corners_and_their_places(sphere: tuple[np.ndarray, ...], sphere_texture: Texture) -> None:
    vertices, faces, uv, uv_faces = sphere
    split = split_seams(faces, sphere_texture)
    np.testing.assert_array_equal(split.welded[split.faces], faces)
    np.testing.assert_array_equal(split.uv[split.faces], uv[uv_faces])
    pairs = {(int(w), *map(float, p)) for w, p in zip(split.welded, split.uv, strict=True)}
    assert len(pairs) == len(split.uv), "no vertex is split twice at the same place"
    assert len(split.uv) > len(vertices), "the seam is there"


def test_equal_places_with_two_numbers_are_one() -> None:
    uv = np.array([[0, 0], [1, 0], [0, 1], [1, 0], [0, 1], [1, 1]], np.float32)
    faces = np.array([[0, 1, 2], [2, 1, 3]])
    split = split_seams(faces, Texture(uv, np.array([[0, 1, 2], [4, 3, 5]]), PICTURE))
    assert len(split.uv) == 4


def test_vertices_without_a_face_are_left_out() -> None:
    uv = np.array([[0, 0], [1, 0], [0, 1]], np.float32)
    split = split_seams(np.array([[5, 1, 3]]), Texture(uv, np.array([[0, 1, 2]]), PICTURE))
    assert split.welded.tolist() == [1, 3, 5]


def test_a_uv_map_of_another_mesh_is_refused() -> None:
    uv = np.array([[0, 0], [1, 0], [0, 1]], np.float32)
    with pytest.raises(InputError, match="2 faces but its UV map has 1"):
        split_seams(np.array([[0, 1, 2], [0, 2, 1]]), Texture(uv, np.array([[0, 1, 2]]), PICTURE))
