"""Poses that were brought along: what is read, what is refused, what lies between."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from camera_cases import creature, pose

from v2m4.camera.given import assemble, read_poses
from v2m4.errors import InputError
from v2m4.transforms import rigid, rotation_angle_deg, rotation_from_vector

GOOD = [(pose(10.0 * k) @ np.diag([0.9, 0.9, 0.9, 1.0])).tolist() for k in range(3)]


def _file(folder: Path, value: object) -> Path:
    path = folder / "poses.json"
    path.write_text(json.dumps(value))
    return path


def _changed(row: int, column: int, value: float) -> list:
    out = json.loads(json.dumps(GOOD))
    out[1][row][column] = value
    return out


@pytest.mark.parametrize("wrap", [lambda poses: poses, lambda poses: {"poses": poses}])
def test_a_list_or_a_table_is_read_and_null_stays_null(tmp_path: Path, wrap) -> None:
    found = read_poses(_file(tmp_path, wrap([GOOD[0], None, GOOD[2]])), 3)
    assert found.mesh_to_camera[1] is None and found.camera_to_start is None
    assert np.array_equal(found.mesh_to_camera[2], np.array(GOOD[2]))


def test_a_camera_that_moves_is_told_relative_to_its_start(tmp_path: Path) -> None:
    cameras = [rigid(rotation_from_vector(np.array([0, 0.1 * k, 0])), np.array([0.2 * k, 0, 2.0])) for k in range(3)]
    told = {"poses": GOOD, "world_to_camera": [c.tolist() for c in cameras]}
    found = read_poses(_file(tmp_path, told), 3)
    point = np.array([0.3, -0.2, 0.5, 1.0])  # of the world
    assert found.camera_to_start is not None
    for k in range(3):
        assert np.allclose(found.camera_to_start[k] @ (cameras[k] @ point), cameras[0] @ point)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({}, "no list of poses"),
        (GOOD[:2], "2 poses for a clip of 3 frames"),
        ([*GOOD[:2], [[1, 2], [3]]], "frame 2 is not a matrix"),
        ([*GOOD[:2], "north"], "frame 2 is not a matrix"),
        (_changed(0, 0, float("nan")), "frame 1 has a number that is not finite"),
        (_changed(0, 0, 3.0), "frame 1 is more than a rotation"),
        (_changed(3, 3, 2.0), "frame 1 is more than a rotation"),
        ([GOOD[0], (np.diag([-1.0, 1, 1, 1])).tolist(), GOOD[2]], "frame 1 mirrors"),
        ({"poses": GOOD, "world_to_camera": [GOOD[0], None, GOOD[2]]}, "world_to_camera of frame 0 is not rigid"),
        ({"poses": GOOD, "world_to_camera": 7}, "world_to_camera is not a list"),
    ],
)
def test_what_is_not_poses_is_refused_with_its_frame(tmp_path: Path, value: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_poses(_file(tmp_path, value), 3)


def test_poses_are_kept_and_a_missing_one_lies_between() -> None:
    meshes = [creature()] * 3
    poses = assemble([np.array(GOOD[0]), None, np.array(GOOD[2])], meshes, np.array([0.0, 0.1, 0.2]))
    assert [p.found for p in poses] == ["given", "bridged", "given"]
    assert [p.trusted for p in poses] == [True, False, True]
    for k in (0, 2):
        assert np.allclose(poses[k].matrix, GOOD[k], atol=1e-12)
    assert rotation_angle_deg(poses[1].world_to_camera[:3, :3], pose(10.0)[:3, :3]) < 0.5
    assert poses[1].scale == pytest.approx(0.9)


def test_no_answer_at_all_and_a_mesh_behind_the_camera_are_refused() -> None:
    with pytest.raises(InputError, match="no answer for any"):
        assemble([None], [creature()], np.zeros(1))
    with pytest.raises(InputError, match="behind the camera"):
        assemble([pose(0, at=(0, 0, -2.0))], [creature()], np.zeros(1))
