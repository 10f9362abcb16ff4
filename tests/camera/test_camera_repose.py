from __future__ import annotations

import numpy as np
import pytest
from camera_cases import creature, pose

from v2m4.camera.repose import build_world, object_axes, viewing_cameras
from v2m4.transforms import apply, project, rotation_angle_deg, split_similarity
from v2m4.types import Mesh


def _clip(count: int = 5) -> tuple[np.ndarray, list[Mesh]]:
    """The creature walks to the right and turns a little about a level camera that looks down by 20 degrees; every mesh
    has another scale."""
    scales = 0.8 + 0.1 * np.arange(count)
    poses = np.stack([pose(30 + 4 * (k - 2), 20, at=(0.1 * k, 0.1, 2.5)) for k in range(count)])
    poses[:, :3, :3] *= scales[:, None, None]
    meshes = [creature().moved(creature().vertices / s) for s in scales]
    return poses, meshes


def test_the_world_camera_sees_every_mesh_where_its_own_camera_did() -> None:
    poses, meshes = _clip()
    world = build_world(poses, meshes, np.ones(5, bool), 1.7)
    K = np.array([[300.0, 0, 160], [0, 300, 120], [0, 0, 1]])
    for k, mesh in enumerate(meshes):
        before = project(apply(poses[k], mesh.vertices.astype(float)), K)
        placed = apply(world.mesh_to_world[k], mesh.vertices.astype(float))
        assert np.abs(project(apply(world.world_to_camera, placed), K) - before).max() < 1e-9


def test_the_object_stands_upright_on_the_ground_with_the_asked_size() -> None:
    poses, meshes = _clip()
    world = build_world(poses, meshes, np.ones(5, bool), 1.7)
    points = [apply(m, mesh.vertices.astype(float)) for m, mesh in zip(world.mesh_to_world, meshes, strict=True)]
    extents = [np.ptp(p, axis=0).max() for p in points]
    assert np.median(extents) == pytest.approx(1.7)
    assert min(p[:, 1].min() for p in points) == pytest.approx(0, abs=1e-9)
    assert np.abs((points[0].min(0) + points[0].max(0))[[0, 2]]).max() < 1e-9
    assert points[4][:, 0].mean() - points[0][:, 0].mean() > 0.3  # it still walks
    _, rotation, _ = split_similarity(world.mesh_to_world[2])
    assert rotation_angle_deg(rotation) < 0.1  # the middle of a symmetric turn


def test_keyframes_that_are_not_trusted_have_no_say() -> None:
    poses, meshes = _clip()
    trusted = np.array([True, True, True, False, True])
    spoiled = poses.copy()
    spoiled[3] = pose(200, -60, 90, at=(3, 3, 9)) @ np.diag([5.0, 5, 5, 1])
    a, b = (build_world(p, meshes, trusted, 1.0) for p in (poses, spoiled))
    assert np.array_equal(a.world_to_camera, b.world_to_camera)
    assert np.array_equal(a.mesh_to_world[:3], b.mesh_to_world[:3])


def test_a_spike_that_hangs_down_does_not_lift_the_rest() -> None:
    poses, meshes = _clip()
    vertices = meshes[2].vertices.copy()
    vertices[0, 1] -= 3
    spoiled = [*meshes[:2], meshes[2].moved(vertices), *meshes[3:]]
    clean, found = (build_world(poses, m, np.ones(5, bool), 1.0) for m in (meshes, spoiled))
    for k in (0, 1, 3, 4):
        assert np.abs(found.mesh_to_world[k][1, 3] - clean.mesh_to_world[k][1, 3]) < 0.02


def test_an_object_that_jumps_stands_where_it_lands() -> None:
    heights = np.abs(np.sin(0.7 * np.arange(20)))
    poses = np.stack([pose(30, 0, at=(0, 0.5 - height, 4)) for height in heights])  # y is down in the camera
    world = build_world(poses, [creature()] * 20, np.ones(20, bool), 1.0)
    lowest = [apply(m, creature().vertices.astype(float))[:, 1].min() for m in world.mesh_to_world]
    assert lowest == pytest.approx((heights - heights.min()) * world.unit, abs=1e-6)


def test_one_flipped_mesh_does_not_turn_the_world() -> None:
    rotations = np.stack([pose(30 + k)[:3, :3] for k in range(7)] + [pose(213)[:3, :3]])
    assert rotation_angle_deg(object_axes(rotations), pose(33)[:3, :3]) < 2


def test_an_object_that_turns_all_the_way_round_takes_the_first_front() -> None:
    rotations = np.stack([pose(yaw, 15)[:3, :3] for yaw in range(0, 360, 30)])
    assert rotation_angle_deg(object_axes(rotations), rotations[0]) < 1e-6


def test_preview_cameras_see_everything() -> None:
    poses, meshes = _clip()
    world = build_world(poses, meshes, np.ones(5, bool), 1.0)
    placed = [m.moved(apply(t, m.vertices.astype(float))) for m, t in zip(meshes, world.mesh_to_world, strict=True)]
    for camera in viewing_cameras(placed, 100):
        pixels = np.concatenate(
            [project(apply(camera.world_to_camera, m.vertices.astype(float)), camera.K) for m in placed]
        )
        assert pixels.min() > 0
        assert pixels.max() < 100
