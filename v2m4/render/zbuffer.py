"""Visibility on the CPU: which triangle does each pixel centre see.

The edge functions of two neighbours are exact negatives of each other, so that a pixel centre on their common edge is
never missed: closed surfaces have no pinholes. A triangle covers the centres from its lowest coordinate up to, but not
including, its highest. Where two triangles are equally near, the first in the list wins. All decisions are made in
double precision from the float32 points, and depend on the input only, whatever the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
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
        face, inverse, vertices = visibility(points, faces, K, height, width, cull=cull, near=self.near)
        barycentric = np.empty((*face.shape, 3), np.float32)
        _jit.run_all(
            lambda lo, hi: _barycentrics(vertices.pixel, faces, face, barycentric, lo, hi),
            _jit.ranges(len(points) * height, _jit.thread_count()),
        )
        with np.errstate(divide="ignore"):
            return Fragments(face, 1 / inverse, barycentric)


@dataclass(frozen=True)
class Vertices:
    """The vertices of N views on their way to the screen.

    ``pixel`` (N,V,3) float64: K @ point, homogeneous pixel coordinates. ``screen`` (N,V,3) float64: pixel x, pixel y
    and 1/z, all 0 for a vertex that is not in front of the near plane. ``cell`` (N,V,2) int32: the first column and row
    whose centre is not left of or above the vertex, kept inside 0..W and 0..H; row -1 when it is not in front.
    """

    pixel: np.ndarray
    screen: np.ndarray
    cell: np.ndarray


def visibility(
    points: np.ndarray, faces: np.ndarray, K: np.ndarray, height: int, width: int, *, cull: bool, near: float
) -> tuple[np.ndarray, np.ndarray, Vertices]:
    """Checked arrays -> face (N,H,W) int32, inverse depth (N,H,W) float32 (0: nothing), vertices."""
    inputs.check_size(height, width)
    views = len(points)
    face = np.empty((views, height, width), np.int32)
    inverse = np.empty((views, height, width), np.float32)
    vertices = project(points, K, height, width, near)

    def fill(first: int, last: int, top: int, bottom: int) -> None:
        arrays = (vertices.pixel, vertices.screen, vertices.cell)
        _visibility(*arrays, faces, near, cull, face, inverse, first, last, top, bottom)

    threads = _jit.thread_count()
    if views == 1:
        _jit.run_all(fill, [(0, 1, top, bottom) for top, bottom in _jit.ranges(height, threads)])
    else:
        _jit.run_all(fill, [(first, last, 0, height) for first, last in _jit.ranges(views, threads)])
    return face, inverse, vertices


def project(points: np.ndarray, K: np.ndarray, height: int, width: int, near: float) -> Vertices:
    """Checked arrays -> vertices on screen. InputError when a point is not finite."""
    shape = points.shape
    out = Vertices(np.empty(shape), np.empty(shape), np.empty((*shape[:2], 2), np.int32))
    bad = np.zeros(len(points), np.bool_)

    def some(first: int, last: int) -> None:
        for n in range(first, last):
            bad[n] = _project(points[n], K[n], near, height, width, out.pixel[n], out.screen[n], out.cell[n])

    _jit.run_all(some, _jit.ranges(len(points), _jit.thread_count()))
    if bad.any():
        inputs.refuse_not_finite()
    return out


def masks(points: Any, faces: Any, K: Any, height: int, width: int) -> np.ndarray:
    """(N,H,W) bool: is the pixel's centre covered. Forward only, made for thousands of small views.

    ``points`` (N,V,3) in OpenCV camera coordinates, ``faces`` (F,3), ``K`` (3,3) or (N,3,3) in pixels.
    """
    points = inputs.check_points(points)
    faces = inputs.check_faces(faces, points.shape[1])
    K = inputs.check_intrinsics(K, len(points))
    inputs.check_size(height, width)
    out = np.empty((len(points), height, width), np.bool_)
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
def _cell(value, size):
    """The first pixel whose centre is not below ``value``, inside 0..size."""
    return np.int32(np.ceil(min(max(value, 0.0), size + 0.5) - 0.5))


@kernel
def _project(points, K, near, height, width, pixel, screen, cell):
    """Fill one view's ``Vertices``. Returns True when a point is not finite."""
    k00, k01, k02, k10, k11, k12 = K[0, 0], K[0, 1], K[0, 2], K[1, 0], K[1, 1], K[1, 2]
    total = 0.0
    for i in range(len(points)):
        x, y, z = float(points[i, 0]), float(points[i, 1]), float(points[i, 2])
        total += (x + y + z) * 0.0  # turns into NaN at the first NaN or infinity
        u, v = k00 * x + k01 * y + k02 * z, k10 * x + k11 * y + k12 * z
        pixel[i, 0], pixel[i, 1], pixel[i, 2] = u, v, z
        if z > near:
            inverse = 1.0 / z
            u, v = u * inverse, v * inverse
            screen[i, 0], screen[i, 1], screen[i, 2] = u, v, inverse
            cell[i, 0], cell[i, 1] = _cell(u, width), _cell(v, height)
        else:
            screen[i, 0], screen[i, 1], screen[i, 2] = 0.0, 0.0, 0.0
            cell[i, 0], cell[i, 1] = 0, -1
    return not np.isfinite(total)


@kernel
def _clip(pixel, screen, near, triangle, out):
    """Cut a triangle at the near plane: up to four corners (pixel x, y, 1/z) into ``out``; returns how many."""
    count = 0
    for m in range(3):
        i, j = triangle[m], triangle[(m + 1) % 3]
        i_front, j_front = screen[i, 2] > 0.0, screen[j, 2] > 0.0
        if i_front:
            out[count, 0], out[count, 1], out[count, 2] = screen[i, 0], screen[i, 1], screen[i, 2]
            count += 1
        if i_front != j_front:
            # Always from the vertex in front to the one behind: both neighbours of the edge get the same point.
            a, b = (i, j) if i_front else (j, i)
            t = (pixel[a, 2] - near) / (pixel[a, 2] - pixel[b, 2])
            out[count, 0] = (pixel[a, 0] + t * (pixel[b, 0] - pixel[a, 0])) / near
            out[count, 1] = (pixel[a, 1] + t * (pixel[b, 1] - pixel[a, 1])) / near
            out[count, 2] = 1.0 / near
            count += 1
    return count


@kernel
def _visibility(pixel, screen, cell, faces, near, cull, face, inverse, first, last, top, bottom):
    """Views first..last-1, rows top..bottom-1."""
    for n in range(first, last):
        _visibility_view(pixel[n], screen[n], cell[n], faces, near, cull, face[n], inverse[n], top, bottom)


@kernel
def _visibility_view(pixel, screen, cell, faces, near, cull, face, inverse, top, bottom):
    face[top:bottom] = -1
    inverse[top:bottom] = 0.0
    for f in range(len(faces)):
        i, j, k = faces[f, 0], faces[f, 1], faces[f, 2]
        y0, y1 = min(cell[i, 1], cell[j, 1], cell[k, 1]), max(cell[i, 1], cell[j, 1], cell[k, 1])
        if y0 < 0:
            if y1 >= 0:
                _fill_clipped(pixel, screen, faces[f], near, f, cull, top, bottom, face, inverse)
            continue
        y0, y1 = max(y0, top), min(y1, bottom)
        if y0 >= y1:
            continue
        x0, x1 = min(cell[i, 0], cell[j, 0], cell[k, 0]), max(cell[i, 0], cell[j, 0], cell[k, 0])
        if x0 < x1:
            _fill(
                screen[i, 0], screen[i, 1], screen[i, 2], screen[j, 0], screen[j, 1], screen[j, 2],
                screen[k, 0], screen[k, 1], screen[k, 2], x0, x1, y0, y1, f, cull, face, inverse,
            )  # fmt: skip


@kernel
def _fill_clipped(pixel, screen, triangle, near, f, cull, top, bottom, face, inverse):
    height, width = face.shape
    c = np.empty((4, 3))
    count = _clip(pixel, screen, near, triangle, c)
    for m in range(2, count):
        x0 = _cell(min(c[0, 0], c[m - 1, 0], c[m, 0]), width)
        x1 = _cell(max(c[0, 0], c[m - 1, 0], c[m, 0]), width)
        y0 = max(_cell(min(c[0, 1], c[m - 1, 1], c[m, 1]), height), top)
        y1 = min(_cell(max(c[0, 1], c[m - 1, 1], c[m, 1]), height), bottom)
        _fill(
            c[0, 0], c[0, 1], c[0, 2], c[m - 1, 0], c[m - 1, 1], c[m - 1, 2], c[m, 0], c[m, 1], c[m, 2],
            x0, x1, y0, y1, f, cull, face, inverse,
        )  # fmt: skip


@kernel
def _fill(ax, ay, az, bx, by, bz, cx, cy, cz, x0, x1, y0, y1, f, cull, face, inverse):
    """Draw one triangle of corners (pixel x, y, 1/z) into a box of pixels; the larger 1/z wins."""
    area = (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)
    if area == 0.0 or (cull and area > 0.0):  # y points down: counter-clockwise from outside is negative
        return
    flip = area < 0.0
    bx, cx = (cx, bx) if flip else (bx, cx)
    by, cy = (cy, by) if flip else (by, cy)
    bz, cz = (cz, bz) if flip else (bz, cz)
    scale = 1.0 / abs(area)
    az, bz, cz = az * scale, bz * scale, cz * scale
    # Along a row the edge functions are r + p x with x counted from the picture's first column, not from the box:
    # both triangles of an edge then compute exact negatives.
    ax, bx, cx = ax - 0.5, bx - 0.5, cx - 0.5
    pa, pb, pc = by - cy, cy - ay, ay - by
    pz = pa * az + pb * bz + pc * cz
    for row in range(y0, y1):
        ya, yb, yc = ay - (row + 0.5), by - (row + 0.5), cy - (row + 0.5)
        ra, rb, rc = bx * yc - yb * cx, cx * ya - yc * ax, ax * yb - ya * bx
        rz = ra * az + rb * bz + rc * cz
        for column in range(x0, x1):
            x = float(column)
            z = np.float32(rz + x * pz)
            # One test, not four: these branches cannot be foreseen by the processor.
            if (min(min(ra + x * pa, rb + x * pb), rc + x * pc) >= 0.0) & (z > inverse[row, column]):
                inverse[row, column] = z
                face[row, column] = f


@kernel
def _coverage(points, faces, K, near, out, bad, first, last):
    count = points.shape[1]
    pixel, screen, cell = np.empty((count, 3)), np.empty((count, 3)), np.empty((count, 2), np.int32)
    for n in range(first, last):
        bad[n] = _project(points[n], K[n], near, out.shape[1], out.shape[2], pixel, screen, cell)
        _coverage_view(pixel, screen, cell, faces, near, out[n])


@kernel
def _coverage_view(pixel, screen, cell, faces, near, out):
    height, width = out.shape
    out[:] = False
    for f in range(len(faces)):
        i, j, k = faces[f, 0], faces[f, 1], faces[f, 2]
        y0, y1 = min(cell[i, 1], cell[j, 1], cell[k, 1]), max(cell[i, 1], cell[j, 1], cell[k, 1])
        if y0 < 0:
            if y1 >= 0:
                c = np.empty((4, 3))
                count = _clip(pixel, screen, near, faces[f], c)
                for m in range(2, count):
                    x0 = _cell(min(c[0, 0], c[m - 1, 0], c[m, 0]), width)
                    x1 = _cell(max(c[0, 0], c[m - 1, 0], c[m, 0]), width)
                    y0 = _cell(min(c[0, 1], c[m - 1, 1], c[m, 1]), height)
                    y1 = _cell(max(c[0, 1], c[m - 1, 1], c[m, 1]), height)
                    _cover(c[0, 0], c[0, 1], c[m - 1, 0], c[m - 1, 1], c[m, 0], c[m, 1], x0, x1, y0, y1, out)
            continue
        if y0 >= y1:
            continue
        x0, x1 = min(cell[i, 0], cell[j, 0], cell[k, 0]), max(cell[i, 0], cell[j, 0], cell[k, 0])
        if x0 < x1:
            _cover(
                screen[i, 0], screen[i, 1], screen[j, 0], screen[j, 1], screen[k, 0], screen[k, 1],
                x0, x1, y0, y1, out,
            )  # fmt: skip


@kernel
def _cover(ax, ay, bx, by, cx, cy, x0, x1, y0, y1, out):
    """``_fill`` without depth."""
    area = (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)
    if area == 0.0:
        return
    flip = area < 0.0
    bx, cx = (cx, bx) if flip else (bx, cx)
    by, cy = (cy, by) if flip else (by, cy)
    ax, bx, cx = ax - 0.5, bx - 0.5, cx - 0.5
    pa, pb, pc = by - cy, cy - ay, ay - by
    for row in range(y0, y1):
        ya, yb, yc = ay - (row + 0.5), by - (row + 0.5), cy - (row + 0.5)
        ra, rb, rc = bx * yc - yb * cx, cx * ya - yc * ax, ax * yb - ya * bx
        for column in range(x0, x1):
            x = float(column)
            out[row, column] |= (ra + x * pa >= 0.0) & (rb + x * pb >= 0.0) & (rc + x * pc >= 0.0)


@kernel
def weights(pixel, i, j, k, x, y):
    """Unnormalised perspective-correct weights of the corners i, j, k at pixel position (x, y).

    In homogeneous pixel coordinates seen from the pixel, the weight of a corner is the cross product of the other two:
    no division by a corner's depth, so that corners behind the camera do no harm.
    """
    ax, ay = pixel[i, 0] - x * pixel[i, 2], pixel[i, 1] - y * pixel[i, 2]
    bx, by = pixel[j, 0] - x * pixel[j, 2], pixel[j, 1] - y * pixel[j, 2]
    cx, cy = pixel[k, 0] - x * pixel[k, 2], pixel[k, 1] - y * pixel[k, 2]
    return bx * cy - by * cx, cx * ay - cy * ax, ax * by - ay * bx


@kernel
def _barycentrics(pixel, faces, face, out, first, last):
    """Rows first..last-1 of all views, counted through."""
    height = face.shape[1]
    for r in range(first, last):
        n, row = r // height, r % height
        for column in range(face.shape[2]):
            f = face[n, row, column]
            if f < 0:
                out[n, row, column] = 0.0
                continue
            a, b, c = weights(pixel[n], faces[f, 0], faces[f, 1], faces[f, 2], column + 0.5, row + 0.5)
            scale = 1.0 / (a + b + c)
            out[n, row, column, 0], out[n, row, column, 1], out[n, row, column, 2] = a * scale, b * scale, c * scale
