"""What is in the file, read with a JSON parser and numpy; then with readers that are not ours."""

from __future__ import annotations

import importlib.util
import io
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from v2m4.export.asset import AssetSettings, GameAsset, make_asset
from v2m4.export.gltf import to_glb
from v2m4.export.validate import Document, write_checked
from v2m4.formats import read_mesh
from v2m4.types import AnimatedMesh, Texture

Make = Callable[..., AnimatedMesh]
Node = Callable[..., list[dict]]


@pytest.fixture
def make(moving_sphere: Make, sphere_texture: Texture) -> Callable[..., GameAsset]:
    """``make(poses, fps=24, **settings)``."""

    def build(poses: int, fps: float = 24.0, **settings: object) -> GameAsset:
        animation = moving_sphere(poses, fps)
        return make_asset(animation, sphere_texture, animation.times_s, AssetSettings(**settings))  # type: ignore[arg-type]

    return build


def play(document: Document, time: float) -> np.ndarray:
    """The vertices at a time, the way a player computes them."""
    gltf = document.json
    primitive = gltf["meshes"][0]["primitives"][0]
    sampler = gltf["animations"][0]["samplers"][0]
    times, weights = document.accessor(sampler["input"]), document.accessor(sampler["output"])
    tracks = weights.reshape(len(times), -1)
    now = [np.interp(time, times, track) for track in tracks.T]
    moved = [w * document.accessor(t["POSITION"]).astype(float) for w, t in zip(now, primitive["targets"], strict=True)]
    return document.accessor(primitive["attributes"]["POSITION"]) + np.sum(moved, axis=0)


def test_the_file_plays_the_animation_at_every_frame_and_in_between(make: Callable[..., GameAsset]) -> None:
    asset = make(12, fps=30)
    document = Document(to_glb(asset))
    placed = (asset.animation.positions.astype(float) + asset.translation)[:, asset.split.welded]
    for frame, time in enumerate(asset.animation.times_s):
        np.testing.assert_allclose(play(document, time), placed[frame], atol=1e-5 * asset.size)
        if frame:
            halfway = (time + asset.animation.times_s[frame - 1]) / 2
            between = (placed[frame] + placed[frame - 1]) / 2
            np.testing.assert_allclose(play(document, halfway), between, atol=1e-5 * asset.size)


def test_one_mesh_one_primitive_one_material_one_texture_and_no_extension(make: Callable[..., GameAsset]) -> None:
    gltf = Document(to_glb(make(4, name="Füchsin 1"))).json
    for part in ("scenes", "nodes", "meshes", "materials", "textures", "images", "samplers", "animations", "buffers"):
        assert len(gltf[part]) == 1, part
    assert not any("extension" in key for key in gltf)
    assert set(gltf["nodes"][0]) == {"name", "mesh"}
    material = gltf["materials"][0]
    assert material["pbrMetallicRoughness"] == {
        "baseColorFactor": [1, 1, 1, 1],
        "metallicFactor": 0,
        "roughnessFactor": 1,
        "baseColorTexture": {"index": 0, "texCoord": 0},
    }
    assert material["alphaMode"] == "OPAQUE" and material["doubleSided"] is False
    assert gltf["animations"][0]["name"] == gltf["meshes"][0]["name"] == "Fuchsin_1"
    assert gltf["asset"]["extras"]["name"] == "Füchsin 1"


def test_the_texture_is_the_same_picture(make: Callable[..., GameAsset]) -> None:
    asset = make(1)
    document = Document(to_glb(asset))
    data = bytes(document.view(document.json["images"][0]["bufferView"]))
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(data))), asset.base_color)


def test_targets_weights_and_names_agree(make: Callable[..., GameAsset]) -> None:  # E08, E21
    mesh = Document(to_glb(make(13))).json["meshes"][0]
    names = mesh["extras"]["targetNames"]
    assert len(mesh["primitives"][0]["targets"]) == len(mesh["weights"]) == len(names) == 12
    assert mesh["weights"] == [0] * 12
    assert names == sorted(set(names))


def test_bounds_are_those_of_the_stored_numbers(make: Callable[..., GameAsset]) -> None:  # E04, E05
    document = Document(to_glb(make(6)))
    primitive = document.json["meshes"][0]["primitives"][0]
    bounded = [primitive["attributes"]["POSITION"], *(t["POSITION"] for t in primitive["targets"])]
    bounded.append(document.json["animations"][0]["samplers"][0]["input"])
    for index in bounded:
        entry, stored = document.json["accessors"][index], document.accessor(index)
        stored = stored.reshape(len(stored), -1)
        assert entry["min"] == stored.min(0).tolist() and entry["max"] == stored.max(0).tolist()


@pytest.mark.parametrize("size", [(5, 3), (31, 7), (64, 64)])
def test_everything_is_aligned_whatever_the_picture_weighs(
    size: tuple[int, int], moving_sphere: Make, sphere_texture: Texture
) -> None:  # E10
    noise = np.random.default_rng(1).integers(0, 255, (*size, 3)).astype(np.uint8)
    animation = moving_sphere(3)
    asset = make_asset(animation, Texture(sphere_texture.uv, sphere_texture.uv_faces, noise), animation.times_s)
    data = to_glb(asset)
    document = Document(data)
    assert len(data) % 4 == 0 and all(v.get("byteOffset", 0) % 4 == 0 for v in document.json["bufferViews"])
    assert all("sparse" not in a and "bufferView" in a for a in document.json["accessors"])


@pytest.mark.parametrize("fps", [24, 30, 12, 23.976, 60])
def test_keys_are_the_frames_times_in_float32_from_zero(fps: float, make: Callable[..., GameAsset]) -> None:  # E13
    document = Document(to_glb(make(40, fps=fps)))
    sampler = document.json["animations"][0]["samplers"][0]
    times = document.accessor(sampler["input"])
    np.testing.assert_array_equal(times, (np.arange(40) / fps).astype(np.float32))
    assert document.json["accessors"][sampler["input"]]["min"] == [0]


def test_a_clip_that_begins_late_begins_at_zero(moving_sphere: Make, sphere_texture: Texture) -> None:  # E13
    animation = moving_sphere(5)
    late = AnimatedMesh(animation.faces, animation.positions, animation.times_s + 1.0)
    document = Document(to_glb(make_asset(late, sphere_texture, late.times_s)))
    times = document.accessor(document.json["animations"][0]["samplers"][0]["input"])
    np.testing.assert_allclose(times, animation.times_s, atol=1e-6)
    assert times[0] == 0


def test_weights_are_hats_between_zero_and_one(make: Callable[..., GameAsset]) -> None:  # E17
    document = Document(to_glb(make(100, max_targets=16)))
    sampler = document.json["animations"][0]["samplers"][0]
    weights = document.accessor(sampler["output"]).reshape(100, -1)
    assert sampler["interpolation"] == "LINEAR" and weights.shape[1] <= 16
    assert weights.min() == 0 and weights.max() == 1 and (weights != 0).sum(1).max() <= 2
    assert (weights[0] == 0).all()
    np.testing.assert_allclose(weights[-1].sum(), 1)


def test_300_frames_stay_within_64_targets(make: Callable[..., GameAsset]) -> None:  # E01
    asset = make(300)
    gltf = Document(to_glb(asset)).json
    assert len(gltf["meshes"][0]["primitives"][0]["targets"]) <= 64
    assert 0 < asset.track.reduction.max_percent < 1
    assert gltf["accessors"][gltf["animations"][0]["samplers"][0]["input"]]["count"] == 300


@pytest.mark.parametrize("poses", [1, 4])
def test_a_clip_without_motion_is_a_static_mesh(
    poses: int, moving_sphere: Make, sphere_texture: Texture
) -> None:  # E09
    one = moving_sphere(1)
    still = AnimatedMesh(one.faces, np.repeat(one.positions, poses, 0), np.arange(poses) / 24)
    gltf = Document(to_glb(make_asset(still, sphere_texture, np.arange(4) / 24))).json
    mesh = gltf["meshes"][0]
    assert "animations" not in gltf and "weights" not in mesh and "targets" not in mesh["primitives"][0]
    assert "extras" not in mesh


def test_big_meshes_get_32_bit_indices(make: Callable[..., GameAsset]) -> None:
    def index_type(vertices: int) -> int:
        side = np.arange(vertices)
        points = np.stack([side % 256, side // 256, side * 0], -1).astype(np.float32)
        faces = np.stack([side[:-2], side[1:-1], side[2:]], -1)
        uv = (points[:, :2] / 260).astype(np.float32)
        texture = Texture(uv, faces, np.zeros((2, 2, 3), np.uint8))
        gltf = Document(to_glb(make_asset(AnimatedMesh(faces, points[None], np.zeros(1)), texture, np.zeros(1)))).json
        return gltf["accessors"][gltf["meshes"][0]["primitives"][0]["indices"]]["componentType"]

    assert index_type(65535) == 5123 and index_type(65536) == 5125


def test_same_input_same_bytes(make: Callable[..., GameAsset]) -> None:
    assert to_glb(make(80, max_targets=20)) == to_glb(make(80, max_targets=20))


def test_our_own_reader_sees_the_first_pose(make: Callable[..., GameAsset], tmp_path: Path) -> None:
    asset = make(5)
    write_checked(tmp_path / "a.glb", asset)
    mesh = read_mesh(tmp_path / "a.glb")
    np.testing.assert_array_equal(mesh.vertices, asset.positions)
    np.testing.assert_array_equal(mesh.faces, asset.split.faces)
    assert mesh.colors is not None


def test_the_khronos_validator_finds_nothing(make: Callable[..., GameAsset], tmp_path: Path, node: Node) -> None:
    assets = {
        "moving": make(20),
        "normals": make(20, morph_normals=True),
        "reduced": make(120, max_targets=10),
        "static": make(1),
        "two": make(2, fps=1000, name="Ünïcode/..:*?", extras={"source": 'a "clip".mp4', "fps": 1000.0}),
    }
    for name, asset in assets.items():
        write_checked(tmp_path / f"{name}.glb", asset)
    reports = node("validate.mjs", *(tmp_path / f"{name}.glb" for name in assets))
    for name, report in zip(assets, reports, strict=True):
        issues = report["issues"]
        assert issues["numErrors"] == issues["numWarnings"] == issues["numInfos"] == 0, (name, issues["messages"])
        assert report["info"]["hasMorphTargets"] == (name != "static")


def test_three_js_plays_the_same(make: Callable[..., GameAsset], tmp_path: Path, node: Node) -> None:
    asset = make(30, max_targets=12)
    write_checked(tmp_path / "a.glb", asset)
    frames = [0, 1, 7, 20, 29]
    (seen,) = node("three_read.mjs", tmp_path / "a.glb", *asset.track.frame_times_s[frames])
    assert seen["meshes"] == 1 and seen["names"] == list(asset.target_names)
    assert seen["clip"]["name"] == asset.file_name
    assert seen["clip"]["duration"] == pytest.approx(29 / 24, abs=1e-6)
    for frame, pose in zip(frames, seen["poses"], strict=True):
        np.testing.assert_allclose(pose["weights"], asset.track.weights[frame], atol=1e-5)
        np.testing.assert_allclose(pose["min"], asset.wanted(frame).min(0), atol=1e-4)
        np.testing.assert_allclose(pose["max"], asset.wanted(frame).max(0), atol=1e-4)


def _benchmark(shared: Path, clip: str) -> tuple[AnimatedMesh, Texture]:
    truth = np.load(shared / "bench" / "dev" / clip / "gt.npz")
    _, first, welded = np.unique(truth["weld"], return_index=True, return_inverse=True)
    picture = np.asarray(Image.open(shared / "bench" / "dev" / clip / "texture.png").convert("RGB"))
    animation = AnimatedMesh(welded.reshape(-1)[truth["faces"]], truth["vertices"][:, first], truth["times_s"])
    return animation, Texture(truth["uv"], truth["faces"], picture)


@pytest.mark.slow
@pytest.mark.parametrize("clip", ["fox_run", "swordsman_walk"])
def test_the_truth_scores_at_the_floor(shared: Path, clip: str, tmp_path: Path) -> None:
    animation, texture = _benchmark(shared, clip)
    write_checked(tmp_path / "a.glb", make_asset(animation, texture, animation.times_s, AssetSettings(name=clip)))
    spec = importlib.util.spec_from_file_location("animbench", shared / "bench" / "evaluate.py")
    assert spec is not None and spec.loader is not None
    animbench = importlib.util.module_from_spec(spec)
    sys.modules["animbench"] = animbench
    spec.loader.exec_module(animbench)
    result = animbench.evaluate(str(shared / "bench" / "dev" / clip), str(tmp_path / "a.glb"))
    assert result["warnings"] == []
    assert result["facts"]["one_material"] and result["facts"]["one_texture"]
    assert result["metrics"]["cdm"] < 0.0125 and result["metrics"]["iou4d"] > 0.99
