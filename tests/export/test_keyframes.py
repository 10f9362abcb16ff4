from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from v2m4.errors import InputError
from v2m4.export.keyframes import choose_poses, hat_weights, interpolation_error, morph_track
from v2m4.types import AnimatedMesh

FACES = np.array([[0, 1, 2]])
TRIANGLE = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]])


def animation(offsets: np.ndarray, times: np.ndarray | None = None) -> AnimatedMesh:
    """A triangle whose first corner goes to x = offset at each time."""
    positions = np.tile(TRIANGLE, (len(offsets), 1, 1))
    positions[:, 0, 0] += offsets
    return AnimatedMesh(FACES, positions, np.arange(len(offsets)) / 10 if times is None else times)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=12), st.lists(st.floats(-1, 15), min_size=1, max_size=12))
def test_hat_weights_interpolate_like_numpy(gaps: list[float], keys: list[float]) -> None:
    poses = np.cumsum(gaps)
    weights = hat_weights(poses, np.array(keys))
    values = np.sin(np.arange(len(poses)) * 3.0)
    np.testing.assert_allclose(weights @ values, np.interp(keys, poses, values), atol=1e-9)
    assert weights.min() >= 0 and (weights != 0).sum(1).max() <= 2
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-12)


def test_all_poses_are_kept_within_the_budget() -> None:
    track = morph_track(animation(np.array([0, 1, 0.5, 2])), np.arange(4) / 10, 3)
    assert track.targets.tolist() == [1, 2, 3]
    np.testing.assert_array_equal(track.weights, np.eye(4, dtype=np.float32)[:, 1:])
    assert track.reduction.max_percent == 0


def test_a_piecewise_linear_motion_is_reduced_to_its_corners_without_error() -> None:
    corners = [0, 7, 11, 20, 29]
    offsets = np.interp(np.arange(30), corners, [0, 2, -1, 3, 0.5])
    moving = animation(offsets)
    assert choose_poses(moving.positions, moving.times_s, 5).tolist() == corners
    track = morph_track(moving, moving.times_s, 4)
    assert track.reduction.max_percent < 1e-4 and track.targets.tolist() == corners[1:]


def test_the_choice_is_the_best_of_all_choices() -> None:
    """Against every possible choice, on a motion small enough to try them all."""
    from itertools import combinations

    rng = np.random.default_rng(5)
    offsets = np.cumsum(rng.normal(size=11))
    times = np.cumsum(rng.uniform(0.02, 0.2, 11))
    moving = animation(offsets, times)
    kept = choose_poses(moving.positions, times, 5)
    _, found = interpolation_error(moving.positions, times, kept)
    every = [(0, *middle, 10) for size in range(4) for middle in combinations(range(1, 10), size)]
    best = min(interpolation_error(moving.positions, times, np.array(choice))[1] for choice in every)
    assert found == pytest.approx(best, rel=1e-5)


def test_reported_error_is_the_distance_in_per_cent_of_the_diagonal() -> None:
    moving = animation(np.array([0, 0.5, 0]))
    mean, worst = interpolation_error(moving.positions, moving.times_s, np.array([0, 2]))
    assert worst == pytest.approx(100 * 0.5 / np.sqrt(2), rel=1e-6)
    assert mean == pytest.approx(worst / 9, rel=1e-6)  # one of three vertices in one of three poses


def test_300_poses_become_64_targets_evenly_good() -> None:
    phase = np.linspace(0, 6 * np.pi, 300)
    moving = animation(np.sin(phase))
    track = morph_track(moving, moving.times_s, 64)
    assert len(track.targets) <= 64
    _, worst = interpolation_error(moving.positions, moving.times_s, np.linspace(0, 299, 65).round().astype(int))
    assert track.reduction.max_percent < worst and track.reduction.max_percent < 1.0
    again = morph_track(moving, moving.times_s, 64)
    np.testing.assert_array_equal(track.targets, again.targets)


def test_long_stills_cost_nothing() -> None:
    offsets = np.concatenate([np.zeros(120), np.linspace(0, 1, 20) ** 2, np.ones(120)])
    moving = animation(offsets)
    track = morph_track(moving, moving.times_s, 24)
    assert track.reduction.max_percent < 0.1 and len(track.targets) <= 24


def test_poses_equal_to_the_first_need_no_target() -> None:
    track = morph_track(animation(np.array([0, 1.0, 0, 2.0])), np.arange(4) / 10, 64)
    assert track.targets.tolist() == [1, 3]
    np.testing.assert_array_equal(track.weights, np.array([[0, 0], [1, 0], [0, 0], [0, 1]], np.float32))


@pytest.mark.parametrize("poses", [1, 5])
def test_without_motion_there_is_no_track(poses: int) -> None:
    track = morph_track(animation(np.zeros(poses)), np.arange(5) / 10, 64)
    assert len(track.targets) == len(track.key_times_s) == track.weights.size == 0


def test_every_frame_is_a_key_and_frames_without_a_pose_lie_on_the_line() -> None:
    times = np.array([1.0, 1.04, 1.1, 1.2, 1.23])
    moving = animation(np.array([0, 2.0]), times[[1, 3]])
    track = morph_track(moving, times, 64)
    np.testing.assert_array_equal(track.key_times_s, (times - 1.0).astype(np.float32))
    np.testing.assert_allclose(track.weights[:, 0], [0, 0, 0.375, 1, 1], atol=1e-7)


def test_a_pose_outside_the_clip_is_refused() -> None:
    with pytest.raises(InputError, match="belongs to no frame"):
        morph_track(animation(np.array([0, 1.0]), np.array([0, 0.15])), np.arange(4) / 10, 64)


def test_frames_too_close_for_float32_are_refused() -> None:
    times = np.array([0, 5000.0, 5000.0001])
    with pytest.raises(InputError, match="frame 2 is too close in time"):
        morph_track(animation(np.array([0, 1.0, 2.0]), times), times, 64)
