"""The verdict: what is fine is let through, and what spoils a clip is named with what to do about it."""

from __future__ import annotations

import pytest

from v2m4.ingest.judge import FrameFacts, judge, named
from v2m4.ingest.motion import Change


def change(outline=0.02, bend=0.01, overlap=0.95, shift=(0.01, 0.0), turn=(0.01, 0.0)) -> Change:
    return Change(overlap, outline, bend, shift, turn)


GOOD = FrameFacts(length_px=400, area=60000, blur=0.45, spread=1.6)


def verdict(frames=None, changes=None, masked="key", doubts=()):
    frames = frames or [GOOD] * 10
    changes = [change()] * (len(frames) - 1) if changes is None else changes
    return judge(frames, changes, masked, doubts)


def facts(**values) -> FrameFacts:
    return FrameFacts(**{"length_px": 400, "area": 60000, "blur": 0.45, "spread": 1.6, **values})


def test_a_good_clip_goes():
    found = verdict()
    assert found.level == "go" and not found.reasons
    assert found.numbers["object_px"] == 400 and found.numbers["motion"] == 0.02 and found.numbers["turn_deg"] == 5
    assert found.sentence().startswith("go: the object is 400 px long")


@pytest.mark.parametrize(
    ("frames", "changes", "masked", "level", "said"),
    [
        pytest.param([facts(length_px=20)] * 9, None, "key", "no-go", "only 20 pixels long: film closer", id="tiny"),
        pytest.param([facts(length_px=100)] * 9, None, "key", "look", "100 pixels long", id="small"),
        pytest.param([GOOD] * 8 + [facts(length_px=90)], None, "key", "look", "shrinks to 90", id="shrinks"),
        pytest.param([facts(blur=0.85)] * 9, None, "key", "no-go", "blurred (blur 0.85", id="smeared"),
        pytest.param([facts(blur=0.75)] * 9, None, "key", "look", "soft", id="soft"),
        pytest.param([GOOD] * 8 + [facts(blur=0.8)], None, "key", "look", "1 of 9 frames (8) are blurred", id="one"),
        pytest.param([GOOD] * 8 + [facts(border=("right",))], None, "key", "look", "border in 1 of 9", id="border"),
        pytest.param([facts(border=("left", "top"))] * 9, None, "key", "no-go", "missing from the asset", id="cut off"),
        pytest.param([facts(opaque=True)] * 9, None, "given", "no-go", "fully opaque", id="no cut-out"),
        pytest.param([facts(faint=True)] * 2 + [GOOD] * 7, None, "given", "look", "faint", id="faint"),
        pytest.param(None, [change(outline=0.3)] * 9, "key", "no-go", "higher frame rate", id="too fast"),
        pytest.param(None, [change(outline=0.12)] * 9, "key", "look", "would help", id="fast"),
        pytest.param(
            None, [change()] * 4 + [change(0.4, 0.2, 0.2)] + [change()] * 4, "key", "look", "frames 4 and 5", id="cut"
        ),
        pytest.param(None, [change(0, 0, 1, (0, 0))] * 9, "key", "look", "nothing moves", id="still"),
    ],
)  # fmt: skip
def test_what_speaks_against_a_clip(frames, changes, masked, level, said):
    found = verdict(frames, changes, masked)
    assert found.level == level
    assert any(said in reason.text for reason in found.reasons), found.reasons


def test_doubts_are_reasons_to_look_and_the_worst_counts():
    found = verdict(doubts=["the mask of frame 3 has lost 40%: look at it"])
    assert found.level == "look" and "look first" in found.sentence()
    assert verdict([facts(length_px=20)] * 3, doubts=["x"]).level == "no-go"


def test_one_frame_has_no_motion():
    found = verdict([GOOD])
    assert found.level == "go" and "motion" not in found.numbers and "turns" not in found.sentence()


def test_a_clip_from_one_side_is_said():
    assert "from about one side" in verdict().notes()[0]
    assert verdict(changes=[change(turn=(0.1, 0.0))] * 9).notes() == [] and verdict([GOOD]).notes() == []


def test_frames_are_named_in_words():
    assert named([3, 4], 9) == "2 of 9 frames (3, 4) are" and named([0, 1], 2) == "all 2 frames are"
    assert named([0], 1) == "the only frame is" and named(list(range(20)), 40, "").endswith("7 ...)")
