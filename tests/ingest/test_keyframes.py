"""Keyframes follow the motion, their number has a limit, and the best anchor is the one an artist would pick."""

from __future__ import annotations

import itertools

import cv2
import numpy as np
import pytest
from clips import figure, spots

from v2m4.ingest.keyframes import Chooser, Limits, Look, anchor_scores, every
from v2m4.ingest.motion import OBJECT_PX, compare, small


def turned(angle: float, dx: float = 0, dy: float = 0, size: int = 300):
    """The spotted figure at an angle in the picture, ready to be measured."""
    turn = cv2.getRotationMatrix2D((80, 80), angle, 1.2)
    turn[:, 2] += [70 + dx, 70 + dy]
    mask = cv2.warpAffine(figure(), turn, (size, size))
    colours = cv2.warpAffine(spots(160, 160), turn, (size, size), borderMode=cv2.BORDER_REFLECT)
    return small(np.dstack([colours, mask]), OBJECT_PX / 150)


def chosen(frames, limits=Limits(), fps=24.0):  # noqa: B008  (frozen)
    chooser = Chooser(limits)
    for i, frame in enumerate(frames):
        chooser.add(i / fps, frame)
    return (*chooser.chosen(), chooser)


def test_neighbours_never_differ_by_more_than_the_limits():
    angles = np.cumsum([0, 1, 1, 1, 1, 1, 3, 3, 3, 1, 1, 1, 0.5, 0.5, 0.5, 0.5])
    frames = [turned(a) for a in angles]
    limits = Limits(overlap=0.7, motion=0.08)
    keys, rule, _ = chosen(frames, limits)
    assert keys[0] == 0 and keys[-1] == len(frames) - 1 and len(keys) < len(frames)
    for a, b in itertools.pairwise(keys):
        if b - a > 1:  # neighbours in time may differ by more: there is nothing between them
            assert limits.share(compare(frames[a], frames[b])) <= 1.0
    assert "8%" in rule and "30%" in rule and "keyframe_motion" in rule


def test_fast_parts_get_more_keyframes_than_slow_ones():
    angles = np.cumsum([0.0] + [0.4] * 15 + [4.0] * 8 + [0.4] * 15)
    keys, _, _ = chosen([turned(a) for a in angles])
    fast = [k for k in keys if 15 <= k <= 23]
    assert len(fast) >= 7 and len(keys) - len(fast) <= 10


def test_what_stands_still_gets_one_a_second():
    keys, _, _ = chosen([turned(0)] * 61, fps=24)
    assert keys == [0, 24, 48, 60]


def test_a_ball_that_bounces_keeps_its_turning_points():
    """The same outline in every frame, along a zigzag: interpolated between its ends it would never bounce."""
    ys = np.abs((np.arange(33) % 16) - 8) * 6.0
    keys, _, _ = chosen([turned(0, dy=float(y)) for y in ys])
    assert all(min(abs(k - turn) for k in keys) <= 1 for turn in (8, 16, 24))
    straight, _, _ = chosen([turned(0, dx=2.0 * i) for i in range(20)])
    assert len(straight) <= 8  # what half a pixel does to an outline adds up


def test_legs_that_swing_out_and_back_add_up():
    """After a whole swing it looks as if nothing had happened: the frames between must not be lost."""
    frames = [turned(2.0 * np.sin(i / 6 * np.pi)) for i in range(25)]  # two swings
    limits = Limits(overlap=0.3, motion=0.06)
    assert all(limits.share(compare(frames[0], frame)) < 1 for frame in frames)
    assert len(chosen(frames, limits)[0]) >= 3


@pytest.mark.parametrize("most", [1, 2, 5, 9])
def test_the_limit_holds_and_the_motion_is_shared_evenly(most):
    angles = np.cumsum([0.0] + [0.5] * 12 + [4.0] * 12)
    keys, rule, chooser = chosen([turned(a) for a in angles], Limits(most=most))
    assert len(keys) <= max(most, 2) and keys[0] == 0 and keys[-1] == 24
    assert (
        f"max_keyframes allows no more; {len(chooser._keys) if chooser._keys[-1] == 24 else len(chooser._keys) + 1}"
        in rule
    )
    if most == 9:
        assert sum(k > 12 for k in keys) > sum(k < 12 for k in keys)


def test_every_nth():
    assert every(8, 3) == [0, 3, 6, 7] and every(1, 5) == [0] and every(7, 3) == [0, 3, 6]
    keys, rule, _ = chosen([turned(0)] * 8, Limits(step=3))
    assert keys == [0, 3, 6, 7] and "one in 3 frames" in rule
    assert chosen([turned(0)] * 4, Limits(step=1))[0] == [0, 1, 2, 3]
    assert chosen([turned(0)])[0] == [0]
    assert chosen([turned(0)], Limits(most=1))[0] == [0]


def test_the_anchor_is_wide_sharp_whole_and_has_its_limbs_apart():
    plain = Look(area=1000, spread=1.5, sharpness=0.5, cut=False)
    for better in (
        Look(1500, 1.5, 0.5, False),
        Look(1000, 1.9, 0.5, False),
        Look(1000, 1.5, 0.8, False),
    ):
        scores = anchor_scores([plain, better, plain])
        assert int(np.argmax(scores)) == 1 and all(0 <= s <= 1 for s in scores)
    assert int(np.argmax(anchor_scores([Look(1000, 1.5, 0.5, True), plain]))) == 1
    assert anchor_scores([]) == [] and anchor_scores([plain]) == [1.0]
