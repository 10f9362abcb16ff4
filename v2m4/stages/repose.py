"""All keyframes in one world.

Undoes each keyframe's camera. Where the background told that the camera moved, its motion is taken out; else the camera
is fixed and all motion given to the object. The object stands on y = 0, upright along +Y with its front along +Z on
average, and its largest extent is ``size_m``.

Writes ``meshes/`` (in world coordinates, metres), ``world.json`` and ``overlaid.png`` (all keyframes in one picture,
seen from the side, the front and above). ``world.json`` holds the camera (``world_to_camera``, one matrix, or one for
each frame of the clip where it moves), what was done to each mesh (``mesh_to_world``), and the root motion: a smooth
rigid frame for each keyframe (``root_to_world``) that goes and turns with the object, how far it travels and turns, and
whether the object moves in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from v2m4 import formats
from v2m4.config import opt
from v2m4.errors import InputError
from v2m4.protocols import StageContext
from v2m4.transforms import apply
from v2m4.types import Mesh

if TYPE_CHECKING:
    from v2m4.camera.repose import World
    from v2m4.camera.root import Root


@dataclass(frozen=True)
class ReposeOptions:
    """How the world is made."""

    size_m: float = opt(1.0, "largest extent of the object in metres, median over the clip", minimum=0.001)


def run(ctx: StageContext, options: ReposeOptions, ingest: Path, camera: Path, refine: Path) -> None:
    """Fill ``ctx.out`` from the folders of the stages ingest, camera and refine."""
    from v2m4.camera.repose import build_world
    from v2m4.camera.root import root_motion

    cameras = formats.read_json(camera / "cameras.json")
    entries = {entry["index"]: entry for entry in cameras["keyframes"]}
    meshes = formats.read_keyframe_meshes(refine)
    missing = sorted(set(meshes) - set(entries))
    if missing or not meshes:
        raise InputError(
            f"{camera / 'cameras.json'}: no camera for frame {missing[0]}" if missing else f"{refine}: no meshes",
            "run the stage camera again with --force camera",
        )
    keyframes = list(meshes)
    to_start = _camera_to_start(cameras)
    poses = np.stack([_mesh_to_camera(entries[k]) for k in keyframes])
    if to_start is not None:
        poses = to_start[keyframes] @ poses
    trusted = np.array([entries[k]["trusted"] for k in keyframes])
    world = build_world(poses, list(meshes.values()), trusted, options.size_m)
    placed = []
    to_world = dict(zip(keyframes, world.mesh_to_world, strict=True))
    for k in ctx.track(keyframes, "repose"):
        placed.append(meshes[k].moved(apply(to_world[k], meshes[k].vertices.astype(np.float64))))
        path = formats.mesh_path(ctx.out, k)
        if not path.exists():
            formats.write_mesh(path, placed[-1])
    formats.write_image(ctx.out / "overlaid.png", _overlaid(placed))
    times = formats.read_clip(ingest, only=()).times_s
    root = root_motion(world.mesh_to_world, list(meshes.values()), times[keyframes], trusted)
    if not root.in_place:
        ctx.log.info(f"repose: the object travels {root.travel:.2f} m and turns by {root.turn_deg:.0f} degrees")
    camera_poses = world.world_to_camera
    if to_start is not None:
        to_start[:, :3, 3] *= world.unit
        camera_poses = np.linalg.inv(to_start) @ camera_poses
    head = {name: cameras[name] for name in ("width", "height", "fov_y_deg", "K")}
    head |= {"world_to_camera": camera_poses.tolist(), "root_motion": _told(root)}
    formats.write_json(ctx.out / "world.json", {**head, "keyframes": _rows(entries, keyframes, times, world, root)})


def _mesh_to_camera(entry: dict) -> np.ndarray:
    return np.array(entry["world_to_camera"], float) @ np.diag([entry["scale"]] * 3 + [1.0])


def _camera_to_start(cameras: dict) -> np.ndarray | None:
    """(T,4,4) from the camera of each frame to that of the first; None where the camera is fixed."""
    found = cameras.get("camera_motion", {}).get("camera_to_start")
    return None if found is None else np.array(found, float)


def _told(root: Root) -> dict[str, object]:
    return {"travel_m": round(root.travel, 6), "turn_deg": round(root.turn_deg, 3), "in_place": root.in_place}


def _rows(
    entries: dict[int, dict], keyframes: list[int], times_s: np.ndarray, world: World, root: Root
) -> list[dict[str, object]]:
    return [
        {
            "index": k,
            "time_s": float(times_s[k]),
            "mesh_to_world": matrix.tolist(),
            "root_to_world": frame.tolist(),
            **{name: entries[k][name] for name in ("iou", "confidence", "trusted")},
        }
        for k, matrix, frame in zip(keyframes, world.mesh_to_world, root.root_to_world, strict=True)
    ]


def _overlaid(meshes: list[Mesh], size: int = 320, most: int = 8) -> np.ndarray:
    """Keyframes spread over the clip, drawn over each other in fading colours from early to late: (H,W,3) uint8."""
    from v2m4.camera.repose import viewing_cameras
    from v2m4.render.preview import contact_sheet, on_white
    from v2m4.render.shade import render_mesh

    picked = sorted({round(k) for k in np.linspace(0, len(meshes) - 1, min(most, len(meshes)))})
    cameras = viewing_cameras([meshes[k] for k in picked], size)
    panels = []
    for camera in cameras:
        total = np.zeros((size, size, 3))
        for n, k in enumerate(picked):
            early = np.array([70, 110, 220]) * (1 - n / max(len(picked) - 1, 1))
            late = np.array([230, 120, 50]) * (n / max(len(picked) - 1, 1))
            tint = Mesh(
                meshes[k].vertices,
                meshes[k].faces,
                np.tile((early + late).astype(np.uint8), (len(meshes[k].vertices), 1)),
            )
            total += on_white(render_mesh(tint, camera))[..., :3] / 255.0
        panels.append(np.round(total / len(picked) * 255).astype(np.uint8))
    return contact_sheet(panels, len(panels), labels=["front", "side", "above"])[..., :3]
