"""Objects and pictures with known poses for the tests of the camera."""

from __future__ import annotations

import numpy as np
import trimesh

from v2m4.render.shade import render_mesh
from v2m4.transforms import WORLD_FRONT_TO_CAMERA, apply, fov_to_K, rigid, rotation_from_vector
from v2m4.types import Camera, Mesh


def creature(colored: bool = True, seed: int = 0) -> Mesh:
    """A body with a head, a tail, and four legs of different lengths, +Y up, front +Z: no view is like another."""
    parts = [
        ((0, 0, 0), (0.14, 0.15, 0.3), (200, 120, 40)),
        ((0.02, 0.16, 0.32), (0.1, 0.1, 0.12), (240, 220, 200)),
        ((-0.02, 0.1, -0.36), (0.04, 0.05, 0.16), (60, 40, 30)),
        ((0.1, -0.2, 0.2), (0.04, 0.15, 0.04), (40, 60, 160)),
        ((-0.1, -0.2, 0.2), (0.04, 0.14, 0.04), (60, 150, 60)),
        ((0.1, -0.2, -0.2), (0.05, 0.13, 0.04), (150, 30, 30)),
        ((-0.1, -0.22, -0.16), (0.04, 0.17, 0.05), (90, 90, 90)),
    ]
    rng = np.random.default_rng(seed)
    vertices, faces, colors, count = [], [], [], 0
    for centre, radii, color in parts:
        ball = trimesh.creation.icosphere(subdivisions=2)
        vertices.append(ball.vertices * radii + centre)
        faces.append(ball.faces + count)
        spots = 30 * np.sin(ball.vertices @ rng.normal(size=(3, 3)) * 4)
        colors.append(np.clip(np.array(color) + spots, 0, 255))
        count += len(ball.vertices)
    shade = np.concatenate(colors).astype(np.uint8) if colored else None
    return Mesh(np.concatenate(vertices), np.concatenate(faces), shade)


def pose(yaw_deg: float, pitch_deg: float = 10.0, roll_deg: float = 0.0, at: tuple = (0.1, -0.05, 2.4)) -> np.ndarray:
    """(4,4) mesh to camera: turned by ``yaw_deg``, seen from ``pitch_deg`` above, camera rolled."""
    yaw, pitch, roll = np.radians([yaw_deg, pitch_deg, roll_deg])
    turn = rotation_from_vector(np.array([[0, yaw, 0], [pitch, 0, 0], [0, 0, roll]]))
    return rigid(turn[2] @ WORLD_FRONT_TO_CAMERA @ turn[1] @ turn[0], np.array(at, float))


def photograph(mesh: Mesh, mesh_to_camera: np.ndarray, width: int = 256, height: int = 256, fov: float = 40.0):
    """(H,W,4) uint8 picture of the mesh and the lens (3,3)."""
    K = fov_to_K(fov, width, height)
    placed = mesh.moved(apply(mesh_to_camera, mesh.vertices.astype(np.float64)))
    return render_mesh(placed, Camera(K, np.eye(4), width, height), supersample=3), K
