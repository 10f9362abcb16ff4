from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import trimesh
from camera_cases import creature, photograph, pose

from v2m4.camera.keyframe import KeyframeOptions
from v2m4.camera.lens import USUAL_DEG, _lowest, estimate
from v2m4.camera.search import SearchOptions
from v2m4.transforms import fov_to_K
from v2m4.types import Mesh

QUICK = KeyframeOptions(search=SearchOptions(120, 24, 40))
SIZE = 160


@pytest.mark.slow
@pytest.mark.parametrize("fov", [25.0, 40.0, 60.0])
def test_the_lens_is_found_to_some_degrees(fov: float) -> None:
    near = 0.85 / np.tan(np.radians(fov) / 2)
    images = [photograph(creature(), pose(yaw, 12, at=(0, 0, near)), SIZE, SIZE, fov)[0] for yaw in (15, 60, 200)]
    found = estimate(images, [creature()] * 3, partial(fov_to_K, width=SIZE, height=SIZE), QUICK)
    assert found.reason == ""
    assert found.fov_y_deg == pytest.approx(fov, rel=0.15)


@pytest.mark.slow
def test_a_ball_tells_nothing_of_the_lens() -> None:
    ball = trimesh.creation.icosphere(subdivisions=3, radius=0.5)
    mesh = Mesh(ball.vertices, ball.faces)
    images = [photograph(mesh, pose(0, at=(0, 0, 2.4)), SIZE, SIZE)[0]]
    found = estimate(images, [mesh], partial(fov_to_K, width=SIZE, height=SIZE), QUICK)
    assert found.fov_y_deg == USUAL_DEG and found.reason


def test_the_lowest_point_lies_between_the_lenses_tried() -> None:
    from v2m4.camera.lens import TRIED_DEG

    logs = -np.log(np.tan(np.radians(np.array(TRIED_DEG)) / 2))
    true = -np.log(np.tan(np.radians(37) / 2))
    costs = 1 + (logs - true) ** 2
    assert _lowest(costs, int(costs.argmin())) == pytest.approx(37, abs=0.1)
