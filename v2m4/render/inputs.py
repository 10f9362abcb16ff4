"""What every entry of the renderer checks before it hands memory to compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np

from v2m4.errors import InputError

#: The hint where the meshes of a batch do not get what belongs to each.
ONE_EACH = "give a list with one entry for each mesh, in the same order"


def as_numpy(value: Any, dtype: Any) -> np.ndarray:
    """A numpy array or torch tensor -> contiguous numpy array of ``dtype`` (no copy where it fits already)."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    return np.ascontiguousarray(value, dtype=dtype)


def check_points(points: Any, keep_double: bool = False) -> np.ndarray:
    """(N,V,3) or (V,3) -> (N,V,3) float32; float64 where it was and may be kept."""
    double = keep_double and str(getattr(points, "dtype", "")).endswith("float64")
    array = as_numpy(points, np.float64 if double else np.float32)
    if array.ndim == 2:
        array = array[None]
    if array.ndim != 3 or array.shape[-1] != 3:
        raise InputError(
            f"points must have the shape (N,V,3), not {array.shape}", "(V,3), or (N,V,3) for N views of one mesh"
        )
    return array


def check_faces(faces: Any, vertices: int) -> np.ndarray:
    """(F,3) integers -> int32 whose indices lie inside 0..vertices-1."""
    given = np.asarray(faces.detach().cpu() if hasattr(faces, "detach") else faces)
    if not given.size:
        return np.zeros((0, 3), np.int32)
    if given.ndim != 2 or given.shape[-1] != 3:
        raise InputError(f"faces must have the shape (F,3), not {given.shape}", "split polygons into triangles")
    if given.dtype.kind not in "iu":
        raise InputError(f"faces must be integers, not {given.dtype}", "convert them with .astype(np.int32)")
    # Read without a sign, a negative index is a very large one: one look finds both kinds.
    bits = np.ascontiguousarray(given).view(f"u{given.dtype.itemsize}")
    if bits.max() >= vertices:
        wrong = given.max() if given.max() >= vertices else given.min()
        raise InputError(f"a face names vertex {int(wrong)} of {vertices}", "indices run from 0 to V-1")
    return np.ascontiguousarray(given, np.int32)


def check_intrinsics(K: Any, views: int) -> np.ndarray:
    """(3,3) or (N,3,3) -> (N,3,3) float64 whose last row is (0,0,1)."""
    array = as_numpy(K, np.float64)
    if array.shape[-2:] != (3, 3) or array.ndim not in (2, 3):
        raise InputError(
            f"K must have the shape (3,3) or (N,3,3), not {array.shape}",
            "K is the lens alone, as from transforms.fov_to_K: points are in camera coordinates already",
        )
    if array.ndim == 3 and len(array) not in (1, views):
        raise InputError(f"{len(array)} intrinsics for {views} views", "give one K for all views, or one for each")
    if not (np.isfinite(array).all() and (array[..., 2, :] == (0, 0, 1)).all()):
        raise InputError("K must be finite and its last row (0, 0, 1)", "see transforms.fov_to_K; K acts on columns")
    return np.ascontiguousarray(np.broadcast_to(array, (views, 3, 3)))


def check_size(height: int, width: int) -> None:
    """A picture has at least one pixel, and pixel numbers fit 31 bits."""
    if not (isinstance(height, (int, np.integer)) and isinstance(width, (int, np.integer))):
        raise InputError(
            f"the size of a picture must be two whole numbers, not {height!r} and {width!r}",
            "height comes first; round it with round(...)",
        )
    if height < 1 or width < 1 or height * width >= 2**31:
        raise InputError(
            f"a picture of {width}x{height} cannot be rendered", "from 1x1 up to fewer than 2^31 pixels in all"
        )


def check_floating(what: str, *tensors: Any) -> None:
    """Colours are floats here: bytes are neither scaled nor taken as they are."""
    for tensor in tensors:
        if not tensor.is_floating_point():
            kind = str(tensor.dtype).removeprefix("torch.")
            raise InputError(f"{what} must be floating-point, not {kind}", "take .float(), and divide bytes by 255")


def refuse_not_finite() -> None:
    """Raise what every entry raises when a kernel met NaN or infinity."""
    raise InputError(
        "the mesh has vertices that are NaN or infinite", "look at what computed them; nothing was rendered"
    )
