"""A texture and ever smaller versions of it, each texel the mean of the area it covers. Any size, down to one texel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from v2m4.render import _jit
from v2m4.render._jit import kernel


@dataclass(frozen=True)
class Pyramid:
    """``texels`` (M,T,C) of M textures, level after level; ``table`` (L,3): offset, height and width of each level."""

    texels: np.ndarray
    table: np.ndarray

    @staticmethod
    def flat(pictures: np.ndarray) -> Pyramid:
        """(M,h,w,C) -> level 0 alone, not copied."""
        textures, height, width, channels = pictures.shape
        return Pyramid(pictures.reshape(textures, height * width, channels), np.array([[0, height, width]]))

    @staticmethod
    def build(pictures: np.ndarray, levels: int) -> Pyramid:
        """(M,h,w,C) -> ``levels`` levels: each half as large, rounded down, a texel being the mean of its area."""
        textures, height, width, channels = pictures.shape
        sizes = np.array([(max(height >> k, 1), max(width >> k, 1)) for k in range(levels)])
        counts = sizes.prod(1)
        table = np.column_stack([np.cumsum(counts) - counts, sizes])
        pyramid = Pyramid(np.empty((textures, counts.sum(), channels), pictures.dtype), table)
        bands = _jit.ranges(height, _threads(height * width))

        def copy(m: int, top: int, bottom: int) -> None:
            pyramid.level(m, 0)[top:bottom] = pictures[m, top:bottom]

        _jit.run_all(copy, [(m, *band) for m in range(textures) for band in bands])
        pyramid.texels[:, counts[0] :] = 0
        for k in range(1, levels):
            pyramid._add(k - 1, k)
        return pyramid

    def fold(self) -> np.ndarray:
        """The other way, for gradients: each level gives to the finer one what it took its mean of -> (M,h,w,C)."""
        for k in range(len(self.table) - 1, 0, -1):
            self._add(k, k - 1)
        _, height, width = self.table[0]
        return self.texels[:, : height * width].reshape(len(self.texels), height, width, -1)

    def level(self, m: int, k: int) -> np.ndarray:
        """Texture ``m`` at level ``k`` as a picture (h,w,C), a view."""
        offset, height, width = self.table[k]
        return self.texels[m, offset : offset + height * width].reshape(height, width, -1)

    def _add(self, source: int, target: int) -> None:
        """Add level ``source`` to level ``target``, its neighbour, weighted by the area that two texels share."""
        (_, h, w), (_, to_h, to_w) = self.table[source], self.table[target]
        rows, columns = _overlap(h, to_h, self.texels.dtype), _overlap(w, to_w, self.texels.dtype)
        bands = _jit.ranges(to_h, _threads(to_h * to_w))
        _jit.run_all(
            lambda m, *band: _resample(self.level(m, source), self.level(m, target), *rows, *columns, *band),
            [(m, *band) for m in range(len(self.texels)) for band in bands],
        )


def _threads(texels: int) -> int:
    return _jit.thread_count() if texels > 10_000 else 1


def _overlap(source: int, target: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """One axis cut into ``source`` and into ``target`` texels: for each target texel the first source texel it touches
    (target,), and the lengths shared with that one and those after it (target,n), in units of the larger texel.
    """
    start = np.arange(target) * source  # in units of 1 / (source * target) of the axis
    count = int(((start + source - 1) // target - start // target).max()) + 1
    first = np.minimum(start // target, source - count)
    cell = (first[:, None] + np.arange(count)) * target
    shared = np.minimum(cell + target, start[:, None] + source) - np.maximum(cell, start[:, None])
    return first, (np.maximum(shared, 0) / max(source, target)).astype(dtype)


@kernel
def _resample(source, target, row_first, row_weight, column_first, column_weight, top, bottom):
    """Add to rows top..bottom-1 of ``target`` (h,w,C) the weighted texels of ``source``."""
    line = np.empty((source.shape[1], source.shape[2]), source.dtype)
    flat = line.reshape(-1)
    for row in range(top, bottom):
        flat[:] = 0
        for k in range(row_weight.shape[1]):
            weight = row_weight[row, k]
            from_row = source[row_first[row] + k].reshape(-1)
            for i in range(len(flat)):
                flat[i] += weight * from_row[i]
        for column in range(target.shape[1]):
            for k in range(column_weight.shape[1]):
                weight, j = column_weight[column, k], column_first[column] + k
                for c in range(target.shape[2]):
                    target[row, column, c] += weight * line[j, c]
