"""One object of several: which part of a mask is it, and where is it in the next frame."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from v2m4.errors import ConfigError
from v2m4.ingest.edges import NoObject, box, foreground

WAYS = ("all", "largest", "nearest")
#: Parts nearer to each other than this share of the picture's longer side are one object (a hand behind a gap).
GAP = 0.01
#: Parts smaller than this share of the largest are no object of their own.
SPECK = 0.02
#: An object that lies farther than this from where the last one went, in shares of its length, is another.
ASTRAY = 2.0


@dataclass(frozen=True)
class _Objects:
    """Objects in one mask, from left to right. ``label`` (H,W) int32: 1 is the first; each pixel has the nearest's."""

    label: np.ndarray
    area: np.ndarray
    centre: np.ndarray  # (M,2) x, y


class ObjectTracker:
    """Keeps one object of every frame, the same through the clip.

    ``which``: "largest" or "nearest" (to the picture's middle) in the first frame, or its number there counted from the
    left, from 0; "all" keeps everything. ConfigError for anything else.
    """

    def __init__(self, which: str) -> None:
        if which not in WAYS and not which.isdecimal():
            raise ConfigError(
                f"--object {which} (ingest.object) is no object",
                f"known are {', '.join(WAYS)} and numbers from the left, from 0",
            )
        self.which = which
        self._last: np.ndarray | None = None
        self._centre = self._step = np.zeros(2)

    def keep(self, alpha: np.ndarray, frame: str) -> np.ndarray:
        """``alpha`` (H,W) uint8 of the next frame -> the same with everything but the object cleared. ConfigError
        where the first frame does not have as many objects, NoObject where only others are left."""
        if self.which == "all":
            return alpha
        found = _objects(alpha)
        if not len(found.area):
            return alpha
        chosen = self._first(found, alpha.shape, frame) if self._last is None else self._next(found, frame)
        out = np.where(found.label == chosen + 1, alpha, 0).astype(np.uint8)
        self.follow(out)
        return out

    def follow(self, alpha: np.ndarray) -> None:
        """Go on from a frame whose object is known already."""
        solid = foreground(alpha)
        if not solid.any():
            return
        rows, columns = np.nonzero(solid)
        centre = np.array([columns.mean(), rows.mean()])
        self._step = np.zeros(2) if self._last is None else centre - self._centre
        self._last, self._centre = solid, centre

    def _first(self, found: _Objects, shape: tuple[int, ...], frame: str) -> int:
        if self.which == "largest":
            return int(found.area.argmax())
        if self.which == "nearest":
            middle = np.array([shape[1], shape[0]]) / 2
            return int(np.linalg.norm(found.centre - middle, axis=1).argmin())
        if int(self.which) >= len(found.area):
            count = len(found.area)
            numbers = f"objects 0 to {count - 1} are" if count > 1 else "only object 0 is"
            raise ConfigError(
                f"{frame}: --object {self.which} (ingest.object) is not there, {numbers}",
                "choose one of these by its number from the left, or largest or nearest",
            )
        return int(self.which)

    def _next(self, found: _Objects, frame: str) -> int:
        """The object that overlaps most with the last one, moved on by its last step; else the nearest to it."""
        assert self._last is not None
        chosen = self._likely(found, self._last)
        length = max(s.stop - s.start for s in box(self._last, 0))
        if np.linalg.norm(found.centre[chosen] - self._centre - self._step) > ASTRAY * length:
            raise NoObject(
                f"{frame}: --object {self.which} (ingest.object) is not there any more, only another far from it",
                "cut the clip there, or set ingest.empty to skip or hold",
            )
        return chosen

    def _likely(self, found: _Objects, last: np.ndarray) -> int:
        moved = np.zeros_like(last)
        dx, dy = np.round(self._step).astype(int)
        height, width = moved.shape
        moved[max(0, dy) : height + min(0, dy), max(0, dx) : width + min(0, dx)] = last[
            max(0, -dy) : height + min(0, -dy), max(0, -dx) : width + min(0, -dx)
        ]
        shared = np.bincount(found.label[moved], minlength=len(found.area) + 1)[1:]
        if shared.max() > 0.1 * moved.sum():
            return int(shared.argmax())
        return int(np.linalg.norm(found.centre - self._centre - self._step, axis=1).argmin())


def _objects(alpha: np.ndarray) -> _Objects:
    import cv2

    solid = foreground(alpha).astype(np.uint8)
    reach = max(1, round(GAP * max(alpha.shape)))
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (reach * 2 + 1,) * 2)
    count, joined = cv2.connectedComponents(
        np.asarray(cv2.morphologyEx(solid, cv2.MORPH_CLOSE, kernel)), connectivity=8
    )
    label = np.where(solid > 0, joined, 0)
    area = np.bincount(label.ravel(), minlength=count)[1:]
    large = np.flatnonzero(area >= SPECK * max(int(area.max(initial=0)), 1)) if len(area) else np.zeros(0, int)
    rows, columns = np.indices(alpha.shape)
    totals = np.maximum(area[large], 1)
    centre = np.stack(
        [np.bincount(label.ravel(), weights=x.ravel(), minlength=count)[1:][large] / totals for x in (columns, rows)],
        -1,
    )
    order = np.argsort(centre[:, 0], kind="stable") if len(large) else np.zeros(0, int)
    renamed = np.zeros(count, np.int32)
    renamed[large[order] + 1] = np.arange(len(large)) + 1
    return _Objects(_nearest(renamed[label]), area[large[order]], centre[order])


def _nearest(label: np.ndarray) -> np.ndarray:
    """Every pixel gets the label of the nearest one that has any."""
    from scipy.ndimage import distance_transform_edt

    if not label.any():
        return label
    at = distance_transform_edt(label == 0, return_distances=False, return_indices=True)
    return np.asarray(label[tuple(at)])
