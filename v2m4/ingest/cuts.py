"""The object of one frame, cut out, and the folders in which masks wait between the passes over a clip."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from v2m4 import formats
from v2m4.ingest.crop import bounds
from v2m4.ingest.edges import box
from v2m4.types import Crop


@dataclass(frozen=True)
class CutOut:
    """``image`` (h,w,4) uint8, straight alpha: the part of a picture of ``width`` x ``height`` that holds all of the
    object; its corner is at (``left``, ``top``). ``about`` says what else is known of the frame."""

    image: np.ndarray
    left: int
    top: int
    width: int
    height: int
    about: dict[str, Any]

    @classmethod
    def of(cls, picture: np.ndarray, about: dict[str, Any] | None = None) -> CutOut:
        """The part of ``picture`` (H,W,4) in which alpha is above zero, and a pixel around it."""
        rows, columns = box(picture[..., 3] > 0, 1)
        part = picture[rows, columns]
        return cls(part, columns.start, rows.start, picture.shape[1], picture.shape[0], about or {})

    def alpha(self) -> np.ndarray:
        """(H,W) uint8 of the full picture."""
        out = np.zeros((self.height, self.width), np.uint8)
        height, width = self.image.shape[:2]
        out[self.top : self.top + height, self.left : self.left + width] = self.image[..., 3]
        return out

    def only(self, alpha: np.ndarray) -> CutOut:
        """The same with another ``alpha`` (H,W) of the full picture, which holds nothing that this one does not."""
        rows = slice(self.top, self.top + self.image.shape[0])
        columns = slice(self.left, self.left + self.image.shape[1])
        image = np.dstack([self.image[..., :3], alpha[rows, columns]])
        part = box(image[..., 3] > 0, 1)
        corner = self.left + part[1].start, self.top + part[0].start
        return CutOut(image[part], *corner, self.width, self.height, self.about)

    def bounds_of(self, mask: np.ndarray) -> tuple[int, int, int, int]:
        """(left, top, right, bottom) of ``mask`` (h,w) bool, in pixels of the picture."""
        left, top, right, bottom = bounds(mask)
        return self.left + left, self.top + top, self.left + right, self.top + bottom

    def placed(self, crop: Crop) -> np.ndarray:
        """(crop.height, crop.width, 4) uint8: what the crop shows; transparent where it holds nothing."""
        out = np.zeros((crop.height, crop.width, 4), np.uint8)
        height, width = self.image.shape[:2]
        x, y = self.left - crop.left, self.top - crop.top
        left, top, right, bottom = max(x, 0), max(y, 0), min(x + width, crop.width), min(y + height, crop.height)
        if right > left and bottom > top:
            out[top:bottom, left:right] = self.image[top - y : bottom - y, left - x : right - x]
        return out


class Alphas:
    """A folder of masks by number, each of a full picture: what was costly to find, or followed what came before it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, number: int) -> bool:
        return self._path(number).is_file()

    def write(self, number: int, alpha: np.ndarray) -> None:
        """``alpha`` (H,W) uint8."""
        formats.write_image(self._path(number), alpha)

    def read(self, number: int) -> np.ndarray:
        """(H,W) uint8. InputError where it is missing or damaged."""
        return formats.read_rgba(self._path(number))[..., 0]

    def _path(self, number: int) -> Path:
        return self.folder / f"{formats.frame_name(number)}.png"
