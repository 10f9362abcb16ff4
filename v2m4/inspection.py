"""What is in a glTF file, ours or anybody's, and what an engine may stumble over. Reads only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from v2m4.errors import InputError
from v2m4.glb import GlbReader

SAFE_TARGETS, MOST_TARGETS = 64, 256
#: Rates a clip may have been made at, tried in this order.
_RATES = (24.0, 25.0, 30.0, 60.0, 50.0, 12.0, 15.0, 24000 / 1001, 30000 / 1001)
_MODES = {0: "points", 1: "lines", 2: "lines", 3: "lines", None: "triangles", 4: "triangles"}


@dataclass(frozen=True)
class Inspection:
    """``lines`` describe the file, ``warnings`` what to look at."""

    lines: tuple[str, ...]
    warnings: tuple[str, ...]

    def text(self) -> str:
        """For a terminal."""
        return "\n".join([*self.lines, *(f"warning: {w}" for w in self.warnings)])


def inspect_glb(path: Path | str) -> Inspection:
    """Describe a .glb or .gltf. InputError when it is missing or damaged; compressed files are described too, as far as
    that goes without decoding."""
    path = Path(path)
    if not path.is_file():
        raise InputError(
            f"{path}: {'a folder' if path.is_dir() else 'no such file'}", "give the path of a .glb or .gltf file"
        )
    try:
        reader = GlbReader(path)
        lines, warnings = _describe(reader, path)
    except InputError as error:
        raise InputError(f"{path}: {error.message}", error.hint or "export it again as glTF 2.0 binary") from None
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{path}: breaks the rules of glTF ({type(error).__name__}: {error})", "check it with the Khronos validator"
        ) from error
    return Inspection(tuple(lines), tuple(warnings))


def _describe(reader: GlbReader, path: Path) -> tuple[list[str], list[str]]:
    gltf, warnings = reader.gltf, list[str]()
    asset = gltf.asset
    lines = [
        f"{path.name}: glTF {asset.version}, {_size(path.stat().st_size)}"
        + (f", written by {asset.generator}" if asset.generator else "")
    ]
    if gltf.extensionsUsed:
        required = set(gltf.extensionsRequired or [])
        marked = [f"{name} (required)" if name in required else name for name in gltf.extensionsUsed]
        lines.append(f"extensions  {', '.join(marked)}")
    placed = sum(node.mesh is not None for node in gltf.nodes)
    lines.append(f"nodes       {len(gltf.nodes)}, {placed} with a mesh, {len(gltf.skins or [])} skins")
    for index, mesh in enumerate(gltf.meshes):
        lines += _mesh(reader, index, mesh, warnings)
    lines += [_material(index, material) for index, material in enumerate(gltf.materials)]
    lines += [_picture(reader, index, image) for index, image in enumerate(gltf.images)]
    for index, animation in enumerate(gltf.animations):
        lines += _animation(reader, index, animation, warnings)
    if not gltf.meshes:
        warnings.append("there is no mesh in it")
    return lines, warnings


def _mesh(reader: GlbReader, index: int, mesh: Any, warnings: list[str]) -> Iterable[str]:
    accessors = reader.gltf.accessors
    vertices = faces = targets = 0
    has, low, high, modes = set[str](), [], [], set[str]()
    for primitive in mesh.primitives:
        position = accessors[primitive.attributes.POSITION]
        vertices += position.count
        faces += (position.count if primitive.indices is None else accessors[primitive.indices].count) // 3
        targets = max(targets, len(primitive.targets or []))
        modes.add(_MODES.get(primitive.mode, "triangle strips"))
        has |= {k for k, v in vars(primitive.attributes).items() if v is not None and k.isupper()} - {"POSITION"}
        if position.min and position.max:
            low.append(position.min)
            high.append(position.max)
        else:
            warnings.append(f"mesh {index}: POSITION has no min and max")
    name = f' "{mesh.name}"' if mesh.name else ""
    yield f"mesh {index}{name}: {vertices} vertices, {faces} {'/'.join(sorted(modes))}, {', '.join(sorted(has))}"
    if low:
        extent = np.max(high, 0) - np.min(low, 0)
        yield f"  box       {' x '.join(f'{e:.3g}' for e in extent)}, lowest y {np.min(low, 0)[1]:.3g}"
    if targets:
        kinds = sorted({k for p in mesh.primitives for t in p.targets or [] for k in _keys(t)})
        names = (mesh.extras or {}).get("targetNames", []) if isinstance(mesh.extras, dict) else []
        span = f", {names[0]} … {names[-1]}" if names else ""
        yield f"  targets   {targets} ({', '.join(kinds)}){span}"
    if "NORMAL" not in has:
        warnings.append(f"mesh {index} has no normals: engines will show it faceted")
    if targets > MOST_TARGETS:
        warnings.append(f"mesh {index} has {targets} targets: more than {MOST_TARGETS} fail in most engines")
    elif targets > SAFE_TARGETS:
        warnings.append(f"mesh {index} has {targets} targets: more than {SAFE_TARGETS} are not safe in older engines")


def _keys(attributes: Any) -> list[str]:
    values = attributes if isinstance(attributes, dict) else vars(attributes)
    return [key for key, value in values.items() if value is not None and key.isupper()]


def _material(index: int, material: Any) -> str:
    pbr, parts = material.pbrMetallicRoughness, [material.alphaMode or "OPAQUE"]
    if material.doubleSided:
        parts.append("double sided")
    if pbr is not None:
        parts.append("base colour texture" if pbr.baseColorTexture else f"base colour {pbr.baseColorFactor}")
        metallic = 1.0 if pbr.metallicFactor is None else pbr.metallicFactor
        roughness = 1.0 if pbr.roughnessFactor is None else pbr.roughnessFactor
        parts.append(f"metallic {metallic:g}, roughness {roughness:g}")
    return f"material {index}: {', '.join(parts)}"


def _picture(reader: GlbReader, index: int, image: Any) -> str:
    import io

    from PIL import Image

    data = reader.image_bytes(index)
    try:
        with Image.open(io.BytesIO(data)) as picture:
            what = f"{picture.width}x{picture.height} {picture.format} {picture.mode}"
    except OSError:
        what = f"{image.mimeType or 'unknown kind'}, not readable here"
    return f"image {index}: {what}, {_size(len(data))}"


def _animation(reader: GlbReader, index: int, animation: Any, warnings: list[str]) -> Iterable[str]:
    paths = sorted({channel.target.path for channel in animation.channels})
    modes = sorted({sampler.interpolation or "LINEAR" for sampler in animation.samplers})
    times = [np.asarray(reader.accessor(s.input), float) for s in animation.samplers]
    all_times = np.unique(np.concatenate(times))
    name = f' "{animation.name}"' if animation.name else ""
    yield (
        f"animation {index}{name}: {', '.join(paths)}, {', '.join(modes)}, {max(map(len, times))} keys, "
        f"{all_times[0]:.3f} to {all_times[-1]:.3f} s{_rate(all_times)}"
    )
    if all_times[0] > 1e-6:
        warnings.append(f"animation {index} begins at {all_times[0]:.3f} s: players hold its first pose until then")
    if any(np.any(np.diff(t) <= 0) for t in times):
        warnings.append(f"animation {index}: key times do not rise")
    for channel in animation.channels:
        if channel.target.path == "weights":
            active = _active(reader, animation.samplers[channel.sampler], channel.target.node)
            if active is not None:
                yield f"  active    at most {active} targets at a key"
                if active > 8:
                    warnings.append(f"animation {index} uses {active} targets at once: 8 is the safe number")


def _active(reader: GlbReader, sampler: Any, node: int | None) -> int | None:
    """How many targets are non-zero at a key, at most; None for samplers with tangents."""
    if node is None or sampler.interpolation == "CUBICSPLINE":
        return None
    keys = len(np.atleast_1d(reader.accessor(sampler.input)))
    weights = np.asarray(reader.accessor(sampler.output))
    if weights.size % keys:
        raise ValueError("the weights do not fit the number of keys")
    return int((weights.reshape(keys, -1) != 0).sum(1).max())


def _rate(times: np.ndarray) -> str:
    """The frame rate on whose grid all keys lie."""
    if len(times) < 2:
        return ""
    for rate in _RATES:
        frames = (times - times[0]) * rate
        if np.abs(frames - frames.round()).max() < 0.02:
            return f", on a grid of {rate:.5g} fps"
    gaps = np.diff(times)
    return f", {1 / gaps.mean():.2f} keys a second" + ("" if gaps.max() < 1.01 * gaps.min() else " (uneven)")


def _size(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"
