"""One object of several, the same one in every frame."""

from __future__ import annotations

import numpy as np
import pytest

from v2m4.errors import ConfigError
from v2m4.ingest.edges import NoObject
from v2m4.ingest.objects import ObjectTracker

HEIGHT, WIDTH = 90, 160


def disc(x: float, y: float = 45, radius: float = 14) -> np.ndarray:
    rows, columns = np.indices((HEIGHT, WIDTH)) + 0.5
    return (np.clip(radius - np.hypot(columns - x, rows - y) + 0.5, 0, 1) * 255).astype(np.uint8)


def together(*masks: np.ndarray) -> np.ndarray:
    return np.max(masks, 0)


@pytest.mark.parametrize(
    ("which", "expected"), [("largest", 2), ("nearest", 1), ("0", 0), ("1", 1), ("2", 2), ("all", None)]
)
def test_the_object_is_kept_to_the_last_soft_pixel(which, expected):  # M05
    parts = [disc(25), disc(85, 40, 12), disc(135, 50, 17)]
    kept = ObjectTracker(which).keep(together(*parts), "frame 0")
    np.testing.assert_array_equal(kept, together(*parts) if expected is None else parts[expected])


@pytest.mark.parametrize(("which", "expected"), [("0", 0), ("1", 1)])
def test_equal_objects_that_pass_each_other_are_not_mixed_up(which, expected):  # M05
    """They cross, one above the other, and for some frames the other is the more central, then the larger one."""
    tracker = ObjectTracker(which)
    for i in range(16):
        parts = [disc(20 + 8 * i, 28), disc(140 - 8 * i, 64, 14 + 0.3 * i)]
        np.testing.assert_array_equal(tracker.keep(together(*parts), f"frame {i}"), parts[expected])


def test_parts_with_a_narrow_gap_are_one_object_and_specks_are_none():
    body = disc(60, 45, 20)
    body[:, 60] = 0
    speck = np.zeros_like(body)
    speck[5:7, 150:152] = 255
    np.testing.assert_array_equal(ObjectTracker("largest").keep(together(body, speck, disc(130)), ""), body)
    with pytest.raises(ConfigError, match="objects 0 to 1 are"):
        ObjectTracker("2").keep(together(body, speck, disc(130)), "frame 0")


def test_a_fast_object_is_followed_and_an_interrupted_run_goes_on():
    frames = [[disc(20 + 30 * i, 30, 12), disc(150, 70, 14)] for i in range(4)]
    whole, resumed = ObjectTracker("0"), ObjectTracker("0")
    kept = [whole.keep(together(*parts), "") for parts in frames]
    for alpha in kept[:2]:
        resumed.follow(alpha)
    for i in (2, 3):
        np.testing.assert_array_equal(resumed.keep(together(*frames[i]), ""), kept[i])
    for parts, alpha in zip(frames, kept, strict=True):
        np.testing.assert_array_equal(alpha, parts[0])


@pytest.mark.parametrize("top", [254, 127, 60])
def test_faint_objects_are_told_apart_too_and_an_interrupted_run_goes_on(top):  # M01, M05
    frames = [[disc(20 + 30 * i, 30, 12), disc(150, 70, 14)] for i in range(4)]
    frames = [[np.round(part * (top / 255)).astype(np.uint8) for part in parts] for parts in frames]
    whole, resumed = ObjectTracker("0"), ObjectTracker("0")
    for i, parts in enumerate(frames):
        kept = whole.keep(together(*parts), "")
        np.testing.assert_array_equal(kept, parts[0])
        resumed.follow(kept) if i < 2 else np.testing.assert_array_equal(resumed.keep(together(*parts), ""), kept)


@pytest.mark.parametrize("which", ["0", "largest"])
def test_an_object_that_vanishes_is_not_mistaken_for_another(which):  # M01, M05
    tracker = ObjectTracker(which)
    for i in range(9):
        mine, other = disc(20 + 3 * i, 40, 14), disc(130, 50, 12)
        if i in (4, 5):
            with pytest.raises(NoObject, match=f"frame {i}: --object {which} .* not there any more"):
                tracker.keep(other, f"frame {i}")
        else:
            np.testing.assert_array_equal(tracker.keep(together(mine, other), ""), mine)


def test_nothing_and_one_object_are_left_alone():
    for which in ("largest", "nearest", "0"):
        np.testing.assert_array_equal(ObjectTracker(which).keep(disc(70), ""), disc(70))
        assert not ObjectTracker(which).keep(np.zeros((HEIGHT, WIDTH), np.uint8), "").any()
    for bad in ("biggest", "-1", "1.5", ""):
        with pytest.raises(ConfigError):
            ObjectTracker(bad)
