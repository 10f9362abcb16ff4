"""The user's own meshes: a folder of GLB, OBJ or PLY files, one for each frame or each keyframe of the clip.

Meshes are expected in world conventions (+Y up, front +Z) and are taken as they stand: not centred, scaled or turned.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from v2m4.errors import InputError
from v2m4.formats import MESH_SUFFIXES, frame_name, read_mesh
from v2m4.models.clean import clean
from v2m4.protocols import Generated
from v2m4.stills import natural_key


@dataclass(frozen=True)
class Assignment:
    """Which file stands for which frame (in frame order), and by which rule."""

    files: Mapping[int, Path]
    rule: str


class Folder:
    """Generator that hands out the meshes of an :class:`Assignment`."""

    name = "folder"
    licence = "yours"
    description = "your own meshes, one file a frame or keyframe, frame and scale kept as given"

    def __init__(self, files: Mapping[int, Path]) -> None:
        self.files = files

    def generate(self, image: np.ndarray, index: int, seed: int) -> Generated:
        """The mesh of frame ``index``; the picture and the seed are not used. InputError when it is unusable."""
        path = self.files[index]
        return Generated(read_mesh(path), notes=(f"from {path.name}",))


def list_meshes(folder: Path) -> list[Path]:
    """The mesh files of a folder in natural order; all else, hidden files too, is ignored. InputError if none."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder", "give the folder that holds your meshes")
    paths = [p for p in folder.iterdir() if p.suffix.lower() in MESH_SUFFIXES and not p.name.startswith(".")]
    if not paths:
        raise InputError(f"{folder}: no mesh files in it", f"known are {', '.join(MESH_SUFFIXES)}")
    return sorted((p for p in paths if p.is_file()), key=lambda p: natural_key(p.name))


def assign(paths: Sequence[Path], frames: Sequence[Mapping[str, Any]], keyframes: Sequence[int]) -> Assignment:
    """Files (in natural order) -> frames. ``frames`` and ``keyframes`` are those of clip.json.

    As many files as frames: one each. Else by name: the source picture's name, our frame name, the number in the
    source's name, the frame's number. Else as many as keyframes: one each; this also goes before names that only count
    them (pose_1, pose_2, ...). Else InputError with the counts.
    """
    if len(paths) == len(frames):
        return Assignment(dict(enumerate(paths)), "one mesh for every frame, in natural order")
    by_keyframe = Assignment(
        dict(zip(sorted(keyframes), paths, strict=False)), "one mesh for every keyframe, in natural order"
    )
    if len(paths) == len(keyframes) and _only_counted(paths, frames):
        return by_keyframe
    for rule, key, known in _names(frames):
        keys = [key(p.stem) for p in paths]
        if len(set(keys)) == len(keys) and all(k in known for k in keys):
            pairs = sorted(zip((known[k] for k in keys), paths, strict=True))
            return Assignment(dict(pairs), f"{len(paths)} meshes matched to frames by {rule}")
    if len(paths) == len(keyframes):
        return by_keyframe
    raise InputError(
        f"{paths[0].parent}: {len(paths)} meshes for a clip of {len(frames)} frames and {len(keyframes)} keyframes",
        "give one mesh for every frame or every keyframe, or name each file after its frame's number",
    )


def _only_counted(paths: Sequence[Path], frames: Sequence[Mapping[str, Any]]) -> bool:
    """The numbers are 0, 1, 2, ... or 1, 2, 3, ..., and no name is that of a source picture or a frame of this run."""
    numbers = [_number(p.stem) for p in paths]
    counted = numbers in ([*range(len(paths))], [*range(1, len(paths) + 1)])
    taken = {Path(str(f.get("name", ""))).stem for f in frames} | {frame_name(i) for i in range(len(frames))}
    return counted and len(paths) > 1 and not all(p.stem in taken for p in paths)


def _names(frames: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any, dict[Any, int]]]:
    """(rule, key of a file's stem, key -> frame index), the safest rule first; keys that are not unique are no keys."""
    names = [str(f.get("name", "")) for f in frames]
    stems = [name if "#" in name else Path(name).stem for name in names]  # frame 12 of a video is called clip.mp4#12
    numbers = [_number(s) for s in stems]
    rules: list[tuple[str, Any, dict[Any, int]]] = []
    if len(set(stems)) == len(stems):
        rules.append(("the names of the source pictures", str, {s: i for i, s in enumerate(stems)}))
    rules.append(("frame names of this run", str, {frame_name(i): i for i in range(len(frames))}))
    if None not in numbers and len(set(numbers)) == len(numbers):
        rules.append(("the numbers of the source pictures", _number, {n: i for i, n in enumerate(numbers)}))
    rules.append(("frame numbers, counted from 0", _number, {i: i for i in range(len(frames))}))
    return rules


def _number(stem: str) -> int | None:
    """The last number in a name."""
    found = re.findall(r"[0-9]+", stem)
    return int(found[-1]) if found else None


def check(paths: Sequence[Path]) -> None:
    """Read every mesh once, before any work is done on the first. InputError names the first that cannot be used."""
    for path in paths:
        check_mesh(path)


def check_mesh(path: Path) -> None:
    """InputError that names the file and the reason when its mesh cannot be used."""
    mesh = read_mesh(path)
    try:
        clean(mesh)
    except InputError as error:
        raise InputError(f"{path}: {error.message}", error.hint) from None
