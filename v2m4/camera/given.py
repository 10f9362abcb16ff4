"""Poses that were brought along: a tracked camera, or a clip whose truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from v2m4 import formats
from v2m4.camera import track
from v2m4.camera.clip import KeyframePose
from v2m4.errors import InputError
from v2m4.transforms import apply, rigid, split_similarity
from v2m4.types import Mesh

FORM = (
    'a list with one matrix of 4 x 4 numbers or null for each frame, or {"poses": that list}, '
    'and beside "poses" maybe "world_to_camera", such a list without null, for a camera that moves'
)
#: A similarity's columns are equally long and square to each other up to this share: files are rounded.
UNEVEN = 1e-3


@dataclass(frozen=True)
class GivenPoses:
    """``mesh_to_camera``: a similarity (4,4) or None for each frame; ``camera_to_start`` (T,4,4) takes camera
    coordinates of each frame to those of frame 0, None for a camera that the file says nothing of."""

    mesh_to_camera: list[np.ndarray | None]
    camera_to_start: np.ndarray | None


def read_poses(path: Path, frames: int) -> GivenPoses:
    """The poses of a clip of ``frames`` frames. InputError names the file, the frame and what is wrong with it."""
    data = formats.read_json(path)
    table = data if isinstance(data, dict) else {"poses": data}
    if not isinstance(table.get("poses"), list):
        raise InputError(f"{path}: no list of poses", f"the form is {FORM}")
    poses = _matrices(path, "poses", table["poses"], frames)
    cameras = table.get("world_to_camera")
    if cameras is None:
        return GivenPoses(poses, None)
    if not isinstance(cameras, list):
        raise InputError(f"{path}: world_to_camera is not a list", f"the form is {FORM}")
    views = _matrices(path, "world_to_camera", cameras, frames)
    for k, view in enumerate(views):
        if view is None or abs(np.cbrt(np.linalg.det(view[:3, :3])) - 1) > UNEVEN:
            raise InputError(f"{path}: world_to_camera of frame {k} is not rigid", "a camera has no size and no gaps")
    rigid_views = np.stack([view for view in views if view is not None])
    return GivenPoses(poses, rigid_views[0] @ np.linalg.inv(rigid_views))


def _matrices(path: Path, name: str, values: list[Any], frames: int) -> list[np.ndarray | None]:
    if len(values) != frames:
        raise InputError(
            f"{path}: {len(values)} {name} for a clip of {frames} frames", "give one for each frame, or null"
        )
    return [None if value is None else _similarity(path, name, value, k) for k, value in enumerate(values)]


def _similarity(path: Path, name: str, value: Any, k: int) -> np.ndarray:
    try:
        matrix = np.array(value, float)
    except (TypeError, ValueError):
        matrix = np.zeros(0)
    where = f"{path}: {name} of frame {k}"
    if matrix.shape != (4, 4):
        raise InputError(f"{where} is not a matrix of 4 x 4 numbers", f"the form is {FORM}")
    if not np.isfinite(matrix).all():
        raise InputError(f"{where} has a number that is not finite", "write null where there is no answer")
    size = np.linalg.norm(matrix[:3, :3], axis=0).max()
    gram = matrix[:3, :3].T @ matrix[:3, :3]
    if size == 0 or np.abs(gram / size**2 - np.eye(3)).max() > UNEVEN or np.abs(matrix[3] - [0, 0, 0, 1]).max() > 1e-6:
        raise InputError(
            f"{where} is more than a rotation, one scale and a translation",
            "matrices are row by row and act on column vectors: the last row is 0 0 0 1",
        )
    if np.linalg.det(matrix[:3, :3]) < 0:
        raise InputError(f"{where} mirrors", "cameras look along +z, with x to the right and y down")
    return matrix


def assemble(given: Sequence[np.ndarray | None], meshes: Sequence[Mesh], times_s: np.ndarray) -> list[KeyframePose]:
    """One pose for each keyframe; where none is given it lies between its neighbours and is not trusted.

    InputError when no keyframe has one, or when one puts the mesh behind the camera.
    """
    good = np.array([g is not None for g in given])
    if not good.any():
        raise InputError("the poses have no answer for any keyframe", "leave the poses out to search for them")
    middles = [mesh.vertices[np.unique(mesh.faces)].mean(0, dtype=np.float64) for mesh in meshes]
    scales, rotations, positions = np.ones(len(given)), np.tile(np.eye(3), (len(given), 1, 1)), np.ones((len(given), 3))
    for k, matrix in enumerate(given):
        if matrix is None:
            continue
        scales[k], rotations[k], _ = split_similarity(matrix)
        positions[k] = apply(matrix, middles[k][None])[0]
    behind = np.flatnonzero(good & (positions[:, 2] <= 0))
    if len(behind):
        raise InputError(
            f"the given pose of keyframe {behind[0]} puts the mesh behind the camera", "cameras look along +z"
        )
    scales = np.interp(times_s, times_s[good], scales[good])
    placed = track.bridged(track.Placement(rotations, positions), times_s, good)
    return [
        KeyframePose(
            rigid(placed.rotations[k], placed.positions[k] - scales[k] * placed.rotations[k] @ middles[k]),
            float(scales[k]), 0.0, 0.0, float(good[k]), "given" if good[k] else "bridged",
            "" if good[k] else "no pose was given for it",
        )
        for k in range(len(given))
    ]  # fmt: skip
