"""Small scenes for the texture tests: shapes, cameras, and the folders the texture stage reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from v2m4 import formats, transforms
from v2m4.render import ZBuffer
from v2m4.render.shade import render_mesh
from v2m4.texture.paint import Painting, paint
from v2m4.texture.unwrap import Unwrap, unwrap
from v2m4.texture.visibility import View
from v2m4.types import AnimatedMesh, Camera, Mesh

WIDTH, HEIGHT = 160, 128


def box(low: tuple = (-0.5, -0.5, -0.5), high: tuple = (0.5, 0.5, 0.5)) -> tuple[np.ndarray, np.ndarray]:
    """A closed box: vertices (8,3), faces (12,3) counter-clockwise from outside."""
    corner = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)])
    vertices = np.array(low) + corner * (np.array(high) - np.array(low))
    quads = [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]]
    faces = np.array([t for a, b, c, d in quads for t in ((a, b, c), (a, c, d))], np.int32)
    return vertices.astype(np.float32), faces


def ball(rings: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """A closed sphere of radius 0.5."""
    import trimesh

    shape = trimesh.creation.uv_sphere(0.5, [rings, 2 * rings])
    return np.asarray(shape.vertices, np.float32), np.asarray(shape.faces, np.int32)


def camera(azimuth_deg: float = 0.0, elevation_deg: float = 10.0, distance: float = 2.2, scale: int = 1) -> Camera:
    """A camera that looks at the origin; ``scale`` multiplies the size of the picture."""
    a, e = np.radians([azimuth_deg, elevation_deg])
    eye = distance * np.array([np.sin(a) * np.cos(e), np.sin(e), np.cos(a) * np.cos(e)])
    width, height = WIDTH * scale, HEIGHT * scale
    return Camera(transforms.fov_to_K(40, width, height), transforms.look_at(eye), width, height)


def turned(vertices: np.ndarray, degrees: float) -> np.ndarray:
    """``vertices`` turned about the vertical axis."""
    return (vertices @ transforms.rotation_from_vector(np.array([0, np.radians(degrees), 0])).T).astype(np.float32)


def painted(
    vertices: np.ndarray,
    faces: np.ndarray,
    views: list[View],
    colors: np.ndarray | None = None,
    lead: int | None = None,
    size: int = 256,
) -> tuple[Unwrap, Painting]:
    """Unwrap and paint in one go."""
    unwrapped = unwrap(vertices, faces, size)
    return unwrapped, paint(views, unwrapped, faces, vertices, colors, size, ZBuffer(), lead)


def picture(mesh: Mesh, view: Camera, under: tuple[int, int, int] = (0, 0, 0)) -> np.ndarray:
    """(H,W,4) what the camera sees, with the colour ``under`` below fully transparent pixels."""
    image = render_mesh(mesh, view).copy()
    image[image[..., 3] == 0, :3] = under
    return image


def stage_folders(
    root: Path, animation: AnimatedMesh, images: list[np.ndarray], view: Camera, colors: np.ndarray | None = None
) -> tuple[Path, Path, Path]:
    """The ingest, repose and topology folders of a clip in which every frame is a keyframe."""
    ingest, repose, topology = (root / name for name in ("ingest", "repose", "topology"))
    frames = [{"index": k, "time_s": float(t)} for k, t in enumerate(animation.times_s)]
    keyframes = list(range(len(frames)))
    clip = {"width": view.width, "height": view.height, "frames": frames, "keyframes": keyframes}
    formats.write_json(ingest / "clip.json", clip)
    for k, image in enumerate(images):
        formats.write_image(ingest / "frames" / f"{formats.frame_name(k)}.png", image)
    world = {"width": view.width, "height": view.height, "K": view.K.tolist()}
    world["world_to_camera"] = view.world_to_camera.tolist()
    formats.write_json(repose / "world.json", {**world, "keyframes": [{"index": k} for k in keyframes]})
    extra = {"keyframes": np.array(keyframes, np.int32), "anchor": np.array(0, np.int32)}
    if colors is not None:
        extra["colors"] = colors
    formats.write_animation(topology / "animation.npz", animation, **extra)
    return ingest, repose, topology
