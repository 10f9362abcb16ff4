"""Visibility on the CPU: which triangle does each pixel centre see.

Triangles are filled row by row. In a row, a triangle covers the pixels from the first whose centre is not left of its
left edge up to, but not including, the first whose centre is not left of its right edge; rows likewise from its top to
its bottom. Where an edge crosses a row is computed from the edge alone, so that the two triangles that share it agree
to the last bit: closed surfaces have no pinholes, and no pixel belongs to both. Where two triangles are equally near,
the first in the list wins. All decisions are made in double precision, and depend on the input only, whatever the
number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from v2m4.protocols import Fragments
from v2m4.render import _jit, inputs
from v2m4.render._jit import inlined, kernel
from v2m4.render.barycentric import weights
from v2m4.render.batch import Batch, make_batch

#: Triangles are clipped at this camera z.
NEAR = 1e-3
#: Fewer vertices are not worth another thread to project them.
CHUNK = 1 << 12


class ZBuffer:
    """The CPU rasteriser (protocols.Rasterizer). ``near`` is the camera z at which triangles are clipped."""

    name = "zbuffer"

    def __init__(self, near: float = NEAR) -> None:
        self.near = near

    def rasterize(self, points: Any, faces: Any, K: Any, height: int, width: int, cull: bool = False) -> Fragments:
        """See protocols.Rasterizer. InputError when points are not finite or shapes do not fit."""
        batch = make_batch(points, faces, K, height, width)
        vertices = project(batch, self.near)
        face, inverse = visibility(batch, vertices, cull=cull, near=self.near)
        barycentric = np.empty((*face.shape, 3), np.float32)

        def fill(n: int, top: int, bottom: int) -> None:
            weights(batch.vertices.of(vertices.pixel, n), batch.faces[n], face[n], barycentric[n], top, bottom)

        _jit.run_all(fill, [(n, *band) for n in range(len(batch)) for band in bands(batch, vertices)])
        with np.errstate(divide="ignore"):
            return Fragments(face, 1 / inverse, barycentric)


@dataclass(frozen=True)
class Vertices:
    """The packed vertices of a batch on their way to the screen.

    ``pixel`` (P,3) float64: K @ point, homogeneous pixel coordinates. ``screen`` (P,3) float64: pixel x, pixel y
    and 1/z, all 0 for a vertex that is not in front of the near plane. ``cell`` (P,2) int32: the first column and row
    whose centre is not left of or above the vertex, kept inside 0..W and 0..H; row -1 when it is not in front.
    """

    pixel: np.ndarray
    screen: np.ndarray
    cell: np.ndarray


def project(batch: Batch, near: float = NEAR) -> Vertices:
    """The vertices of a batch on screen. InputError when a point is not finite."""
    shape = batch.points.shape
    out = Vertices(np.empty(shape), np.empty(shape), np.empty((shape[0], 2), np.int32))
    start = batch.vertices.start
    tasks = [
        (n, start[n] + low, start[n] + high)
        for n in range(len(batch))
        for low, high in _jit.ranges(start[n + 1] - start[n], max(1, (start[n + 1] - start[n]) // CHUNK))
    ]
    bad = np.zeros(len(tasks), np.bool_)

    def some(first: int, last: int) -> None:
        for t in range(first, last):
            n, low, high = tasks[t]
            part = (a[low:high] for a in (out.pixel, out.screen, out.cell))
            bad[t] = _project(batch.points[low:high], batch.K[n], near, batch.height, batch.width, *part)

    _jit.run_all(some, _jit.ranges(len(tasks), _jit.thread_count()))
    if bad.any():
        inputs.refuse_not_finite()
    return out


def visibility(batch: Batch, vertices: Vertices, *, cull: bool, near: float = NEAR) -> tuple[np.ndarray, np.ndarray]:
    """Face (N,H,W) int32, -1 where there is nothing, and inverse depth (N,H,W) float32, 0 where there is nothing."""
    face = np.empty(batch.shape, np.int32)
    inverse = np.empty(batch.shape, np.float32)

    def fill(n: int, top: int, bottom: int) -> None:
        arrays = (batch.vertices.of(a, n) for a in (vertices.pixel, vertices.screen, vertices.cell))
        _visibility(*arrays, batch.faces[n], near, cull, face[n].reshape(-1), inverse[n].reshape(-1),
                    batch.width, top, bottom)  # fmt: skip

    _jit.run_all(fill, [(n, *band) for n in range(len(batch)) for band in bands(batch, vertices)])
    return face, inverse


def bands(batch: Batch, vertices: Vertices) -> list[tuple[int, int]]:
    """The rows [top, bottom) in which the pictures of a batch are worked on: all at once where there are several views,
    else cut in two at the vertices' mean height. Never dependent on the number of threads, because the order
    in which gradients are summed follows from it."""
    if len(batch) != 1 or batch.height < 2:
        return [(0, batch.height)]
    rows = vertices.cell[:: max(1, len(vertices.cell) // 512), 1]
    middle = int(rows.mean()) if len(rows) else batch.height // 2
    middle = min(max(middle, 1), batch.height - 1)
    return [(0, middle), (middle, batch.height)]


def masks(points: Any, faces: Any, K: Any, height: int, width: int) -> np.ndarray:
    """(N,H,W) bool: is the pixel's centre covered. Forward only, made for thousands of small views.

    ``points`` (N,V,3) in OpenCV camera coordinates, ``faces`` (F,3), or sequences of both; ``K`` (3,3) or (N,3,3) in
    pixels. InputError as for ``ZBuffer.rasterize``.
    """
    batch = make_batch(points, faces, K, height, width)
    out = np.empty(batch.shape, np.bool_)
    bad = np.zeros(len(batch), np.bool_)
    start = batch.vertices.start

    def some(first: int, last: int) -> None:
        most = max(start[n + 1] - start[n] for n in range(first, last))
        work = np.empty((most, 3)), np.empty((most, 3)), np.empty((most, 2), np.int32)
        for n in range(first, last):
            bad[n] = _mask(batch.vertices.of(batch.points, n), batch.faces[n], batch.K[n], NEAR, *work, out[n])

    if len(batch):
        _jit.run_all(some, _jit.ranges(len(batch), _jit.thread_count()))
    if bad.any():
        inputs.refuse_not_finite()
    return out


# --- kernels ----------------------------------------------------------------------------------------------------------


@kernel
def _cell(value, size):
    """The first pixel whose centre is not below ``value``, inside 0..size; 0 for what is not a number."""
    value = value if value > 0.0 else 0.0
    return np.int32(np.ceil(min(value, size + 0.5) - 0.5))


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
    """Cut a triangle at the near plane: up to four corners (pixel x, y, 1/z) into ``out``; returns how many, and 0 for
    a triangle seen edge-on: cutting rounds, and what was a line may have an area afterwards."""
    i, j, k = triangle[0], triangle[1], triangle[2]
    turn = (
        pixel[i, 0] * (pixel[j, 1] * pixel[k, 2] - pixel[j, 2] * pixel[k, 1])
        + pixel[i, 1] * (pixel[j, 2] * pixel[k, 0] - pixel[j, 0] * pixel[k, 2])
        + pixel[i, 2] * (pixel[j, 0] * pixel[k, 1] - pixel[j, 1] * pixel[k, 0])
    )
    if turn == 0.0:
        return 0
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
def _visibility(pixel, screen, cell, faces, near, cull, face, inverse, width, top, bottom):
    """Rows top..bottom-1 of one view; ``face`` and ``inverse`` (H*W,)."""
    for q in range(top * width, bottom * width):
        face[q] = -1
        inverse[q] = 0.0
    for f in range(len(faces)):
        # Without a sign, an index is not tested for counting from the end.
        i, j, k = np.uint64(faces[f, 0]), np.uint64(faces[f, 1]), np.uint64(faces[f, 2])
        ri, rj, rk = cell[i, 1], cell[j, 1], cell[k, 1]
        if min(ri, rj, rk) < 0:
            if max(ri, rj, rk) >= 0:
                corner = np.empty((4, 3))
                for m in range(2, _clip(pixel, screen, near, faces[f], corner)):
                    _fill_corners(corner, m, f, cull, face, inverse, width, top, bottom)
        elif max(min(ri, rj, rk), top) < min(max(ri, rj, rk), bottom) and _wide(cell, i, j, k):
            _fill(screen, i, j, k, ri, rj, rk, f, cull, face, inverse, width, top, bottom)


@inlined
def _wide(cell, i, j, k):
    """Is there a column whose centre lies between the corners."""
    return min(cell[i, 0], cell[j, 0], cell[k, 0]) < max(cell[i, 0], cell[j, 0], cell[k, 0])


@kernel
def _fill_corners(corner, m, f, cull, face, inverse, width, top, bottom):
    """Draw the triangle of corners 0, m - 1 and m."""
    a, b, c = _cell(corner[0, 1], bottom), _cell(corner[m - 1, 1], bottom), _cell(corner[m, 1], bottom)
    _fill(corner, np.uint64(0), np.uint64(m - 1), np.uint64(m), a, b, c, f, cull, face, inverse, width, top, bottom)


@inlined
def _fill(screen, i, j, k, ri, rj, rk, f, cull, face, inverse, width, top, bottom):
    """Draw the triangle i, j, k, whose corners lie in rows ri, rj, rk; the larger 1/z wins."""
    i, j, k, ri, rj, rk, odd = _by_row(i, j, k, ri, rj, rk)
    ax, ay, az = screen[i, 0], screen[i, 1], screen[i, 2]
    bx, by, bz = screen[j, 0] - ax, screen[j, 1] - ay, screen[j, 2] - az
    cx, cy, cz = screen[k, 0] - ax, screen[k, 1] - ay, screen[k, 2] - az
    area = bx * cy - by * cx
    # y points down: counter-clockwise from outside is negative.
    if bx * cy == by * cx or (cull and (area > 0.0) != odd):
        return
    scale = 1.0 / area
    zx, zy = (bz * cy - cz * by) * scale, (cz * bx - bz * cx) * scale
    zc = az + (0.5 - ax) * zx + (0.5 - ay) * zy
    long_at, long_by, upper_at, upper_by, lower_at, lower_by = _sides(screen, i, j, k, ri, rj, rk)
    for row in range(max(ri, top), min(rk, bottom)):
        short_at, short_by = (upper_at, upper_by) if row < rj else (lower_at, lower_by)
        first, last = _cell(long_at + row * long_by, width), _cell(short_at + row * short_by, width)
        first, last = min(first, last), max(first, last)
        z_row = zc + row * zy
        start = np.uint64(row * width)
        for column in range(first, last):
            z = np.float32(z_row + column * zx)
            q = start + np.uint64(column)
            if z > inverse[q]:
                inverse[q] = z
                face[q] = f


@inlined
def _by_row(i, j, k, ri, rj, rk):
    """The corners from top to bottom, their rows, and whether that turned the triangle over."""
    first = ri > rj
    i, j, ri, rj = (j, i, rj, ri) if first else (i, j, ri, rj)
    second = rj > rk
    j, k, rj, rk = (k, j, rk, rj) if second else (j, k, rj, rk)
    third = ri > rj
    i, j, ri, rj = (j, i, rj, ri) if third else (i, j, ri, rj)
    return i, j, k, ri, rj, rk, first ^ second ^ third


@inlined
def _sides(screen, i, j, k, ri, rj, rk):
    """Where the long edge and the two short ones cross the centre line of a row: at + row * by, one pair each.

    Every edge runs from its upper to its lower corner, whichever triangle asks: both get the same bits.
    """
    ax, ay, bx, by, cx, cy = screen[i, 0], screen[i, 1], screen[j, 0], screen[j, 1], screen[k, 0], screen[k, 1]
    long_by = (cx - ax) / (cy - ay)
    upper_by = (bx - ax) / (by - ay) if ri < rj else 0.0
    lower_by = (cx - bx) / (cy - by) if rj < rk else 0.0
    return (
        ax + (0.5 - ay) * long_by, long_by, ax + (0.5 - ay) * upper_by, upper_by, bx + (0.5 - by) * lower_by, lower_by,
    )  # fmt: skip


@kernel
def _mask(points, faces, K, near, pixel, screen, cell, out):
    """One view's mask, with room for its vertices; returns True when a point is not finite."""
    height, width = out.shape
    bad = _project(points, K, near, height, width, pixel, screen, cell)
    out[:] = False
    for f in range(len(faces)):
        i, j, k = np.uint64(faces[f, 0]), np.uint64(faces[f, 1]), np.uint64(faces[f, 2])
        ri, rj, rk = cell[i, 1], cell[j, 1], cell[k, 1]
        if min(ri, rj, rk) < 0:
            if max(ri, rj, rk) >= 0:
                corner = np.empty((4, 3))
                for m in range(2, _clip(pixel, screen, near, faces[f], corner)):
                    rows = _cell(corner[0, 1], height), _cell(corner[m - 1, 1], height), _cell(corner[m, 1], height)
                    _cover(corner, np.uint64(0), np.uint64(m - 1), np.uint64(m), rows[0], rows[1], rows[2], out)
        elif min(ri, rj, rk) < max(ri, rj, rk) and _wide(cell, i, j, k):
            _cover(screen, i, j, k, ri, rj, rk, out)
    return bad


@kernel
def _cover(screen, i, j, k, ri, rj, rk, out):
    """``_fill`` without depth."""
    i, j, k, ri, rj, rk, _ = _by_row(i, j, k, ri, rj, rk)
    bx, by = screen[j, 0] - screen[i, 0], screen[j, 1] - screen[i, 1]
    if bx * (screen[k, 1] - screen[i, 1]) == by * (screen[k, 0] - screen[i, 0]):
        return
    width = out.shape[1]
    long_at, long_by, upper_at, upper_by, lower_at, lower_by = _sides(screen, i, j, k, ri, rj, rk)
    for row in range(ri, rk):
        short_at, short_by = (upper_at, upper_by) if row < rj else (lower_at, lower_by)
        first, last = _cell(long_at + row * long_by, width), _cell(short_at + row * short_by, width)
        for column in range(min(first, last), max(first, last)):
            out[row, column] = True
