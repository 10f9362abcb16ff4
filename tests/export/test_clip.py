"""The part of the report about the clip: the verdict with its reasons, and what it will cost while that is news."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from v2m4 import formats
from v2m4.export.report import write_report

META = {
    "source": {"name": "fox.mp4", "duration_s": 1.5},
    "crop": {"left": 10, "top": 20, "width": 300, "height": 300, "picture_width": 640, "picture_height": 480},
    "frames": [{"index": i, "time_s": i / 2, "motion": None if i == 0 else 0.03 * i} for i in range(3)],
    "keyframes": [0, 2],
    "keyframe_rule": "by motion & so on",
    "anchor_candidate": 2,
    "alpha": "key",
    "verdict": "look",
    "reasons": [{"level": "look", "text": "the object touches the picture's border in 1 of 3 frames (2)"}],
    "numbers": {
        "object_px": 250, "object_px_least": 240, "blur": 0.41, "frames_at_border": 1,
        "motion": 0.045, "shift": 0.012, "motion_most": 0.06, "turn_deg": 35,
    },
    "rebuilt_masks": [1],
}  # fmt: skip
EXPECTED = {"expected": {"sentence": "expected from here on: about 3 minutes and 0.8 GB of memory"}}


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    formats.write_json(tmp_path / "1_ingest" / "clip.json", META)
    formats.write_image(tmp_path / "1_ingest" / "contact_sheet.png", np.full((40, 60, 3), 90, np.uint8))
    return tmp_path


def test_a_run_until_ingest_is_judged_in_its_report(run_dir):
    manifest = {"stages": {"ingest": {"state": "finished"}, "generate": {"state": "not run"}}, **EXPECTED}
    page = write_report(run_dir, manifest).read_text("utf-8")
    for said in (
        "Go, but look first",
        "border in 1 of 3 frames",
        "300x300 of 640x480 pixels",
        "250 pixels",
        "1.2% of its length",
        "4.5%, at most 6.0%",
        "about 35°",
        "keyed from a plain background",
        "2, by motion &amp; so on",
        "frame 2",
        "Expected from here on: about 3 minutes and 0.8 GB of memory.",
        "1 is 6.0% of the object",
    ):
        assert said in page, said


def test_what_it_will_cost_is_no_news_when_it_is_done(run_dir):
    manifest = {"stages": {"ingest": {"state": "finished"}, "generate": {"state": "finished"}}, **EXPECTED}
    assert "Expected from here on" not in write_report(run_dir, manifest).read_text("utf-8")


@pytest.mark.parametrize(("level", "title"), [("go", "Go: nothing speaks against"), ("no-go", "No-go")])
def test_the_verdict_is_the_title(run_dir, level, title):
    formats.write_json(run_dir / "1_ingest" / "clip.json", {**META, "verdict": level})
    assert title in write_report(run_dir, {}).read_text("utf-8")


def test_a_crop_larger_than_the_picture_is_said_as_one_would(run_dir):
    crop = {**META["crop"], "width": 700, "height": 700, "left": -30, "top": -110}
    formats.write_json(run_dir / "1_ingest" / "clip.json", {**META, "crop": crop})
    assert "all of 640x480, with a margin" in write_report(run_dir, {}).read_text("utf-8")


def test_an_older_clip_without_a_verdict_has_a_page(run_dir):
    kept = {k: v for k, v in META.items() if k in ("source", "frames", "keyframes")}
    (run_dir / "1_ingest" / "clip.json").write_text(json.dumps(kept), "utf-8")
    assert "judged" not in write_report(run_dir, {}).read_text("utf-8")
