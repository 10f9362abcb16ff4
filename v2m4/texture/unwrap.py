"""Unwrap: one UV map for one mesh, by xatlas, in a child process with a time limit.

The same mesh gives the same UVs, bit for bit: neither a seed nor the clock nor the pose of other frames goes in.
"""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import dataclass

import numpy as np

from v2m4.errors import InputError

#: xatlas compares lengths and areas with fixed thresholds that suit objects of about this size.
WORKING_EXTENT = 10.0
#: Texels between charts at 1024 x 1024; grows with the picture so that mip levels keep apart too.
GUTTER_PX_AT_1K = 8


@dataclass(frozen=True)
class Unwrap:
    """``uv`` (U,2) float32, glTF's (0,0) top left; ``uv_faces`` (F,3) int32, one for each face of the mesh.

    ``charts`` how many islands; ``gutter_px`` texels between them; ``utilisation`` share of the picture inside charts;
    ``stretch`` the L2 stretch of Sander et al. (2001), at least 1 (1: the same density of texels everywhere).
    """

    uv: np.ndarray
    uv_faces: np.ndarray
    charts: int
    gutter_px: float
    utilisation: float
    stretch: float


def gutter_px(size: int) -> int:
    """Texels that should lie between charts in a ``size`` x ``size`` picture."""
    return max(2, round(GUTTER_PX_AT_1K * size / 1024))


def unwrap(vertices: np.ndarray, faces: np.ndarray, size: int, time_limit_s: float = 600.0) -> Unwrap:
    """Cut ``vertices`` (V,3), ``faces`` (F,3) into charts and pack them for a ``size`` x ``size`` picture.

    InputError when xatlas fails, crashes, or needs longer than ``time_limit_s``.
    """
    vertices = np.asarray(vertices, np.float64)
    low, high = vertices.min(0), vertices.max(0)
    extent = float((high - low).max())
    if len(faces) == 0 or extent <= 0:
        raise InputError("the mesh has no surface to unwrap", "look at the meshes of the topology stage")
    scaled = ((vertices - (low + high) / 2) * (WORKING_EXTENT / extent)).astype(np.float32)
    atlas = _run_child(scaled, np.asarray(faces, np.int32), size, time_limit_s)
    uv, uv_faces = atlas["uv"], atlas["uv_faces"]
    if uv_faces.shape != np.shape(faces) or not np.isfinite(uv).all():
        raise InputError(f"xatlas returned {len(uv_faces)} UV faces for {len(faces)} faces", _HINT)
    used, stretch = uv_quality(vertices, faces, uv, uv_faces)
    if used <= 0:
        raise InputError("xatlas found no chart on this mesh", _HINT)
    return Unwrap(uv, uv_faces, int(atlas["charts"]), float(atlas["gutter_px"]), used, stretch)


_HINT = "simplify or clean the mesh (fewer faces, no loose or folded triangles), or raise texture.unwrap_limit_s"


def _run_child(vertices: np.ndarray, faces: np.ndarray, size: int, time_limit_s: float) -> dict[str, np.ndarray]:
    job = io.BytesIO()
    np.savez(job, vertices=vertices, faces=faces, size=np.int32(size), gutter_px=np.int32(gutter_px(size)))
    command = [sys.executable, "-m", "v2m4.texture.xatlas_child"]
    try:
        done = subprocess.run(command, input=job.getvalue(), capture_output=True, timeout=time_limit_s, check=False)
    except subprocess.TimeoutExpired:
        raise InputError(
            f"unwrapping {len(faces)} faces took longer than {time_limit_s:g} s and was stopped", _HINT
        ) from None
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        reason = lines[-1] if lines else f"exit code {done.returncode}"
        raise InputError(f"xatlas could not unwrap this mesh of {len(faces)} faces: {reason}", _HINT)
    with np.load(io.BytesIO(done.stdout), allow_pickle=False) as data:
        return {key: data[key] for key in data.files}


def uv_quality(vertices: np.ndarray, faces: np.ndarray, uv: np.ndarray, uv_faces: np.ndarray) -> tuple[float, float]:
    """(utilisation, stretch) of a UV map, see :class:`Unwrap`.

    Stretch is the L2 measure of Sander et al. (2001), "Texture Mapping Progressive Meshes", of surface over UV.
    """
    a, b, c = (np.asarray(vertices, np.float64)[faces[:, k]] for k in range(3))
    p, q, r = (np.asarray(uv, np.float64)[uv_faces[:, k]] for k in range(3))
    edge1, edge2 = q - p, r - p
    signed = (edge1[:, 0] * edge2[:, 1] - edge1[:, 1] * edge2[:, 0]) / 2
    area = np.linalg.norm(np.cross(b - a, c - a), axis=1) / 2
    good = (np.abs(signed) > 1e-14) & (area > 0)
    used = float(np.abs(signed).sum())
    if not good.any():
        return used, 1.0
    twice = 2 * signed[good][:, None]
    along_u = ((b - a)[good] * edge2[good][:, 1:] - (c - a)[good] * edge1[good][:, 1:]) / twice
    along_v = ((c - a)[good] * edge1[good][:, :1] - (b - a)[good] * edge2[good][:, :1]) / twice
    mean_square = ((along_u**2).sum(1) + (along_v**2).sum(1)) / 2
    weight = area[good] / area[good].sum()
    density = np.abs(signed[good]).sum() / area[good].sum()
    return used, float(np.sqrt((weight * mean_square).sum() * density))
