"""Faulty masks among good ones are found; a clip that moves, turns and grows is left in peace."""

from __future__ import annotations

import numpy as np
import pytest

from v2m4.ingest.watch import MaskWatch, SmallMask, small_mask


def body(x: float, y: float = 60, radius: float = 22, height: int = 120, width: int = 160) -> np.ndarray:
    rows, columns = np.indices((height, width)) + 0.5
    return (np.clip(radius - np.hypot(columns - x, rows - y) + 0.5, 0, 1) * 255).astype(np.uint8)


def found(masks: list[np.ndarray]) -> list[int]:
    watch = MaskWatch()
    for mask in masks:
        watch.add(small_mask(mask))
    return [s.index for s in watch.suspects()]


def walk(count: int = 8) -> list[np.ndarray]:
    return [body(50 + 6 * i, 60 + 3 * np.sin(i)) for i in range(count)]


@pytest.mark.parametrize("bad", [0, 1, 4, 7])
def test_half_of_the_object_is_missing_in_one_frame(bad):  # M02
    masks = walk()
    masks[bad][:60] = 0
    assert found(masks) == [bad]


def test_several_in_a_row_and_something_that_was_added():
    masks = walk(12)
    for i in (5, 6):
        masks[i][:, : 50 + 6 * i] = 0
    masks[9] = np.maximum(masks[9], body(30, 90, 24))
    assert found(masks) == [5, 6, 9]


def test_a_mask_of_something_else():
    masks = walk()
    masks[3] = body(130, 30)
    assert found(masks) == [3]


@pytest.mark.parametrize(
    "masks",
    [
        pytest.param(walk(), id="walks"),
        pytest.param([body(80, 60, 20 + 2 * i) for i in range(12)], id="comes nearer"),
        pytest.param([body(80, 60, 24 + 6 * np.sin(0.5 * i)) for i in range(24)], id="turns"),
        pytest.param([body(30 + 45 * (i % 3), 60, 15) for i in range(9)], id="jumps about"),
        pytest.param(walk(2), id="too short to tell"),
    ],
)
def test_what_an_object_does_by_itself_is_no_fault(masks):
    assert found(masks) == []


def test_every_frame_is_compared_with_its_surroundings_only():
    """An hour of video is looked through as fast, frame by frame, as a second of it; what it finds stays the same."""
    watch, looked = MaskWatch(), []

    class Counted(list):
        def __getitem__(self, at):
            looked.append(at)
            return super().__getitem__(at)

    watch._area = Counted(watch._area)
    mask = small_mask(body(60))
    for i in range(2000):
        watch.add(SmallMask(mask.mask, mask.area * (0.5 if i in (500, 501, 1200) else 1)))
    assert [s.index for s in watch.suspects()] == [500, 501, 1200]
    assert len(looked) < 10 * 2000
