"""A network stands in that knows the true points and gives them in a frame of its own, with noise and outliers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from camera_cases import creature, photograph, pose

from v2m4.camera.stereo import guess, similarity
from v2m4.camera.subject import Subject
from v2m4.camera.view import View, make_view
from v2m4.protocols import PointMaps
from v2m4.transforms import rotation_angle_deg, rotation_from_vector

LEVEL = np.array([[1.0, 0, 0], [0, -1, 0], [0, 0, -1]])


def _turn(degrees: float) -> np.ndarray:
    return LEVEL @ rotation_from_vector(np.array([0, np.radians(degrees), 0]))


@dataclass
class Geometric:
    """Points of a subject at given poses, moved by one similarity; a share of them is anywhere."""

    subject: Subject
    rotations: np.ndarray
    positions: np.ndarray
    K: np.ndarray
    outliers: float = 0.3
    noise: float = 0.01
    name: str = "geometric"
    licence: str = "MIT"
    sizes: list = field(default_factory=list)

    def point_maps(self, images: np.ndarray) -> PointMaps:
        size = images.shape[1]
        self.sizes.append(images.shape)
        points = self.subject.points(self.rotations, self.positions, self.K, size).astype(float)
        rng = np.random.default_rng(4)
        points = points + self.noise * rng.normal(size=points.shape)
        wrong = rng.random(points.shape[:-1]) < self.outliers
        points[wrong] = rng.normal(size=(int(wrong.sum()), 3))
        away = rotation_from_vector(np.array([0.5, -1.2, 0.4]))
        moved = 3.7 * points @ away.T + [4.0, -2.0, 9.0]
        return PointMaps(moved.astype(np.float32), np.isfinite(points).all(-1).astype(np.float32))


def _case() -> tuple[View, Subject, np.ndarray, np.ndarray, np.ndarray]:
    true = pose(35, 12, 4)
    image, K = photograph(creature(), true, 128, 128)
    view, subject = make_view(image, K, 128), Subject.of(creature())
    references = np.stack([_turn(d) for d in (-60, 0, 70, 150, 240)])
    places = np.tile([0.0, 0, 2.4], (len(references), 1))
    true_position = view.rotation @ (true[:3, :3] @ subject.centre + true[:3, 3])
    return view, subject, references, places, np.concatenate([view.rotation @ true[:3, :3], true_position[:, None]], 1)


def _network(case: tuple, **how: float) -> Geometric:
    view, subject, references, places, true = case
    rotations = np.concatenate([true[None, :, :3], references])
    return Geometric(subject, rotations, np.concatenate([true[None, :, 3], places]), view.K, **how)


def test_the_pose_is_found_among_outliers_and_its_half_turn_goes_along() -> None:
    case = _case()
    view, subject, references, places, true = case
    network = _network(case)
    rotations, positions = guess(view, subject, references, places, network)
    assert network.sizes == [(6, 128, 128, 3)]
    assert rotation_angle_deg(rotations[0], true[:, :3]) < 2
    assert np.abs(positions[0] - true[:, 3]).max() < 0.03
    assert rotation_angle_deg(rotations[0], rotations[1]) == pytest.approx(180)
    again = guess(view, subject, references, places, network)
    assert np.array_equal(rotations, again[0]) and np.array_equal(positions, again[1])


def test_a_network_that_takes_the_front_for_the_back_is_put_right_by_the_half_turn() -> None:
    case = _case()
    view, subject, references, places, true = case
    network = _network(case, outliers=0.1)
    network.rotations = np.concatenate([(true[:, :3] @ np.diag([-1.0, 1, -1]))[None], references])
    shown = subject.points(network.rotations[:1], network.positions[:1], view.K, view.size)
    view = View(view.rotation, view.focal, np.isfinite(shown[0, ..., :1]).repeat(4, -1).astype(np.float32), view.inside)
    rotations, _ = guess(view, subject, references, places, network)
    assert rotation_angle_deg(rotations[1], true[:, :3]) < 3


@pytest.mark.parametrize("points", [np.nan, 0.0, "anywhere"])
def test_a_bad_answer_gives_no_pose(points: object) -> None:
    case = _case()
    view, subject, references, places, _ = case

    class Garbage:
        name, licence = "garbage", "MIT"

        def point_maps(self, images: np.ndarray) -> PointMaps:
            shape = (*images.shape[:3], 3)
            value = np.random.default_rng(1).normal(size=shape) if points == "anywhere" else np.full(shape, points)
            return PointMaps(value.astype(np.float32), np.ones(shape[:3], np.float32))

    rotations, positions = guess(view, subject, references, places, Garbage())
    assert rotations.shape == (0, 3, 3) and positions.shape == (0, 3)


def test_a_similarity_is_recovered_exactly_from_clean_pairs() -> None:
    rng = np.random.default_rng(0)
    source, rotation = rng.normal(size=(200, 3)), rotation_from_vector(np.array([1.0, -0.5, 2.0]))
    target = 0.3 * source @ rotation.T + [1, 2, 3]
    found = similarity(source, target, np.ones(200), 0.1)
    assert found is not None
    assert found[0] == pytest.approx(0.3) and np.allclose(found[1], rotation) and np.allclose(found[2], [1, 2, 3])
