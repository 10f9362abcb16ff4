"""Assets for the tests of the export room."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from v2m4.types import AnimatedMesh, Texture

HERE = Path(__file__).parent


def closed_sphere(rings: int = 8, sides: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(vertices, faces, uv, uv_faces) of a closed sphere whose UV map is cut along one meridian and at the poles."""
    v, u = np.meshgrid(np.linspace(0, 1, rings + 1), np.linspace(0, 1, sides + 1), indexing="ij")
    uv = np.stack([u, v], -1).reshape(-1, 2).astype(np.float32)
    around, down = 2 * np.pi * u, np.pi * v
    points = np.stack([np.sin(down) * np.sin(around), np.cos(down), np.sin(down) * np.cos(around)], -1).reshape(-1, 3)
    weld = np.arange((rings + 1) * (sides + 1)).reshape(rings + 1, sides + 1)
    weld[:, -1] = weld[:, 0]
    weld[0], weld[-1] = weld[0, 0], weld[-1, 0]
    _, first, welded = np.unique(weld, return_index=True, return_inverse=True)
    grid = np.arange(weld.size).reshape(weld.shape)
    a, b, c, d = grid[:-1, :-1], grid[1:, :-1], grid[1:, 1:], grid[:-1, 1:]
    quads = np.stack([np.stack([a, b, c], -1), np.stack([a, c, d], -1)]).reshape(-1, 3)
    faces = welded.reshape(-1)[quads]
    whole = (faces[:, 0] != faces[:, 1]) & (faces[:, 1] != faces[:, 2]) & (faces[:, 2] != faces[:, 0])
    return points[first].astype(np.float32), faces[whole], uv, quads[whole]


@pytest.fixture
def sphere() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """What :func:`closed_sphere` gives."""
    return closed_sphere()


@pytest.fixture
def sphere_texture() -> Texture:
    """A colour gradient on the UV map of :func:`closed_sphere`."""
    _, _, uv, uv_faces = closed_sphere()
    ramp = np.linspace(0, 255, 32).astype(np.uint8)
    picture = np.stack([np.tile(ramp, (32, 1)), np.tile(ramp[:, None], (1, 32)), np.full((32, 32), 90, np.uint8)], -1)
    return Texture(uv, uv_faces, picture)


@pytest.fixture
def moving_sphere() -> Callable[..., AnimatedMesh]:
    """Makes a sphere that stretches, bends and walks: ``moving_sphere(poses, fps)``."""

    def make(poses: int, fps: float = 24.0, walk: float = 0.5) -> AnimatedMesh:
        vertices, faces, _, _ = closed_sphere()
        phase = np.arange(poses) / max(poses - 1, 1)
        positions = np.stack([vertices * [1, 1 + 0.4 * np.sin(9 * p), 1] for p in phase])
        positions[..., 0] += 0.3 * np.sin(7 * phase)[:, None] * positions[..., 1] ** 2
        positions += (phase[:, None] * [walk, 0, 0])[:, None] + [3.0, 5.0, -2.0]
        return AnimatedMesh(faces, positions, np.arange(poses) / fps)

    return make


@pytest.fixture
def node() -> Callable[..., list[dict]]:
    """Runs a script of this folder: ``node(script, *arguments)`` -> its JSON lines. Skips where npm packages miss."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    if not (HERE / "node_modules" / "gltf-validator").is_dir():
        pytest.skip("run `npm install` in tests/export to check the files with readers that are not ours")

    def run(script: str, *arguments: object) -> list[dict]:
        command = ["node", str(HERE / script), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run
