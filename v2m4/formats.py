"""Files: png, glb, obj, ply, npz, json. Everything on disk is readable without v2m4; nothing is pickled.

Every writer goes through a temporary name and a rename, so a file that exists is whole.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pygltflib

from v2m4.errors import InputError
from v2m4.files import write_bytes as write_bytes
from v2m4.files import write_json as write_json
from v2m4.glb import GlbBuilder, GlbReader
from v2m4.transforms import srgb_to_linear, vertex_normals
from v2m4.types import AnimatedMesh, Clip, ClipCamera, Crop, Frame, Mesh, Texture

MESH_SUFFIXES = (".glb", ".gltf", ".obj", ".ply")


def read_json(path: Path | str) -> Any:
    """InputError names the file when it is missing or not JSON."""
    return _read(path, lambda: json.loads(Path(path).read_text("utf-8")))


def write_npz(path: Path | str, arrays: Mapping[str, np.ndarray]) -> None:
    """An .npz whose bytes depend on the arrays only (np.savez stores the time of day)."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in sorted(arrays):
            array = io.BytesIO()
            np.lib.format.write_array(array, np.asanyarray(arrays[name]), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0)), array.getvalue())
    write_bytes(path, buffer.getvalue())


def read_npz(path: Path | str) -> dict[str, np.ndarray]:
    """All arrays of an .npz. InputError when it is missing, damaged or holds objects."""

    def load() -> dict[str, np.ndarray]:
        with np.load(path, allow_pickle=False) as data:
            return {key: data[key] for key in data.files}

    return _read(path, load)


def _read(path: Path | str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except Exception as error:  # PIL, zipfile and numpy raise whatever their parsers raise
        raise InputError(f"{path}: cannot be read ({error})", "delete it and run again") from None


# --- pictures ---------------------------------------------------------------------------------------------------------


def encode_png(image: np.ndarray) -> bytes:
    """(H,W), (H,W,3) or (H,W,4) uint8 -> PNG bytes."""
    import cv2

    if image.ndim == 3:
        image = cv2.cvtColor(image, cv2.COLOR_RGB2BGR if image.shape[2] == 3 else cv2.COLOR_RGBA2BGRA)
    # Run lengths after one filter: nearly as small as zlib at level 4 after the best filter a row, four times as fast.
    options = [cv2.IMWRITE_PNG_COMPRESSION, 1, cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_RLE]
    if hasattr(cv2, "IMWRITE_PNG_FILTER"):
        options += [cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_UP]
    return bytes(cv2.imencode(".png", image, options)[1])


def write_image(path: Path | str, image: np.ndarray) -> None:
    """(H,W), (H,W,3) or (H,W,4) uint8 sRGB -> PNG."""
    write_bytes(path, encode_png(image))


def read_rgba(path: Path | str) -> np.ndarray:
    """One of our own PNGs -> (H,W,4) uint8."""
    from PIL import Image

    return _read(path, lambda: np.asarray(Image.open(io.BytesIO(Path(path).read_bytes())).convert("RGBA")))


def read_rgb(path: Path | str) -> np.ndarray:
    """One of our own PNGs -> (H,W,3) uint8, alpha dropped."""
    return read_rgba(path)[..., :3]


# --- what the stages leave for each other -----------------------------------------------------------------------------


def frame_name(index: int) -> str:
    """File stem of a frame: text order is time order up to 99,999 frames."""
    return f"{index:05d}"


def read_clip(ingest: Path | str, only: Iterable[int] | None = None) -> Clip:
    """The clip an ingest folder holds. ``only`` names the frames whose pictures are loaded (None: all)."""
    ingest = Path(ingest)
    meta = read_json(ingest / "clip.json")
    times = np.array([f["time_s"] for f in meta["frames"]], float)
    wanted = range(len(times)) if only is None else sorted(set(only))
    frames = tuple(Frame(i, float(times[i]), read_rgba(ingest / "frames" / f"{frame_name(i)}.png")) for i in wanted)
    crop = Crop(**meta["crop"]) if meta.get("crop") else None
    return Clip(frames, tuple(meta["keyframes"]), times, meta["width"], meta["height"], crop)


def read_background(ingest: Path | str) -> dict[str, np.ndarray] | None:
    """Points of the background that ingest followed: ``track`` (P,), ``frame`` (P,) and ``xy`` (P,2) pixels of the full
    picture. None where the pictures had no background."""
    path = Path(ingest) / "background.npz"
    return read_npz(path) if path.is_file() else None


def read_camera(repose: Path | str) -> ClipCamera:
    """The clip's camera in the world that a repose folder holds."""
    world = read_json(Path(repose) / "world.json")
    return ClipCamera(np.array(world["K"]), np.array(world["world_to_camera"]), world["width"], world["height"])


def mesh_path(folder: Path | str, index: int) -> Path:
    """Where the mesh of frame ``index`` lies in a generate, refine or repose folder."""
    return Path(folder) / "meshes" / f"{frame_name(index)}.glb"


def read_keyframe_meshes(folder: Path | str) -> dict[int, Mesh]:
    """Frame index -> mesh, in frame order, of a generate, refine or repose folder."""
    return {int(p.stem): read_mesh(p) for p in sorted((Path(folder) / "meshes").glob("*.glb"))}


def write_animation(path: Path | str, animation: AnimatedMesh, **extra: np.ndarray) -> None:
    """animation.npz: faces (F,3), positions (T,V,3), times_s (T,), and whatever else is worth keeping."""
    arrays = dict(faces=animation.faces, positions=animation.positions, times_s=animation.times_s)
    write_npz(path, {**arrays, **extra})


def read_animation(path: Path | str) -> AnimatedMesh:
    """The animated mesh in an animation.npz."""
    data = read_npz(path)
    return AnimatedMesh(data["faces"], data["positions"], data["times_s"])


def read_texture(folder: Path | str) -> Texture:
    """The texture in a texture folder."""
    data = read_npz(Path(folder) / "uv.npz")
    return Texture(data["uv"], data["uv_faces"], read_rgb(Path(folder) / "base_color.png"))


# --- meshes -----------------------------------------------------------------------------------------------------------


def read_mesh(path: Path | str) -> Mesh:
    """GLB, glTF, OBJ or PLY -> Mesh in the order the file has it: nothing is welded, moved or re-ordered.

    Node transforms are applied, several primitives are joined. Colours come from the texture at each vertex, or from
    vertex colours (linear in glTF). InputError when the file is damaged, has no face, or has vertices that are not
    numbers.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in MESH_SUFFIXES:
        raise InputError(f"{path}: not a mesh file", f"known are {', '.join(MESH_SUFFIXES)}")
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        vertices, faces, colors = (_read_gltf if suffix in (".glb", ".gltf") else _read_trimesh)(path)
        if len(faces) == 0:
            raise InputError("the mesh has no faces", "export it again with its triangles")
        if not np.isfinite(vertices).all():
            bad = int((~np.isfinite(vertices)).any(1).sum())
            raise InputError(f"{bad} of {len(vertices)} vertices are NaN or infinite", "export the mesh again")
        return Mesh(vertices, faces, colors)
    except InputError as error:
        raise InputError(
            f"{path}: {error.message}", error.hint or "export it again, best as glTF binary (.glb)"
        ) from None


def _read_gltf(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    parts = GlbReader(path).primitives()
    offsets = np.cumsum([0] + [len(p.positions) for p in parts])
    if not parts:
        return np.zeros((0, 3)), np.zeros((0, 3), int), None
    faces = np.concatenate([p.faces + offset for p, offset in zip(parts, offsets[:-1], strict=True)])
    colors = [p.colors() for p in parts]
    if all(c is None for c in colors):
        return np.concatenate([p.positions for p in parts]), faces, None
    grey = [
        np.full((len(p.positions), 3), 128, np.uint8) if c is None else c for p, c in zip(parts, colors, strict=True)
    ]
    return np.concatenate([p.positions for p in parts]), faces, np.concatenate(grey)


def _read_trimesh(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    import trimesh

    try:
        mesh: Any = trimesh.load_mesh(str(path), process=False, maintain_order=True)
        vertices, faces = np.asarray(mesh.vertices), np.asarray(getattr(mesh, "faces", np.zeros((0, 3), int)))
    except Exception as error:  # trimesh raises whatever its parsers raise
        raise InputError(f"cannot be read as a mesh ({type(error).__name__}: {error})") from None
    kind = getattr(getattr(mesh, "visual", None), "kind", None)
    textured = kind == "texture" and getattr(mesh.visual.material, "image", None) is not None
    if kind == "vertex" or (textured and mesh.visual.uv is not None):
        source = mesh.visual.to_color() if textured else mesh.visual
        return vertices, faces, np.asarray(source.vertex_colors)[:, :3].astype(np.uint8)
    return vertices, faces, None


def write_mesh(path: Path | str, mesh: Mesh) -> None:
    """A static .glb with normals and COLOR_0 (linear, 16 bit); vertex order is kept."""
    glb = GlbBuilder()
    normals = vertex_normals(mesh.vertices, mesh.faces).astype(np.float32)
    attributes = pygltflib.Attributes(
        POSITION=glb.accessor(mesh.vertices, bounds=True, target=GlbBuilder.VERTICES),
        NORMAL=glb.accessor(normals, target=GlbBuilder.VERTICES),
    )
    if mesh.colors is not None:
        linear = np.round(srgb_to_linear(mesh.colors / 255) * 65535).astype(np.uint16)
        opaque = np.concatenate([linear, np.full((len(linear), 1), 65535, np.uint16)], 1)  # 8 bytes: stays aligned
        attributes.COLOR_0 = glb.accessor(opaque, normalized=True, target=GlbBuilder.VERTICES)
    indices = glb.accessor(mesh.faces.astype(np.uint32).reshape(-1), target=GlbBuilder.INDICES)
    matte = pygltflib.PbrMetallicRoughness(metallicFactor=0.0, roughnessFactor=1.0)
    glb.gltf.materials = [pygltflib.Material(pbrMetallicRoughness=matte, alphaCutoff=None)]
    primitive = pygltflib.Primitive(attributes=attributes, indices=indices, material=0)
    glb.gltf.meshes = [pygltflib.Mesh(primitives=[primitive])]
    glb.gltf.nodes = [pygltflib.Node(mesh=0)]
    write_bytes(path, glb.to_bytes())
