"""One square for the whole clip, with the object large in it, and the way back to the full picture."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from v2m4.ingest.crop import Crop, bounds, full_picture, square_around, union
from v2m4.transforms import crop_K, fov_to_K, project, scale_K


@given(
    st.integers(40, 2000), st.integers(40, 2000), st.floats(0.01, 0.98), st.floats(0.01, 0.98), st.floats(0.02, 0.98),
    st.floats(0.02, 0.98),
)  # fmt: skip
def test_a_square_in_which_the_object_takes_seven_to_nine_tenths(width, height, x, y, w, h):
    left, top = int(x * (width - 20)) + 1, int(y * (height - 20)) + 1
    right, bottom = min(width - 1, left + 18 + int(w * width)), min(height - 1, top + 18 + int(h * height))
    crop = square_around((left, top, right, bottom), width, height)
    assert crop.width == crop.height
    assert 0.7 <= max(right - left, bottom - top) / crop.width <= 0.9
    assert crop.left < left and crop.top < top  # nothing of the object is lost, and there is room on all sides
    assert crop.left + crop.width > right and crop.top + crop.height > bottom


@pytest.mark.parametrize(
    ("box", "start"),
    [
        pytest.param((0, 30, 40, 60), (0, None), id="left"),
        pytest.param((60, 30, 100, 60), (100 - 48, None), id="right"),
        pytest.param((30, 0, 60, 40), (None, 0), id="top"),
        pytest.param((30, 40, 60, 80), (None, 80 - 48), id="bottom"),
    ],
)
def test_where_the_picture_cuts_the_object_off_so_does_the_crop(box, start):
    crop = square_around(box, 100, 80)
    assert start[0] in (None, crop.left) and start[1] in (None, crop.top) and crop.width == 48


def test_an_object_from_border_to_border_is_kept_whole():
    crop = square_around((0, 10, 100, 60), 100, 80)
    assert crop.left <= 0 and crop.left + crop.width >= 100 and crop.width == crop.height
    assert square_around((0, 0, 100, 80), 100, 80) == full_picture(100, 80)


def test_bounds_and_their_union():
    mask = np.zeros((50, 60), bool)
    mask[10:20, 5:9] = True
    assert bounds(mask) == (5, 10, 9, 20)
    assert union([(5, 10, 9, 20), (2, 15, 30, 18)]) == (2, 10, 30, 20)


def test_a_point_lands_on_the_same_place_through_the_lens_of_the_crop():
    """What the camera stage does: the lens of the full picture, cut and scaled, against moving the pixel itself."""
    crop = Crop(left=-40, top=133, width=500, height=500, picture_width=1280, picture_height=720)
    K = fov_to_K(40, crop.picture_width, crop.picture_height)
    points = np.random.default_rng(0).normal(size=(50, 3)) * [1, 1, 0.5] + [0, 0, 4]
    there = (project(points, K) - [crop.left, crop.top]) * (320 / 500)
    np.testing.assert_allclose(project(points, scale_K(crop_K(K, crop.left, crop.top), 320 / 500)), there, atol=1e-9)
