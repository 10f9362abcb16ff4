"""Pictures for people: a mesh through a camera, forward only, supersampled."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from v2m4 import transforms
from v2m4.errors import InputError
from v2m4.render.texel import bilinear
from v2m4.render.zbuffer import ZBuffer
from v2m4.types import Camera, Mesh, Texture

Mode = Literal["color", "lit", "clay", "normals"]

#: Clay and meshes without colours: a warm light grey, sRGB.
CLAY = np.array([0.81, 0.775, 0.745])
#: Light fixed to the camera (x right, y down, z forward), pointing from the surface: over the left shoulder.
KEY_DIRECTION = np.array([-0.45, -0.65, -0.75])
#: Together at most 1, so that no colour is ever burnt out.
KEY, AMBIENT = 0.69, 0.34

#: sRGB byte -> linear light.
_LINEAR = transforms.srgb_to_linear(np.arange(256) / 255).astype(np.float32)


def render_mesh(
    mesh: Mesh,
    camera: Camera,
    *,
    texture: Texture | None = None,
    mode: Mode = "color",
    supersample: int = 2,
) -> np.ndarray:
    """(H,W,4) uint8 sRGB, straight alpha, transparent where the mesh is not.

    ``color``: the texture, else vertex colours, exactly as stored; clay where there are neither. ``lit``: the same
    under a key light and ambient light that travel with the camera. ``clay``: the shape alone under that light.
    ``normals``: camera-space normals, x right to red, y up to green, towards the viewer to blue. Each pixel averages
    ``supersample``² samples in linear light. InputError when the texture does not belong to the mesh.
    """
    if mode not in get_args(Mode):
        raise InputError(f"unknown shading {mode!r}", f"known are {', '.join(get_args(Mode))}")
    if texture is not None and len(texture.uv_faces) != len(mesh.faces):
        raise InputError(
            f"the texture has {len(texture.uv_faces)} UV faces, the mesh {len(mesh.faces)} faces",
            "a texture belongs to the mesh it was made for",
        )
    if supersample < 1:
        raise InputError(f"supersample must be at least 1, not {supersample}", "1 draws without smoothing")
    height, width = camera.height * supersample, camera.width * supersample
    points = transforms.apply(camera.world_to_camera, mesh.vertices.astype(np.float64))
    K = transforms.scale_K(camera.K, supersample)
    found = ZBuffer().rasterize(points.astype(np.float32)[None], mesh.faces, K, height, width)
    seen = found.face[0] >= 0
    if not seen.any():
        return np.zeros((camera.height, camera.width, 4), np.uint8)
    face, weights = found.face[0][seen], found.barycentric[0][seen]
    bare = mode == "clay" or (texture is None and mesh.colors is None)
    if mode == "normals":
        linear = _normal_colors(_normals(mesh, points, face, weights))
    else:
        linear = transforms.srgb_to_linear(CLAY) if bare else _base_color(mesh, texture, face, weights)
        if bare or mode == "lit":
            linear = linear * _light(_normals(mesh, points, face, weights))
    return _resolve(linear, seen, supersample)


def _base_color(mesh: Mesh, texture: Texture | None, face: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Linear light (P,3) of the texture, else of the vertex colours."""
    if texture is not None:
        return sample(texture, face, weights)
    return _mix(_LINEAR[mesh.colors], mesh.faces[face], weights)


def _mix(values: np.ndarray, corners: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Values (V,C) at three corners (P,3), weighted by (P,3) -> (P,C) float32."""
    values = values.astype(np.float32)
    out = values[corners[:, 0]] * weights[:, :1]
    for k in (1, 2):
        out += values[corners[:, k]] * weights[:, k, None]
    return out


def sample(texture: Texture, face: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Bilinear texture lookup, linear light (P,3), at barycentric ``weights`` (P,3) of UV faces ``face`` (P,)."""
    uv = _mix(texture.uv, texture.uv_faces[face], weights)
    return bilinear(np.take(_LINEAR, texture.base_color), uv)


def _normals(mesh: Mesh, points: np.ndarray, face: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Smooth unit normals (P,3) in camera coordinates, turned towards the camera (inside walls are lit too)."""
    normals = _mix(transforms.vertex_normals(points, mesh.faces), mesh.faces[face], weights)
    a, b, c = (points[mesh.faces[:, k]] for k in range(3))
    away = (np.cross(b - a, c - a) * a).sum(-1) > 0
    normals *= np.where(away[face], np.float32(-1), np.float32(1))[:, None]
    return normals / np.maximum(np.linalg.norm(normals, axis=-1, keepdims=True), 1e-12)


def _normal_colors(normals: np.ndarray) -> np.ndarray:
    half = np.array([0.5, -0.5, -0.5], np.float32)
    return transforms.srgb_to_linear(np.clip(normals * half + abs(half), 0, 1))


def _light(normals: np.ndarray) -> np.ndarray:
    """How much of the light a surface with these normals (P,3) gives back: (P,1) in (0, 1]."""
    direction = (KEY_DIRECTION / np.linalg.norm(KEY_DIRECTION)).astype(np.float32)
    key = np.clip(normals @ direction, 0, 1)
    above = 0.7 - 0.3 * normals[:, 1]  # a little more light from above than from below
    light: np.ndarray = AMBIENT * above + KEY * key
    return light[:, None]


def _resolve(linear: np.ndarray, seen: np.ndarray, supersample: int) -> np.ndarray:
    """Average samples: colour in linear light over the covered ones, alpha over all."""
    height, width = seen.shape[0] // supersample, seen.shape[1] // supersample
    samples = np.zeros((*seen.shape, 4), np.float32)
    samples[..., :3][seen] = linear
    samples[..., 3] = seen
    total = np.zeros((height, width, 4), np.float32)
    for y in range(supersample):
        for x in range(supersample):
            total += samples[y::supersample, x::supersample]
    some = total[..., 3] > 0
    color = transforms.linear_to_srgb(total[some, :3] / total[some, 3:])
    alpha = total[some, 3:] / supersample**2
    out = np.zeros((height, width, 4), np.uint8)
    out[some] = np.round(np.clip(np.concatenate([color, alpha], -1), 0, 1) * 255).astype(np.uint8)
    return out
