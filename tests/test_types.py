"""The vocabulary: what is accepted is stored exactly, what makes no sense is refused with a sentence."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from v2m4.errors import InputError
from v2m4.types import AnimatedMesh, Camera, Clip, ClipCamera, Frame, Mesh, MeshSequence, Texture, TexturedMesh

TRIANGLE = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]], float)
FACE = [[0, 1, 2]]
PICTURE = np.zeros((4, 6, 4), np.uint8)


def test_arrays_get_their_type_and_keep_their_values() -> None:
    mesh = Mesh(TRIANGLE, np.array(FACE, np.int64), [[1, 2, 3]] * 3)
    assert (mesh.vertices.dtype, mesh.faces.dtype, mesh.colors.dtype) == (np.float32, np.int32, np.uint8)
    np.testing.assert_array_equal(mesh.vertices, TRIANGLE)
    moved = mesh.moved(TRIANGLE + 1)
    np.testing.assert_array_equal(moved.vertices, TRIANGLE + 1)
    assert moved.faces is mesh.faces and moved.colors is mesh.colors
    with pytest.raises(dataclasses.FrozenInstanceError):
        mesh.faces = FACE  # type: ignore[misc]


def test_a_pose_of_an_animated_mesh() -> None:
    positions = np.stack([TRIANGLE, TRIANGLE + 2])
    animation = AnimatedMesh(FACE, positions, [0.0, 0.5])
    np.testing.assert_array_equal(animation.mesh(1).vertices, TRIANGLE + 2)
    assert animation.mesh(0, np.full((3, 3), 7)).colors.tolist() == [[7, 7, 7]] * 3


WHITE = np.ones((3, 3))


@pytest.mark.parametrize(
    ("make", "field", "got"),
    [
        (lambda: Mesh(TRIANGLE, FACE, WHITE), "Mesh.colors", "float64"),
        (lambda: Mesh(TRIANGLE, FACE, WHITE.astype(np.float32).tolist()), "Mesh.colors", "float64"),
        (lambda: Mesh(TRIANGLE, FACE, WHITE > 0), "Mesh.colors", "bool"),
        (lambda: Mesh(TRIANGLE, FACE, np.full((3, 3), 256)), "Mesh.colors", "256 to 256"),
        (lambda: Mesh(TRIANGLE, FACE, np.full((3, 3), -1)), "Mesh.colors", "-1 to -1"),
        (lambda: Frame(0, 0.0, PICTURE / np.float32(255)), "Frame.image", "float32"),
        (lambda: Texture([[0, 0]], [[0, 0, 0]], np.ones((2, 2, 3))), "Texture.base_color", "float64"),
    ],
)
def test_colours_that_are_no_bytes_are_refused_not_cast(make, field: str, got: str) -> None:
    """Cast without a word, colours in [0, 1] were black."""
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.message == f"{field}: expected whole numbers from 0 to 255 (uint8), got {got}"
    assert "multiply colours in [0, 1] by 255" in caught.value.hint


@pytest.mark.parametrize(
    "make",
    [
        lambda: Mesh(TRIANGLE, np.array(FACE) + 0.5),
        lambda: Mesh(TRIANGLE, np.array(FACE) + 2**32),
        lambda: Texture([[0, 0]], np.zeros((1, 3)), PICTURE[..., :3]),
        lambda: AnimatedMesh(np.zeros((1, 3)), TRIANGLE[None], [0.0]),
    ],
)
def test_faces_that_are_no_indices_are_refused_not_cast(make) -> None:
    with pytest.raises(InputError, match=r"(faces|uv_faces): expected whole numbers \(int32\)"):
        make()


def test_empty_arrays_may_have_any_type() -> None:
    assert Mesh(np.zeros((0, 3)), np.zeros((0, 3)), np.zeros((0, 3))).faces.dtype == np.int32


def test_frames_of_a_clip_are_found_by_index() -> None:
    clip = Clip((Frame(2, 0.2, PICTURE),), (0, 2), np.array([0.0, 0.1, 0.2]), 6, 4)
    assert clip.frame(2).alpha.shape == (4, 6)
    with pytest.raises(KeyError, match="frame 1 is not loaded"):
        clip.frame(1)


NAN = np.where(TRIANGLE == 1, np.nan, TRIANGLE)
ROTATED = np.diag([1.0, -1.0, -1.0, 1.0])
K = np.array([[100.0, 0, 3], [0, 100, 2], [0, 0, 1]])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Mesh(TRIANGLE, [[0, 1, 3]]), "names vertex 3 of 3"),
        (lambda: Mesh(TRIANGLE, [[0, 1, -1]]), "a face names vertex"),
        (lambda: Mesh(TRIANGLE[:, :2], FACE), "Mesh.vertices: expected shape"),
        (lambda: Mesh(NAN, FACE), "NaN or infinite"),
        (lambda: Mesh(TRIANGLE, FACE, np.zeros((2, 3))), "Mesh.colors"),
        (lambda: Frame(0, 0.0, PICTURE[..., :3]), "Frame.image"),
        (lambda: Clip((), (), np.array([]), 6, 4), "at least one frame"),
        (lambda: Clip((), (), np.array([0.0, 0.0]), 6, 4), "must rise"),
        (lambda: Clip((), (1, 0), np.array([0.0, 1.0]), 6, 4), "keyframes"),
        (lambda: Clip((), (2,), np.array([0.0, 1.0]), 6, 4), "keyframes"),
        (lambda: Clip((Frame(0, 0.0, PICTURE),), (), np.array([0.0]), 6, 6), "frame 0 is 6x4, the clip is 6x6"),
        (lambda: Camera(K, 2 * ROTATED, 6, 4), "rigid"),
        (lambda: Camera(K, np.diag([1.0, 1, -1, 1]), 6, 4), "rigid"),
        (lambda: Camera(np.diag([-1.0, 1, 1]), ROTATED, 6, 4), "positive focal"),
        (lambda: Texture([[0, 0]], [[0, 0, 1]], PICTURE[..., :3]), "UV map: a face names vertex 1 of 1"),
        (lambda: Texture([[np.nan, 0]], [[0, 0, 0]], PICTURE[..., :3]), "NaN"),
        (lambda: MeshSequence((Mesh(TRIANGLE, FACE),), [0.0, 1.0]), "1 meshes for 2 times"),
        (lambda: MeshSequence((Mesh(TRIANGLE, FACE),) * 2, [1.0, 0.0]), "must rise"),
        (lambda: AnimatedMesh(FACE, TRIANGLE[None], [0.0, 1.0]), "1 poses for 2 times"),
        (lambda: AnimatedMesh(FACE, np.zeros((0, 3, 3)), []), "at least one pose"),
        (lambda: AnimatedMesh(FACE, [TRIANGLE, TRIANGLE], [0.0, 0.0]), "must rise"),
        (lambda: AnimatedMesh(FACE, NAN[None], [0.0]), "NaN"),
        (lambda: AnimatedMesh([[0, 1, 5]], TRIANGLE[None], [0.0]), "names vertex 5 of 3"),
        (
            lambda: TexturedMesh(Mesh(TRIANGLE, FACE), Texture([[0, 0]], [[0, 0, 0]] * 2, PICTURE[..., :3])),
            "1 faces but 2 UV faces",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


def test_a_clip_has_one_camera_that_stands_or_moves() -> None:
    K, moved = np.diag([50.0, 50, 1]), np.tile(np.eye(4), (3, 1, 1))
    moved[2, 0, 3] = 0.5
    fixed = ClipCamera(K, np.eye(4), 6, 4)
    assert np.array_equal(fixed.at(0).world_to_camera, fixed.at(99).world_to_camera)
    moving = ClipCamera(K, moved, 6, 4)
    assert moving.at(2).world_to_camera[0, 3] == 0.5 and moving.at(0).world_to_camera[0, 3] == 0
    with pytest.raises(InputError, match="no camera for frame 3"):
        moving.at(3)
    with pytest.raises(InputError, match="rigid"):
        ClipCamera(K, 2 * np.eye(4), 6, 4)
