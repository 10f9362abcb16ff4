"""Several views as one batch: each shows the same mesh moved, or a mesh of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from v2m4.render import inputs


@dataclass(frozen=True)
class Slices:
    """Rows of one packed array (P,...) that belong to N views. ``start`` has N+1 entries; where all views share the
    same rows, ``shared`` is set and ``start`` is (0, P)."""

    start: tuple[int, ...]
    shared: bool = False

    def of(self, packed: Any, n: int) -> Any:
        """The rows of view ``n``."""
        n = 0 if self.shared else n
        return packed[self.start[n] : self.start[n + 1]]

    @classmethod
    def of_lengths(cls, lengths: Sequence[int]) -> Slices:
        return cls(tuple(int(x) for x in np.cumsum([0, *lengths])))


@dataclass(frozen=True)
class Batch:
    """N views of meshes, checked. ``points`` (P,3) float32 or float64, the vertices of all views one after the other in
    camera coordinates; ``vertices`` says which belong to which view. ``faces`` one (F,3) int32 a view, numbered inside
    the view, the very same array where views share it. ``K`` (N,3,3) float64. ``height``, ``width`` in pixels."""

    points: np.ndarray
    vertices: Slices
    faces: Sequence[np.ndarray]
    K: np.ndarray
    height: int
    width: int
    shared: bool = field(default=True)  #: do all views share one face list

    def __len__(self) -> int:
        return len(self.K)

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.K), self.height, self.width


def make_batch(points: Any, faces: Any, K: Any, height: int, width: int, keep_double: bool = False) -> Batch:
    """What every entry of the renderer takes -> Batch.

    ``points`` (N,V,3) or (V,3) with one ``faces`` (F,3); or sequences of N points (V_n,3) and N faces (F_n,3). ``K``
    (3,3) or (N,3,3). Points become float32, or stay float64 where ``keep_double`` is set. InputError when shapes,
    indices, intrinsics or the size do not fit; points that are not finite are noticed when they are projected.
    """
    inputs.check_size(height, width)
    if not is_sequence(points):
        packed = inputs.check_points(points, keep_double)
        views, count = packed.shape[:2]
        one = inputs.check_faces(faces, count)
        slices = Slices(tuple(count * n for n in range(views + 1)))
        return Batch(
            packed.reshape(-1, 3), slices, [one] * views, inputs.check_intrinsics(K, views), height, width, shared=True
        )
    if not is_sequence(faces) or len(faces) != len(points):
        raise inputs.InputError(f"{len(points)} meshes need as many face lists", inputs.ONE_EACH)
    for p in points:
        if p.ndim != 2:
            raise inputs.InputError(
                f"the points of one mesh must have the shape (V,3), not {tuple(p.shape)}",
                "for many views of one mesh give one array (N,V,3) instead of a list",
            )
    each = [inputs.check_points(p, keep_double)[0] for p in points]
    lists = [inputs.check_faces(f, len(p)) for f, p in zip(faces, each, strict=True)]
    packed = np.concatenate(each) if each else np.zeros((0, 3), np.float32)
    slices = Slices.of_lengths([len(p) for p in each])
    return Batch(packed, slices, lists, inputs.check_intrinsics(K, len(each)), height, width, shared=False)


def is_sequence(value: Any) -> bool:
    """A list or tuple of arrays (not a nested list of numbers): one for each view."""
    return isinstance(value, (list, tuple)) and (not value or hasattr(value[0], "shape"))
