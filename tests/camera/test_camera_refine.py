from __future__ import annotations

import numpy as np
import pytest
from camera_cases import creature, photograph, pose

from v2m4.camera.refine import Level, Poses, refine
from v2m4.camera.subject import Subject
from v2m4.camera.view import make_view
from v2m4.transforms import rotation_angle_deg, rotation_from_vector, split_similarity

LEVELS = (Level(64, 2.5, 8), Level(128, 2.0, 8))


def _case(colored: bool = True):
    true = pose(35, 15)
    image, K = photograph(creature(), true)
    view, subject = make_view(image, K, 128), Subject.of(creature(colored))
    _, rotation, translation = split_similarity(true)
    return view, subject, view.rotation @ rotation, view.rotation @ (translation + rotation @ subject.centre)


def _disturbed(rotation: np.ndarray, position: np.ndarray, count: int) -> Poses:
    """Turned by 8 degrees about some axis, 2 % too far, 1 % aside."""
    rng = np.random.default_rng(1)
    axes = rng.normal(size=(count, 3))
    turns = rotation_from_vector(axes / np.linalg.norm(axes, axis=1, keepdims=True) * np.radians(8))
    positions = position * 1.02 + rng.normal(size=(count, 3)) * [0.01, 0.01, 0]
    return Poses(turns @ rotation, positions, np.zeros(count))


@pytest.mark.parametrize("colored", [True, False])
def test_a_disturbed_pose_is_found_again(colored: bool) -> None:
    view, subject, rotation, position = _case(colored)
    poses = _disturbed(rotation, position, 4)
    for level in LEVELS:
        poses = refine(view, subject, poses, level)
    assert rotation_angle_deg(poses.rotations, rotation).max() < (0.6 if colored else 1.0)
    shift = poses.positions[:, :2] / poses.positions[:, 2:] - position[:2] / position[2]
    assert np.abs(shift).max() < 0.002
    assert np.abs(poses.positions[:, 2] / position[2] - 1).max() < 0.01


def test_the_cost_never_rises_and_the_same_input_gives_the_same_bits() -> None:
    view, subject, rotation, position = _case()
    start = _disturbed(rotation, position, 3)
    costs = [refine(view, subject, start, Level(64, 2.5, n)).costs for n in (0, 1, 2, 4, 8)]
    assert (np.diff(costs, axis=0) <= 0).all()
    assert (costs[-1] < 0.2 * costs[0]).all()
    a, b = (refine(view, subject, start, LEVELS[0]) for _ in range(2))
    assert a.rotations.tobytes() == b.rotations.tobytes()
    assert a.positions.tobytes() == b.positions.tobytes()


def test_poses_side_by_side_do_not_touch_each_other() -> None:
    view, subject, rotation, position = _case()
    start = _disturbed(rotation, position, 3)
    together = refine(view, subject, start, LEVELS[0])
    alone = refine(view, subject, start[np.array([1])], LEVELS[0])
    assert np.allclose(together.rotations[1], alone.rotations[0], atol=1e-9)


def test_a_tint_and_an_exposure_do_not_move_the_pose() -> None:
    view, subject, rotation, position = _case()
    tinted = Subject(subject.vertices, subject.faces, subject.colors * [0.8, 0.7, 0.6] + 0.05, subject.centre)
    poses = _disturbed(rotation, position, 3)
    for level in LEVELS:
        poses = refine(view, tinted, poses, level)
    assert rotation_angle_deg(poses.rotations, rotation).max() < 1.0
