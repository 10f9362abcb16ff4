"""Rotations and similarities form groups; cameras see what they should; colours go there and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from v2m4 import transforms as tf

settings.register_profile("quick", max_examples=50, deadline=None)
settings.load_profile("quick")

vectors = arrays(float, 3, elements=st.floats(-3, 3))
scales = st.floats(0.1, 10)
points = arrays(float, (7, 3), elements=st.floats(-10, 10))


@st.composite
def rotations(draw) -> np.ndarray:
    return tf.rotation_from_vector(draw(vectors))


@st.composite
def similarities(draw) -> np.ndarray:
    return tf.rigid(draw(scales) * draw(rotations()), draw(vectors))


@given(vectors)
def test_a_rotation_is_a_rotation_about_its_own_axis(vector: np.ndarray) -> None:
    rotation = tf.rotation_from_vector(vector)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)
    assert np.isclose(np.linalg.det(rotation), 1)
    np.testing.assert_allclose(rotation @ vector, vector, atol=1e-12)
    angle = np.linalg.norm(vector)
    wrapped = abs((angle + np.pi) % (2 * np.pi) - np.pi)
    assert np.isclose(tf.rotation_angle_deg(rotation), np.degrees(wrapped), atol=1e-5)


@given(vectors, st.floats(-2, 2), st.floats(-2, 2))
def test_turns_about_one_axis_add_up(vector: np.ndarray, a: float, b: float) -> None:
    both = tf.rotation_from_vector(a * vector) @ tf.rotation_from_vector(b * vector)
    np.testing.assert_allclose(both, tf.rotation_from_vector((a + b) * vector), atol=1e-9)


def test_small_rotations_keep_their_precision() -> None:
    for angle in (1e-9, 1e-7, 0.9e-6, 1.1e-6, 1e-4):
        rotation = tf.rotation_from_vector(np.array([0, 0, angle]))
        assert np.isclose(rotation[1, 0], np.sin(angle), rtol=1e-12, atol=0)
        assert np.isclose(tf.rotation_angle_deg(rotation), np.degrees(angle), rtol=1e-9)
    assert np.isclose(tf.rotation_angle_deg(tf.rotation_from_vector([np.pi - 1e-7, 0, 0])), 180 - np.degrees(1e-7))


@given(similarities(), similarities(), similarities(), points)
def test_similarities_form_a_group(a: np.ndarray, b: np.ndarray, c: np.ndarray, x: np.ndarray) -> None:
    close = dict(rtol=1e-9, atol=1e-7)
    np.testing.assert_allclose((a @ b) @ c, a @ (b @ c), **close)
    np.testing.assert_allclose(tf.apply(np.eye(4), x), x)
    np.testing.assert_allclose(tf.apply(a, tf.apply(b, x)), tf.apply(a @ b, x), **close)
    np.testing.assert_allclose(tf.apply(np.linalg.inv(a), tf.apply(a, x)), x, **close)


@given(similarities())
def test_a_similarity_comes_apart_and_together(matrix: np.ndarray) -> None:
    scale, rotation, translation = tf.split_similarity(matrix)
    np.testing.assert_allclose(tf.rigid(scale * rotation, translation), matrix, atol=1e-9)
    assert scale > 0 and np.isclose(np.linalg.det(rotation), 1)


@given(similarities(), points)
def test_apply_works_in_batches(matrix: np.ndarray, x: np.ndarray) -> None:
    stack = np.stack([matrix, np.eye(4)])
    both = tf.apply(stack, np.stack([x, x]))
    np.testing.assert_allclose(both[0], tf.apply(matrix, x), rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(both[1], x)


@given(arrays(float, (3, 3), elements=st.floats(-1, 1)), rotations())
def test_the_nearest_rotation_is_the_nearest(matrix: np.ndarray, other: np.ndarray) -> None:
    nearest = tf.nearest_rotation(matrix)
    assert np.isclose(np.linalg.det(nearest), 1)
    assert np.linalg.norm(nearest - matrix) <= np.linalg.norm(other - matrix) + 1e-9
    np.testing.assert_allclose(tf.nearest_rotation(other), other, atol=1e-9)


@given(rotations(), vectors)
def test_the_mean_of_symmetric_rotations_is_their_middle(middle: np.ndarray, vector: np.ndarray) -> None:
    step = 0.3 * vector
    pair = np.stack([middle @ tf.rotation_from_vector(step), middle @ tf.rotation_from_vector(-step)])
    np.testing.assert_allclose(tf.mean_rotation(pair), middle, atol=1e-7)
    np.testing.assert_allclose(tf.mean_rotation(pair, np.array([1.0, 0.0])), pair[0], atol=1e-7)


@given(vectors, vectors)
def test_a_camera_that_looks_at_a_point_sees_it_in_the_middle(eye: np.ndarray, target: np.ndarray) -> None:
    if np.linalg.norm(eye - target) < 0.1:
        return
    pose = tf.look_at(eye, target)
    np.testing.assert_allclose(pose[:3, :3] @ pose[:3, :3].T, np.eye(3), atol=1e-9)
    assert np.isclose(np.linalg.det(pose[:3, :3]), 1)
    np.testing.assert_allclose(tf.apply(pose, target[None])[0], [0, 0, np.linalg.norm(eye - target)], atol=1e-6)
    np.testing.assert_allclose(tf.apply(pose, eye[None])[0], 0, atol=1e-6)
    # Up in the world is up in the picture, which is -y.
    assert tf.apply(pose, (target + np.array([0, 0.1, 0]))[None])[0, 1] <= 1e-9


def test_the_front_camera_is_the_named_one() -> None:
    np.testing.assert_allclose(tf.look_at([0, 0, 3])[:3, :3], tf.WORLD_FRONT_TO_CAMERA, atol=1e-12)


def test_a_lens_maps_the_edge_of_its_field_to_the_edge_of_the_picture() -> None:
    K = tf.fov_to_K(50.0, 640, 480)
    top = np.array([[0, -np.tan(np.radians(25)), 1.0]]) * 3
    np.testing.assert_allclose(tf.project(top, K), [[320, 0]], atol=1e-9)
    np.testing.assert_allclose(tf.project(top, tf.scale_K(K, 0.5)), [[160, 0]], atol=1e-9)
    np.testing.assert_allclose(tf.scale_K(K, 0.5), tf.fov_to_K(50.0, 320, 240))
    np.testing.assert_allclose(tf.project(np.array([[0, 0, 2.0]]), tf.scale_K(K, 2, 3)), [[640, 720]])


def test_normals_point_outwards_and_turn_with_the_mesh() -> None:
    corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    faces = np.array([t for a, b, c, d in quads for t in ((a, b, c), (a, c, d))])
    normals = tf.vertex_normals(corners, faces)
    np.testing.assert_allclose(np.linalg.norm(normals, axis=1), 1)
    assert ((normals * corners).sum(1) > 0.9).all()
    rotation = tf.rotation_from_vector([0.3, -0.7, 0.2])
    np.testing.assert_allclose(tf.vertex_normals(corners @ rotation.T, faces), normals @ rotation.T, atol=1e-12)
    both = tf.vertex_normals(np.stack([corners, corners @ rotation.T]), faces)
    np.testing.assert_allclose(both[0], normals)
    np.testing.assert_allclose(tf.vertex_normals(np.zeros((3, 3)), np.array([[0, 1, 2]])), [[0, 1, 0]] * 3)


@given(arrays(float, 50, elements=st.floats(0, 1)))
def test_srgb_goes_there_and_back(value: np.ndarray) -> None:
    np.testing.assert_allclose(tf.linear_to_srgb(tf.srgb_to_linear(value)), value, atol=2e-5)
    order = np.sort(value)
    assert (np.diff(tf.srgb_to_linear(order)) >= 0).all()


def test_srgb_knows_its_fixed_points() -> None:
    np.testing.assert_allclose(tf.srgb_to_linear([0, 0.5, 1]), [0, 0.21404114, 1], atol=1e-7)


def test_z_up_becomes_y_up_without_mirroring() -> None:
    axes = tf.z_up_to_world(np.eye(3))
    np.testing.assert_array_equal(axes @ axes.T, np.eye(3))
    assert np.linalg.det(axes) == pytest.approx(1)
    np.testing.assert_array_equal(tf.z_up_to_world(np.array([[0, 0, 1.0], [0, -1, 0]])), [[0, 1, 0], [0, 0, 1]])
