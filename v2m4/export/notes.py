"""What to tell the person who opens the file: engine hints, and the facts for export.json."""

from __future__ import annotations

from typing import Any

import numpy as np

from v2m4.export.asset import GameAsset

#: So many morph targets play in every engine that is in use; some stop at 64, others at 256.
SAFE_TARGETS = 64


def frame_rate(times_s: np.ndarray) -> tuple[float, bool]:
    """(frames per second, whether evenly spaced to 2 ms) of frame times (T,); (0, True) for a single frame."""
    times = np.asarray(times_s, float) - times_s[0]
    if len(times) < 2:
        return 0.0, True
    fps = round((len(times) - 1) / float(times[-1]), 3)
    return fps, bool(np.abs(times - np.arange(len(times)) / fps).max() < 2e-3)


def hints(asset: GameAsset, target: str) -> list[str]:
    """Import advice for one engine, or for all of them when ``target`` is "any"."""
    fps, even = frame_rate(asset.track.frame_times_s)
    name, moving = asset.file_name, len(asset.deltas) > 0
    rate = (
        f"{fps:g} fps" if even else f"about {fps:g} fps (the frames are not evenly spaced; their real times are kept)"
    )
    advice = {
        "blender": f"Set the scene to {rate} before importing: glTF stores seconds, and Blender turns them into frames "
        "at the scene's rate. The motion is a row of shape keys.",
        "unity": f"With glTFast the motion arrives as blend shapes and a clip called {name}; choose the animation "
        "method (Legacy or Mecanim) in the import settings.",
        "unreal": "Import it as a skeletal mesh (in the glTF import options, let static meshes with morph targets "
        "become skeletal): a static mesh drops the morph targets.",
        "godot": f"In the import settings set the animation's FPS to {fps:g}, and turn mesh compression and LOD "
        "generation off: both are known to damage blend shapes.",
        "three": f'GLTFLoader gives one clip called "{name}"; play it with an AnimationMixer.',
    }
    if not moving:
        return ["The asset does not move: the file holds a static mesh."]
    if target != "any":
        return [advice[target]]
    return [f"{'three.js' if engine == 'three' else engine.capitalize()}: {text}" for engine, text in advice.items()]


def normals_policy(asset: GameAsset) -> str:
    """One sentence on the normals of the targets."""
    if asset.normal_deltas is not None:
        return "base mesh and targets"
    return "base mesh only: while it moves the shading is that of the first pose (export.normals = true adds the rest)"


def facts(asset: GameAsset, file_bytes: int, target: str) -> dict[str, Any]:
    """What export.json says; numbers a report or a library can show."""
    track, reduction = asset.track, asset.track.reduction
    fps, even = frame_rate(track.frame_times_s)
    height, width = asset.base_color.shape[:2]
    return {
        "file": f"{asset.file_name}.glb",
        "name": asset.name,
        "target": target,
        "bytes": file_bytes,
        "frames": len(track.frame_times_s),
        "fps": fps,
        "evenly_spaced": even,
        "duration_s": float(track.key_times_s[-1]) if len(track.key_times_s) else 0.0,
        "keys": len(track.key_times_s),
        "poses": reduction.poses,
        "targets": len(asset.deltas),
        "target_names": list(asset.target_names),
        "poses_equal_to_first": len(reduction.kept) - 1 - len(asset.deltas),
        "reduction": {
            "dropped_poses": reduction.poses - len(reduction.kept),
            "mean_error_percent": round(reduction.mean_percent, 6),
            "max_error_percent": round(reduction.max_percent, 6),
        },
        "vertices": len(asset.positions),
        "welded_vertices": len(np.unique(asset.split.welded)),
        "faces": len(asset.split.faces),
        "texture": [width, height],
        "normals": normals_policy(asset),
        "double_sided": asset.double_sided,
        "box_m": [round(float(x), 6) for x in np.ptp(asset.positions, axis=0)],
        "translation": [float(x) for x in asset.translation],
        "hints": hints(asset, target),
    }
