from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from v2m4 import config, formats
from v2m4.errors import ConfigError, InputError
from v2m4.stages.export import ExportOptions, run
from v2m4.transforms import fov_to_K, look_at
from v2m4.types import AnimatedMesh

FRAMES, FPS = 9, 30


@pytest.fixture
def inputs(tmp_path: Path) -> tuple[Path, ...]:
    """(ingest, repose, topology, texture): a tetrahedron that opens; keyframes are every second frame."""
    folders = tuple(tmp_path / name for name in ("1_ingest", "5_repose", "6_topology", "7_texture"))
    ingest, repose, topology, texture = folders
    times = np.arange(FRAMES) / FPS
    frames = [{"index": i, "time_s": float(t), "name": f"{i}", "source_index": i} for i, t in enumerate(times)]
    clip: dict[str, Any] = {"width": 48, "height": 35, "frames": frames, "keyframes": list(range(0, FRAMES, 2))}
    formats.write_json(ingest / "clip.json", {**clip, "source": {"name": "Fuchs läuft.mp4"}})
    write_frames(ingest, FRAMES)
    camera = {"K": fov_to_K(40, 48, 35).tolist(), "world_to_camera": look_at([5.5, 1.5, 16], [5.5, 1.5, 2]).tolist()}
    formats.write_json(repose / "world.json", {"width": 48, "height": 35, **camera})
    corners = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32)
    faces = np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
    place = np.array([5, 1, 2])
    positions = np.stack([corners * [1, 1 + 0.1 * k**2, 1] + place for k in range(0, FRAMES, 2)])
    keyframes = np.arange(0, FRAMES, 2, dtype=np.int32)
    formats.write_animation(
        topology / "animation.npz", AnimatedMesh(faces, positions, times[::2]), keyframes=keyframes, anchor=np.int32(0)
    )
    uv = np.array([[0.1, 0.1], [0.9, 0.1], [0.1, 0.9], [0.9, 0.9]], np.float32)
    formats.write_npz(texture / "uv.npz", {"uv": uv, "uv_faces": np.array([[0, 1, 2]] * 4, np.int32)})
    formats.write_image(texture / "base_color.png", np.full((16, 16, 3), (200, 90, 30), np.uint8))
    return folders


def write_frames(ingest: Path, count: int) -> None:
    """A yellow rectangle that moves to the right."""
    for k in range(count):
        picture = np.zeros((35, 48, 4), np.uint8)
        picture[10:25, 5 + k % 10 * 2 : 25 + k % 10 * 2] = (240, 220, 20, 255)
        formats.write_image(ingest / "frames" / f"{formats.frame_name(k)}.png", picture)


def test_the_stage_leaves_the_asset_and_its_facts(context: Any, inputs: tuple[Path, ...]) -> None:
    run(context, ExportOptions(), *inputs)
    assert sorted(p.name for p in context.out.iterdir()) == ["Fuchs_lauft.glb", "export.json", "side_by_side.mp4"]
    told = json.loads((context.out / "export.json").read_text("utf-8"))
    expected = {"frames": FRAMES, "keys": FRAMES, "targets": 4, "faces": 4, "fps": 30.0, "name": "Fuchs läuft"}
    assert {key: told[key] for key in expected} == expected
    assert told["target_names"] == ["frame_002", "frame_004", "frame_006", "frame_008"]
    assert told["duration_s"] == pytest.approx((FRAMES - 1) / FPS)
    assert told["bytes"] == (context.out / "Fuchs_lauft.glb").stat().st_size
    assert any("30 fps" in hint for hint in told["hints"])
    mesh = formats.read_mesh(context.out / "Fuchs_lauft.glb")
    assert mesh.vertices[:, 1].min() == 0
    np.testing.assert_array_equal(mesh.colors, np.broadcast_to([200, 90, 30], mesh.vertices.shape))


def film(path: Path) -> tuple[list[np.ndarray], float]:
    """(pictures, frames per second)."""
    import av

    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        return [f.to_ndarray(format="rgb24").astype(int) for f in container.decode(stream)], float(stream.average_rate)


def test_the_film_shows_the_clip_beside_the_asset_at_the_clips_own_speed(
    context: Any, inputs: tuple[Path, ...]
) -> None:
    run(context, ExportOptions(), *inputs)
    pictures, fps = film(context.out / "side_by_side.mp4")
    assert len(pictures) == FRAMES and fps == FPS
    left, right = np.split(pictures[-1], 2, 1)
    for color, here, there in (((240, 220, 20), left, right), ((200, 90, 30), right, left)):
        assert (abs(here - color).max(-1) < 40).mean() > 0.01 and (abs(there - color).max(-1) < 40).mean() < 0.004
    # The last frame comes late: the one before it is shown until then.
    clip = formats.read_json(inputs[0] / "clip.json")
    clip["frames"][-1]["time_s"] = times = (2 * FRAMES - 2) / FPS
    formats.write_json(inputs[0] / "clip.json", clip)
    times = np.append(formats.read_npz(inputs[2] / "animation.npz")["times_s"][:-1], times)
    edit_animation(inputs[2], times_s=times)
    run(context, ExportOptions(), *inputs)
    late, rate = film(context.out / "side_by_side.mp4")
    assert len(late) == FRAMES and rate == pytest.approx(FPS / 2)
    start = [np.flatnonzero(abs(p - (240, 220, 20)).max(-1).min(0) < 40)[0] for p in late]
    assert start[:5] == sorted(set(start[:5])) and start[4] == start[5]


def test_a_clip_of_one_frame_has_no_film(context: Any, inputs: tuple[Path, ...]) -> None:
    clip = formats.read_json(inputs[0] / "clip.json")
    formats.write_json(inputs[0] / "clip.json", {**clip, "frames": clip["frames"][:1], "keyframes": [0]})
    data = formats.read_npz(inputs[2] / "animation.npz")
    first = {"positions": data["positions"][:1], "times_s": data["times_s"][:1], "keyframes": data["keyframes"][:1]}
    edit_animation(inputs[2], **first)
    run(context, ExportOptions(), *inputs)
    assert sorted(p.name for p in context.out.iterdir()) == ["Fuchs_lauft.glb", "export.json"]


def test_twice_the_same_bytes(context: Any, inputs: tuple[Path, ...]) -> None:
    run(context, ExportOptions(), *inputs)
    first = {p.name: p.read_bytes() for p in context.out.iterdir()}
    run(context, ExportOptions(), *inputs)
    assert first == {p.name: p.read_bytes() for p in context.out.iterdir()}


def test_a_smaller_budget_is_reported(context: Any, inputs: tuple[Path, ...]) -> None:
    run(context, ExportOptions(name="../a b", max_targets=2, normals=True, double_sided="yes"), *inputs)
    told = json.loads((context.out / "export.json").read_text("utf-8"))
    assert told["file"] == "a_b.glb" and (context.out / "a_b.glb").is_file()
    assert told["targets"] == 2 and told["reduction"]["dropped_poses"] == 2
    assert 0 < told["reduction"]["mean_error_percent"] < told["reduction"]["max_error_percent"]
    assert told["double_sided"] is True and told["normals"] == "base mesh and targets"
    assert any("left to interpolation" in message for message in context.messages)


def test_more_targets_than_every_engine_plays_are_warned_of(context: Any, inputs: tuple[Path, ...]) -> None:
    clip = formats.read_json(inputs[0] / "clip.json")
    clip["frames"] = [{"index": i, "time_s": i / FPS, "name": f"{i}", "source_index": i} for i in range(70)]
    clip["keyframes"] = list(range(70))
    write_frames(inputs[0], 70)
    formats.write_json(inputs[0] / "clip.json", clip)
    first = formats.read_npz(inputs[2] / "animation.npz")["positions"][0]
    positions = np.stack([first * [1, 1 + 0.01 * k**2, 1] for k in range(70)])
    edit_animation(inputs[2], positions=positions, times_s=np.arange(70) / FPS, keyframes=np.arange(70, dtype=np.int32))
    run(context, ExportOptions(), *inputs)
    assert not any("warning" in message for message in context.messages)
    run(context, ExportOptions(max_targets=256), *inputs)
    assert any(message.startswith("warning: 69 morph targets") for message in context.messages)


def test_one_engine_gets_one_hint_and_the_same_file(context: Any, inputs: tuple[Path, ...]) -> None:
    run(context, ExportOptions(), *inputs)
    anywhere = (context.out / "Fuchs_lauft.glb").read_bytes()
    run(context, ExportOptions(target="blender"), *inputs)
    assert (context.out / "Fuchs_lauft.glb").read_bytes() == anywhere
    (hint,) = json.loads((context.out / "export.json").read_text("utf-8"))["hints"]
    assert "scene to 30 fps" in hint


def edit_animation(topology: Path, **arrays: np.ndarray) -> None:
    data = {**formats.read_npz(topology / "animation.npz"), **arrays}
    formats.write_npz(topology / "animation.npz", data)


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"positions": np.full((5, 4, 3), np.nan, np.float32)}, "NaN"),
        ({"positions": np.zeros((5, 3, 3), np.float32)}, "names vertex 3 of 3"),
        ({"positions": np.zeros((5, 4, 3), np.float32)}, "no extent"),
        ({"positions": np.zeros((0, 4, 3), np.float32), "times_s": np.zeros(0)}, "at least one pose"),
        ({"positions": np.zeros((3, 4, 3), np.float32)}, "3 poses for 5 times"),
        ({"faces": np.array([[0, 1, 2]])}, "1 faces but its UV map has 4"),
        ({"times_s": np.arange(5) / 7}, "belongs to no frame"),
    ],
)
def test_a_broken_input_leaves_no_file(
    context: Any, inputs: tuple[Path, ...], arrays: dict[str, np.ndarray], complaint: str
) -> None:
    edit_animation(inputs[2], **arrays)
    with pytest.raises(InputError, match=complaint):
        run(context, ExportOptions(), *inputs)
    assert list(context.out.iterdir()) == []


@pytest.mark.parametrize("option", [{"max_targets": 0}, {"max_targets": 257}, {"target": "maya"}, {"normals": 1}])
def test_impossible_options_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        config.resolve({"export": ExportOptions}, {"export": option})
