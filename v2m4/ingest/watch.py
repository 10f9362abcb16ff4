"""Masks over time: one that has lost or gained much of the object against the frames around it is at fault."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from v2m4.ingest.edges import overlap

#: Longer side of the small masks that are kept and compared.
SMALL_PX = 64
#: Frames on either side that a mask is compared with.
REACH = 3
#: A change of the area by this factor is a fault, where the frames around agree better than that.
AREA_FACTOR = 1.3
#: A mask that overlaps both neighbours by less than this share of what they overlap each other is a fault.
APART = 0.3
#: Neighbours that overlap less than this tell nothing about the frame between them.
TOGETHER = 0.3


@dataclass(frozen=True)
class Suspect:
    """A frame whose mask does not fit those around it, and in what way."""

    index: int
    reason: str


@dataclass(frozen=True)
class SmallMask:
    """A mask, at most ``SMALL_PX`` long, and the share of the picture it covered: some kilobytes."""

    mask: np.ndarray
    area: float


def small_mask(alpha: np.ndarray) -> SmallMask:
    """``alpha`` (H,W) uint8."""
    import cv2

    height, width = alpha.shape
    scale = SMALL_PX / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return SmallMask(np.asarray(cv2.resize(alpha, size, interpolation=cv2.INTER_AREA)) > 127, float(alpha.mean()) / 255)


class MaskWatch:
    """Give it every mask in order."""

    def __init__(self) -> None:
        self._small: list[np.ndarray] = []
        self._area: list[float] = []

    def add(self, mask: SmallMask) -> None:
        self._small.append(mask.mask)
        self._area.append(mask.area)

    def suspects(self) -> list[Suspect]:
        """The frames to look at. A clip of fewer than three frames has none: there is no telling which one is wrong."""
        good = list(range(len(self._area)))
        found: list[Suspect] = []
        judged: dict[int, float] = {}
        places = range(len(good))
        while len(good) > 2:  # the worst first: it would speak against its neighbours otherwise
            judged |= {good[place]: self._area_change(place, good) for place in places}
            worst = max(good, key=lambda i: abs(judged[i]))
            if judged[worst] == 0:
                break
            verb, share = "lost" if judged[worst] < 0 else "gained", abs(np.expm1(judged[worst]))
            found.append(Suspect(worst, f"has {verb} {share:.0%} of the object's area against the frames around it"))
            at = good.index(worst)
            good.remove(worst)
            places = range(max(0, at - 2 * REACH), min(len(good), at + 2 * REACH))  # those it was compared with
        for before, here, after in zip(good, good[1:], good[2:], strict=False):
            if self._elsewhere(before, here, after):
                found.append(Suspect(here, "lies elsewhere than those of the frames before and after it"))
        return sorted(found, key=lambda s: s.index)

    def _area_change(self, place: int, good: list[int]) -> float:
        """Logarithm of the area of frame ``good[place]`` against what the nearest good frames let expect; 0 where that
        is no fault."""
        i, near = good[place], [*good[max(0, place - 2 * REACH) : place], *good[place + 1 : place + 1 + 2 * REACH]]
        around = np.array(sorted(near, key=lambda k: abs(k - i))[: 2 * REACH])
        own = np.log(max(self._area[i], 1e-6))
        areas = np.log(np.maximum([self._area[k] for k in around], 1e-6))
        # The line that most pairs agree on (Theil-Sen): an object that comes nearer or turns is no fault.
        first, second = np.triu_indices(len(around), 1)
        slope = np.median((areas[second] - areas[first]) / (around[second] - around[first]))
        level = np.median(areas - slope * (around - i))
        strays = float(np.median(np.abs(areas - level - slope * (around - i))))
        limit = max(np.log(AREA_FACTOR), 3 * strays)
        change = float(own - level)
        return change if min(abs(change), abs(own - areas[0])) > limit else 0.0

    def _elsewhere(self, before: int, here: int, after: int) -> bool:
        a, b, c = (self._small[k] for k in (before, here, after))
        together = overlap(a, c)
        return together > TOGETHER and max(overlap(b, a), overlap(b, c)) < APART * together
