"""Read the written bytes back and compare them with what was meant, before the file gets its name.

The reader here shares nothing with the writer: it goes through the container byte by byte. What it checks are the rules
of the Khronos validator that such a file can break, and that the file plays the animation it was made from.
"""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np

from v2m4.errors import InputError, V2M4Error
from v2m4.export.asset import GameAsset
from v2m4.export.gltf import to_glb

#: Allowed distance between the file and the animation, as a part of the largest coordinate.
TOLERANCE = 1e-6
_TYPES = {5120: np.int8, 5121: np.uint8, 5122: np.int16, 5123: np.uint16, 5125: np.uint32, 5126: np.float32}
_WIDTHS = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4, "MAT4": 16}
_FAULTS = (KeyError, IndexError, TypeError, ValueError, struct.error)


class ExportFault(V2M4Error):
    """The file that was written is not what it should be: a bug of ours, never an accepted result."""


def _require(condition: Any, what: str) -> None:
    if not bool(condition):
        raise ExportFault(f"the exported file failed its own check: {what}", "please report this with the input")


def write_checked(path: Path, asset: GameAsset) -> int:
    """Write the asset, read it back, check it, and only then give it its name. Returns its size in bytes.

    ExportFault when the file is not what it should be; InputError when the place cannot be written. Neither leaves
    anything behind.
    """
    data = to_glb(asset)
    temporary = path.with_name(f".{path.name}.unchecked")
    try:
        temporary.write_bytes(data)
        check_asset(temporary.read_bytes(), asset)
        with open(temporary, "rb") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}", "choose another place with -o") from None
    finally:
        temporary.unlink(missing_ok=True)
    return len(data)


class Document:
    """The JSON and the binary chunk of a GLB. ExportFault when the container is not well formed."""

    def __init__(self, data: bytes) -> None:
        _require(len(data) >= 28, "it is too short for a GLB")
        magic, version, length, json_length, kind = struct.unpack_from("<4sIII4s", data)
        _require(magic == b"glTF" and version == 2 and kind == b"JSON", "it has no GLB 2 header")
        _require(length == len(data), f"its header says {length} bytes, it has {len(data)}")
        _require(json_length % 4 == 0 and 28 + json_length <= len(data), "its JSON chunk is not aligned")
        binary_length, kind = struct.unpack_from("<I4s", data, 20 + json_length)
        _require(kind == b"BIN\0" and binary_length % 4 == 0, "its binary chunk is not aligned")
        _require(28 + json_length + binary_length == len(data), "its chunks do not add up to its length")
        self.json: dict[str, Any] = json.loads(data[20 : 20 + json_length])
        self.binary = memoryview(data)[28 + json_length :]

    def view(self, index: int) -> memoryview:
        """The bytes of a buffer view."""
        view = self.json["bufferViews"][index]
        start, length = view.get("byteOffset", 0), view["byteLength"]
        _require(start % 4 == 0, f"buffer view {index} begins at {start}, which is no multiple of 4")
        _require(length > 0 and start + length <= len(self.binary), f"buffer view {index} leaves the buffer")
        return self.binary[start : start + length]

    def accessor(self, index: int) -> np.ndarray:
        """(N,) or (N,C) in the stored type; checks its length, that floats are finite, and min and max if given."""
        entry = self.json["accessors"][index]
        dtype, width = _TYPES[entry["componentType"]], _WIDTHS[entry["type"]]
        _require("bufferView" in entry and "sparse" not in entry, f"accessor {index} is sparse or empty")
        data = self.view(entry["bufferView"])
        _require(len(data) == entry["count"] * width * np.dtype(dtype).itemsize, f"accessor {index} has another length")
        array = np.frombuffer(data, dtype).reshape(-1, width)
        _require(np.isfinite(array).all(), f"accessor {index} holds NaN or infinite values")
        for key, bound in (("min", array.min(0)), ("max", array.max(0))):
            _require(key not in entry or entry[key] == bound.tolist(), f"accessor {index} has a wrong {key}")
        return array[:, 0] if width == 1 else array


def check_asset(data: bytes, asset: GameAsset) -> None:
    """Check container, structure, numbers and motion of a file made from ``asset``. ExportFault names the fault."""
    try:
        document = Document(data)
        _check_buffers(document)
        targets = _check_mesh(document, asset)
        _check_material(document)
        _check_motion(document, asset, targets)
    except _FAULTS as error:
        raise ExportFault(
            f"the exported file failed its own check: {type(error).__name__}: {error}", "please report this"
        ) from None


def _check_buffers(document: Document) -> None:
    gltf = document.json
    _require(gltf["asset"]["version"] == "2.0" and "extensionsRequired" not in gltf, "it needs an extension")
    _require(len(gltf["buffers"]) == 1, "it has more than one buffer")
    _require(0 <= len(document.binary) - gltf["buffers"][0]["byteLength"] < 4, "its buffer has another length")
    for index in range(len(gltf["accessors"])):
        document.accessor(index)


def _check_mesh(document: Document, asset: GameAsset) -> list[np.ndarray]:
    """The position targets, after checking the mesh that holds them."""
    gltf = document.json
    _require(len(gltf["meshes"]) == len(gltf["nodes"]) == len(gltf["materials"]) == 1, "it is not one mesh")
    _require(not {"matrix", "translation", "rotation", "scale"} & set(gltf["nodes"][0]), "its node has a transform")
    mesh = gltf["meshes"][0]
    (primitive,) = mesh["primitives"]
    attributes = {name: document.accessor(index) for name, index in primitive["attributes"].items()}
    positions, count = attributes["POSITION"], len(asset.positions)
    _require(all(len(array) == count for array in attributes.values()), "its attributes differ in length")
    _require(_bounded(document, primitive["attributes"]["POSITION"]), "its positions have no min and max")
    lengths = np.linalg.norm(attributes["NORMAL"].astype(float), axis=1)
    _require(np.abs(lengths - 1).max() < 1e-3, "it has normals that are not of unit length")
    indices = document.accessor(primitive["indices"])
    _require(indices.max() < count and indices.max() < np.iinfo(indices.dtype).max, "a face names a missing vertex")
    _require(np.array_equal(indices.reshape(-1, 3), asset.split.faces), "its faces are others")
    _require(np.array_equal(positions, asset.positions), "its first pose is another")
    _require(np.array_equal(attributes["TEXCOORD_0"], asset.split.uv), "its UV map is another")
    targets = primitive.get("targets", [])
    wanted = {"POSITION"} if asset.normal_deltas is None else {"POSITION", "NORMAL"}
    _require(all(set(target) == wanted for target in targets), "its targets do not all hold the same attributes")
    _require(all(_bounded(document, target["POSITION"]) for target in targets), "a target has no min and max")
    moved = [{name: document.accessor(index) for name, index in target.items()} for target in targets]
    _require(all(len(a) == count for target in moved for a in target.values()), "a target has another vertex count")
    for target in moved if asset.normal_deltas is not None else []:
        turned = np.linalg.norm(attributes["NORMAL"].astype(float) + target["NORMAL"], axis=1)
        _require(np.abs(turned - 1).max() < 1e-3, "a target has normals that are not of unit length")
    names = mesh.get("extras", {}).get("targetNames", [])
    _require(len(mesh.get("weights", [])) == len(names) == len(targets), "weights, names and targets differ in number")
    _require(not any(mesh.get("weights", [])), "it does not rest in its first pose")
    _require(names == sorted(set(names)), "its target names are not in order")
    return [target["POSITION"] for target in moved]


def _bounded(document: Document, accessor: int) -> bool:
    return {"min", "max"} <= set(document.json["accessors"][accessor])


def _check_material(document: Document) -> None:
    gltf = document.json
    material = gltf["materials"][0]
    pbr = material["pbrMetallicRoughness"]
    _require(material["alphaMode"] == "OPAQUE" and "doubleSided" in material, "its material is not explicit")
    _require(pbr["baseColorFactor"] == [1, 1, 1, 1] and pbr["metallicFactor"] == 0, "its material tints the texture")
    source = gltf["images"][gltf["textures"][pbr["baseColorTexture"]["index"]]["source"]]
    png = bytes(document.view(source["bufferView"])[:8]) == b"\x89PNG\r\n\x1a\n"
    _require(png and source["mimeType"] == "image/png", "its texture is not a PNG")


def _check_motion(document: Document, asset: GameAsset, targets: list[np.ndarray]) -> None:
    """That the file, evaluated the way a player does, shows the animation at every key."""
    animations = document.json.get("animations", [])
    _require(len(animations) == bool(len(asset.deltas)) and len(targets) == len(asset.deltas), "its motion is missing")
    if not animations:
        _check_pose(asset, 0, asset.positions)
        return
    (sampler,), (channel,) = animations[0]["samplers"], animations[0]["channels"]
    _require(sampler["interpolation"] == "LINEAR", "its animation is not linear")
    _require(channel["target"] == {"node": 0, "path": "weights"}, "its animation moves something else")
    times = document.accessor(sampler["input"])
    weights = document.accessor(sampler["output"])
    _require(_bounded(document, sampler["input"]), "its key times have no min and max")
    _require(times[0] == 0 and np.all(np.diff(times) > 0), "its keys do not rise from 0")
    _require(len(weights) == len(times) * len(targets), "it has another number of weights than keys x targets")
    weights = weights.reshape(len(times), len(targets))
    _require(weights.min() >= 0 and weights.max() <= 1, "it has weights outside 0..1")
    _require((weights != 0).sum(1).max() <= 2, "more than two targets are active at one key")
    _require(np.array_equal(times, asset.track.key_times_s), "its key times are others")
    for key, row in enumerate(weights):
        shown = asset.positions.copy()
        for target in np.flatnonzero(row):
            shown += row[target] * targets[target]
        _check_pose(asset, key, shown)


def _check_pose(asset: GameAsset, frame: int, shown: np.ndarray) -> None:
    wanted = asset.wanted(frame)
    limit = TOLERANCE * max(asset.size, float(np.abs(wanted).max()))
    _require(np.abs(shown - wanted).max() <= limit, f"it shows another pose at frame {frame}")
