"""Flow finds what was painted, on pictures of any size, and on one thread however many ask."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from clips import spots

from v2m4.flow import fetch, flow, one_thread


@pytest.fixture
def threads():
    """Two threads for OpenCV, whatever the machine has."""
    before = cv2.getNumThreads()
    cv2.setNumThreads(2)
    yield 2
    cv2.setNumThreads(before)


def test_one_thread_lasts_until_the_last_one_is_out(threads):
    first, second = one_thread(), one_thread()
    first.__enter__()
    second.__enter__()
    assert cv2.getNumThreads() == 1
    first.__exit__(None, None, None)
    assert cv2.getNumThreads() == 1  # the other is still at work
    second.__exit__(None, None, None)
    assert cv2.getNumThreads() == threads
    with pytest.raises(ValueError), one_thread(), one_thread():
        raise ValueError
    assert cv2.getNumThreads() == threads


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (50, 1), (33, 31), (90, 120)])
def test_pictures_of_any_size(shape):
    picture = spots(120, 120)[: shape[0], : shape[1], 0]
    steps = flow(picture, picture)
    assert steps.shape == (*shape, 2) and np.abs(steps).max() < 0.5
    np.testing.assert_array_equal(fetch(picture, np.zeros_like(steps)), picture)


@pytest.mark.parametrize("fine", [False, True])
def test_a_shift_is_found_and_taken_back(fine):
    wide = spots(126, 180)[..., 0]
    a, b = wide[5:105, 10:150], wide[3:103, 7:147]  # what is at (x, y) in a is at (x + 3, y + 2) in b
    steps = flow(a, b, fine)
    inner = (slice(12, -12), slice(12, -12))
    np.testing.assert_allclose(np.median(steps[inner].reshape(-1, 2), 0), (3, 2), atol=0.2)
    assert np.abs(fetch(b, steps)[inner].astype(int) - a[inner]).mean() < 4
    assert (fetch(a, np.full_like(steps, 1000), beyond=7) == 7).all()
