from __future__ import annotations

import numpy as np
import pytest

from v2m4.camera.egomotion import Egomotion, fit_scale, solve
from v2m4.camera.sightings import Tracks
from v2m4.transforms import apply, fov_to_K, look_at, rigid, rotation_angle_deg, rotation_from_vector

K = fov_to_K(40, 640, 480)


def _tracks(cameras: np.ndarray, outliers: float = 0.1, noise: float = 0.2, points: int = 500, seed: int = 0) -> Tracks:
    """Points at depths of 3 to 9 seen by ``cameras`` (T,4,4, world to camera); some tracks drift on their own."""
    rng = np.random.default_rng(seed)
    world = rng.uniform((-4, -3, 3), (4, 3, 9), (points, 3))
    drift = np.where(rng.random((points, 1)) < outliers, rng.normal(0, 3.0, (points, 2)), 0)
    rows = []
    for t, camera in enumerate(cameras):
        placed = apply(camera, world)
        xy = placed[:, :2] / placed[:, 2:] * K[0, 0] + K[:2, 2] + noise * rng.normal(size=(points, 2)) + t * drift
        inside = (xy > 0).all(1) & (xy[:, 0] < 640) & (xy[:, 1] < 480) & (placed[:, 2] > 0.5)
        rows += [(j, t, *xy[j]) for j in np.flatnonzero(inside)]
    table = np.array(rows)
    return Tracks(table[:, 0].astype(int), table[:, 1].astype(int), table[:, 2:])


def _turned(degrees: float) -> np.ndarray:
    return rigid(rotation_from_vector(np.array([0.2, 1.0, 0.05]) * np.radians(degrees)), np.zeros(3))


@pytest.mark.parametrize("outliers", [0.1, 0.4])
def test_a_still_camera_is_still_whatever_some_points_do(outliers: float) -> None:
    found = solve(_tracks(np.tile(np.eye(4), (12, 1, 1)), outliers), K, 12)
    assert found.kind == "still" and found.fixed
    assert np.array_equal(found.camera_to_start, np.tile(np.eye(4), (12, 1, 1)))


@pytest.mark.parametrize("outliers", [0.0, 0.4])
def test_a_pan_is_a_turn(outliers: float) -> None:
    cameras = np.stack([_turned(20 * t / 15) for t in range(16)])
    found = solve(_tracks(cameras, outliers), K, 16)
    assert found.kind == "turning"
    for t in range(16):
        assert rotation_angle_deg(found.camera_to_start[t][:3, :3], np.linalg.inv(cameras[t])[:3, :3]) < 0.3
    assert np.abs(found.camera_to_start[:, :3, 3]).max() == 0


def _travel(count: int) -> np.ndarray:
    """Along a bow of a fifth of the scene, looking at its middle."""
    eyes = [np.array([1.2 * np.sin(0.1 * t), 0.1 * t / count, 0.3 * (1 - np.cos(0.1 * t))]) for t in range(count)]
    return np.stack([look_at(eye, (0, 0, 6.0)) for eye in eyes])


@pytest.mark.parametrize("outliers", [0.0, 0.3])
def test_a_travelling_camera_is_found_up_to_one_factor(outliers: float) -> None:
    cameras = _travel(14)
    found = solve(_tracks(cameras, outliers), K, 14)
    assert found.kind == "moving"
    true = np.stack([cameras[0] @ np.linalg.inv(c) for c in cameras])
    for t in range(14):
        assert rotation_angle_deg(found.camera_to_start[t][:3, :3], true[t][:3, :3]) < 0.7
    way, wanted = found.camera_to_start[-1, :3, 3], true[-1, :3, 3]
    assert way @ wanted / np.linalg.norm(way) / np.linalg.norm(wanted) > np.cos(np.radians(3))


@pytest.mark.parametrize("step", [(0, 0, 0), (0.04, 0, -0.02)])
def test_an_object_that_stands_or_walks_straight_gives_the_factor_of_the_travel(step: tuple) -> None:
    cameras = _travel(14)
    true = np.stack([cameras[0] @ np.linalg.inv(c) for c in cameras])
    motion = Egomotion("moving", true).scaled(1 / 2.5)
    rng = np.random.default_rng(0)
    path = np.array([0.3, 0.2, 5.0]) + np.outer(np.arange(14), step) + 0.005 * rng.normal(size=(14, 3))
    positions = np.stack([apply(np.linalg.inv(m), p[None])[0] for m, p in zip(true, path, strict=True)])
    frames, times = list(range(14)), np.arange(14) / 8
    assert fit_scale(positions, motion, frames, times) == pytest.approx(2.5, rel=0.05)
    still = Egomotion("moving", np.tile(np.eye(4), (14, 1, 1)))
    assert fit_scale(positions, still, frames, times) is None


def test_a_camera_on_a_line_does_not_tell_how_far_it_went() -> None:
    line = np.tile(np.eye(4), (14, 1, 1))
    line[:, 0, 3] = 0.1 * np.arange(14)
    positions = np.tile([0.0, 0, 4.0], (14, 1)) + 0.005 * np.random.default_rng(0).normal(size=(14, 3))
    assert fit_scale(positions, Egomotion("moving", line), list(range(14)), np.arange(14) / 8) is None


def test_what_fits_no_camera_and_what_is_not_there_is_unknown() -> None:
    rng = np.random.default_rng(1)
    frames = np.repeat(np.arange(8), 60)
    anywhere = Tracks(np.tile(np.arange(60), 8), frames, rng.uniform(0, 480, (480, 2)))
    assert solve(anywhere, K, 8).kind == "unknown"
    nothing = Tracks(np.zeros(0, int), np.zeros(0, int), np.zeros((0, 2)))
    assert solve(nothing, K, 8).kind == "unknown"
    assert solve(nothing, K, 8).fixed
