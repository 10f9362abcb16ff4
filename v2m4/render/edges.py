"""The edges of a face list, for finding silhouettes."""

from __future__ import annotations

from typing import Any

import numpy as np

from v2m4.render import inputs


class Edges:
    """Every edge of a face list once, with the faces that meet there. Build it once per topology.

    ``ends`` (E,2) int32, lower vertex first. ``start`` (E+1,) int32 and ``sides`` (3F,) int32: edge e is part of the
    faces ``sides[start[e]:start[e+1]] >> 1``; the lowest bit is 1 where the face runs through it from the higher to
    the lower vertex. Two faces for an ordinary edge, one at a boundary, more where the mesh is not a manifold.
    ``faces`` (F,3) int32: a copy of the list it was built from.
    """

    def __init__(self, faces: Any) -> None:
        faces = inputs.as_numpy(faces, np.int32).reshape(-1, 3)
        self.faces = faces.copy()
        ends = faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2).astype(np.int64)
        backwards = ends[:, 0] > ends[:, 1]
        low, high = ends.min(1), ends.max(1)
        key = low * (int(high.max()) + 1 if len(high) else 1) + high
        order = np.argsort(key, kind="stable")
        new = np.ones(len(key), bool)
        new[1:] = np.diff(key[order]) != 0
        first = np.flatnonzero(new)
        self.ends = np.stack([low, high], 1)[order[first]].astype(np.int32)
        self.start = np.append(first, len(key)).astype(np.int32)
        self.sides = ((order // 3) * 2 + backwards[order]).astype(np.int32)
