"""Masks mended over time, along the optical flow of the pictures.

Two faults of masks made frame by frame: one that has lost (or gained) much of the object, which is rebuilt from the
frames before and after it; and flicker, a patch that is there in one frame only. Both are settled by majority: what the
frame before and the frame after say, carried here by the flow, outvotes the frame itself only where the two agree with
each other and the pictures agree with the flow. A thin part that moves faster than the flow can follow is left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from v2m4.flow import fetch, flow
from v2m4.ingest.edges import box, has_object, overlap
from v2m4.ingest.watch import AREA_FACTOR

#: Bad masks in a row that are rebuilt; over more frames the flow goes astray.
MAX_RUN = 4
#: Overlap with the good mask at the far end that a mask carried over the bad ones must reach.
ROUND_TRIP = 0.85
#: Longer side of the pictures the flow is taken from.
FLOW_PX = 512
#: The object's surroundings that the flow sees, as a share of its size.
MARGIN = 0.25
#: Mean difference in levels from which on a picture does not agree with the flow.
STRAY = 12
#: Alpha of the two neighbours that is "the same", and alpha of the frame between that is "another".
AGREE, DIFFER = 64, 96


@dataclass(frozen=True)
class Mended:
    """The new mask ``alpha`` (H,W) uint8 of one frame, and whether it was rebuilt from its neighbours or had its
    flicker taken out."""

    number: int
    alpha: np.ndarray
    rebuilt: bool = False


@dataclass(frozen=True)
class Masked:
    """One frame with the mask it has: ``picture`` (H,W,3), ``alpha`` (H,W) uint8."""

    number: int
    picture: np.ndarray
    alpha: np.ndarray


def mend(frames: Iterable[Masked], suspects: Collection[int], steady: bool) -> Iterator[Mended]:
    """The frames whose mask is to be changed, in order. The masks of ``suspects`` are rebuilt where that can be done
    with confidence; with ``steady`` the others lose their flicker. Holds at most ``MAX_RUN`` + 3 frames."""
    held: list[Masked] = []  # the last good frame and the bad ones after it
    before: Masked | None = None  # the frame before the last good one, where that is good too
    for frame in frames:
        if frame.number in suspects:
            held = [] if len(held) > MAX_RUN else [*held, frame] if held else []
            continue
        if len(held) > 1:
            yield from rebuild([*held, frame])
        elif held and before is not None and steady:
            yield from _without_flicker([before, held[0], frame])
        before = held[0] if len(held) == 1 else None
        held = [frame]


def rebuild(run: list[Masked]) -> Iterator[Mended]:
    """The masks between the first and the last of ``run``, which are good, by majority of what is carried forward, what
    is carried back, and what each says itself. Nothing where the way there and the way back do not agree."""
    masks = [frame.alpha for frame in run]
    region, greys = _greys([frame.picture for frame in run], np.maximum(masks[0], masks[-1]))
    forward, back = [masks[0][region]], [masks[-1][region]]
    for i in range(1, len(run)):
        forward.append(fetch(forward[-1], _steps(greys[i], greys[i - 1], forward[-1].shape)))
        back.append(fetch(back[-1], _steps(greys[-1 - i], greys[-i], back[-1].shape)))
    trips = (forward[-1], masks[-1][region]), (back[-1], masks[0][region])
    if min(overlap(a > 127, b > 127) for a, b in trips) < ROUND_TRIP:
        return
    back.reverse()
    for i in range(1, len(run) - 1):
        out = np.zeros_like(masks[i])  # what lies beyond the region is none of the object's
        out[region] = np.median([forward[i], back[i], masks[i][region]], 0).astype(np.uint8)
        if has_object(out):
            yield Mended(run[i].number, out, rebuilt=True)


def _without_flicker(three: list[Masked]) -> Iterator[Mended]:
    """The middle one of three good frames, if some of its mask is there for this one frame only, or not there."""
    masks = [frame.alpha for frame in three]
    together = np.maximum(np.maximum(masks[0], masks[1]), masks[2])
    region, greys = _greys([frame.picture for frame in three], together)
    here = masks[1][region].astype(np.int16)
    told, sure = [], np.ones(here.shape, bool)
    for other in (0, 2):
        steps = _steps(greys[1], greys[other], here.shape)
        told.append(fetch(masks[other][region], steps).astype(np.int16))
        sure &= _agrees(greys[1], greys[other], steps)
    mean = (told[0] + told[1]) // 2
    changed = sure & (np.abs(told[0] - told[1]) < AGREE) & (np.abs(here - mean) > DIFFER)
    if changed.any():
        out = masks[1].copy()
        out[region] = np.where(changed, mean, here)
        was, now = (_strays(mask, masks[0], masks[2]) for mask in (masks[1], out))
        if now <= max(was, np.log(AREA_FACTOR)):  # else it is the object itself, gone on by more than its own length
            yield Mended(three[1].number, out)


def _strays(mask: np.ndarray, *others: np.ndarray) -> float:
    """By how much the area of ``mask`` strays from that of the others, as a logarithm."""
    return abs(float(np.log(max(int(mask.sum()), 1) / np.mean([int(other.sum()) for other in others]))))


def _greys(pictures: list[np.ndarray], mask: np.ndarray) -> tuple[tuple[slice, slice], list[np.ndarray]]:
    """The part of the pictures around ``mask``, and it in grey, at most ``FLOW_PX`` long."""
    import cv2

    tight = box(mask > 127, 0)
    margin = round(MARGIN * max(s.stop - s.start for s in tight)) + 8
    region = box(mask > 127, margin)
    height, width = (s.stop - s.start for s in region)
    scale = min(1.0, FLOW_PX / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    parts = (cv2.cvtColor(np.ascontiguousarray(p[region]), cv2.COLOR_RGB2GRAY) for p in pictures)
    return region, [np.asarray(cv2.resize(p, size, interpolation=cv2.INTER_AREA)) for p in parts]


def _steps(here: np.ndarray, there: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """(H,W,2) steps from ``here`` to ``there``, both small, in pixels of a picture of ``shape``."""
    import cv2

    small = flow(here, there, fine=True)
    large = cv2.resize(small, (shape[1], shape[0]), interpolation=cv2.INTER_LINEAR)
    return np.asarray(large) * np.array([shape[1] / here.shape[1], shape[0] / here.shape[0]], np.float32)


def _agrees(here: np.ndarray, there: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """(H,W) bool: the small pictures look alike along the flow."""
    import cv2

    height, width = here.shape
    small = np.asarray(cv2.resize(steps, (width, height), interpolation=cv2.INTER_AREA))
    small = small * np.array([width / steps.shape[1], height / steps.shape[0]], np.float32)
    stray = cv2.blur(cv2.absdiff(here, fetch(there, small)), (5, 5))
    size = (steps.shape[1], steps.shape[0])
    return np.asarray(cv2.resize(stray, size, interpolation=cv2.INTER_LINEAR) < STRAY)
