from __future__ import annotations

import numpy as np
import pytest
from camera_cases import creature, photograph, pose

from v2m4.camera.objective import agreement
from v2m4.camera.subject import Subject
from v2m4.camera.view import make_view
from v2m4.errors import InputError
from v2m4.transforms import split_similarity


@pytest.mark.parametrize("width, height", [(256, 256), (400, 240)])
def test_the_view_shows_what_a_turned_camera_would_see(width: int, height: int) -> None:
    """The pose of the frame, turned into the view, draws exactly the view: homography, lens and axes agree."""
    mesh, true = creature(), pose(35, 15, 20, at=(0.35, 0.2, 2.2))
    image, K = photograph(mesh, true, width, height)
    view, subject = make_view(image, K, 128), Subject.of(mesh)
    _, rotation, translation = split_similarity(true)
    turned = view.rotation @ rotation
    position = view.rotation @ (translation + rotation @ subject.centre)
    drawing = subject.draw(turned[None], position[None], view.K, view.size, supersample=4)[0]
    found = agreement(view, drawing, turned)
    assert found.iou > 0.97
    assert found.color > 0.97
    assert np.abs(view.rotation @ view.rotation.T - np.eye(3)).max() < 1e-12


def test_pixels_past_the_edge_of_the_frame_are_marked() -> None:
    image, K = photograph(creature(), pose(0, at=(0.8, 0, 2.2)))
    view = make_view(image, K, 64)
    assert 0.1 < view.inside.mean() < 0.9
    assert view.coverage[view.inside == 0].max() == 0


def test_a_frame_without_an_object_is_refused() -> None:
    with pytest.raises(InputError, match="no object"):
        make_view(np.zeros((32, 32, 4), np.uint8), np.diag([30.0, 30, 1]), 64)


def test_fewer_pixels_keep_the_area() -> None:
    image, K = photograph(creature(), pose(0))
    view = make_view(image, K, 128)
    small = view.resized(32)
    assert small.coverage.sum() * 16 == pytest.approx(view.coverage.sum(), rel=1e-4)
    assert small.focal == view.focal / 4
