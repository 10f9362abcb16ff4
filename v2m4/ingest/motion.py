"""How much changes from one frame to another: the outline, the surface inside it, and how far the object has turned.

Everything is measured on small pictures in which the object is about ``OBJECT_PX`` long, and told in shares of the
object's length, so that neither the clip's resolution nor the object's size in it matters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from v2m4.flow import fetch, flow
from v2m4.ingest.edges import box, overlap

OBJECT_PX = 128
#: Room around the object that the flow may look into.
_ROOM_PX = 8
_GROUND = 128
#: A step there and back that ends farther away than this, and this share of its length, has lost its point.
_ASTRAY_PX, _ASTRAY_SHARE = 1.5, 0.1
#: How far the visible side of a round body moves, in shares of its half width, when it turns by one radian: the mean of
#: the depth of a half circle over its width is pi/4 of its radius.
_ROUND = np.pi / 4


@dataclass(frozen=True)
class Small:
    """The object of one frame, small. ``grey`` (h,w) uint8 over mid grey and ``mask`` (h,w) bool, both with their
    corner at (``left``, ``top``) of the small frame."""

    grey: np.ndarray
    mask: np.ndarray
    left: int
    top: int

    @cached_property
    def centre(self) -> np.ndarray:
        """(2,) x, y of the mask's centroid in the small frame."""
        rows, columns = np.nonzero(self.mask)
        return np.array([columns.mean() + self.left, rows.mean() + self.top])

    @cached_property
    def length(self) -> float:
        """Longer side of the mask's box in small pixels."""
        return float(max(s.stop - s.start for s in box(self.mask, 0)))

    @cached_property
    def half_size(self) -> np.ndarray:
        """(2,) about half the width and half the height of the object."""
        rows, columns = np.nonzero(self.mask)
        return np.maximum(np.array([columns.std(), rows.std()]) * np.sqrt(3.0), 1.0)

    def on(self, left: int, top: int, width: int, height: int) -> tuple[np.ndarray, np.ndarray]:
        """(grey, mask) of another part of the small frame."""
        grey, mask = np.full((height, width), _GROUND, np.uint8), np.zeros((height, width), bool)
        rows = slice(self.top - top, self.top - top + self.grey.shape[0])
        columns = slice(self.left - left, self.left - left + self.grey.shape[1])
        grey[rows, columns], mask[rows, columns] = self.grey, self.mask
        return grey, mask


@dataclass(frozen=True)
class Change:
    """From one frame to another. ``overlap``: of the outlines, laid onto each other, intersection over union.
    ``outline``: how far they are apart, at the 95th percentile along them: a leg counts as much as the body there.
    ``bend``: how far the surface moves, the object's shift aside, at its 90th percentile. ``shift`` (2,): of the whole
    object (x, y). ``turn`` (2,): radians about the vertical and the
    horizontal axis, read from the surface's motion against the outline's. Lengths in shares of the object's."""

    overlap: float
    outline: float
    bend: float
    shift: tuple[float, float]
    turn: tuple[float, float]


def small(frame: np.ndarray, scale: float) -> Small:
    """``frame`` (H,W,4) uint8 at ``scale``; its alpha must not be zero everywhere."""
    import cv2

    height, width = frame.shape[:2]
    rows, columns = box(frame[..., 3] > 0, round(4 / scale))
    # On the small frame's own grid, so that two frames can be laid over each other.
    left, top = int(columns.start * scale), int(rows.start * scale)
    right, bottom = int(np.ceil(columns.stop * scale)), int(np.ceil(rows.stop * scale))
    part = frame[
        round(top / scale) : min(round(bottom / scale), height), round(left / scale) : min(round(right / scale), width)
    ]
    size = max(1, right - left), max(1, bottom - top)
    alpha = cv2.resize(part[..., 3], size, interpolation=cv2.INTER_AREA)
    grey = cv2.resize(cv2.cvtColor(part, cv2.COLOR_RGBA2GRAY), size, interpolation=cv2.INTER_AREA)
    if not alpha.any():  # an object so much smaller than in other frames that rounding takes it away
        alpha = cv2.resize(part[..., 3].astype(np.float32), size, interpolation=cv2.INTER_AREA)
        alpha = np.round(alpha * (255 / alpha.max())).astype(np.uint8)
    mask = np.asarray(alpha >= max(1, int(alpha.max()) // 2))
    share = alpha.astype(np.float32) / 255
    over = np.round(grey * share + _GROUND * (1 - share)).astype(np.uint8)
    return Small(over, mask, left, top)


def compare(a: Small, b: Small) -> Change:
    """What has changed from ``a`` to ``b``."""
    # What the whole object does is known from the outlines; the flow is left with the rest of it, which is small.
    moved = np.round(b.centre - a.centre).astype(int)
    b_left, b_top = b.left - int(moved[0]), b.top - int(moved[1])
    left, top = min(a.left, b_left) - _ROOM_PX, min(a.top, b_top) - _ROOM_PX
    width = max(a.left + a.grey.shape[1], b_left + b.grey.shape[1]) + _ROOM_PX - left
    height = max(a.top + a.grey.shape[0], b_top + b.grey.shape[0]) + _ROOM_PX - top
    first, first_mask = a.on(left, top, width, height)
    rest = b.centre - a.centre - moved  # less than a pixel, but every frame would add its own
    second, second_mask = _shifted(*b.on(left + int(moved[0]), top + int(moved[1]), width, height), rest)
    there, back = flow(first, second), flow(second, first)
    astray = _length(there + fetch(back, there))
    found = first_mask & (astray < _ASTRAY_PX + _ASTRAY_SHARE * _length(there))
    length = max(a.length, b.length)
    steps = there[found] if found.any() else np.zeros((1, 2), np.float32)
    middle = np.median(steps, 0)
    bend = float(np.percentile(_length(steps - middle), 90)) / length
    shift = (b.centre - a.centre) / length
    turn = middle / (_ROUND * (a.half_size + b.half_size) / 2)
    outline = _apart(first_mask, second_mask) / length
    return Change(
        overlap=overlap(first_mask, second_mask),
        outline=outline,
        bend=bend,
        shift=(float(shift[0]), float(shift[1])),
        turn=(float(turn[0]), float(turn[1])),
    )


def _shifted(grey: np.ndarray, mask: np.ndarray, by: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both moved by minus ``by`` (x, y), a part of a pixel."""
    import cv2

    matrix = np.array([[1, 0, -by[0]], [0, 1, -by[1]]])
    size = grey.shape[::-1]
    moved = cv2.warpAffine(grey, matrix, size, flags=cv2.INTER_LINEAR, borderValue=_GROUND)
    share = cv2.warpAffine(mask.astype(np.uint8) * 255, matrix, size, flags=cv2.INTER_LINEAR)
    return np.asarray(moved), np.asarray(share) > 127


def _length(steps: np.ndarray) -> np.ndarray:
    return np.asarray(np.hypot(steps[..., 0], steps[..., 1]))


def _apart(a: np.ndarray, b: np.ndarray) -> float:
    """Distance in pixels between the outlines of two masks, at the 95th percentile along the outlines."""
    import cv2

    lines = [m & ~cv2.erode(m.astype(np.uint8), np.ones((3, 3), np.uint8)).astype(bool) for m in (a, b)]
    away = [cv2.distanceTransform((~line).astype(np.uint8), cv2.DIST_L2, 3) for line in lines]
    found = [away[1][lines[0]], away[0][lines[1]]]
    return max((float(np.percentile(f, 95)) if len(f) else float(max(a.shape))) for f in found)
