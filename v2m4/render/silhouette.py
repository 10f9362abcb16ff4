"""Silhouette antialiasing that walks edges, not pixels, so that it holds for triangles smaller than a pixel.

Every silhouette edge is followed along its steeper axis. Where it crosses the line between two neighbouring pixel
centres, the inner one ``a`` and the outer one ``b``, at the share t of the way from a to b, w = t - 1/2 says how far
the surface reaches over (or stays short of) the border of the two pixels: the one it reaches into becomes a blend,
``to += w (a - b)``. The blend follows the edge's two vertices smoothly, which is the silhouette's gradient; of several
crossings between the same two pixels the outermost counts. Idea: Laine et al. 2020 (modular primitives), turned from
pixels to edges.
"""

from __future__ import annotations

import math

import numpy as np

from v2m4.render._jit import kernel
from v2m4.render.edges import Edges
from v2m4.render.zbuffer import NEAR

#: An edge is in front of what the outer pixel shows when its 1/z is larger by this share.
OUTER_MARGIN = 1e-4
#: An edge is hidden when what the inner pixel shows is nearer than the edge by more than this share of its depth.
INNER_MARGIN = 0.15


class Crossings:
    """Where silhouette edges of one view pass between two pixel centres; arrays of length M.

    ``inner``, ``outer`` int32 flat pixel numbers, ``edge`` int32, ``weight`` float64 in [-1/2, 1/2],
    ``at`` (M,2) float64 the pixel position of the crossing, ``axis`` int8: 0 beside each other, 1 above each other,
    ``sign`` int8: +1 when the outer pixel is to the right or below. ``share`` float64: filled by ``blend``.
    """

    def __init__(self, capacity: int) -> None:
        self.inner = np.empty(capacity, np.int32)
        self.outer = np.empty(capacity, np.int32)
        self.edge = np.empty(capacity, np.int32)
        self.weight = np.empty(capacity, np.float64)
        self.at = np.empty((capacity, 2), np.float64)
        self.axis = np.empty(capacity, np.int8)
        self.sign = np.empty(capacity, np.int8)
        self.share = np.empty(capacity, np.float64)

    def arrays(self) -> tuple[np.ndarray, ...]:
        """In the order the kernels take them (all but ``share``)."""
        return self.inner, self.outer, self.edge, self.weight, self.at, self.axis, self.sign

    def cut(self, count: int) -> Crossings:
        """Keep the first ``count``."""
        for name, value in vars(self).items():
            setattr(self, name, value[:count].copy())
        return self


def find_crossings(
    pixel: np.ndarray, screen: np.ndarray, faces: np.ndarray, edges: Edges, inverse: np.ndarray, cull: bool
) -> Crossings:
    """Crossings of one view: ``pixel`` and ``screen`` (V,3), ``inverse`` (H,W) the inverse depth seen by each pixel.

    ``cull``: faces seen from behind were not drawn, so an edge between one of them and another face is a border.
    """
    facing = np.empty(len(faces), np.int8)
    _facing(pixel, screen, faces, cull, facing)
    table = (edges.ends, edges.start, edges.sides)
    found = np.empty(len(edges.ends), np.int32)
    side = np.empty(len(edges.ends), np.int8)
    count, capacity = _silhouettes(pixel, facing, table, NEAR, inverse.shape[0], inverse.shape[1], found, side)
    out = Crossings(capacity)
    return out.cut(_walk(pixel, edges.ends, found[:count], side, NEAR, inverse, out.arrays()))


def blend_all(image: np.ndarray, found: Crossings) -> np.ndarray:
    """Blend ``image`` (H,W,C) in place; (M,C) inner minus outer before that."""
    difference = np.empty((len(found.inner), image.shape[-1]), image.dtype)
    flat = image.reshape(-1, image.shape[-1])
    blend(flat, found.inner, found.outer, found.weight, found.share, difference)
    return difference


@kernel
def _facing(pixel, screen, faces, cull, facing):
    """+1, -1 or 0: how the faces turn on screen (+1: towards y from x, away from the viewer for a closed surface)."""
    for f in range(len(faces)):
        i, j, k = faces[f, 0], faces[f, 1], faces[f, 2]
        if screen[i, 2] > 0.0 and screen[j, 2] > 0.0 and screen[k, 2] > 0.0:
            ax, ay = screen[i, 0], screen[i, 1]
            turn = (screen[j, 0] - ax) * (screen[k, 1] - ay) - (screen[j, 1] - ay) * (screen[k, 0] - ax)
        else:  # a corner is behind the camera: the same sign from homogeneous coordinates
            turn = (
                pixel[i, 0] * (pixel[j, 1] * pixel[k, 2] - pixel[j, 2] * pixel[k, 1])
                + pixel[i, 1] * (pixel[j, 2] * pixel[k, 0] - pixel[j, 0] * pixel[k, 2])
                + pixel[i, 2] * (pixel[j, 0] * pixel[k, 1] - pixel[j, 1] * pixel[k, 0])
            )
        facing[f] = (turn > 0.0 and not cull) - (turn < 0.0)


@kernel
def _segment(pixel, ends, e, near):
    """The part of edge ``e`` in front of the near plane as pixel x, y, 1/z of both ends; 1/z = 0 when there is none."""
    i, j = ends[e, 0], ends[e, 1]
    ax, ay, az = pixel[i, 0], pixel[i, 1], pixel[i, 2]
    bx, by, bz = pixel[j, 0], pixel[j, 1], pixel[j, 2]
    if az <= near and bz <= near:
        return 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    if az <= near:
        t = (bz - near) / (bz - az)
        ax, ay, az = bx + t * (ax - bx), by + t * (ay - by), near
    elif bz <= near:
        t = (az - near) / (az - bz)
        bx, by, bz = ax + t * (bx - ax), ay + t * (by - ay), near
    ia, ib = 1.0 / az, 1.0 / bz
    return ax * ia, ay * ia, ia, bx * ib, by * ib, ib


@kernel
def _span(low, high, size):
    """The pixel rows (or columns) whose centre lies in [low, high), cut to 0..size-1, as a half-open range."""
    if low > high:
        low, high = high, low
    first = max(math.ceil(low - 0.5), 0.0)
    last = min(math.ceil(high - 0.5), float(size))
    if not first < last:
        return 0, 0
    return int(first), int(last)


@kernel
def _silhouettes(pixel, facing, table, near, height, width, found, side):
    """List the edges whose faces all lie on one side of them on screen; returns how many and how many pixel lines
    they cross at most. ``side`` says which side: +1 when the surface lies to the left of low -> high vertex in a
    system with x right and y up."""
    ends, start, sides = table
    count, capacity = 0, 0
    for e in range(len(ends)):
        positive, negative = False, False
        for s in range(start[e], start[e + 1]):
            turn = facing[sides[s] >> 1] * (1 - 2 * (sides[s] & 1))  # no branch: it could not be foreseen
            positive |= turn > 0
            negative |= turn < 0
        if positive == negative:  # seen from both sides, or nothing but faces seen edge-on
            continue
        ax, ay, ia, bx, by, _ = _segment(pixel, ends, e, near)
        if ia == 0.0:
            continue
        if abs(by - ay) >= abs(bx - ax):
            first, last = _span(ay, by, height)
        else:
            first, last = _span(ax, bx, width)
        if first < last:
            found[count] = e
            side[count] = 1 if positive else -1
            count += 1
            capacity += last - first
    return count, capacity


@kernel
def _walk(pixel, ends, found, side, near, inverse, out):
    """Follow every silhouette edge and write its visible crossings; returns how many there are."""
    inner, outer, edge, weight, at, axis, sign = out
    height, width = inverse.shape
    table_size = 16
    while table_size < 2 * len(inner):
        table_size *= 2
    table = np.full(table_size, -1, np.int32)
    count = 0
    for m in range(len(found)):
        ax, ay, ia, bx, by, ib = _segment(pixel, ends, found[m], near)
        dx, dy = bx - ax, by - ay
        steep = abs(dy) >= abs(dx)
        first, last = _span(ay, by, height) if steep else _span(ax, bx, width)
        # Is the surface on the side of the larger x (steep) or y?
        plus = side[m] * (-dy if steep else dx) > 0
        for line in range(first, last):
            if steep:
                t = (line + 0.5 - ay) / dy
                cx, cy = ax + t * dx, line + 0.5
                low = math.floor(cx - 0.5)
                if not (0 <= low < width - 1):
                    continue
                pair, step = line * width + int(low), 1
                share = cx - 0.5 - low
            else:
                t = (line + 0.5 - ax) / dx
                cx, cy = line + 0.5, ay + t * dy
                low = math.floor(cy - 0.5)
                if not (0 <= low < height - 1):
                    continue
                pair, step = int(low) * width + line, width
                share = cy - 0.5 - low
            a, b = (pair + step, pair) if plus else (pair, pair + step)
            depth = ia + t * (ib - ia)
            if inverse[b // width, b % width] * (1.0 + OUTER_MARGIN) >= depth:
                continue  # the outer pixel shows something in front of this edge, or this very surface
            if inverse[a // width, a % width] * (1.0 - INNER_MARGIN) > depth:
                continue  # the inner pixel shows something well in front: the edge is hidden
            w = (1.0 - share if plus else share) - 0.5
            slot = ((pair * 4 + 2 * (0 if steep else 1) + (1 if plus else 0)) * 2654435761) & (table_size - 1)
            while table[slot] >= 0 and not (inner[table[slot]] == a and outer[table[slot]] == b):
                slot = (slot + 1) & (table_size - 1)
            k = table[slot]
            if k < 0:
                k = count
                table[slot] = k
                count += 1
            elif w <= weight[k]:
                continue  # another edge reaches further out
            inner[k], outer[k], edge[k], weight[k] = a, b, found[m], w
            at[k, 0], at[k, 1] = cx, cy
            axis[k] = 0 if steep else 1
            sign[k] = -1 if plus else 1
    return count


@kernel
def compose(color, face, image, top, bottom):
    """Rows of ``image`` (H,W,C+1): ``color`` (H,W,C) and coverage 1 where there is a face, 0 elsewhere."""
    channels = color.shape[2]
    for row in range(top, bottom):
        for column in range(face.shape[1]):
            seen = face[row, column] >= 0
            for c in range(channels):
                image[row, column, c] = color[row, column, c] if seen else 0.0
            image[row, column, channels] = seen


@kernel
def decompose(grad, face, grad_color, top, bottom):
    """The gradient of ``compose`` for rows of ``grad_color`` (H,W,C)."""
    for row in range(top, bottom):
        for column in range(face.shape[1]):
            seen = face[row, column] >= 0
            for c in range(grad_color.shape[2]):
                grad_color[row, column, c] = grad[row, column, c] if seen else 0.0


@kernel
def blend(image, inner, outer, weight, share, difference):
    """Blend ``image`` (P,C) in place.

    ``difference`` (M,C) receives inner minus outer before blending; ``share`` (M,) what each crossing counts: less than
    1 where the crossings around one pixel ask for more than all of it, so that the result is never outside the colours
    that are mixed (coverage stays in [0, 1]).
    """
    asked = np.empty(len(image))  # read only where it was set
    for m in range(len(inner)):
        asked[outer[m] if weight[m] > 0 else inner[m]] = 0.0
    for m in range(len(inner)):
        for c in range(image.shape[1]):
            difference[m, c] = image[inner[m], c] - image[outer[m], c]
        asked[outer[m] if weight[m] > 0 else inner[m]] += abs(weight[m])
    for m in range(len(inner)):
        to = outer[m] if weight[m] > 0 else inner[m]
        share[m] = 1.0 / max(asked[to], 1.0)
        w = weight[m] * share[m]
        for c in range(image.shape[1]):
            image[to, c] += w * difference[m, c]


@kernel
def blend_backward(pixel, ends, crossings, share, difference, face, grad, grad_color, grad_pixel):
    """The gradient of ``blend``.

    ``grad`` (P,C+1) of the blended image -> added to ``grad_color`` (P,C), of the colour before (which starts as
    ``decompose`` leaves it), and to ``grad_pixel`` (V,3), with respect to ``pixel``. ``share`` is taken as constant:
    where it limits a pixel, the area still changes with every edge around it. ``face`` (P,).
    """
    channels = grad_color.shape[1]
    inner, outer, edge, weight, at, axis, sign = crossings
    for m in range(len(inner)):
        a, b = inner[m], outer[m]
        to = b if weight[m] > 0 else a
        w = weight[m] * share[m]
        g = float(grad[to, channels]) * difference[m, channels]
        for c in range(channels):
            g += float(grad[to, c]) * difference[m, c]
            if face[a] >= 0:
                grad_color[a, c] += w * grad[to, c]
            if face[b] >= 0:
                grad_color[b, c] -= w * grad[to, c]
        if g == 0.0:
            continue
        # The crossing lies on the line l = p x q through the two ends in homogeneous pixel coordinates.
        i, j = ends[edge[m], 0], ends[edge[m], 1]
        px, py, pz = pixel[i, 0], pixel[i, 1], pixel[i, 2]
        qx, qy, qz = pixel[j, 0], pixel[j, 1], pixel[j, 2]
        along = py * qz - pz * qy if axis[m] == 0 else pz * qx - px * qz
        g = -g * share[m] * sign[m] / along
        lx, ly, lz = g * at[m, 0], g * at[m, 1], g
        grad_pixel[i, 0] += qy * lz - qz * ly
        grad_pixel[i, 1] += qz * lx - qx * lz
        grad_pixel[i, 2] += qx * ly - qy * lx
        grad_pixel[j, 0] += ly * pz - lz * py
        grad_pixel[j, 1] += lz * px - lx * pz
        grad_pixel[j, 2] += lx * py - ly * px
