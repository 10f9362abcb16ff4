from __future__ import annotations

import itertools

import numpy as np
import pytest

from v2m4.camera.keyframe import Hypothesis
from v2m4.camera.track import Placement, between, bridged, choose, confidence, doubts, merged, warm_starts
from v2m4.transforms import rotation_angle_deg, rotation_from_vector


def _yaw(degrees: float) -> np.ndarray:
    return rotation_from_vector(np.array([0, np.radians(degrees), 0]))


def _hypothesis(degrees: float, iou: float, color: float = 0.0) -> Hypothesis:
    return Hypothesis(_yaw(degrees), np.array([0, 0, 2.0]), np.zeros(3), iou, color, 0.0)


def test_a_symmetric_object_never_jumps() -> None:
    """Four equal sides, 15 degrees a frame, the scores of the four differ by noise only."""
    rng = np.random.default_rng(0)
    known = [[_hypothesis(15 * k + 90 * q, 0.9 + 0.005 * rng.normal()) for q in range(4)] for k in range(12)]
    chosen = [h[c] for h, c in zip(known, choose(known), strict=True)]
    steps = [float(rotation_angle_deg(a.rotation, b.rotation)) for a, b in itertools.pairwise(chosen)]
    assert np.allclose(steps, 15)


def test_a_weak_flip_is_overruled_and_a_clear_one_is_not() -> None:
    clip = [[_hypothesis(3 * k, 0.9), _hypothesis(3 * k + 180, 0.6)] for k in range(7)]
    clip[3] = [_hypothesis(189, 0.90), _hypothesis(9, 0.85)]
    assert choose(clip)[3] == 1
    clip[3] = [_hypothesis(189, 0.90), _hypothesis(9, 0.60)]
    assert choose(clip)[3] == 0


def test_neighbours_are_starts_only_where_they_say_something_new() -> None:
    chosen = [_hypothesis(0, 0.9), _hypothesis(100, 0.7), _hypothesis(4, 0.9)]
    starts = warm_starts(chosen, [[h] for h in chosen])
    assert [len(s) for s in starts] == [0, 1, 0]  # the two neighbours of frame 1 agree; it is not trusted itself
    assert rotation_angle_deg(starts[1][0], _yaw(0)) < 1e-9
    close = [_hypothesis(3 * k, 0.9) for k in range(3)]
    assert [len(s) for s in warm_starts(close, [[h] for h in close])] == [0, 0, 0]


def test_merging_keeps_the_better_of_two_that_are_close() -> None:
    out = merged([_hypothesis(0, 0.8), _hypothesis(90, 0.7)], [_hypothesis(5, 0.9)], 12.0)
    assert [h.iou for h in out] == [0.9, 0.7]


def test_an_outlier_is_not_trusted_and_the_reason_is_said() -> None:
    found = doubts([_hypothesis(0, iou) for iou in [0.91, 0.9, 0.92, 0.6, 0.9, 0.89, 0.91]])
    assert [bool(d) for d in found] == [k == 3 for k in range(7)]
    assert found[3] == "silhouettes agree to 0.60, in the clip to 0.90"
    assert doubts([_hypothesis(0, 0.3)]) == ["silhouettes agree to 0.30 only"]
    found = doubts([_hypothesis(0, 0.9, color) for color in [0.8, 0.78, 0.82, 0.1, 0.79]])
    assert [bool(d) for d in found] == [k == 3 for k in range(5)]
    assert "colours" in found[3]


def test_a_bad_keyframe_is_started_from_the_trusted_ones_on_both_sides_and_from_between() -> None:
    turns, bad = [0, 10, 100, -120, 40, 50], (2, 3)
    chosen = [_hypothesis(turn, 0.5 if k in bad else 0.9) for k, turn in enumerate(turns)]
    starts = warm_starts(chosen, [[h] for h in chosen])
    assert [len(s) for s in starts] == [0, 1, 2, 2, 1, 0]  # what lies between is within 15 degrees of one side
    for k in bad:
        assert rotation_angle_deg(starts[k][0], _yaw(10)) < 1e-6
        assert rotation_angle_deg(starts[k][1], _yaw(40)) < 1e-6
    wide = [_hypothesis(0, 0.9), _hypothesis(170, 0.4), _hypothesis(60, 0.9)]
    middle = warm_starts(wide, [[h] for h in wide])[1][2]
    assert rotation_angle_deg(middle, _yaw(30)) < 1e-6


def test_confidence_falls_with_the_silhouette_and_with_a_rival() -> None:
    sure = _hypothesis(0, 0.92)
    assert confidence(sure, [sure]) == 1.0
    assert confidence(sure, [sure, _hypothesis(180, 0.91)]) < 0.7
    assert confidence(sure, [sure, _hypothesis(10, 0.91)]) == 1.0
    assert confidence(_hypothesis(0, 0.5), []) == 0.0


@pytest.mark.parametrize("angle", [0.0, 1e-7, 40.0, 179.9, 180.0])
def test_between_goes_the_short_way_at_constant_speed(angle: float) -> None:
    a, b = _yaw(20), _yaw(20 + angle)
    middle = between(a, b, 0.25)
    assert rotation_angle_deg(a, middle) == pytest.approx(angle / 4, abs=1e-5)
    assert rotation_angle_deg(middle, b) == pytest.approx(angle * 3 / 4, abs=1e-5)


def test_bad_keyframes_are_bridged_in_time() -> None:
    rotations = np.stack([_yaw(d) for d in (0, 170, 40, -90)])
    positions = np.array([[0, 0, 2.0], [9, 9, 9.0], [0.4, 0, 4.0], [5, 5, 5.0]])
    times = np.array([0.0, 0.1, 0.4, 0.5])
    out = bridged(Placement(rotations, positions), times, np.array([True, False, True, False]))
    assert rotation_angle_deg(out.rotations[1], _yaw(10)) < 1e-6
    assert out.positions[1, 2] == pytest.approx(2 * 2**0.25)
    assert out.positions[1, 0] / out.positions[1, 2] == pytest.approx(0.025)
    assert np.array_equal(out.positions[3], positions[2])
    assert np.array_equal(out.positions[[0, 2]], positions[[0, 2]])
