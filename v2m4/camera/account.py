"""What the camera stage tells: its files, its overlays, its lines in the log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from v2m4 import formats
from v2m4.camera.clip import KeyframePose
from v2m4.camera.egomotion import Egomotion
from v2m4.protocols import Progress
from v2m4.transforms import apply, fov_to_K
from v2m4.types import Camera, Clip, Mesh

_MOTION = {
    "still": "the camera stands still",
    "turning": "the camera turns; its turn is taken out of the object's motion",
    "moving": "the camera travels; its way is taken out of the object's motion",
    "unknown": "the background does not tell what the camera does: it is taken as fixed",
}


@dataclass(frozen=True)
class Solved:
    """The answer for a clip: ``poses`` of the ``keyframes`` through ``K`` (3,3) of a full picture of ``fov_y_deg``;
    ``motion`` of the camera, None without a background; ``measure`` told scale from distance; ``licences`` of the
    networks that had a say."""

    clip: Clip
    keyframes: list[int]
    poses: list[KeyframePose]
    K: np.ndarray
    fov_y_deg: float
    motion: Egomotion | None
    measure: str
    licences: dict[str, str]


def overlap(alpha: np.ndarray, mesh: Mesh, K: np.ndarray, pose: KeyframePose) -> float:
    """How far the silhouettes agree in the frame, of the pose that is written: what an importer will see."""
    from v2m4.render import masks

    placed = apply(pose.matrix, mesh.vertices.astype(np.float64)).astype(np.float32)
    drawn, seen = masks(placed[None], mesh.faces, K, *alpha.shape)[0], alpha >= 128
    either = int((drawn | seen).sum())
    return int((drawn & seen).sum()) / either if either else 0.0


def write_overlay(path: Path, image: np.ndarray, mesh: Mesh, K: np.ndarray, pose: KeyframePose, k: int) -> None:
    """Frame ``k``, the drawing, and their difference, side by side; what is there is kept."""
    from v2m4.render.preview import overlay
    from v2m4.render.shade import render_mesh

    if path.exists():
        return
    placed = mesh.moved(apply(pose.matrix, mesh.vertices.astype(np.float64)))
    drawing = render_mesh(placed, Camera(K, np.eye(4), image.shape[1], image.shape[0]))
    titles = (f"frame {k}", f"drawing, overlap {pose.iou:.2f}", "difference")
    formats.write_image(path, overlay(image, drawing, titles))


def tell(log: Progress, solved: Solved) -> None:
    """The lines of the log: how well it went, and which poses are not to be trusted."""
    poses = solved.poses
    good = sum(p.trusted for p in poses)
    iou = float(np.median([p.iou for p in poses]))
    log.info(f"camera: silhouettes agree to {iou:.2f} (median IoU), {good} of {len(poses)} poses trusted")
    if solved.measure in ("volume", "area"):
        log.info(f"camera: the meshes' {solved.measure} tells their scale from the distance")
    for k, pose in zip(solved.keyframes, poses, strict=True):
        if not pose.trusted:
            how = "is taken from its neighbours" if pose.found == "bridged" else "is not to be trusted"
            log.warning(f"frame {k}: the pose {how}: {pose.reason}")
    if solved.motion is not None:
        log.info(f"camera: {_MOTION[solved.motion.kind]}")


def write(out: Path, solved: Solved) -> None:
    """cameras.json and poses.json."""
    by_keyframe = list(zip(solved.keyframes, solved.poses, strict=True))
    matrices = {k: p.matrix.tolist() for k, p in by_keyframe if p.trusted}
    formats.write_json(out / "poses.json", [matrices.get(k) for k in range(len(solved.clip.times_s))])
    clip, fov = solved.clip, solved.fov_y_deg
    head: dict[str, Any] = {"width": clip.width, "height": clip.height, "fov_y_deg": fov, "K": solved.K.tolist()}
    if clip.crop is not None:
        full = clip.crop.picture_width, clip.crop.picture_height
        head["picture"] = {"width": full[0], "height": full[1], "K": fov_to_K(fov, *full).tolist()}
    motion: dict[str, Any] = {"kind": solved.motion.kind if solved.motion else "unknown"}
    if solved.motion is not None and not solved.motion.fixed:
        motion["camera_to_start"] = solved.motion.camera_to_start.tolist()
    head |= {"licences": solved.licences, "camera_motion": motion}
    formats.write_json(out / "cameras.json", {**head, "keyframes": [_row(k, p) for k, p in by_keyframe]})


def _row(k: int, pose: KeyframePose) -> dict[str, object]:
    return {
        "index": k,
        "world_to_camera": pose.world_to_camera.tolist(),
        "scale": pose.scale,
        "iou": round(pose.iou, 6),
        "score": round(pose.score, 6),
        "confidence": round(pose.confidence, 6),
        "trusted": pose.trusted,
        "found": pose.found,
        "reason": pose.reason,
    }
