"""Points of the background, followed through the clip: they tell later whether the camera moved, or the object did.

Corners outside the object are followed from frame to frame by pyramidal Lucas-Kanade, there and back; what does not
come back to where it started, or goes behind the object, ends. Only the last small picture is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from v2m4.types import Crop

#: Longer side of the pictures in which points are followed.
_LONGEST_PX = 640
#: Points followed at a time; new ones are sought when fewer than half of them are left.
_POINTS, _APART_PX = 240, 12
#: A point that misses its start by more than this after there and back is lost.
_ASTRAY_PX = 0.5
#: Room around the object: its rim, its motion blur, its shadow's edge.
_ROOM_PX = 8


@dataclass
class BackgroundTracks:
    """``add`` is given each frame in order; ``arrays`` are the tracks in pixels of the full picture."""

    width: int
    height: int
    _last: np.ndarray | None = None
    _points: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.float32))
    _numbers: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    _next: int = 0
    _found: list[tuple[np.ndarray, int, np.ndarray]] = field(default_factory=list)

    @property
    def scale(self) -> float:
        """Pixels of the small pictures in one of the full."""
        return min(1.0, _LONGEST_PX / max(self.width, self.height))

    def small(self, picture: np.ndarray, alpha: np.ndarray, crop: Crop) -> tuple[np.ndarray, np.ndarray]:
        """Grey (h,w) of a ``picture`` (H,W,3+), and 255 where it shows background; ``alpha`` is that of the frame,
        which shows ``crop`` of the picture."""
        import cv2

        size = max(1, round(self.width * self.scale)), max(1, round(self.height * self.scale))
        grey = cv2.resize(cv2.cvtColor(np.ascontiguousarray(picture[..., :3]), cv2.COLOR_RGB2GRAY), size,
                          interpolation=cv2.INTER_AREA)  # fmt: skip
        step = alpha.shape[1] / crop.width / self.scale  # pixels of the frame in one of the small picture
        to_frame = np.array([[step, 0, -crop.left * self.scale * step], [0, step, -crop.top * self.scale * step]])
        object_here = cv2.warpAffine(
            np.ascontiguousarray(alpha), to_frame, size, flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        )
        room = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * _ROOM_PX + 1,) * 2)
        return grey, np.where(cv2.dilate(object_here, room) > 8, 0, 255).astype(np.uint8)

    def add(self, frame: int, grey: np.ndarray, free: np.ndarray) -> None:
        """Follow the points into ``frame`` and look for new ones where they have become few."""
        if self._last is not None and len(self._points):
            self._follow(grey, free)
        if len(self._points) < _POINTS // 2:
            self._seek(grey, free)
        self._found.append((self._numbers.copy(), frame, self._points.copy()))
        self._last = grey

    def _follow(self, grey: np.ndarray, free: np.ndarray) -> None:
        import cv2

        assert self._last is not None
        how = dict(winSize=(21, 21), maxLevel=3)
        there, there_ok, _ = cv2.calcOpticalFlowPyrLK(self._last, grey, self._points[:, None], None, **how)  # type: ignore[call-overload]
        back, back_ok, _ = cv2.calcOpticalFlowPyrLK(grey, self._last, there, None, **how)  # type: ignore[call-overload]
        there, back = there[:, 0], back[:, 0]
        good = (there_ok[:, 0] == 1) & (back_ok[:, 0] == 1)
        good &= np.linalg.norm(back - self._points, axis=1) < _ASTRAY_PX
        at = np.round(there).astype(int)
        good &= (at >= 0).all(1) & (at[:, 0] < grey.shape[1]) & (at[:, 1] < grey.shape[0])
        good[good] = free[at[good, 1], at[good, 0]] > 0
        self._points, self._numbers = there[good], self._numbers[good]

    def _seek(self, grey: np.ndarray, free: np.ndarray) -> None:
        import cv2

        where = free.copy()
        for x, y in np.round(self._points).astype(int):
            cv2.circle(where, (int(x), int(y)), _APART_PX, 0, -1)
        found = cv2.goodFeaturesToTrack(grey, _POINTS - len(self._points), 0.02, _APART_PX, mask=where)
        if found is None:
            return
        strong = found[:, 0]
        numbers = np.arange(self._next, self._next + len(strong), dtype=np.int32)
        self._next += len(strong)
        self._points = np.concatenate([self._points, strong]).astype(np.float32)
        self._numbers = np.concatenate([self._numbers, numbers])

    def arrays(self) -> dict[str, np.ndarray]:
        """``track`` (P,), ``frame`` (P,) and ``xy`` (P,2), of points that were seen in two frames or more."""
        track = np.concatenate([numbers for numbers, _, _ in self._found] or [np.zeros(0, np.int32)])
        frame = np.concatenate([np.full(len(n), f, np.int32) for n, f, _ in self._found] or [np.zeros(0, np.int32)])
        xy = np.concatenate([points for _, _, points in self._found] or [np.zeros((0, 2), np.float32)])
        xy = ((xy + 0.5) / self.scale).astype(np.float32)  # pixel centres at +0.5, as everywhere
        seen = np.bincount(track, minlength=1)[track] > 1 if len(track) else np.zeros(0, bool)
        order = np.lexsort((frame[seen], track[seen]))
        return {"track": track[seen][order], "frame": frame[seen][order], "xy": xy[seen][order]}
