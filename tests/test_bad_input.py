"""What a user can get wrong: one sentence, a hint, the right exit code, nothing half-written, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from v2m4.formats import write_image, write_mesh
from v2m4.types import Mesh

TETRAHEDRON = Mesh(
    np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]),
    np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]),
    np.full((4, 3), 200),
)


def v2m4(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "v2m4.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120)


def refused(result: subprocess.CompletedProcess[str], code: int, *words: str) -> str:
    """The error line, after checking everything a refusal must be."""
    assert result.returncode == code, result.stderr + result.stdout
    assert "Traceback" not in result.stderr + result.stdout
    lines = [line for line in result.stderr.splitlines() if line.startswith(("error:", "hint:"))]
    assert len(lines) == 2, result.stderr
    assert lines[0].startswith("error:") and lines[1].startswith("hint:")
    for word in words:
        assert word in " ".join(lines), f"{word!r} is not in {lines}"
    return lines[0]


def nothing_left(out: Path) -> None:
    """No asset, no report, no finished stage."""
    left = [p for p in out.rglob("*") if p.suffix in (".glb", ".html", ".tmp") or p.name == "stage.json"]
    assert not left, left


def frames_folder(folder: Path, count: int = 3, size: int = 48) -> Path:
    for k in range(count):
        image = np.zeros((size, size, 4), np.uint8)
        image[12:36, 10 + k : 34 + k] = (200, 80, 40, 255)
        write_image(folder / f"{k}.png", image)
    return folder


def write_video(path: Path, frames: int = 12) -> Path:
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=12)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        noise = np.random.default_rng(0)
        for _ in range(frames):
            frame = av.VideoFrame.from_ndarray(noise.integers(0, 255, (64, 64, 3), np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def write_sound(path: Path) -> Path:
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=44100)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 44100
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def test_missing_file(tmp_path: Path) -> None:
    refused(v2m4("run", tmp_path / "nowhere.mp4", "-o", tmp_path / "out"), 1, "nowhere.mp4")
    assert not (tmp_path / "out").exists()


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty.mp4").write_bytes(b"")
    refused(v2m4("run", tmp_path / "empty.mp4", "-o", tmp_path / "out"), 1, "empty.mp4", "empty")
    nothing_left(tmp_path / "out")


def test_sound_without_pictures(tmp_path: Path) -> None:
    write_sound(tmp_path / "sound.mp4")
    refused(v2m4("run", tmp_path / "sound.mp4", "-o", tmp_path / "out"), 1, "sound.mp4")
    nothing_left(tmp_path / "out")


def test_truncated_video(tmp_path: Path) -> None:
    whole = write_video(tmp_path / "whole.mp4").read_bytes()
    (tmp_path / "half.mp4").write_bytes(whole[: len(whole) // 2])
    refused(v2m4("run", tmp_path / "half.mp4", "-o", tmp_path / "out"), 1, "half.mp4", "truncated")
    nothing_left(tmp_path / "out")


def test_an_object_that_is_not_there(tmp_path: Path) -> None:
    """The same command again could only fail the same way, so it is not advised; another object is."""
    frames, out = frames_folder(tmp_path / "clip"), tmp_path / "out"
    for _ in range(2):
        result = v2m4("run", frames, "-o", out, "--object", "3", "--until", "ingest")
        refused(result, 2, "--object 3 (ingest.object) is not there, only object 0 is", "largest or nearest")
        assert "same command" not in result.stderr
        nothing_left(out)
    refused(v2m4("run", frames, "-o", out, "--object", "left"), 2, "--object left (ingest.object) is no object")
    assert v2m4("run", frames, "-o", out, "--object", "0", "--until", "ingest").returncode == 0


def test_folder_without_pictures(tmp_path: Path) -> None:
    (tmp_path / "clip").mkdir()
    (tmp_path / "clip" / "notes.txt").write_text("no picture here")
    refused(v2m4("run", tmp_path / "clip", "-o", tmp_path / "out"), 1, "clip")
    nothing_left(tmp_path / "out")


def test_pictures_of_two_sizes(tmp_path: Path) -> None:
    frames_folder(tmp_path / "clip")
    write_image(tmp_path / "clip" / "3.png", np.full((20, 48, 4), 255, np.uint8))
    refused(v2m4("run", tmp_path / "clip", "-o", tmp_path / "out"), 1, "3.png", "48x48", "48x20")
    nothing_left(tmp_path / "out")


def test_frame_without_object(tmp_path: Path) -> None:
    frames_folder(tmp_path / "clip")
    write_image(tmp_path / "clip" / "3.png", np.zeros((48, 48, 4), np.uint8))
    refused(v2m4("run", tmp_path / "clip", "-o", tmp_path / "out"), 1, "frame 3")
    nothing_left(tmp_path / "out")


@pytest.mark.parametrize("fault", ["no faces", "NaN"])
def test_bad_mesh(tmp_path: Path, fault: str) -> None:
    frames_folder(tmp_path / "clip")
    for k in range(3):
        write_mesh(tmp_path / "meshes" / f"{k}.glb", TETRAHEDRON)
    lines = ["v 0 0 0", "v 1 0 0", "v 0 1 nan" if fault == "NaN" else "v 0 1 0"] + (
        ["f 1 2 3"] if fault == "NaN" else []
    )
    (tmp_path / "meshes" / "2.glb").unlink()
    (tmp_path / "meshes" / "2.obj").write_text("\n".join(lines) + "\n")
    result = v2m4("run", tmp_path / "clip", "--meshes", tmp_path / "meshes", "-o", tmp_path / "out")
    refused(result, 1, "2.obj", fault)
    assert not (tmp_path / "out" / "2_generate").exists()


def test_meshes_that_do_not_match_the_frames(tmp_path: Path) -> None:
    frames_folder(tmp_path / "clip", count=7)
    for k in (100, 200, 300):
        write_mesh(tmp_path / "meshes" / f"m{k}.glb", TETRAHEDRON)
    result = v2m4("run", tmp_path / "clip", "--meshes", tmp_path / "meshes", "-o", tmp_path / "out")
    refused(result, 1, "3", "7")


def test_place_that_cannot_be_written(tmp_path: Path) -> None:
    frames_folder(tmp_path / "clip")
    # A file where the folder should be: refuses root as well, which permissions do not.
    (tmp_path / "taken").write_text("")
    refused(v2m4("run", tmp_path / "clip", "-o", tmp_path / "taken" / "out"), 1, "taken")
    if os.geteuid() != 0:
        (tmp_path / "locked").mkdir(mode=0o500)
        refused(v2m4("run", tmp_path / "clip", "-o", tmp_path / "locked" / "out"), 1, "locked")


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        (["--set", "ingest.keyframe_stp=2"], "ingest.keyframe_step"),
        (["--set", "ingset.keyframe_step=2"], "ingest"),
        (["--until", "textur"], "texture"),
        (["--presett", "fast"], "--preset"),
    ],
)
def test_unknown_option_names_the_nearest(tmp_path: Path, arguments: list[str], nearest: str) -> None:
    frames_folder(tmp_path / "clip")
    refused(v2m4("run", tmp_path / "clip", "-o", tmp_path / "out", *arguments), 2, nearest)
    assert not (tmp_path / "out").exists()


def test_value_out_of_range(tmp_path: Path) -> None:
    frames_folder(tmp_path / "clip")
    result = v2m4("run", tmp_path / "clip", "-o", tmp_path / "out", "--set", "ingest.keyframe_step=-1")
    refused(result, 2, "ingest.keyframe_step", "at least 0")
    assert not (tmp_path / "out").exists()


def test_masks_that_do_not_match_and_an_object_that_is_none(tmp_path: Path) -> None:
    clip, out = frames_folder(tmp_path / "clip"), tmp_path / "out"
    masks = frames_folder(tmp_path / "masks", count=2)
    refused(v2m4("run", clip, "--masks", masks, "-o", out), 1, "2 masks for 3 frames")
    nothing_left(out)
    fresh = tmp_path / "fresh"
    refused(v2m4("run", clip, "--object", "biggest", "-o", fresh), 2, "biggest", "largest")
    assert not fresh.exists()


def test_two_sources_of_meshes(tmp_path: Path) -> None:
    frames_folder(tmp_path / "clip")
    write_mesh(tmp_path / "meshes" / "0.glb", TETRAHEDRON)
    both = ["--meshes", tmp_path / "meshes", "--mesh", tmp_path / "meshes" / "0.glb"]
    refused(v2m4("run", tmp_path / "clip", "-o", tmp_path / "out", *both), 2, "--mesh")
