from __future__ import annotations

import numpy as np
import pytest
from camera_cases import creature, photograph, pose

from v2m4.camera.correspond import Matches, fit, guess
from v2m4.camera.search import fit_positions
from v2m4.camera.subject import Subject
from v2m4.camera.view import View, make_view
from v2m4.transforms import rotation_angle_deg, rotation_from_vector


def _seen(yaw: float = 35.0) -> tuple[View, Subject, np.ndarray]:
    true = pose(yaw, 12, 4)
    image, K = photograph(creature(), true, 160, 160)
    view = make_view(image, K, 128)
    return view, Subject.of(creature()), view.rotation @ true[:3, :3]


@pytest.mark.parametrize("axis", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0.6, -0.5, 0.6)])
def test_a_pose_that_is_some_degrees_off_comes_within_one(axis: tuple) -> None:
    view, subject, true = _seen()
    start = (rotation_from_vector(np.array(axis, float) / np.linalg.norm(axis) * np.radians(10)) @ true)[None]
    positions = fit_positions(view, subject, start)
    rotations, found = guess(view, subject, start, positions, rounds=3)
    assert rotation_angle_deg(rotations[0], true) < 1
    drawn = subject.draw(rotations, found, view.K, view.size)[0, ..., 3]
    assert float(np.minimum(drawn, view.coverage).sum() / np.maximum(drawn, view.coverage).sum()) > 0.9


def test_what_cannot_be_matched_comes_back_as_it_was() -> None:
    view, subject, true = _seen()
    away = np.array([[0, 0, 400.0]])  # a dot
    rotations, positions = guess(view, subject, true[None], away)
    assert np.array_equal(rotations[0], true) and np.array_equal(positions, away)


def test_matches_with_outliers_give_the_exact_pose() -> None:
    rng = np.random.default_rng(2)
    points = rng.normal(size=(400, 3)) * 0.3
    rotation, position = rotation_from_vector(np.array([0.4, -0.7, 0.2])), np.array([0.1, -0.05, 2.5])
    K = np.array([[150.0, 0, 64], [0, 150, 64], [0, 0, 1]])
    placed = points @ rotation.T + position
    pixels = placed[:, :2] / placed[:, 2:] * 150 + 64
    pixels[:120] += rng.uniform(8, 30, (120, 2))
    start = rotation_from_vector(np.array([0.1, 0.05, -0.1])) @ rotation
    found, at = fit(Matches(points, pixels), K, start, position * 1.1, cauchy=1.0, steps=40)
    assert rotation_angle_deg(found, rotation) < 0.1
    assert np.abs(at - position).max() < 0.01


def test_the_same_matches_give_the_same_bits() -> None:
    view, subject, true = _seen()
    start = (rotation_from_vector(np.array([0.1, 0.1, 0.0])) @ true)[None]
    positions = fit_positions(view, subject, start)
    a, b = (guess(view, subject, start, positions) for _ in range(2))
    assert np.array_equal(a[0], b[0]) and np.array_equal(a[1], b[1])
