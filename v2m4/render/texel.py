"""Texture lookup: bilinear, and trilinear in a pyramid of halved pictures where the texture is minified.

UV is glTF's: (0, 0) is the top left corner of the picture, and on every level of the pyramid texel (row, column) has
its centre at ((column + 0.5) / w, (row + 0.5) / h). Arrays over pixels are (M,R,W,...): M textures, and for each of
them R rows of W pixels, the views that share a texture one below the other.
"""

from __future__ import annotations

import math

import numpy as np

from v2m4.errors import InputError
from v2m4.render import _jit
from v2m4.render._jit import kernel
from v2m4.render.pyramid import Pyramid

#: Pixels are visited in squares of this side: neighbours in the texture stay in the processor's cache, turned or not.
TILE = 16


def bilinear(picture: np.ndarray, uv: np.ndarray) -> np.ndarray:
    """``picture`` (h,w,C) and ``uv`` (P,2) -> (P,C), all float32; beyond the edge the outermost texels go on.

    InputError when a UV is not finite.
    """
    pyramid = Pyramid.flat(np.ascontiguousarray(picture, np.float32)[None])
    return sample(pyramid, np.ascontiguousarray(uv, np.float32)[None, None], None, repeat=False)[0, 0]


def levels(slopes: np.ndarray, height: int, width: int) -> np.ndarray:
    """The level of a texture of h x w texels at which a pixel is one texel wide: (M,R,W) float32.

    ``slopes`` (M,R,W,2,2) float32: change of (u, v) per pixel to the right and per pixel down, in the last index. The
    level is the binary logarithm of the longer of the two steps in texels, between 0 and that of a single texel.
    InputError when a slope is NaN.
    """
    out = np.empty(slopes.shape[:-2], np.float32)
    flat, top = slopes.reshape(-1, 2, 2), float(max(height, width).bit_length() - 1)
    _jit.run_all(
        lambda *part: _levels(flat, float(height), float(width), top, out.reshape(-1), *part),
        _jit.ranges(len(flat), _jit.thread_count()),
    )
    if np.isnan(out.sum()):
        raise InputError("texture slopes have values that are NaN", "look at what computed them")
    return out


def sample(pyramid: Pyramid, uv: np.ndarray, level: np.ndarray | None, *, repeat: bool) -> np.ndarray:
    """Colours (M,R,W,C) at ``uv`` (M,R,W,2) and ``level`` (M,R,W); None: at level 0 everywhere.

    InputError when a UV is not finite.
    """
    out = np.empty((*uv.shape[:3], pyramid.texels.shape[-1]), pyramid.texels.dtype)
    not_finite = []

    def some(m: int, low: int, high: int) -> None:
        if not _sample(pyramid.texels[m], pyramid.table, uv[m], _of(level, m), repeat, out[m], low, high):
            not_finite.append(m)

    _jit.run_all(some, _tasks(uv))
    if not_finite:
        raise InputError("UV coordinates have values that are NaN or infinite", "look at what computed them")
    return out


def gradient_of_uv(
    pyramid: Pyramid, uv: np.ndarray, level: np.ndarray | None, grad: np.ndarray, *, repeat: bool
) -> np.ndarray:
    """``grad`` (M,R,W,C) with respect to what ``sample`` gave -> (M,R,W,2) with respect to ``uv``."""
    out = np.empty_like(uv)

    def some(m: int, low: int, high: int) -> None:
        arrays = uv[m], _of(level, m), grad[m], out[m]
        _gradient_of_uv(pyramid.texels[m], pyramid.table, *arrays, repeat, low, high)

    _jit.run_all(some, _tasks(uv))
    return out


def gradient_of_pictures(
    table: np.ndarray, uv: np.ndarray, level: np.ndarray | None, grad: np.ndarray, *, repeat: bool
) -> np.ndarray:
    """``grad`` (M,R,W,C) with respect to what ``sample`` gave -> (M,h,w,C) with respect to the textures.

    Every thread walks over all pixels and adds to the texture rows that are its own: no further buffers are needed, and
    every texel sums its pixels in the same order, whatever the number of threads.
    """
    texels = np.zeros((len(uv), table[:, 1] @ table[:, 2], grad.shape[-1]), grad.dtype)
    parts = _parts(uv)

    def add(m: int, top: int, bottom: int) -> None:
        _gradient_of_texels(texels[m], table, uv[m], _of(level, m), grad[m], repeat, top, bottom)

    _jit.run_all(add, [(m, *rows) for m in range(len(uv)) for rows in _rows_of(uv[m], int(table[0, 1]), repeat, parts)])
    return Pyramid(texels, table).fold()


def _rows_of(uv: np.ndarray, height: int, repeat: bool, parts: int) -> list[tuple[int, int]]:
    """A texture's rows cut in ``parts``, so that about as many pixels look at each."""
    v = uv.reshape(-1, 2)[:: max(1, uv.size // 8192), 1].astype(np.float64)
    if parts == 1 or not len(v):
        return [(0, height)]
    v = v - np.floor(v) if repeat else np.clip(v, 0, 1)
    inner = (np.quantile(v, np.arange(1, parts) / parts) * height).astype(int).tolist()
    return list(zip([0, *inner], [*inner, height], strict=True))


def _of(level: np.ndarray | None, m: int) -> np.ndarray:
    return np.empty((0, 0), np.float32) if level is None else level[m]


def _parts(uv: np.ndarray) -> int:
    """Into how many parts the work on one texture is cut: few pixels are not worth another thread."""
    return -(-_jit.thread_count() // max(len(uv), 1)) if uv.size > 10_000 else 1


def _tasks(uv: np.ndarray) -> list[tuple[int, int, int]]:
    """(texture, first tile, end)."""
    tiles = -(-uv.shape[1] // TILE) * -(-uv.shape[2] // TILE)
    return [(m, *part) for m in range(len(uv)) for part in _jit.ranges(tiles, _parts(uv))]


@kernel
def _levels(slopes, height, width, top, out, first, last):
    for i in range(first, last):
        right_x, right_y = slopes[i, 0, 0] * width, slopes[i, 1, 0] * height
        down_x, down_y = slopes[i, 0, 1] * width, slopes[i, 1, 1] * height
        right, down = right_x * right_x + right_y * right_y, down_x * down_x + down_y * down_y
        longer = right if right > down else down
        if np.isnan(right + down):
            out[i] = np.nan
        else:
            out[i] = min(0.5 * math.log2(longer), top) if longer > 1.0 else 0.0


@kernel
def _axis(position, size, repeat):
    """A coordinate, 0..1 along ``size`` texels -> the two neighbouring texels and how far between their centres."""
    if repeat:
        position -= np.floor(position)
    x = position * size - 0.5
    x = x if x > -1.0 else -1.0  # NaN ends here too
    x = x if x < size else float(size)
    low = int(x + 1.0) - 1
    share, high, last = x - low, low + 1, size - 1
    if low < 0:
        low = last if repeat else 0
    if high > last:
        high = 0 if repeat else last
    return min(low, last), high, share


@kernel
def _corners(table, k, u, v, repeat):
    """The four texels of level ``k`` around a UV, and where between them it is, across and down.

    Indices without a sign: numba then need not look for those counted from the end.
    """
    offset, height, width = table[k, 0], table[k, 1], table[k, 2]
    left, right, x = _axis(u, width, repeat)
    upper, lower, y = _axis(v, height, repeat)
    upper, lower = offset + upper * width, offset + lower * width
    return np.uint64(upper + left), np.uint64(upper + right), np.uint64(lower + left), np.uint64(lower + right), x, y


@kernel
def _tile(tile, rows, columns):
    """Top, bottom, left and right of a tile."""
    across = (columns + TILE - 1) // TILE
    top, left = tile // across * TILE, tile % across * TILE
    return top, min(top + TILE, rows), left, min(left + TILE, columns)


@kernel
def _sample(texels, table, uv, level, repeat, out, first, last):
    """Tiles first..last-1. Returns False when a UV is not finite."""
    finite = True
    share = 0.0
    for tile in range(first, last):
        top, bottom, left, right = _tile(tile, uv.shape[0], uv.shape[1])
        for row in range(top, bottom):
            for column in range(left, right):
                u, v = float(uv[row, column, 0]), float(uv[row, column, 1])
                finite &= np.isfinite(u) & np.isfinite(v)
                finest = 0
                if level.size:
                    finest = int(level[row, column])
                    share = level[row, column] - float(finest)
                for k in range(finest, finest + 2 if share > 0.0 else finest + 1):
                    a, b, c, d, x, y = _corners(table, k, u, v, repeat)
                    weight = share if k > finest else 1.0 - share
                    wa, wb = weight * (1.0 - y) * (1.0 - x), weight * (1.0 - y) * x
                    wc, wd = weight * y * (1.0 - x), weight * y * x
                    if k == finest:
                        for n in range(out.shape[2]):
                            value = wa * texels[a, n] + wb * texels[b, n] + wc * texels[c, n] + wd * texels[d, n]
                            out[row, column, n] = value
                    else:
                        for n in range(out.shape[2]):
                            value = wa * texels[a, n] + wb * texels[b, n] + wc * texels[c, n] + wd * texels[d, n]
                            out[row, column, n] += value
    return finite


@kernel
def _gradient_of_uv(texels, table, uv, level, grad, out, repeat, first, last):
    """Tiles first..last-1."""
    share = 0.0
    for tile in range(first, last):
        top, bottom, left, right = _tile(tile, uv.shape[0], uv.shape[1])
        for row in range(top, bottom):
            for column in range(left, right):
                gu, gv = 0.0, 0.0
                if _some(grad, row, column):
                    u, v = float(uv[row, column, 0]), float(uv[row, column, 1])
                    finest = 0
                    if level.size:
                        finest = int(level[row, column])
                        share = level[row, column] - float(finest)
                    for k in range(finest, finest + 2 if share > 0.0 else finest + 1):
                        a, b, c, d, x, y = _corners(table, k, u, v, repeat)
                        weight = share if k > finest else 1.0 - share
                        gx, gy = 0.0, 0.0
                        for n in range(grad.shape[2]):
                            g = float(grad[row, column, n])
                            ta, tb, tc, td = texels[a, n], texels[b, n], texels[c, n], texels[d, n]
                            gx += g * ((tb - ta) * (1.0 - y) + (td - tc) * y)
                            gy += g * ((tc - ta) * (1.0 - x) + (td - tb) * x)
                        gu += weight * table[k, 2] * gx
                        gv += weight * table[k, 1] * gy
                out[row, column, 0], out[row, column, 1] = gu, gv


@kernel
def _gradient_of_texels(texels, table, uv, level, grad, repeat, first, end):
    """Add to the texture's rows first..end-1, and on other levels to those that begin in them."""
    share = 0.0
    for tile in range(-(-uv.shape[0] // TILE) * -(-uv.shape[1] // TILE)):
        top, bottom, left, right = _tile(tile, uv.shape[0], uv.shape[1])
        for row in range(top, bottom):
            for column in range(left, right):
                u, v = float(uv[row, column, 0]), float(uv[row, column, 1])
                finest = 0
                if level.size:
                    finest = int(level[row, column])
                    share = level[row, column] - float(finest)
                for k in range(finest, finest + 2 if share > 0.0 else finest + 1):
                    offset, height, width = table[k, 0], table[k, 1], table[k, 2]
                    weight = share if k > finest else 1.0 - share
                    j0, j1, y = _axis(v, height, repeat)
                    upper = first <= j0 * table[0, 1] // height < end
                    lower = first <= j1 * table[0, 1] // height < end
                    if not (upper or lower) or not _some(grad, row, column):
                        continue
                    i0, i1, x = _axis(u, width, repeat)
                    j0, j1 = offset + j0 * width, offset + j1 * width
                    a, b, c, d = np.uint64(j0 + i0), np.uint64(j0 + i1), np.uint64(j1 + i0), np.uint64(j1 + i1)
                    wa, wb = weight * (1.0 - y) * (1.0 - x), weight * (1.0 - y) * x
                    wc, wd = weight * y * (1.0 - x), weight * y * x
                    if upper:
                        for n in range(grad.shape[2]):
                            texels[a, n] += wa * grad[row, column, n]
                            texels[b, n] += wb * grad[row, column, n]
                    if lower:
                        for n in range(grad.shape[2]):
                            texels[c, n] += wc * grad[row, column, n]
                            texels[d, n] += wd * grad[row, column, n]


@kernel
def _some(grad, row, column):
    """Is there anything but zeros in this pixel."""
    some = False
    for n in range(grad.shape[2]):
        some |= grad[row, column, n] != 0
    return some
