"""One crop for the whole clip: a square in which the object is large, the same in every frame.

A crop of its own for every frame would make the object jump and change its size; this one only takes away what no frame
needs. Nothing is stretched or enlarged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from v2m4.ingest.edges import box
from v2m4.types import Crop

Bounds = tuple[int, int, int, int]  # left, top, right, bottom in pixels of the picture

#: Share of the crop's side that the object takes where it is longest, over all frames.
FILL = 0.85


def bounds(mask: np.ndarray) -> Bounds:
    """Of a mask (H,W) bool; all of it where it is empty."""
    rows, columns = box(mask, 0)
    return columns.start, rows.start, columns.stop, rows.stop


def union(boxes: Iterable[Bounds]) -> Bounds:
    """The smallest box around all of them."""
    left, top, right, bottom = zip(*boxes, strict=True)
    return min(left), min(top), max(right), max(bottom)


def full_picture(width: int, height: int) -> Crop:
    """All of the picture."""
    return Crop(0, 0, width, height, width, height)


def square_around(around: Bounds, width: int, height: int) -> Crop:
    """The square around ``around`` in a picture of ``width`` x ``height``, with the object at ``FILL`` of its side.

    Where the object is cut off by the picture's border, so is the crop, as far as a square allows: what looks past the
    border would show an edge that is none of the object's. A picture that the object fills is kept whole.
    """
    left, top, right, bottom = around
    if (left, top, right, bottom) == (0, 0, width, height):
        return full_picture(width, height)
    side = math.ceil(max(right - left, bottom - top) / FILL)
    return Crop(_start(left, right, width, side), _start(top, bottom, height, side), side, side, width, height)


def _start(low: int, high: int, extent: int, side: int) -> int:
    if low <= 0 < extent - high:
        return 0
    if high >= extent and low > 0:
        return extent - side
    return (low + high - side) // 2
