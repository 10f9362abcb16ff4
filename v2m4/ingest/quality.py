"""How good one frame is: how large the object is in it, how sharp, how far its limbs are apart."""

from __future__ import annotations

import numpy as np

from v2m4.ingest.edges import box

#: Width in pixels over which the picture is blurred again to see how much that takes away.
_AGAIN_PX = 9
#: Mean step from pixel to pixel in levels below which there is nothing that could be sharp.
_FLAT = 0.4
_INSIDE_PX = 3


def blur(frame: np.ndarray) -> float:
    """How blurred the object in ``frame`` (H,W,4) uint8 looks: 0 sharp, 1 a smear; 0 too where its surface is plain.

    Blurring a sharp picture once more takes much of its steps away, blurring a blurred one little (Crété-Roffet and
    others 2007, "The blur effect"). The outline is left out: it is the mask's.
    """
    import cv2

    rows, columns = box(frame[..., 3] > 127, 0)
    part = frame[rows, columns]
    kernel = np.ones((2 * _INSIDE_PX + 1,) * 2, np.uint8)
    inside = np.asarray(cv2.erode((part[..., 3] > 250).astype(np.uint8), kernel, borderValue=1))
    if inside.sum() < 64:
        return 0.0
    # In sixteenths of a level: what is left after blurring may be less than one.
    grey = cv2.cvtColor(np.ascontiguousarray(part), cv2.COLOR_RGBA2GRAY).astype(np.uint16) * 16
    worst = 0.0
    for axis, size in ((1, (_AGAIN_PX, 1)), (0, (1, _AGAIN_PX))):
        there = np.minimum(_after(inside, axis), _before(inside, axis))
        again = cv2.blur(grey, size)
        steps, left = (cv2.absdiff(_after(picture, axis), _before(picture, axis)) for picture in (grey, again))
        mean = cv2.mean(steps, mask=there)[0]
        if mean >= 16 * _FLAT:
            worst = max(worst, 1 - cv2.mean(cv2.subtract(steps, left), mask=there)[0] / mean)
    return float(worst)


def _before(picture: np.ndarray, axis: int) -> np.ndarray:
    return picture[:, :-1] if axis else picture[:-1]


def _after(picture: np.ndarray, axis: int) -> np.ndarray:
    return picture[:, 1:] if axis else picture[1:]


def spread(mask: np.ndarray) -> float:
    """Length of the outline of ``mask`` (H,W) bool over that of a disc of the same area: 1 for a disc, more where
    limbs are apart."""
    import cv2

    area = int(mask.sum())
    lines, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_TC89_KCOS)
    length = sum(cv2.arcLength(line, True) for line in lines)
    return float(length / (2 * np.sqrt(np.pi * max(area, 1))))
