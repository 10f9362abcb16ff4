"""All keyframes into one world: undo each camera, stand the object on the ground, give it a size.

Poses are those in a fixed camera, or in the first one of a camera that moves. The world's axes are the object's own on
average: its up is +Y, its front +Z. Only keyframes whose pose is trusted have a say.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from v2m4.transforms import apply, fov_to_K, look_at, nearest_rotation, rigid
from v2m4.types import Camera, Mesh

#: A mesh hangs by itself when its lowest point is this many robust deviations, and this share of the object's size,
#: below that of most.
STRAY_DEVIATIONS, STRAY_SHARE = 6.0, 0.08


@dataclass(frozen=True)
class World:
    """``world_to_camera`` (4,4) rigid, of the camera the poses were in; ``mesh_to_world`` (K,4,4) similarities; metres.
    One unit of that camera is ``unit`` metres."""

    world_to_camera: np.ndarray
    mesh_to_world: np.ndarray
    unit: float


def build_world(mesh_to_camera: np.ndarray, meshes: list[Mesh], trusted: np.ndarray, size_m: float) -> World:
    """One world for ``meshes`` with poses ``mesh_to_camera`` (K,4,4) in one camera.

    The object's largest extent is ``size_m`` in the median over the clip, its lowest point is y = 0, and the box of the
    first trusted keyframe is centred in x and z. A mesh that hangs far below all others (a spike, a lump) does not lift
    the rest off the ground. ``trusted`` (K,) bool; if none is, all count.
    """
    believed = np.flatnonzero(trusted) if trusted.any() else np.arange(len(meshes))
    scales = np.cbrt(np.linalg.det(mesh_to_camera[:, :3, :3]))
    axes = object_axes((mesh_to_camera[:, :3, :3] / scales[:, None, None])[believed])  # world -> camera
    turned = rigid(axes.T, np.zeros(3)) @ mesh_to_camera
    boxes = np.array([_box(turned[k], meshes[k]) for k in believed])
    unit = size_m / float(np.median((boxes[:, 1] - boxes[:, 0]).max(1)))
    boxes = boxes * unit
    middle = boxes[0].mean(0)
    origin = np.array([middle[0], _ground(boxes[:, 0, 1], size_m), middle[2]])
    to_world = rigid(np.eye(3), -origin) @ np.diag([unit, unit, unit, 1.0]) @ turned
    return World(rigid(axes, axes @ origin), to_world, unit)


def _ground(lowest: np.ndarray, size_m: float) -> float:
    """Height of the ground from the lowest points (N,) of the meshes: the lowest that is not by itself."""
    middle = float(np.median(lowest))
    spread = 1.4826 * float(np.median(np.abs(lowest - middle)))
    return float(lowest[lowest >= middle - max(STRAY_DEVIATIONS * spread, STRAY_SHARE * size_m)].min())


def object_axes(rotations: np.ndarray, rounds: int = 10) -> np.ndarray:
    """The object's mean axes in the camera (3,3) from its ``rotations`` (N,3,3) over the clip.

    Up is the robust mean of the object's ups; front is the robust mean of its fronts, as far as it is level. An object
    that turns all the way round has no front on average; then the first keyframe's counts.
    """
    up = _robust_direction(rotations[:, :, 1], rounds)
    if up is None:
        up = rotations[0, :, 1]
    level = rotations[:, :, 2] - (rotations[:, :, 2] @ up)[:, None] * up
    front = _robust_direction(level, rounds)
    if front is None:
        front = level[0] if np.linalg.norm(level[0]) > 1e-3 else rotations[0, :, 0]
    return nearest_rotation(np.stack([np.cross(up, front), up, front], 1))


def _robust_direction(vectors: np.ndarray, rounds: int) -> np.ndarray | None:
    """Unit vector (3,) near most of ``vectors`` (N,3), by weights that fall with distance; None if they cancel out."""
    weights = np.ones(len(vectors))
    if np.linalg.norm(vectors.mean(0)) < 0.2:
        return None
    mean = vectors.mean(0)
    for _ in range(rounds):
        mean = (weights[:, None] * vectors).sum(0) / weights.sum()
        mean = mean / np.linalg.norm(mean)
        weights = 1 / np.maximum(np.linalg.norm(vectors - mean, axis=1), 0.1)
    return mean


def _box(matrix: np.ndarray, mesh: Mesh) -> np.ndarray:
    """(2,3) lowest and highest corner of the used vertices."""
    points = apply(matrix, mesh.vertices[np.unique(mesh.faces)].astype(np.float64))
    return np.stack([points.min(0), points.max(0)])


def viewing_cameras(meshes: list[Mesh], size: int, fov_y_deg: float = 30.0) -> list[Camera]:
    """Cameras that see all of ``meshes`` (in world coordinates) from the front, from its left and from above."""
    boxes = np.array([_box(np.eye(4), m) for m in meshes])
    low, high = boxes[:, 0].min(0), boxes[:, 1].max(0)
    middle, radius = (low + high) / 2, float(np.linalg.norm(high - low)) / 2
    reach = 1.05 * radius / np.sin(np.radians(fov_y_deg) / 2)
    K = fov_to_K(fov_y_deg, size, size)
    eyes = np.array([[0, 0, 1.0], [1.0, 0, 0], [0, 1.0, 0.001]])
    return [Camera(K, look_at(middle + reach * eye, middle), size, size) for eye in eyes]
