"""Blur and spread rank pictures as an eye would."""

from __future__ import annotations

import cv2
import numpy as np
from clips import figure, spots

from v2m4.ingest.quality import blur, spread


def picture(sigma: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    fine = cv2.GaussianBlur(rng.integers(0, 255, (160, 160, 3)).astype(np.uint8), (0, 0), 0.6)
    colours = cv2.addWeighted(spots(160, 160, seed), 0.6, np.asarray(fine), 0.4, 0)
    colours = cv2.GaussianBlur(colours, (0, 0), sigma) if sigma else colours
    return np.dstack([colours, figure()])


def test_the_more_blurred_the_larger():
    values = [blur(picture(s)) for s in (0, 1, 2, 4)]
    assert values == sorted(values) and values[0] < 0.45 and values[-1] > 0.6


def test_motion_blur_counts_along_its_direction():
    sharp = picture(0)
    for kernel in ((1, 15), (15, 1)):
        moved = sharp.copy()
        moved[..., :3] = cv2.blur(np.ascontiguousarray(sharp[..., :3]), kernel)
        assert blur(moved) > blur(sharp) + 0.25


def test_a_plain_surface_is_not_called_blurred():
    plain = np.dstack([np.full((160, 160, 3), 120, np.uint8), figure()])
    assert blur(plain) == 0
    assert blur(np.zeros((20, 20, 4), np.uint8)) == 0


def test_spread_is_one_for_a_disc_and_grows_with_limbs():
    y, x = np.indices((200, 200)) - 100
    disc = np.hypot(x, y) < 60
    assert abs(spread(disc) - 1) < 0.06
    body = figure() > 127
    without_legs = body.copy()
    without_legs[96:] = False
    assert spread(body) > spread(without_legs) + 0.3 > 1.3
