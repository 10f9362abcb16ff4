"""The things the stages hand to each other: frozen, checked, free of I/O and of algorithms.

Letters: ``V`` vertices, ``F`` faces, ``T`` frames, ``K`` keyframes, ``U`` UV points, ``H W`` image.
Arrays are numpy on the CPU: float32 for geometry, int32 for indices, uint8 for colour.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from v2m4.errors import InputError


def _require(condition: bool, what: str, hint: str = "") -> None:
    if not condition:
        raise InputError(what, hint)


def _array(owner: object, name: str, dtype: type, shape: tuple[int | None, ...]) -> np.ndarray:
    """Store field ``name`` as a contiguous array of ``dtype`` and check its shape (None = any)."""
    given = np.asarray(getattr(owner, name))
    if np.issubdtype(dtype, np.integer):
        _check_whole(f"{type(owner).__name__}.{name}", given, dtype)
    value: np.ndarray = np.ascontiguousarray(given, dtype=dtype)
    fits = value.ndim == len(shape) and all(
        want is None or want == got for want, got in zip(shape, value.shape, strict=True)
    )
    _require(fits, f"{type(owner).__name__}.{name}: expected shape {shape}, got {value.shape}")
    object.__setattr__(owner, name, value)
    return value


def _check_whole(what: str, given: np.ndarray, dtype: type) -> None:
    """Refuse what a cast to ``dtype`` would change without a word: colours in [0, 1] would all become black."""
    if given.dtype == dtype or not given.size:
        return
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    colour = dtype is np.uint8
    wanted = "whole numbers from 0 to 255 (uint8)" if colour else "whole numbers (int32)"
    hint = (
        "multiply colours in [0, 1] by 255, round them, and take .astype(np.uint8)" if colour else "indices are int32"
    )
    _require(given.dtype.kind in "iu", f"{what}: expected {wanted}, got {given.dtype}", hint)
    least, most = int(given.min()), int(given.max())
    _require(low <= least and most <= high, f"{what}: expected {wanted}, got {least} to {most}", hint)


def _check_faces(owner: str, faces: np.ndarray, vertices: int) -> None:
    if faces.size:
        _require(
            faces.min() >= 0 and faces.max() < vertices,
            f"{owner}: a face names vertex {int(faces.max())} of {vertices}",
        )


@dataclass(frozen=True)
class Frame:
    """One picture of the clip. ``image`` (H,W,4) uint8, straight alpha, sRGB, row 0 on top."""

    index: int
    time_s: float
    image: np.ndarray

    def __post_init__(self) -> None:
        _array(self, "image", np.uint8, (None, None, 4))

    @property
    def alpha(self) -> np.ndarray:
        """(H,W) uint8."""
        return self.image[..., 3]


@dataclass(frozen=True)
class Crop:
    """The part of the full picture that the frames of a clip show, in pixels of the picture.

    Its top left corner is (``left``, ``top``), its size ``width`` x ``height``; it may reach beyond the picture, which
    is ``picture_width`` x ``picture_height``. Frames are this part scaled, in proportion, to the clip's size.
    """

    left: int
    top: int
    width: int
    height: int
    picture_width: int
    picture_height: int

    def __post_init__(self) -> None:
        sizes = (self.width, self.height, self.picture_width, self.picture_height)
        _require(min(sizes) > 0, f"a crop and its picture need sizes above 0, not {sizes}")


@dataclass(frozen=True)
class Clip:
    """Frames of one video. ``frames`` may be a part of the clip; ``times_s`` (T,) covers all of it.

    ``keyframes`` are frame indices in rising order. ``width`` and ``height`` are those of the frames, which show the
    part ``crop`` of the full picture (None: all of it, unscaled).
    """

    frames: tuple[Frame, ...]
    keyframes: tuple[int, ...]
    times_s: np.ndarray
    width: int
    height: int
    crop: Crop | None = None

    def __post_init__(self) -> None:
        times = _array(self, "times_s", np.float64, (None,))
        _require(len(times) > 0, "a clip needs at least one frame")
        _require(bool(np.all(np.diff(times) > 0)), "frame times must rise from frame to frame")
        _require(
            all(0 <= k < len(times) for k in self.keyframes) and list(self.keyframes) == sorted(set(self.keyframes)),
            "keyframes must be rising frame indices of the clip",
        )
        for frame in self.frames:
            _require(
                frame.image.shape[:2] == (self.height, self.width),
                f"frame {frame.index} is {frame.image.shape[1]}x{frame.image.shape[0]}, "
                f"the clip is {self.width}x{self.height}",
            )

    def frame(self, index: int) -> Frame:
        """The frame with this index; KeyError when it was not loaded."""
        for frame in self.frames:
            if frame.index == index:
                return frame
        raise KeyError(f"frame {index} is not loaded")


@dataclass(frozen=True)
class Camera:
    """A pinhole camera, OpenCV axes (x right, y down, z forward).

    ``K`` (3,3) in pixels with pixel centres at +0.5; ``world_to_camera`` (4,4) is rigid and acts on
    column vectors.
    """

    K: np.ndarray
    world_to_camera: np.ndarray
    width: int
    height: int

    def __post_init__(self) -> None:
        K = _array(self, "K", np.float64, (3, 3))
        pose = _array(self, "world_to_camera", np.float64, (4, 4))
        _require(K[0, 0] > 0 and K[1, 1] > 0, "a camera needs positive focal lengths")
        rotation = pose[:3, :3]
        _require(
            bool(np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-4)) and np.linalg.det(rotation) > 0,
            "world_to_camera must be rigid: a rotation without scale or mirroring",
        )


@dataclass(frozen=True)
class ClipCamera:
    """The one camera of a clip. ``K`` (3,3) as in :class:`Camera`; ``world_to_camera`` is (4,4) where it stands still,
    (T,4,4), one for each frame of the clip, where it moves."""

    K: np.ndarray
    world_to_camera: np.ndarray
    width: int
    height: int

    def __post_init__(self) -> None:
        fixed = np.ndim(self.world_to_camera) == 2
        _array(self, "world_to_camera", np.float64, (4, 4) if fixed else (None, 4, 4))
        self.at(0)  # checks the rest

    def at(self, frame: int) -> Camera:
        """The camera at this frame of the clip. InputError past the last one."""
        pose = self.world_to_camera
        if pose.ndim == 3:
            _require(0 <= frame < len(pose), f"there is no camera for frame {frame}: the clip has {len(pose)}")
            pose = pose[frame]
        return Camera(self.K, pose, self.width, self.height)


@dataclass(frozen=True)
class Mesh:
    """A triangle mesh. ``vertices`` (V,3) float32, ``faces`` (F,3) int32 counter-clockwise from
    outside, ``colors`` (V,3) uint8 sRGB or None."""

    vertices: np.ndarray
    faces: np.ndarray
    colors: np.ndarray | None = None

    def __post_init__(self) -> None:
        vertices = _array(self, "vertices", np.float32, (None, 3))
        faces = _array(self, "faces", np.int32, (None, 3))
        _require(bool(np.isfinite(vertices).all()), "the mesh has vertices that are NaN or infinite")
        _check_faces("mesh", faces, len(vertices))
        if self.colors is not None:
            _array(self, "colors", np.uint8, (len(vertices), 3))

    def moved(self, vertices: np.ndarray) -> Mesh:
        """The same topology and colours with other vertices (V,3)."""
        return Mesh(vertices, self.faces, self.colors)


@dataclass(frozen=True)
class Texture:
    """A UV map and its picture. ``uv`` (U,2) float32, (0,0) top left; ``uv_faces`` (F,3) int32 index
    ``uv`` and match the mesh's faces one to one; ``base_color`` (H,W,3) uint8 sRGB."""

    uv: np.ndarray
    uv_faces: np.ndarray
    base_color: np.ndarray

    def __post_init__(self) -> None:
        uv = _array(self, "uv", np.float32, (None, 2))
        faces = _array(self, "uv_faces", np.int32, (None, 3))
        _array(self, "base_color", np.uint8, (None, None, 3))
        _require(bool(np.isfinite(uv).all()), "the UV map has values that are NaN or infinite")
        _check_faces("UV map", faces, len(uv))


@dataclass(frozen=True)
class MeshSequence:
    """One mesh per time, each with its own topology."""

    meshes: tuple[Mesh, ...]
    times_s: np.ndarray

    def __post_init__(self) -> None:
        times = _array(self, "times_s", np.float64, (None,))
        _require(len(times) == len(self.meshes), f"{len(self.meshes)} meshes for {len(times)} times")
        _require(bool(np.all(np.diff(times) > 0)), "mesh times must rise")


@dataclass(frozen=True)
class AnimatedMesh:
    """One topology that moves. ``faces`` (F,3) int32, ``positions`` (T,V,3) float32, ``times_s`` (T,)."""

    faces: np.ndarray
    positions: np.ndarray
    times_s: np.ndarray

    def __post_init__(self) -> None:
        faces = _array(self, "faces", np.int32, (None, 3))
        positions = _array(self, "positions", np.float32, (None, None, 3))
        times = _array(self, "times_s", np.float64, (None,))
        _require(len(times) == len(positions), f"{len(positions)} poses for {len(times)} times")
        _require(len(times) > 0, "an animated mesh needs at least one pose")
        _require(bool(np.all(np.diff(times) > 0)), "pose times must rise")
        _require(bool(np.isfinite(positions).all()), "the animation has positions that are NaN or infinite")
        _check_faces("animated mesh", faces, positions.shape[1])

    def mesh(self, pose: int, colors: np.ndarray | None = None) -> Mesh:
        """The mesh at pose number ``pose``."""
        return Mesh(self.positions[pose], self.faces, colors)


@dataclass(frozen=True)
class TexturedMesh:
    """A mesh with its texture, one UV triangle for each face."""

    mesh: Mesh
    texture: Texture

    def __post_init__(self) -> None:
        _require(
            len(self.mesh.faces) == len(self.texture.uv_faces),
            f"{len(self.mesh.faces)} faces but {len(self.texture.uv_faces)} UV faces",
        )
