"""Rotations, similarities, cameras: the only file that knows about axes.

Matrices act on column vectors. World: right-handed, +Y up, front +Z, metres (glTF).
Camera: OpenCV, x right, y down, z forward. Everything is numpy, float64 unless said otherwise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

#: A camera that looks along -Z of the world sees it upright through this rotation.
WORLD_FRONT_TO_CAMERA = np.diag([1.0, -1.0, -1.0])


def apply(matrix: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Apply a 4x4 (or N,4,4) affine matrix to points (...,3)."""
    matrix = np.asarray(matrix)
    return points @ np.swapaxes(matrix[..., :3, :3], -1, -2) + matrix[..., None, :3, 3]


def rigid(rotation: np.ndarray, translation: np.ndarray) -> np.ndarray:
    """4x4 from a 3x3 rotation (or any linear part) and a translation (3,)."""
    out = np.eye(4)
    out[:3, :3] = rotation
    out[:3, 3] = translation
    return out


def split_similarity(matrix: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """(scale, rotation 3x3, translation 3) of a similarity 4x4, so that x -> scale * rotation @ x + translation."""
    linear = np.asarray(matrix, float)[:3, :3]
    scale = float(np.cbrt(np.linalg.det(linear)))
    return scale, nearest_rotation(linear / scale), np.asarray(matrix, float)[:3, 3]


def nearest_rotation(matrix: np.ndarray) -> np.ndarray:
    """The rotation closest to a (...,3,3) matrix in the Frobenius norm, determinant +1."""
    u, _, vt = np.linalg.svd(matrix)
    sign = np.sign(np.linalg.det(u @ vt))
    u = u.copy()
    u[..., :, 2] *= sign[..., None]
    return u @ vt


def rotation_from_vector(vector: np.ndarray) -> np.ndarray:
    """Rodrigues: (...,3) axis times angle in radians -> (...,3,3)."""
    vector = np.asarray(vector, float)
    angle = np.linalg.norm(vector, axis=-1)[..., None, None]
    x, y, z = vector[..., 0], vector[..., 1], vector[..., 2]
    zero = np.zeros_like(x)
    cross = np.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).reshape(*vector.shape[:-1], 3, 3)
    small = angle < 1e-6
    safe = np.where(small, 1.0, angle)
    a = np.where(small, 1.0 - angle**2 / 6, np.sin(safe) / safe)
    b = np.where(small, 0.5 - angle**2 / 24, (1 - np.cos(safe)) / safe**2)
    return np.eye(3) + a * cross + b * (cross @ cross)


def rotation_angle_deg(a: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
    """Angle in degrees of rotation ``a`` (...,3,3), or between ``a`` and ``b``."""
    relative = a if b is None else a @ np.swapaxes(b, -1, -2)
    # The quaternion-like form keeps its precision near 0 and 180 degrees, unlike arccos of the trace.
    skew = relative - np.swapaxes(relative, -1, -2)
    sine = np.sqrt((skew**2).sum((-1, -2)) / 8)
    cosine = (np.trace(relative, axis1=-2, axis2=-1) - 1) / 2
    return np.degrees(np.arctan2(sine, cosine))


def mean_rotation(rotations: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Chordal mean of rotations (N,3,3), weighted by (N,)."""
    weights = np.ones(len(rotations)) if weights is None else np.asarray(weights, float)
    return nearest_rotation(np.einsum("n,nij->ij", weights, rotations))


def look_at(eye: ArrayLike, target: ArrayLike = (0.0, 0.0, 0.0), up: ArrayLike = (0.0, 1.0, 0.0)) -> np.ndarray:
    """world_to_camera (4,4), OpenCV axes, of a camera at ``eye`` that looks at ``target``."""
    origin = np.asarray(eye, float)
    forward = np.asarray(target, float) - origin
    forward = forward / np.linalg.norm(forward)
    right = np.cross(forward, np.asarray(up, float))
    if np.linalg.norm(right) < 1e-6:  # looking straight up or down: any right will do
        right = np.array([1.0, 0.0, 0.0])
    right = right / np.linalg.norm(right)
    rotation = np.stack([right, np.cross(forward, right), forward])
    return rigid(rotation, -rotation @ origin)


def fov_to_K(fov_y_deg: float, width: int, height: int) -> np.ndarray:
    """Intrinsics (3,3) in pixels of a centred lens with this vertical field of view."""
    focal = height / 2 / np.tan(np.radians(fov_y_deg) / 2)
    return np.array([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1.0]])


def scale_K(K: np.ndarray, x: float, y: float | None = None) -> np.ndarray:
    """Intrinsics of the same picture resized by ``x`` (and ``y``); pixel centres at +0.5 make it a plain product."""
    return np.diag([x, x if y is None else y, 1.0]) @ K


def crop_K(K: np.ndarray, left: float, top: float) -> np.ndarray:
    """Intrinsics of the part of the picture whose top left corner is the pixel corner (left, top)."""
    return np.array([[1.0, 0, -left], [0, 1.0, -top], [0, 0, 1.0]]) @ K


def project(points: np.ndarray, K: np.ndarray) -> np.ndarray:
    """Points (...,3) in camera coordinates -> pixels (...,2)."""
    uvw = points @ np.asarray(K).T
    return uvw[..., :2] / uvw[..., 2:]


def vertex_normals(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Unit normals (...,V,3), area weighted; a vertex without area gets (0, 1, 0)."""
    vertices = np.asarray(vertices, np.float64)
    a, b, c = (vertices[..., faces[:, k], :] for k in range(3))
    face = np.cross(b - a, c - a)
    out: np.ndarray = np.zeros(vertices.shape)
    flat, flat_face = out.reshape(-1, *out.shape[-2:]), face.reshape(-1, *face.shape[-2:])
    for item, normals in zip(flat, flat_face, strict=True):
        for k in range(3):
            for axis in range(3):
                item[:, axis] += np.bincount(faces[:, k], normals[:, axis], len(item))
    length = np.linalg.norm(out, axis=-1, keepdims=True)
    return np.where(length > 1e-20, out / np.maximum(length, 1e-20), [0.0, 1.0, 0.0])


def srgb_to_linear(value: np.ndarray) -> np.ndarray:
    """sRGB in [0, 1] -> linear light in [0, 1]."""
    value = np.asarray(value)
    return np.where(value <= 0.04045, value / 12.92, ((np.maximum(value, 0) + 0.055) / 1.055) ** 2.4)


def linear_to_srgb(value: np.ndarray) -> np.ndarray:
    """Linear light in [0, 1] -> sRGB in [0, 1]."""
    value = np.asarray(value)
    return np.where(value <= 0.0031308, 12.92 * value, 1.055 * np.maximum(value, 1e-9) ** (1 / 2.4) - 0.055)


def z_up_to_world(points: np.ndarray) -> np.ndarray:
    """Points (...,3) of a right-handed +Z up, front -Y frame (Blender, TRELLIS) -> world (+Y up, front +Z)."""
    return np.stack([points[..., 0], points[..., 2], -points[..., 1]], -1)
