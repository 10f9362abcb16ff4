"""What a run will cost: more for more keyframes and finer options, nothing made up for what is not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from v2m4 import formats
from v2m4.config import read_preset
from v2m4.planning import resolve_options
from v2m4.stages.expect import Expected, expected


def clip(folder: Path, frames: int = 32, keyframes: int = 24) -> Path:
    meta = {"frames": [{"index": i} for i in range(frames)], "keyframes": list(range(keyframes))}
    formats.write_json(folder / "clip.json", meta)
    return folder


def test_it_is_near_what_was_measured(tmp_path):
    """Triceratops, 24 of 32 frames: 193 s after ingest and 747 MB when it was measured."""
    found = expected(resolve_options(), clip(tmp_path), speed=1.0)
    assert 193 / 1.5 < found.seconds < 193 * 1.5 and 600 < found.memory_mb < 900
    assert found.sentence().endswith("about 3 minutes and 0.8 GB of memory")


def test_more_costs_more(tmp_path):
    def cost(frames=32, keyframes=24, speed=1.0, layer=None):
        return expected(resolve_options(layer or {}), clip(tmp_path, frames, keyframes), speed)

    assert cost(keyframes=12).seconds < cost().seconds < cost(keyframes=30).seconds
    assert cost(frames=32).seconds < cost(frames=300).seconds
    fast, default, quality = (cost(layer=read_preset(p)) for p in ("fast", "default", "quality"))
    assert fast.seconds < default.seconds < quality.seconds and fast.memory_mb < quality.memory_mb
    assert cost(speed=2.0).seconds == pytest.approx(cost().seconds / 2)
    assert expected(resolve_options(), clip(tmp_path)).seconds > 0  # on this machine, now


def test_what_the_users_own_generator_takes_is_left_out_and_said(tmp_path):
    own = expected(resolve_options({"generate": {"generator": "studio.gen:Mine"}}), clip(tmp_path), 1.0)
    assert own.seconds < expected(resolve_options(), clip(tmp_path), 1.0).seconds
    assert "without what studio.gen:Mine itself takes" in own.sentence()


def test_a_folder_of_meshes_for_every_frame_makes_every_frame_a_keyframe(tmp_path):
    meshes = tmp_path / "meshes"
    meshes.mkdir()
    for i in range(32):
        (meshes / f"{i}.obj").touch()
    folder = clip(tmp_path, 32, 10)
    brought = expected(resolve_options({"generate": {"meshes": str(meshes)}}), folder, 1.0)
    assert brought.seconds > 2 * expected(resolve_options(), folder, 1.0).seconds


def test_no_clip_no_guess(tmp_path):
    assert expected(resolve_options(), tmp_path) is None


@pytest.mark.parametrize(("seconds", "said"), [(3, "10 s"), (64, "60 s"), (125, "2 minutes"), (9000, "2.5 hours")])
def test_times_are_told_as_people_do(seconds, said):
    assert f"about {said} and 1.0 GB" in Expected(seconds, 1000).sentence()
