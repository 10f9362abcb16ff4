"""What a network leaves around and inside of an object goes; what is the object's own stays."""

from __future__ import annotations

import cv2
import numpy as np
from clips import figure
from scipy import ndimage

from v2m4.ingest.edges import without_crumbs


def test_pinholes_haze_and_specks_go():
    alpha = np.pad(figure(), 20)
    dirty = alpha.copy()
    dirty[90:92, 95:97] = 40  # a hole of four pixels in the body
    dirty[5:15, 5:25] = 60  # haze
    dirty[180:182, 180:182] = 255  # a speck
    dirty[alpha == 0] = np.maximum(dirty[alpha == 0], 3)  # noise everywhere
    clean = without_crumbs(dirty)
    np.testing.assert_array_equal(clean[alpha > 127] > 127, True)
    assert not clean[ndimage.distance_transform_edt(alpha == 0) > 3].any()


def test_thin_parts_gaps_and_hands_stay():
    alpha = np.zeros((200, 200), np.uint8)
    cv2.rectangle(alpha, (60, 60), (140, 140), 255, -1)
    cv2.rectangle(alpha, (80, 80), (92, 90), 0, -1)  # seen between arm and body
    cv2.line(alpha, (140, 100), (190, 100), 255, 1)  # a whip, one pixel wide
    cv2.rectangle(alpha, (20, 100), (27, 107), 255, -1)  # a hand that nothing joins to the body
    alpha[60:70, 58:60] = 90  # a soft edge
    alpha[0:4, 100:104] = 0
    np.testing.assert_array_equal(without_crumbs(alpha), alpha)


def test_a_bay_at_the_border_is_no_hole_and_nothing_stays_nothing():
    alpha = np.full((60, 60), 255, np.uint8)
    alpha[0, 30:32] = 0
    np.testing.assert_array_equal(without_crumbs(alpha), alpha)
    assert not without_crumbs(np.zeros((20, 20), np.uint8)).any()
