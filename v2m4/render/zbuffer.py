"""Visibility on the CPU: which triangle does each pixel centre see.

A pixel centre on a shared edge belongs to both triangles (the nearer, then the first in the list, wins): the edge
functions of two neighbours are exact negatives of each other, so closed surfaces have no pinholes. All decisions are
made in double precision from the float32 points; every pixel's result depends on nothing but the input, whatever the
number of threads.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from v2m4.protocols import Fragments
from v2m4.render import _jit, inputs
from v2m4.render._jit import kernel

#: Triangles are clipped at this camera z.
NEAR = 1e-3


class ZBuffer:
    """The CPU rasteriser (protocols.Rasterizer). ``near`` is the camera z at which triangles are clipped."""

    name = "zbuffer"

    def __init__(self, near: float = NEAR) -> None:
        self.near = near

    def rasterize(
        self, points: np.ndarray, faces: np.ndarray, K: np.ndarray, height: int, width: int, cull: bool = False
    ) -> Fragments:
        """See protocols.Rasterizer. InputError when points are not finite or shapes do not fit."""
        points = inputs.check_points(points)
        faces = inputs.check_faces(faces, points.shape[1])
        K = inputs.check_intrinsics(K, len(points))
        face, inverse, _ = visibility(points, faces, K, height, width, cull=cull, near=self.near)
        barycentric = np.empty((*face.shape, 3), np.float32)
        _jit.run_all(
            lambda lo, hi: _barycentrics(points, faces, K, face, barycentric, lo, hi),
            _jit.ranges(len(points) * height, _jit.thread_count()),
        )
        with np.errstate(divide="ignore"):
            return Fragments(face, 1 / inverse, barycentric)


def visibility(
    points: np.ndarray, faces: np.ndarray, K: np.ndarray, height: int, width: int, *, cull: bool, near: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Checked arrays -> face (N,H,W) int32, inverse depth (N,H,W) float32 (0: nothing), screen (N,V,3) float64.

    ``screen`` holds pixel x, pixel y and 1/z of the vertices; 1/z is 0 for those not in front of ``near``.
    """
    inputs.check_size(height, width)
    views = len(points)
    face = np.empty((views, height, width), np.int32)
    inverse = np.empty((views, height, width), np.float32)
    screen = np.empty(points.shape, np.float64)
    bad = np.zeros(views, np.bool_)

    def project(lo: int, hi: int) -> None:
        _project(points, K, near, screen, bad, lo, hi)

    def fill(first: int, last: int, top: int, bottom: int) -> None:
        _visibility(points, faces, K, near, cull, screen, face, inverse, (first, last), (top, bottom))

    threads = _jit.thread_count()
    _jit.run_all(project, _jit.ranges(views, threads))
    if bad.any():
        inputs.refuse_not_finite()
    if views == 1:
        _jit.run_all(fill, [(0, 1, top, bottom) for top, bottom in _jit.ranges(height, threads)])
    else:
        _jit.run_all(fill, [(first, last, 0, height) for first, last in _jit.ranges(views, threads)])
    return face, inverse, screen


def masks(points: Any, faces: Any, K: Any, height: int, width: int) -> np.ndarray:
    """(N,H,W) bool: is the pixel's centre covered. Forward only, made for thousands of small views.

    ``points`` (N,V,3) in OpenCV camera coordinates, ``faces`` (F,3), ``K`` (3,3) or (N,3,3) in pixels.
    """
    points = inputs.check_points(points)
    faces = inputs.check_faces(faces, points.shape[1])
    K = inputs.check_intrinsics(K, len(points))
    inputs.check_size(height, width)
    out = np.zeros((len(points), height, width), np.bool_)
    bad = np.zeros(len(points), np.bool_)
    _jit.run_all(
        lambda lo, hi: _coverage(points, faces, K, NEAR, out, bad, lo, hi),
        _jit.ranges(len(points), _jit.thread_count()),
    )
    if bad.any():
        inputs.refuse_not_finite()
    return out


# --- kernels ----------------------------------------------------------------------------------------------------------


@kernel
def _project_view(points, K, near, screen):
    """Pixel x, y and 1/z of every vertex; 1/z = 0 where it is not in front. Returns True when a point is not finite."""
    k00, k01, k02, k10, k11, k12 = K[0, 0], K[0, 1], K[0, 2], K[1, 0], K[1, 1], K[1, 2]
    total = 0.0
    for i in range(len(points)):
        x, y, z = float(points[i, 0]), float(points[i, 1]), float(points[i, 2])
        total += (x + y + z) * 0.0  # turns into NaN at the first NaN or infinity
        if z > near:
            inverse = 1.0 / z
            screen[i, 0] = (k00 * x + k01 * y) * inverse + k02
            screen[i, 1] = (k10 * x + k11 * y) * inverse + k12
            screen[i, 2] = inverse
        else:
            screen[i, 0] = 0.0
            screen[i, 1] = 0.0
            screen[i, 2] = 0.0
    return not math.isfinite(total)


@kernel
def _project(points, K, near, screen, bad, first, last):
    for n in range(first, last):
        bad[n] = _project_view(points[n], K[n], near, screen[n])


@kernel
def _visibility(points, faces, K, near, cull, screen, face, inverse, view_range, row_range):
    top, bottom = row_range
    clipped = np.empty((4, 3))
    for n in range(view_range[0], view_range[1]):
        face[n, top:bottom] = -1
        inverse[n, top:bottom] = 0.0
        s = screen[n]
        for f in range(len(faces)):
            i, j, k = faces[f, 0], faces[f, 1], faces[f, 2]
            if s[i, 2] > 0.0 and s[j, 2] > 0.0 and s[k, 2] > 0.0:
                _fill(
                    s[i, 0], s[i, 1], s[i, 2], s[j, 0], s[j, 1], s[j, 2], s[k, 0], s[k, 1], s[k, 2],
                    f, cull, top, bottom, face[n], inverse[n],
                )  # fmt: skip
            elif s[i, 2] > 0.0 or s[j, 2] > 0.0 or s[k, 2] > 0.0:
                count = _clip(points[n], s, K[n], near, faces[f], clipped)
                for m in range(2, count):
                    _fill(
                        clipped[0, 0], clipped[0, 1], clipped[0, 2], clipped[m - 1, 0], clipped[m - 1, 1],
                        clipped[m - 1, 2], clipped[m, 0], clipped[m, 1], clipped[m, 2],
                        f, cull, top, bottom, face[n], inverse[n],
                    )  # fmt: skip


@kernel
def _clip(points, screen, K, near, triangle, out):
    """Cut a triangle at the near plane: up to four corners (pixel x, y, 1/z) into ``out``; returns how many."""
    count = 0
    for m in range(3):
        i, j = triangle[m], triangle[(m + 1) % 3]
        if screen[i, 2] > 0.0:
            out[count] = screen[i]
            count += 1
        if (screen[i, 2] > 0.0) != (screen[j, 2] > 0.0):
            # Always from the vertex in front to the one behind: both neighbours of the edge get the same point.
            a, b = (i, j) if screen[i, 2] > 0.0 else (j, i)
            t = (float(points[a, 2]) - near) / (float(points[a, 2]) - float(points[b, 2]))
            x = float(points[a, 0]) + t * (float(points[b, 0]) - float(points[a, 0]))
            y = float(points[a, 1]) + t * (float(points[b, 1]) - float(points[a, 1]))
            out[count, 0] = (K[0, 0] * x + K[0, 1] * y) / near + K[0, 2]
            out[count, 1] = (K[1, 0] * x + K[1, 1] * y) / near + K[1, 2]
            out[count, 2] = 1.0 / near
            count += 1
    return count


@kernel
def _edge(ax, ay, bx, by, sign):
    """Edge function e(x,y) = p (x - x0) + q (y - y0), as (p, q, x0, y0); the same up to its sign for (b, a)."""
    if ay < by or (ay == by and ax < bx):
        return -(by - ay) * sign, (bx - ax) * sign, ax, ay
    return (ay - by) * sign, -(ax - bx) * sign, bx, by


@kernel
def _fill(ax, ay, az, bx, by, bz, cx, cy, cz, f, cull, top, bottom, face, inverse):
    """Draw one triangle of pixel corners with 1/z into rows top..bottom-1; the larger 1/z wins."""
    y0 = max(math.ceil(min(ay, by, cy) - 0.5), float(top))
    y1 = min(math.floor(max(ay, by, cy) - 0.5), bottom - 1.0)
    if not y0 <= y1:
        return
    x0 = max(math.ceil(min(ax, bx, cx) - 0.5), 0.0)
    x1 = min(math.floor(max(ax, bx, cx) - 0.5), face.shape[1] - 1.0)
    if not x0 <= x1:
        return
    area = (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)
    if area == 0.0 or (cull and area > 0.0):  # y points down: counter-clockwise from outside is negative
        return
    sign = 1.0 if area > 0.0 else -1.0
    pa, qa, xa, ya = _edge(bx, by, cx, cy, sign)
    pb, qb, xb, yb = _edge(cx, cy, ax, ay, sign)
    pc, qc, xc, yc = _edge(ax, ay, bx, by, sign)
    za, zb, zc = az / abs(area), bz / abs(area), cz / abs(area)
    for row in range(int(y0), int(y1) + 1):
        y = row + 0.5
        ra, rb, rc = qa * (y - ya), qb * (y - yb), qc * (y - yc)
        for column in range(int(x0), int(x1) + 1):
            x = column + 0.5
            ea, eb, ec = pa * (x - xa) + ra, pb * (x - xb) + rb, pc * (x - xc) + rc
            if ea >= 0.0 and eb >= 0.0 and ec >= 0.0:
                z = np.float32(ea * za + eb * zb + ec * zc)
                if z > inverse[row, column]:
                    inverse[row, column] = z
                    face[row, column] = f


@kernel
def _coverage(points, faces, K, near, out, bad, first, last):
    screen = np.empty(points.shape[1:])
    clipped = np.empty((4, 3))
    for n in range(first, last):
        bad[n] = _project_view(points[n], K[n], near, screen)
        for f in range(len(faces)):
            i, j, k = faces[f, 0], faces[f, 1], faces[f, 2]
            if screen[i, 2] > 0.0 and screen[j, 2] > 0.0 and screen[k, 2] > 0.0:
                _cover(screen[i, 0], screen[i, 1], screen[j, 0], screen[j, 1], screen[k, 0], screen[k, 1], out[n])
            elif screen[i, 2] > 0.0 or screen[j, 2] > 0.0 or screen[k, 2] > 0.0:
                count = _clip(points[n], screen, K[n], near, faces[f], clipped)
                for m in range(2, count):
                    _cover(
                        clipped[0, 0], clipped[0, 1], clipped[m - 1, 0], clipped[m - 1, 1],
                        clipped[m, 0], clipped[m, 1], out[n],
                    )  # fmt: skip


@kernel
def _cover(ax, ay, bx, by, cx, cy, out):
    """``_fill`` without depth."""
    y0 = max(math.ceil(min(ay, by, cy) - 0.5), 0.0)
    y1 = min(math.floor(max(ay, by, cy) - 0.5), out.shape[0] - 1.0)
    if not y0 <= y1:
        return
    x0 = max(math.ceil(min(ax, bx, cx) - 0.5), 0.0)
    x1 = min(math.floor(max(ax, bx, cx) - 0.5), out.shape[1] - 1.0)
    if not x0 <= x1:
        return
    area = (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)
    if area == 0.0:
        return
    sign = 1.0 if area > 0.0 else -1.0
    pa, qa, xa, ya = _edge(bx, by, cx, cy, sign)
    pb, qb, xb, yb = _edge(cx, cy, ax, ay, sign)
    pc, qc, xc, yc = _edge(ax, ay, bx, by, sign)
    for row in range(int(y0), int(y1) + 1):
        y = row + 0.5
        ra, rb, rc = qa * (y - ya), qb * (y - yb), qc * (y - yc)
        for column in range(int(x0), int(x1) + 1):
            x = column + 0.5
            if pa * (x - xa) + ra >= 0.0 and pb * (x - xb) + rb >= 0.0 and pc * (x - xc) + rc >= 0.0:
                out[row, column] = True


@kernel
def corner(points, K, i, x, y):
    """Vertex ``i`` in homogeneous pixel coordinates, moved so that pixel position (x, y) is the origin."""
    px, py, pz = float(points[i, 0]), float(points[i, 1]), float(points[i, 2])
    return (
        K[0, 0] * px + K[0, 1] * py + (K[0, 2] - x) * pz,
        K[1, 0] * px + K[1, 1] * py + (K[1, 2] - y) * pz,
    )


@kernel
def _barycentrics(points, faces, K, face, out, first, last):
    """Rows first..last-1 of all views, counted through. Perspective-correct, also where the near plane cuts."""
    height = face.shape[1]
    for r in range(first, last):
        n, row = r // height, r % height
        for column in range(face.shape[2]):
            f = face[n, row, column]
            if f < 0:
                out[n, row, column] = 0.0
                continue
            x, y = column + 0.5, row + 0.5
            ax, ay = corner(points[n], K[n], faces[f, 0], x, y)
            bx, by = corner(points[n], K[n], faces[f, 1], x, y)
            cx, cy = corner(points[n], K[n], faces[f, 2], x, y)
            a, b, c = bx * cy - by * cx, cx * ay - cy * ax, ax * by - ay * bx
            total = a + b + c
            out[n, row, column, 0] = a / total
            out[n, row, column, 1] = b / total
            out[n, row, column, 2] = c / total
