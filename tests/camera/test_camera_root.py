from __future__ import annotations

import numpy as np
import pytest
from camera_cases import creature

from v2m4.camera.root import root_motion
from v2m4.camera.subject import centroid
from v2m4.transforms import rigid, rotation_angle_deg, rotation_from_vector
from v2m4.types import Mesh

COUNT = 20
TIMES = np.arange(COUNT) / 12


def _yaw(degrees: float) -> np.ndarray:
    return rotation_from_vector(np.array([0, np.radians(degrees), 0]))


def _middle() -> np.ndarray:
    return centroid(creature().vertices.astype(float), creature().faces)


def _walk(
    turn_deg: float, step: tuple, hop: float = 0.0, jitter_deg: float = 0.0
) -> tuple[np.ndarray, np.ndarray, list[Mesh]]:
    """True roots, poses of the meshes (each of a scale of its own), and meshes."""
    rng = np.random.default_rng(0)
    roots, poses, meshes = [], [], []
    for k in range(COUNT):
        height = hop * max(0.0, np.sin(np.pi * (k - 6) / 8)) if 6 <= k <= 14 else 0.0
        root = rigid(_yaw(turn_deg * k / (COUNT - 1)), np.array([step[0] * k, height, step[1] * k]))
        scale = 1 + 0.02 * rng.normal()
        shake = rotation_from_vector(np.radians(jitter_deg) * rng.normal(size=3))
        own = shake @ (np.eye(3) / scale)
        meshes.append(creature().moved((creature().vertices - _middle()) @ own.T))
        poses.append(root @ np.diag([scale] * 3 + [1.0]) @ rigid(shake.T, np.zeros(3)))
        roots.append(root)
    return np.stack(roots), np.stack(poses), meshes


def test_a_walk_in_a_bow_is_found_apart_from_the_shape() -> None:
    roots, poses, meshes = _walk(60, (0.08, 0.03))
    found = root_motion(poses, meshes, TIMES, np.ones(COUNT, bool))
    for a, b in zip(found.root_to_world, roots, strict=True):
        assert rotation_angle_deg(a[:3, :3], b[:3, :3]) < 2
        assert np.abs(a[[0, 2], 3] - b[[0, 2], 3]).max() < 0.01
        assert np.allclose(a, rigid(a[:3, :3], a[:3, 3]))
    assert found.travel == pytest.approx(np.hypot(0.08, 0.03) * (COUNT - 1), rel=0.02)
    assert found.turn_deg == pytest.approx(60, abs=2)
    assert not found.in_place


def test_a_full_turn_goes_through() -> None:
    roots, poses, meshes = _walk(350, (0, 0))
    found = root_motion(poses, meshes, TIMES, np.ones(COUNT, bool))
    errors = rotation_angle_deg(found.root_to_world[:, :3, :3], roots[:, :3, :3])
    assert errors.max() < 0.1
    assert found.root_to_world[:, :3, 3] == pytest.approx(roots[:, :3, 3], abs=1e-4)


@pytest.mark.parametrize("turned", [0, 1, 7, COUNT - 1])
@pytest.mark.parametrize("turn_deg", [60, 350])
def test_one_mesh_turned_round_does_not_turn_the_root(turn_deg: float, turned: int) -> None:
    roots, poses, meshes = _walk(turn_deg, (0.08, 0.03))
    poses[turned] = poses[turned] @ rigid(_yaw(180), np.zeros(3))
    found = root_motion(poses, meshes, TIMES, np.ones(COUNT, bool))
    assert rotation_angle_deg(found.root_to_world[:, :3, :3], roots[:, :3, :3]).max() < 2


def test_a_sudden_turn_is_followed() -> None:
    rate = 1 / (1 + np.exp(-(np.arange(COUNT) - 10) / 1.2))
    poses = np.stack([rigid(_yaw(180 * share), np.zeros(3)) for share in rate])
    found = root_motion(poses, [creature()] * COUNT, TIMES, np.ones(COUNT, bool))
    errors = rotation_angle_deg(found.root_to_world[:, :3, :3], poses[:, :3, :3])
    assert errors.max() < 10 and errors[[0, 1, 2, -3, -2, -1]].max() < 2


def test_jitter_of_the_meshes_stays_out_of_the_root() -> None:
    roots, poses, meshes = _walk(0, (0, 0), jitter_deg=4)
    turned = poses.copy()
    turned[:, :3, :3] = roots[:, :3, :3] @ np.stack([rotation_from_vector(v) for v in
                                                    np.random.default_rng(1).normal(0, 0.07, (COUNT, 3))])  # fmt: skip
    found = root_motion(turned, meshes, TIMES, np.ones(COUNT, bool))
    steps = rotation_angle_deg(found.root_to_world[1:, :3, :3], found.root_to_world[:-1, :3, :3])
    raw = rotation_angle_deg(turned[1:, :3, :3], turned[:-1, :3, :3])
    assert steps.mean() < 0.4 * raw.mean()
    assert found.in_place


def test_a_jump_leaves_the_ground_and_comes_back() -> None:
    _, poses, meshes = _walk(0, (0.02, 0), hop=0.8)
    height = root_motion(poses, meshes, TIMES, np.ones(COUNT, bool)).root_to_world[:, 1, 3]
    assert np.abs(height[[0, 1, 18, 19]]).max() < 0.1
    assert height[10] > 0.5


def test_a_keyframe_that_is_not_trusted_has_no_say() -> None:
    _, poses, meshes = _walk(60, (0.08, 0.03))
    trusted = np.arange(COUNT) != 7
    spoiled = poses.copy()
    spoiled[7] = rigid(_yaw(200), np.array([3.0, 4.0, 5.0]))
    a, b = (root_motion(p, meshes, TIMES, trusted).root_to_world for p in (poses, spoiled))
    assert np.array_equal(a, b)
    assert rotation_angle_deg(b[7, :3, :3], _yaw(60 * 7 / (COUNT - 1))) < 2


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_keyframes_are_taken_as_they_are(count: int) -> None:
    roots, poses, meshes = _walk(60, (0.08, 0.03))
    found = root_motion(poses[:count], meshes[:count], TIMES[:count], np.ones(count, bool))
    assert np.allclose(found.root_to_world[:, [0, 2], 3], roots[:count, [0, 2], 3], atol=1e-4)
    assert rotation_angle_deg(found.root_to_world[:, :3, :3], roots[:count, :3, :3]).max() < 0.1
    assert found.travel == pytest.approx(np.hypot(0.08, 0.03) * (count - 1), abs=1e-3)
