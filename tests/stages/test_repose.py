from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from camera_cases import creature, pose
from fakecontext import FakeContext

from v2m4 import formats
from v2m4.errors import InputError
from v2m4.render import masks
from v2m4.stages import repose
from v2m4.transforms import apply, fov_to_K, rigid, rotation_angle_deg, rotation_from_vector, split_similarity

COUNT = 4


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    """Keyframes 0, 2, 4 and 6 of a creature that walks; the pose of keyframe 4 is wrong and not trusted."""
    entries = []
    for n in range(COUNT):
        k, scale = 2 * n, 0.9 + 0.05 * n
        true = pose(30 + 3 * n, 12, at=(0.1 * n, 0.05, 2.4)) if n != 2 else pose(250, 80, at=(0, 0, 6))
        formats.write_mesh(formats.mesh_path(tmp_path / "refine", k), creature().moved(creature().vertices / scale))
        entry = {"index": k, "world_to_camera": true.tolist(), "scale": scale}
        entries.append({**entry, "iou": 0.9, "score": 1.0, "confidence": 0.8, "trusted": n != 2})
    K = fov_to_K(40, 160, 128).tolist()
    cameras = {"width": 160, "height": 128, "fov_y_deg": 40.0, "K": K, "keyframes": entries}
    formats.write_json(tmp_path / "camera" / "cameras.json", cameras)
    frames = [{"index": k, "time_s": k / 8} for k in range(7)]
    meta = {"width": 160, "height": 128, "frames": frames, "keyframes": [0, 2, 4, 6]}
    formats.write_json(tmp_path / "ingest" / "clip.json", meta)
    return tmp_path


def _run(clip: Path, context: FakeContext, size_m: float = 1.0) -> dict:
    repose.run(context, repose.ReposeOptions(size_m), clip / "ingest", clip / "camera", clip / "refine")
    return json.loads((context.out / "world.json").read_text())


def test_the_world_camera_draws_what_the_keyframe_cameras_drew(clip: Path, context: FakeContext) -> None:
    world = _run(clip, context)
    cameras = json.loads((clip / "camera" / "cameras.json").read_text())
    assert [e["time_s"] for e in world["keyframes"]] == [0.0, 0.25, 0.5, 0.75]
    camera = np.array(world["world_to_camera"])
    for entry, placed in zip(cameras["keyframes"], world["keyframes"], strict=True):
        assert placed["index"] == entry["index"]
        original = formats.read_mesh(formats.mesh_path(clip / "refine", entry["index"]))
        moved = formats.read_mesh(formats.mesh_path(context.out, entry["index"]))
        by_matrix = apply(np.array(placed["mesh_to_world"]), original.vertices.astype(float))
        assert np.abs(by_matrix - moved.vertices).max() < 1e-5
        assert np.array_equal(moved.colors, original.colors)
        assert np.array_equal(moved.faces, original.faces)
        own = apply(np.array(entry["world_to_camera"]), entry["scale"] * original.vertices.astype(float))
        seen = apply(camera, moved.vertices.astype(float))
        K = np.array(world["K"])
        a, b = masks(np.stack([own, seen]).astype(np.float32), original.faces, K, world["height"], world["width"])
        assert (a & b).sum() / (a | b).sum() > 0.99


def test_the_world_stands_on_the_ground_upright_with_the_asked_size(clip: Path, context: FakeContext) -> None:
    world = _run(clip, context, 1.8)
    vertices = [formats.read_mesh(formats.mesh_path(context.out, k)).vertices for k in (0, 2, 6)]
    assert abs(min(v[:, 1].min() for v in vertices)) < 1e-5
    assert np.median([np.ptp(v, axis=0).max() for v in vertices]) == pytest.approx(1.8, abs=1e-4)
    _, rotation, _ = split_similarity(np.array(world["keyframes"][1]["mesh_to_world"]))
    assert rotation_angle_deg(rotation) < 2  # the second of three trusted ones; no tilt of the camera is left
    rigid_part = np.array(world["world_to_camera"])
    assert np.allclose(rigid_part, rigid(rigid_part[:3, :3], rigid_part[:3, 3]))


def test_running_again_gives_the_same_bytes(clip: Path, context: FakeContext) -> None:
    _run(clip, context)
    before = {p: p.read_bytes() for p in context.out.rglob("*") if p.is_file()}
    for lost in ("world.json", "overlaid.png", "meshes/00002.glb"):
        (context.out / lost).unlink()
    _run(clip, context)
    assert {p: p.read_bytes() for p in context.out.rglob("*") if p.is_file()} == before
    assert formats.read_rgb(context.out / "overlaid.png").std() > 5


def test_it_says_which_camera_is_missing(clip: Path, context: FakeContext) -> None:
    cameras = json.loads((clip / "camera" / "cameras.json").read_text())
    cameras["keyframes"] = cameras["keyframes"][:2]
    formats.write_json(clip / "camera" / "cameras.json", cameras)
    with pytest.raises(InputError, match="frame 4"):
        _run(clip, context)


def _with_moving_camera(clip: Path, kind: str) -> np.ndarray:
    """The same object seen by a camera that moves: to_start (T,4,4)."""
    cameras = json.loads((clip / "camera" / "cameras.json").read_text())
    turns = rotation_from_vector(np.outer(np.radians(3) * np.arange(7), [0.1, 1, 0]))
    shifts = np.outer(np.arange(7), [0.04, 0, 0.01]) * (kind == "moving")
    to_start = np.stack([rigid(r, t) for r, t in zip(turns, shifts, strict=True)])
    for entry in cameras["keyframes"]:
        moved = np.linalg.inv(to_start[entry["index"]]) @ np.array(entry["world_to_camera"])
        entry["world_to_camera"] = moved.tolist()
    cameras["camera_motion"] = {"kind": kind, "camera_to_start": to_start.tolist()}
    formats.write_json(clip / "camera" / "cameras.json", cameras)
    return to_start


@pytest.mark.parametrize("kind", ["turning", "moving"])
def test_a_camera_that_moves_gives_the_world_of_one_that_does_not(
    clip: Path, tmp_path: Path, context: FakeContext, kind: str
) -> None:
    fixed = _run(clip, FakeContext(tmp_path / "fixed"))
    _with_moving_camera(clip, kind)
    moving = _run(clip, context)
    for a, b in zip(fixed["keyframes"], moving["keyframes"], strict=True):
        assert np.allclose(a["mesh_to_world"], b["mesh_to_world"], atol=1e-9)
        assert np.allclose(a["root_to_world"], b["root_to_world"], atol=1e-9)
    cameras = json.loads((clip / "camera" / "cameras.json").read_text())
    camera = formats.read_camera(context.out)
    assert np.shape(moving["world_to_camera"]) == (7, 4, 4)
    K, size = np.array(moving["K"]), (moving["height"], moving["width"])
    for entry in cameras["keyframes"]:  # seen from its own camera, the mesh covers what it covered
        original = formats.read_mesh(formats.mesh_path(clip / "refine", entry["index"]))
        placed = formats.read_mesh(formats.mesh_path(context.out, entry["index"]))
        own = apply(np.array(entry["world_to_camera"]), entry["scale"] * original.vertices.astype(float))
        seen = apply(camera.at(entry["index"]).world_to_camera, placed.vertices.astype(float))
        a, b = masks(np.stack([own, seen]).astype(np.float32), original.faces, K, *size)
        assert (a & b).sum() >= 0.99 * (a | b).sum()


def test_the_root_goes_with_the_object_and_is_told(clip: Path, context: FakeContext) -> None:
    world = _run(clip, context)
    roots = np.array([e["root_to_world"] for e in world["keyframes"]])
    assert np.linalg.norm(roots[-1, :3, 3] - roots[0, :3, 3]) > 0.2
    assert world["root_motion"]["travel_m"] > 0.2 and not world["root_motion"]["in_place"]
    assert any("travels" in message for message in context.messages)
