"""glTF containers: pack arrays into a GLB, and read the geometry of one that somebody else wrote."""

from __future__ import annotations

import base64
import contextlib
import io
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pygltflib

from v2m4.errors import InputError
from v2m4.transforms import apply, linear_to_srgb

_COMPONENTS = {"int8": 5120, "uint8": 5121, "int16": 5122, "uint16": 5123, "uint32": 5125, "float32": 5126}
_DTYPES = {code: np.dtype(name) for name, code in _COMPONENTS.items()}
_KINDS = {(): "SCALAR", (2,): "VEC2", (3,): "VEC3", (4,): "VEC4", (4, 4): "MAT4"}
_WIDTHS = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4, "MAT4": 16}


class GlbBuilder:
    """One aligned binary buffer and the glTF document that describes it.

    Fill ``gltf`` with meshes, nodes and animations; accessors, buffer views and images are added by the methods here.
    Node 0 is put into scene 0.
    """

    VERTICES, INDICES = pygltflib.ARRAY_BUFFER, pygltflib.ELEMENT_ARRAY_BUFFER

    def __init__(self) -> None:
        self.gltf = pygltflib.GLTF2(
            asset=pygltflib.Asset(version="2.0", generator="v2m4"), scene=0, scenes=[pygltflib.Scene(nodes=[0])]
        )
        self._buffer = bytearray()

    def accessor(
        self, array: np.ndarray, *, bounds: bool = False, normalized: bool = False, target: int | None = None
    ) -> int:
        """Add an array (N,), (N,C) or (N,4,4); ``bounds`` writes min and max of exactly the stored values.

        InputError when a float array holds NaN or infinity.
        """
        array = np.ascontiguousarray(array)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InputError("an array to be exported holds NaN or infinite values")
        flat = array.reshape(len(array), -1)
        self.gltf.accessors.append(
            pygltflib.Accessor(
                bufferView=self._view(array.tobytes(), target),
                componentType=_COMPONENTS[array.dtype.name],
                count=len(array),
                type=_KINDS[array.shape[1:]],
                normalized=normalized,
                min=flat.min(0).tolist() if bounds else None,
                max=flat.max(0).tolist() if bounds else None,
            )
        )
        return len(self.gltf.accessors) - 1

    def image(self, data: bytes, mime_type: str, name: str) -> int:
        """Embed an encoded picture."""
        self.gltf.images.append(pygltflib.Image(bufferView=self._view(data, None), mimeType=mime_type, name=name))
        return len(self.gltf.images) - 1

    def _view(self, data: bytes, target: int | None) -> int:
        self._buffer += b"\0" * (-len(self._buffer) % 4)
        view = pygltflib.BufferView(buffer=0, byteOffset=len(self._buffer), byteLength=len(data), target=target)
        self._buffer += data
        self.gltf.bufferViews.append(view)
        return len(self.gltf.bufferViews) - 1

    def to_bytes(self) -> bytes:
        """The GLB: the same content gives the same bytes, every chunk is aligned to 4."""
        self._buffer += b"\0" * (-len(self._buffer) % 4)
        self.gltf.buffers = [pygltflib.Buffer(byteLength=len(self._buffer))]
        self.gltf.set_binary_blob(bytes(self._buffer))
        return b"".join(self.gltf.save_to_bytes())


@dataclass(frozen=True)
class Primitive:
    """A triangle primitive in world coordinates. ``positions`` (V,3), ``faces`` (F,3); linear ``vertex_color`` (V,3) in
    [0, 1], ``uv`` (V,2) and its ``image`` (H,W,3) uint8 where the file has them."""

    positions: np.ndarray
    faces: np.ndarray
    vertex_color: np.ndarray | None
    uv: np.ndarray | None
    image: np.ndarray | None

    def colors(self) -> np.ndarray | None:
        """(V,3) uint8 sRGB: the texture at each vertex, else the vertex colours, else None."""
        if self.image is not None and self.uv is not None:
            height, width = self.image.shape[:2]
            x = np.clip((self.uv[:, 0] % 1.0) * width, 0, width - 1).astype(int)
            y = np.clip((self.uv[:, 1] % 1.0) * height, 0, height - 1).astype(int)
            return self.image[y, x]
        if self.vertex_color is not None:
            return np.round(linear_to_srgb(np.clip(self.vertex_color, 0, 1)) * 255).astype(np.uint8)
        return None


class GlbReader:
    """A .glb or .gltf file. InputError when it is damaged or compressed."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            self.gltf = pygltflib.GLTF2().load(str(path))
        except Exception as error:  # pygltflib raises whatever json and struct raise
            raise _unreadable(self.path) from error
        if self.gltf is None:
            raise _unreadable(self.path)
        if self.path.suffix.lower() != ".glb" and b'"asset"' not in self.path.read_bytes():
            raise InputError("this is JSON, but no glTF: it has no asset entry", "give a .glb or .gltf file")
        packed = {"KHR_draco_mesh_compression", "EXT_meshopt_compression"} & set(self.gltf.extensionsRequired or [])
        if packed:
            raise InputError(f"the file is compressed ({packed.pop()})", "save it without compression")
        self._buffers: dict[int, bytes] = {}

    def accessor(self, index: int) -> np.ndarray:
        """(N,) or (N,C) float64 for normalized integers, else the stored type; sparse values are filled in."""
        entry = self.gltf.accessors[index]
        width, dtype = _WIDTHS[entry.type], _DTYPES[entry.componentType]
        if entry.bufferView is None:
            out = np.zeros((entry.count, width), dtype)
        else:
            out = self._strided(entry.bufferView, entry.byteOffset or 0, entry.count, dtype, width)
        if entry.sparse is not None:
            out = out.copy()
            at, values = entry.sparse.indices, entry.sparse.values
            rows = self._strided(at.bufferView, at.byteOffset or 0, entry.sparse.count, _DTYPES[at.componentType], 1)
            out[rows[:, 0]] = self._strided(values.bufferView, values.byteOffset or 0, entry.sparse.count, dtype, width)
        if entry.normalized and dtype.kind in "ui":
            out = np.maximum(out / np.iinfo(dtype).max, -1.0)
        return out[:, 0] if width == 1 else out

    def _strided(self, view_index: int, offset: int, count: int, dtype: np.dtype, width: int) -> np.ndarray:
        view = self.gltf.bufferViews[view_index]
        stride = view.byteStride or dtype.itemsize * width
        data = self._buffer(view.buffer)
        start = (view.byteOffset or 0) + offset
        if count and start + stride * (count - 1) + dtype.itemsize * width > len(data):
            raise InputError("the glTF buffer is shorter than its accessors say (truncated?)")
        return np.ndarray((count, width), dtype, data, start, (stride, dtype.itemsize))

    def _buffer(self, index: int) -> bytes:
        if index not in self._buffers:
            uri = self.gltf.buffers[index].uri
            data = self.gltf.binary_blob() if uri is None else self._external(uri)
            if data is None:
                raise InputError("the glTF buffer is missing")
            self._buffers[index] = data
        return self._buffers[index]

    def _external(self, uri: str) -> bytes:
        """What ``uri`` holds: base64 of any media type, or a file beside this one (percent-encoded or not)."""
        if uri.startswith("data:"):
            return base64.b64decode(uri.partition(",")[2] + "==")
        for name in (urllib.parse.unquote(uri), uri):
            with contextlib.suppress(OSError):
                return (self.path.parent / name).read_bytes()
        raise InputError(f"its file {uri} is missing beside it", "keep its files together, or save it as .glb")

    def image_bytes(self, index: int) -> bytes:
        """The encoded picture number ``index``, embedded or beside the file."""
        source = self.gltf.images[index]
        if source.bufferView is None:
            return self._external(source.uri)
        view = self.gltf.bufferViews[source.bufferView]
        start = view.byteOffset or 0
        return self._buffer(view.buffer)[start : start + view.byteLength]

    def primitives(self) -> list[Primitive]:
        """All triangle primitives of the scene, node transforms applied."""
        out: list[Primitive] = []
        try:
            roots = self.gltf.scenes[self.gltf.scene or 0].nodes if self.gltf.scenes else range(len(self.gltf.nodes))
            for root in roots:
                self._walk(root, np.eye(4), out)
        except InputError:
            raise
        except Exception as error:  # a file may break the rules in any way: cycles, missing keys, absurd counts
            raise InputError(f"cannot be read as glTF ({type(error).__name__}: {error})") from None
        return out

    def _walk(self, index: int, parent: np.ndarray, out: list[Primitive]) -> None:
        node = self.gltf.nodes[index]
        world = parent @ _node_matrix(node)
        if node.mesh is not None:
            for primitive in self.gltf.meshes[node.mesh].primitives:
                if primitive.mode not in (None, pygltflib.TRIANGLES):
                    raise InputError("the mesh is not stored as triangles", "triangulate it before exporting")
                out.append(self._primitive(primitive, world))
        for child in node.children or []:
            self._walk(child, world, out)

    def _primitive(self, primitive: Any, world: np.ndarray) -> Primitive:
        attributes = primitive.attributes
        positions = apply(world, self.accessor(attributes.POSITION).astype(float))
        order = np.arange(len(positions)) if primitive.indices is None else self.accessor(primitive.indices)
        faces = order.astype(np.int64)[: len(order) // 3 * 3].reshape(-1, 3)
        if np.linalg.det(world[:3, :3]) < 0:  # a mirrored node turns every face inside out
            faces = faces[:, ::-1]
        color = None if attributes.COLOR_0 is None else self.accessor(attributes.COLOR_0)[:, :3].astype(float)
        uv = None if attributes.TEXCOORD_0 is None else self.accessor(attributes.TEXCOORD_0).astype(float)
        return Primitive(positions, faces, color, uv, self._base_color(primitive.material))

    def _base_color(self, material: int | None) -> np.ndarray | None:
        from PIL import Image

        pbr = None if material is None else self.gltf.materials[material].pbrMetallicRoughness
        if pbr is None or pbr.baseColorTexture is None:
            return None
        texture = self.gltf.textures[pbr.baseColorTexture.index]
        webp = (texture.extensions or {}).get("EXT_texture_webp", {}).get("source")
        source = webp if texture.source is None else texture.source
        if source is None:
            raise InputError("its texture is of a kind that is not read here", "save it with PNG or JPEG textures")
        data = self.image_bytes(source)
        try:
            return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        except OSError as error:
            raise InputError(f"its texture cannot be read ({error})") from None


def _unreadable(path: Path) -> InputError:
    """Another kind of file, or a damaged one: its first bytes tell."""
    with contextlib.suppress(OSError), open(path, "rb") as handle:
        if handle.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")[:4].startswith((b"glTF", b"{")):
            return InputError("the glTF is damaged or cut off", "copy it or export it again")
    return InputError("this is no glTF file", "give a .glb or .gltf file")


def _node_matrix(node: Any) -> np.ndarray:
    if node.matrix:
        return np.array(node.matrix, float).reshape(4, 4).T
    out = np.eye(4)
    if node.rotation:
        x, y, z, w = np.array(node.rotation, float) / np.linalg.norm(node.rotation)
        out[:3, :3] = [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    if node.scale:
        out[:3, :3] = out[:3, :3] * np.array(node.scale)
    if node.translation:
        out[:3, 3] = node.translation
    return out
