"""Masks over time: what was lost comes back, what flickers stops, and thin parts stay."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from clips import clutter, moving, overlap

from v2m4.ingest import mend
from v2m4.ingest.mend import Masked


def frames(clip: list[tuple], masks: list[np.ndarray]) -> list[Masked]:
    return [Masked(i, picture, mask) for i, ((picture, _), mask) in enumerate(zip(clip, masks, strict=True))]


@pytest.mark.parametrize("bad", [[3], [3, 4], [2, 3, 4]])
@pytest.mark.parametrize("fault", ["left half lost", "nearly all lost", "something added"])
def test_bad_masks_are_rebuilt_from_their_neighbours(bad, fault):  # M02
    clip = moving(8)
    masks = [mask.copy() for _, mask in clip]
    for i in bad:
        columns = np.flatnonzero(masks[i].any(0))
        if fault == "left half lost":
            masks[i][:, : int(columns.mean())] = 0
        elif fault == "nearly all lost":
            masks[i][:, : columns[-1] - 6] = 0
        else:
            masks[i][150:, :120] = 255
    got = {m.number: m for m in mend.mend(frames(clip, masks), set(bad), steady=False)}
    assert sorted(got) == bad and all(m.rebuilt for m in got.values())
    for i in bad:
        assert overlap(masks[i], clip[i][1]) < 0.8
        assert overlap(got[i].alpha, clip[i][1]) > 0.9  # legs seven pixels wide over clutter, most of it carried


def test_what_cannot_be_followed_is_left_alone():
    """The object jumps between two places while its mask is lost: nothing is made up."""
    here, there = moving(4), moving(4, step=(35, 12))
    clip = [here[0], here[1], there[2], there[3]]
    masks = [m for _, m in clip]
    masks[2] = np.zeros_like(masks[2])
    assert list(mend.mend(frames(clip, masks), {2}, steady=False)) == []


def test_a_bad_mask_at_the_end_or_too_many_in_a_row_stay_as_they_are():
    clip = moving(9, step=(2, 0))
    masks = [m for _, m in clip]
    assert list(mend.mend(frames(clip, masks), {0}, steady=False)) == []
    assert list(mend.mend(frames(clip, masks), {8}, steady=False)) == []
    assert list(mend.mend(frames(clip, masks), {2, 3, 4, 5, 6}, steady=False)) == []


def test_flicker_goes_and_thin_parts_stay():
    clip = moving(9)
    masks = [mask.copy() for _, mask in clip]
    centre = [np.argwhere(m > 127).mean(0).astype(int) for m in masks]
    masks[3][centre[3][0] - 9 : centre[3][0] - 1, centre[3][1] - 5 : centre[3][1] + 5] = 0  # a hole for one frame
    masks[5][8:16, 200:212] = 255  # a patch of ground for one frame
    tail = masks[6] * (np.indices(masks[6].shape)[1] < np.flatnonzero(masks[6].any(0))[0] + 18)
    masks[6] = np.where(tail > 0, 0, masks[6]).astype(np.uint8)  # the tail is missed once
    got = {m.number: m for m in mend.mend(frames(clip, masks), set(), steady=True)}
    assert {3, 5} <= set(got) and not any(m.rebuilt for m in got.values())

    def wrong(mask: np.ndarray, i: int) -> int:
        return int(((mask > 127) != (clip[i][1] > 127)).sum())

    for i in (3, 5):
        assert wrong(got[i].alpha, i) < 0.05 * wrong(masks[i], i)
    for i, m in got.items():  # nothing is eaten, least of all what is thin
        assert wrong(m.alpha, i) <= wrong(masks[i], i) + 0.005 * (clip[i][1] > 127).sum()


def test_good_masks_are_hardly_touched():
    clip = moving(9, step=(9, 3))
    for m in mend.mend(frames(clip, [mask for _, mask in clip]), set(), steady=True):
        assert overlap(m.alpha, clip[m.number][1]) > 0.99


@pytest.mark.parametrize("contrast", [6, 10, 20, 60])
@pytest.mark.parametrize("step", [16, 32])
def test_a_small_object_that_outruns_the_flow_is_no_flicker(step, contrast):
    """It hardly differs from the ground and moves by more than its length: its neighbours agree it is not there."""
    ground, clip = clutter(200, 280).astype(int), []
    for i in range(6):
        mask = np.zeros((200, 280), np.uint8)
        mask[90:106, 10 + step * i : 26 + step * i] = 255
        clip.append((np.clip(ground + contrast * (mask > 0)[..., None], 0, 255).astype(np.uint8), mask))
    for m in mend.mend(frames(clip, [mask for _, mask in clip]), set(), steady=True):
        assert overlap(m.alpha, clip[m.number][1]) > 0.75


def test_a_patch_larger_than_the_object_that_is_there_for_one_frame_goes():
    clip = moving(7)
    masks = [mask.copy() for _, mask in clip]
    masks[3][:20] = masks[3][190:] = 255
    got = {m.number: m for m in mend.mend(frames(clip, masks), set(), steady=True)}
    assert overlap(masks[3], clip[3][1]) < 0.5 < 0.98 < overlap(got[3].alpha, clip[3][1])


def test_memory_holds_a_few_frames_only():
    alive: list[weakref.ref] = []
    most = 0

    def stream():
        nonlocal most
        for i, (picture, mask) in enumerate(moving(6, step=(1, 0)) * 8):
            picture = picture.copy()
            alive.append(weakref.ref(picture))
            most = max(most, sum(r() is not None for r in alive))
            yield Masked(i, picture, mask)

    list(mend.mend(stream(), set(range(10, 30)), steady=True))
    assert most <= mend.MAX_RUN + 4
