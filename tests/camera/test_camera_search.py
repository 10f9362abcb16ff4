from __future__ import annotations

import numpy as np
import pytest
from camera_cases import creature, photograph, pose

from v2m4.camera.search import SearchOptions, _moments, fibonacci_directions, fit_positions, search
from v2m4.camera.subject import Subject
from v2m4.camera.view import make_view
from v2m4.transforms import rotation_angle_deg

OPTIONS = SearchOptions(directions=200, rolls=24, size=48)


@pytest.mark.parametrize("colored", [True, False])
@pytest.mark.parametrize("yaw, pitch, roll", [(30, 10, 0), (200, 20, 0), (-70, -30, 60), (10, 15, 180)])
def test_the_best_sample_is_near_the_truth(colored: bool, yaw: float, pitch: float, roll: float) -> None:
    """From any side and with any roll, with and without colours."""
    mesh, true = creature(colored), pose(yaw, pitch, roll)
    image, K = photograph(creature(), true)
    view = make_view(image, K, 96)
    samples = search(view, Subject.of(mesh), OPTIONS)
    wanted = view.rotation @ true[:3, :3]
    assert min(rotation_angle_deg(s.rotation, wanted) for s in samples[: 1 if colored else 2]) < 15
    best = min(samples, key=lambda s: rotation_angle_deg(s.rotation, wanted))
    assert best.position[2] == pytest.approx(2.4, rel=0.06)


def test_hypotheses_are_apart_and_best_first() -> None:
    image, K = photograph(creature(), pose(30))
    samples = search(make_view(image, K, 96), Subject.of(creature()), OPTIONS)
    scores = [s.score for s in samples]
    assert len(samples) == OPTIONS.keep
    assert scores == sorted(scores, reverse=True)
    rotations = np.stack([s.rotation for s in samples])
    angles = rotation_angle_deg(rotations[:, None] @ np.swapaxes(rotations, 1, 2)[None])
    assert angles[~np.eye(len(samples), dtype=bool)].min() >= OPTIONS.apart_deg


def test_fitted_silhouettes_have_the_area_and_the_place_of_the_target() -> None:
    image, K = photograph(creature(), pose(30))
    view, subject = make_view(image, K, 96), Subject.of(creature())
    rotations = np.stack([view.rotation @ pose(y, 20)[:3, :3] for y in (0, 40, 90, 250)])
    positions = fit_positions(view, subject, rotations, passes=3)
    area, centroid = _moments(subject.masks(rotations, positions, view.K, view.size).astype(np.float32))
    wanted_area, wanted = _moments(view.coverage[None])
    assert np.abs(area / wanted_area - 1).max() < 0.02
    assert np.abs(centroid - wanted).max() < 0.5


def test_directions_cover_the_sphere_evenly() -> None:
    directions = fibonacci_directions(300)
    cosines = directions @ directions.T - 2 * np.eye(300)
    nearest = np.degrees(np.arccos(cosines.max(1)))
    assert np.abs(np.linalg.norm(directions, axis=1) - 1).max() < 1e-12
    assert nearest.min() > 8
    assert nearest.max() < 14
    assert np.abs(directions.mean(0)).max() < 0.01
