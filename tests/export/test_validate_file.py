"""A fault in the bytes is found before the file gets its name, and a broken input leaves no file."""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import v2m4.export.validate as validate
from v2m4.errors import InputError
from v2m4.export.asset import GameAsset, make_asset
from v2m4.export.gltf import to_glb
from v2m4.export.validate import Document, ExportFault, check_asset, write_checked
from v2m4.types import AnimatedMesh, Texture

Edit = Callable[[dict, bytearray], None]


@pytest.fixture
def asset(moving_sphere: Callable[..., AnimatedMesh], sphere_texture: Texture) -> GameAsset:
    animation = moving_sphere(6)
    return make_asset(animation, sphere_texture, animation.times_s)


def repack(data: bytes, edit: Edit) -> bytes:
    """The same GLB after ``edit(json, binary)``."""
    document = Document(data)
    gltf, binary = document.json, bytearray(document.binary)
    edit(gltf, binary)
    text = json.dumps(gltf).encode()
    text += b" " * (-len(text) % 4)
    head = struct.pack("<4sIII4s", b"glTF", 2, 28 + len(text) + len(binary), len(text), b"JSON")
    return head + text + struct.pack("<I4s", len(binary), b"BIN\0") + bytes(binary)


def poke(accessor: str, position: int, value: bytes) -> Edit:
    """Overwrite bytes of an accessor found by a path like ``animation output``."""

    def edit(gltf: dict, binary: bytearray) -> None:
        primitive = gltf["meshes"][0]["primitives"][0]
        sampler = gltf["animations"][0]["samplers"][0]
        index = {
            "weights": sampler["output"],
            "times": sampler["input"],
            "indices": primitive["indices"],
            "target": primitive["targets"][2]["POSITION"],
            "normal": primitive["attributes"]["NORMAL"],
        }[accessor]
        for bound in ("min", "max"):
            if accessor == "target":
                gltf["accessors"][index].pop(bound)
        start = gltf["bufferViews"][gltf["accessors"][index]["bufferView"]]["byteOffset"]
        binary[start + position : start + position + len(value)] = value

    return edit


def drop(*path: str | int) -> Edit:
    def edit(gltf: dict, binary: bytearray) -> None:
        place: object = gltf
        for step in path[:-1]:
            place = place[step]  # type: ignore[index]
        del place[path[-1]]  # type: ignore[attr-defined]

    return edit


def node_scale(gltf: dict, binary: bytearray) -> None:
    gltf["nodes"][0]["scale"] = [2, 2, 2]


def short_target(gltf: dict, binary: bytearray) -> None:  # E07
    index = gltf["meshes"][0]["primitives"][0]["targets"][1]["POSITION"]
    gltf["accessors"][index]["count"] -= 1


def short_weights(gltf: dict, binary: bytearray) -> None:
    entry = gltf["accessors"][gltf["animations"][0]["samplers"][0]["output"]]
    entry["count"] -= 1
    gltf["bufferViews"][entry["bufferView"]]["byteLength"] -= 4


def missing_bounds(gltf: dict, binary: bytearray) -> None:
    entry = gltf["accessors"][gltf["animations"][0]["samplers"][0]["input"]]
    del entry["min"], entry["max"]


def swap_targets(gltf: dict, binary: bytearray) -> None:
    targets = gltf["meshes"][0]["primitives"][0]["targets"]
    targets[0], targets[1] = targets[1], targets[0]


def floats(*values: float) -> bytes:
    return np.array(values, np.float32).tobytes()


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (poke("weights", 0, floats(1.25)), "outside 0..1"),
        (poke("weights", 0, floats(-0.1)), "outside 0..1"),
        (poke("weights", 0, floats(0.2, 0.2, 0.2)), "more than two targets"),
        (poke("weights", 0, floats(0.01)), "another pose at frame 0"),
        (poke("weights", 0, floats(np.nan)), "NaN"),
        (poke("times", 0, floats(0.01)), "wrong min"),
        (poke("indices", 0, b"\xfe\xff"), "missing vertex"),
        (poke("target", 0, floats(9.0)), "no min and max"),
        (poke("normal", 0, floats(0.5)), "unit length"),
        (drop("meshes", 0, "weights", 0), "differ in number"),
        (drop("meshes", 0, "extras"), "differ in number"),
        (drop("animations"), "motion is missing"),
        (drop("materials", 0, "pbrMetallicRoughness"), "KeyError"),
        (node_scale, "transform"),
        (short_target, "another length"),
        (short_weights, "number of weights"),
        (missing_bounds, "no min and max"),
        (swap_targets, "another pose"),
    ],
)
def test_a_fault_is_named(asset: GameAsset, edit: Edit, complaint: str) -> None:
    data = to_glb(asset)
    check_asset(repack(data, lambda gltf, binary: None), asset)  # repacking alone is no fault
    with pytest.raises(ExportFault, match=complaint):
        check_asset(repack(data, edit), asset)


@pytest.mark.parametrize("cut", [0, 11, 27, 500, -4, -1])
def test_a_truncated_file_is_refused(asset: GameAsset, cut: int) -> None:
    with pytest.raises(ExportFault):
        check_asset(to_glb(asset)[:cut], asset)


def test_a_faulty_file_never_gets_its_name(asset: GameAsset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fox.glb").write_bytes(b"yesterday's asset")
    monkeypatch.setattr(validate, "to_glb", lambda asset: repack(to_glb(asset), poke("weights", 0, floats(1.5))))
    with pytest.raises(ExportFault):
        write_checked(tmp_path / "fox.glb", asset)
    assert [p.name for p in tmp_path.iterdir()] == ["fox.glb"]
    assert (tmp_path / "fox.glb").read_bytes() == b"yesterday's asset"


def test_numbers_that_are_not_finite_leave_no_file(asset: GameAsset, tmp_path: Path) -> None:
    deltas = asset.deltas.copy()
    deltas[1, 3] = np.nan
    with pytest.raises(InputError, match="NaN"):
        write_checked(tmp_path / "fox.glb", dataclasses.replace(asset, deltas=deltas))
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_named(asset: GameAsset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write"):
        write_checked(tmp_path / "missing" / "fox.glb", asset)
