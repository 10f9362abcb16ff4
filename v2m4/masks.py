"""Masks that the user brings: one picture a frame, white (or, where it has alpha, opaque) where the object is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from v2m4 import stills
from v2m4.errors import InputError

_ONE_A_FRAME = "give one mask a frame, named like the frames or in their order"


@dataclass(frozen=True)
class Masks:
    """``files[i]`` is the mask of the i-th frame of the source; ``note`` says how they were paired."""

    files: tuple[Path, ...]
    note: str

    def alpha(self, source_index: int, shape: tuple[int, int]) -> np.ndarray:
        """(H,W) uint8, every value as in the file. InputError when there is no mask for this frame, when it has another
        size (height, width) than the frame, or is no mask."""
        if source_index >= len(self.files):
            raise InputError(
                f"{len(self.files)} masks, but the clip goes on: frame {source_index} has none", _ONE_A_FRAME
            )
        return read_mask(self.files[source_index], shape)

    def check_count(self, frames: int) -> None:
        """InputError unless there is one mask for each of the ``frames`` that the source has."""
        if frames != len(self.files):
            raise InputError(f"{len(self.files)} masks for {frames} frames", _ONE_A_FRAME)


def read_mask(path: Path, shape: tuple[int, int]) -> np.ndarray:
    """(H,W) uint8 of one mask file, every value as it is."""
    image = stills.read_picture(path)
    if image.shape[:2] != shape:
        raise InputError(
            f"{path}: the mask is {image.shape[1]}x{image.shape[0]}, its frame {shape[1]}x{shape[0]}",
            "a mask needs the size of its frame",
        )
    if image.shape[2] == 4 and int(image[..., 3].min()) < 255:
        return image[..., 3]
    if (image[..., :1] != image[..., :3]).any():
        raise InputError(
            f"{path}: coloured, so not a mask", "white or opaque is the object, black or transparent is not"
        )
    grey = image[..., 0]
    if 0 < int(grey.max()) < 8:
        raise InputError(
            f"{path}: the mask's values reach only {int(grey.max())} of 255", "multiply them, so that the object is 255"
        )
    return grey


def paired(folder: Path, frames: Sequence[Path] | None) -> Masks:
    """The masks in ``folder`` for a clip: by name where the frames are files and every one has a mask named like it
    (``0001.png``, ``0001_mask.png``), else in natural order. InputError when there is none, or too few or too many."""
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "no such folder"
        raise InputError(f"{folder}: {what}", "give a folder with one mask a frame")
    files = sorted((p for p in folder.iterdir() if stills.is_picture(p)), key=lambda p: stills.natural_key(p.name))
    if not files:
        raise InputError(f"{folder}: there are no masks in this folder", _ONE_A_FRAME)
    if frames is not None:
        found = by_name(files, frames)
        if all(found):
            return Masks(tuple(p for p in found if p), f"masks from {folder.name}, paired by name")
        masks = Masks(tuple(files), f"masks from {folder.name}, paired in natural order")
        masks.check_count(len(frames))
        return masks
    return Masks(tuple(files), f"masks from {folder.name}, paired in natural order")


def by_name(files: Sequence[Path], frames: Sequence[Path]) -> list[Path | None]:
    """For each frame the file named like it, letter case and an ending like ``_mask`` aside."""
    named: dict[str, Path] = {}
    for path in files:
        named.setdefault(_stem(path), path)
    return [named.get(_stem(frame)) for frame in frames]


def _stem(path: Path) -> str:
    return stills.MASK_NAME.sub("", path.stem).casefold()
