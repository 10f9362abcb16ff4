"""What goes into the file, as plain arrays: placed, split at the seams, reduced to targets, named."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from v2m4.errors import InputError
from v2m4.export.keyframes import MorphTrack, box_diagonal, morph_track
from v2m4.export.seams import SeamSplit, split_seams
from v2m4.transforms import vertex_normals
from v2m4.types import AnimatedMesh, Texture

_RESERVED = {"con", "prn", "aux", "nul", *(f"com{i}" for i in range(10)), *(f"lpt{i}" for i in range(10))}


@dataclass(frozen=True)
class AssetSettings:
    """What the user may choose. ``double_sided`` None means: if the mesh is open or inside out. ``name`` is for display
    and may hold anything."""

    name: str = "asset"
    max_targets: int = 64
    morph_normals: bool = False
    double_sided: bool | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class GameAsset:
    """One mesh, one material, one clip, ready to be written.

    ``animation`` is what the file has to play, before it was placed. ``positions`` (S,3) and ``normals`` (S,3) float32
    are the first pose, on the ground, its box centre above the origin; ``deltas`` (N,S,3) float32 target minus first
    pose, ``normal_deltas`` likewise or None; ``base_color`` (H,W,3) uint8 sRGB; ``translation`` (3,) metres is what was
    added to every vertex of the animation.
    """

    name: str
    file_name: str
    animation: AnimatedMesh
    split: SeamSplit
    positions: np.ndarray
    normals: np.ndarray
    deltas: np.ndarray
    normal_deltas: np.ndarray | None
    target_names: tuple[str, ...]
    track: MorphTrack
    base_color: np.ndarray
    double_sided: bool
    translation: np.ndarray
    extras: Mapping[str, Any]

    @property
    def size(self) -> float:
        """The box diagonal of the first pose, metres."""
        return box_diagonal(self.positions[None])

    def wanted(self, frame: int) -> np.ndarray:
        """(S,3) float64: where the vertices have to be at this frame, straight from the animation."""
        track, now = self.track, self.track.frame_times_s[frame]
        after = min(int(np.searchsorted(track.kept_times_s, now)), len(track.kept_times_s) - 1)
        before = max(after - 1, 0)
        start, end = track.kept_times_s[before], track.kept_times_s[after]
        share = min(max((now - start) / (end - start), 0.0), 1.0) if end > start else 0.0
        poses = self.animation.positions[track.reduction.kept[[before, after]]].astype(float)
        return ((1 - share) * poses[0] + share * poses[1] + self.translation)[self.split.welded]


def make_asset(
    animation: AnimatedMesh,
    texture: Texture,
    frame_times_s: np.ndarray,
    settings: AssetSettings | None = None,
    pose_frames: np.ndarray | None = None,
) -> GameAsset:
    """Everything that will be in the file.

    ``frame_times_s`` (T,) are the times of all frames of the clip, each becomes a key; ``pose_frames`` (K,) the frame
    number of each pose, which names its target. InputError when mesh, UV map and clip do not belong together.
    """
    settings = settings or AssetSettings()
    split = split_seams(animation.faces, texture)
    track = morph_track(animation, frame_times_s, settings.max_targets)
    base = animation.positions[0].astype(float)
    translation = ground_translation(base[split.welded])
    positions = (base + translation).astype(np.float32)
    deltas = [animation.positions[k] + translation - positions for k in track.targets]
    normals = vertex_normals(base, animation.faces)
    normal_deltas = None
    if settings.morph_normals and len(deltas):
        turned = [vertex_normals(animation.positions[k], animation.faces) - normals for k in track.targets]
        normal_deltas = np.stack(turned)[:, split.welded].astype(np.float32)
    frames = np.arange(len(animation.positions)) if pose_frames is None else np.asarray(pose_frames)
    empty = np.zeros((0, len(split.welded), 3), np.float32)
    return GameAsset(
        name=settings.name or "asset",
        file_name=clean_name(settings.name),
        animation=animation,
        split=split,
        positions=positions[split.welded],
        normals=normals[split.welded].astype(np.float32),
        deltas=np.stack([d[split.welded].astype(np.float32) for d in deltas]) if deltas else empty,
        normal_deltas=normal_deltas,
        target_names=target_names(frames[track.targets]),
        track=track,
        base_color=texture.base_color,
        double_sided=_needs_both_sides(base, animation.faces)
        if settings.double_sided is None
        else settings.double_sided,
        translation=translation,
        extras=dict(settings.extras),
    )


def ground_translation(points: np.ndarray) -> np.ndarray:
    """(3,) move that puts points (V,3) on the ground y = 0 with their box centre above the origin."""
    low, high = points.min(0), points.max(0)
    if not float(np.linalg.norm(high - low)) > 0:
        raise InputError("the first pose has no extent: all its vertices are one point")
    centre = (low + high) / 2
    return np.array([-centre[0], -low[1], -centre[2]])


def is_closed(faces: np.ndarray) -> bool:
    """Whether every edge of faces (F,3) is used once in each direction, so that nobody sees a face from behind."""
    edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]).astype(np.int64)
    span = int(faces.max()) + 1
    there, back = edges[:, 0] * span + edges[:, 1], edges[:, 1] * span + edges[:, 0]
    there.sort()
    back.sort()
    return bool(np.all(there[1:] != there[:-1]) and np.array_equal(there, back))


def _needs_both_sides(vertices: np.ndarray, faces: np.ndarray) -> bool:
    """Whether an engine that hides back faces would show holes: the mesh is open or inside out."""
    a, b, c = (vertices[faces[:, k]] - vertices.mean(0) for k in range(3))
    return not is_closed(faces) or float(np.einsum("fc,fc->", a, np.cross(b, c))) <= 0


def target_names(frames: np.ndarray) -> tuple[str, ...]:
    """A name for each target's frame; text order is time order."""
    digits = max(3, len(str(int(max(frames, default=0)))))
    return tuple(f"frame_{int(frame):0{digits}d}" for frame in frames)


def clean_name(name: str) -> str:
    """A name that every file system and engine takes: letters (accents dropped where they can be), digits, - and _.

    >>> clean_name("Ünïcode/..:*?")
    'Unicode'
    """
    plain = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    words = re.sub(r"[^\w-]+", "_", unicodedata.normalize("NFC", plain)).strip("_-")
    short = words.encode("utf-8")[:100].decode("utf-8", "ignore") or "asset"
    return f"{short}_asset" if short.lower() in _RESERVED else short
