"""A painted room around an object, for tests of a camera that travels."""

from __future__ import annotations

import cv2
import numpy as np

from v2m4.types import Mesh


def room(seed: int = 0, cells: int = 90) -> Mesh:
    """In the axes of a camera at the origin (y down, z forward): a wall at 7, a floor at 0.9 below, a board at the
    side. Seen from both sides."""
    rng = np.random.default_rng(seed)
    vertices, faces, colors = [], [], []
    wall = (-5, -4, 7), (10, 0, 0), (0, 6, 0)
    floor = (-5, 0.9, 1), (10, 0, 0), (0, 0, 6)
    board = (2, -2, 4), (0, 3, 0), (0.5, 0, 2)
    grid = np.arange(cells * cells).reshape(cells, cells)
    a, b, c, d = (part.ravel() for part in (grid[:-1, :-1], grid[1:, :-1], grid[:-1, 1:], grid[1:, 1:]))
    triangles = np.concatenate([np.stack([a, b, c], 1), np.stack([b, d, c], 1)])
    for number, (origin, along, across) in enumerate((wall, floor, board)):
        u, v = np.meshgrid(np.linspace(0, 1, cells), np.linspace(0, 1, cells))
        vertices.append((np.array(origin) + u[..., None] * along + v[..., None] * across).reshape(-1, 3))
        faces.append(triangles + number * cells * cells)
        coarse = rng.integers(0, 256, (cells // 2, cells // 2, 3), dtype=np.uint8)
        colors.append(cv2.resize(coarse, (cells, cells), interpolation=cv2.INTER_CUBIC).reshape(-1, 3))
    both = np.concatenate(faces)
    return Mesh(np.concatenate(vertices), np.concatenate([both, both[:, ::-1]]), np.concatenate(colors))
