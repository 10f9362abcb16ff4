"""Every gradient of the whole chain against finite differences of the picture, in double precision.

The picture is a smooth function of everything it is made from until a silhouette passes a corner or the point where it
is no longer seen; steps of 1e-7 do not meet such an event in these scenes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import trimesh

from v2m4 import transforms
from v2m4.render import Edges, antialias, derivatives, interpolate, rasterize, render, sample_texture

SIZE = (44, 52)  # height, width
STEP = 1e-7
DIRECTIONS = 6


@dataclass(frozen=True)
class Scene:
    points: np.ndarray  # (N,V,3) camera coordinates
    faces: np.ndarray

    @property
    def uv(self) -> np.ndarray:
        """(V,2) inside [0.1, 0.9]: some smooth map, seams or not."""
        p = self.points[0]
        return 0.5 + 0.4 * np.sin(np.stack([2 * p[:, 0] + p[:, 2], 3 * p[:, 1] - p[:, 2]], -1))


def bumpy(subdivisions: int, centre: tuple[float, float, float], radius: float) -> tuple[np.ndarray, np.ndarray]:
    ball = trimesh.creation.icosphere(subdivisions=subdivisions)
    x, y, z = ball.vertices.T
    bumps = 1 + 0.2 * np.sin(4 * x + 1) * np.cos(5 * y) + 0.1 * np.sin(7 * z + 2 * x)
    return ball.vertices * bumps[:, None] * radius + centre, ball.faces.astype(np.int32)


def joined(*parts: tuple[np.ndarray, np.ndarray]) -> Scene:
    first = np.cumsum([0, *(len(p) for p, _ in parts)])[:-1]
    faces = [f + n for (_, f), n in zip(parts, first, strict=True)]
    return Scene(np.concatenate([p for p, _ in parts])[None], np.concatenate(faces))


def occlusion() -> Scene:
    """Three bodies, one in front of the other, cutting into each other's outline."""
    return joined(bumpy(3, (0.3, 0.1, 4.5), 1.1), bumpy(2, (-0.5, 0.2, 3.2), 0.5), bumpy(2, (0.4, -0.4, 2.6), 0.27))


def holes() -> Scene:
    """A bumpy ball with windows in it: their borders are silhouettes, and through them the inner wall is seen."""
    points, faces = bumpy(3, (0, 0, 3), 0.9)
    middle = points[faces].mean(1) - [0, 0, 3]
    return joined((points, faces[np.sin(5 * middle[:, 0]) * np.sin(5 * middle[:, 1]) < 0.6]))


def sheet() -> Scene:
    """A curved sheet with a border all around, and two of its copies moved: three views."""
    y, x = np.indices((7, 7)).reshape(2, -1) / 3 - 1
    corner = np.array([7 * r + c for r in range(6) for c in range(6)])
    points = np.stack([0.9 * x + 0.05 * y, 0.8 * y - 0.06 * x, 2.6 + 0.3 * np.sin(2 * x) * y], -1)
    faces = np.concatenate([corner[:, None] + [0, 8, 1], corner[:, None] + [0, 7, 8]]).astype(np.int32)
    return Scene(points + np.array([[0.013, -0.007, 0], [0.23, -0.1, 0.4], [-0.4, 0.3, 0.1]])[:, None], faces)


def subpixel() -> Scene:
    """20k faces in about a thousand pixels."""
    return joined(bumpy(5, (0.02, 0.03, 3), 0.85))


def path() -> Scene:
    """A path that begins behind the camera and ends in front of it, with a post on it."""
    y, x = np.indices((9, 4)).reshape(2, -1)
    corner = np.array([4 * r + c for r in range(8) for c in range(3)])
    points = np.stack([0.4 * x - 0.63, 0.5 + 0.03 * np.sin(2 * x + y), 0.9 * y - 1.7 + 0.05 * x], -1)
    faces = np.concatenate([corner[:, None] + [0, 1, 5], corner[:, None] + [0, 5, 4]]).astype(np.int32)
    return joined((points, faces), bumpy(2, (0.1, 0.1, 3.1), 0.35))


SCENES: dict[str, Callable[[], Scene]] = {f.__name__: f for f in (occlusion, holes, sheet, path, subpixel)}


def weights(shape: tuple[int, ...]) -> torch.Tensor:
    n, y, x, c = np.indices(shape)
    return torch.from_numpy(0.6 + 0.4 * np.sin(0.11 * x + 2 * c + n) * np.cos(0.13 * y - c))


def compare(make: Callable[..., torch.Tensor], inputs: list[np.ndarray], which: int, seed: int = 0) -> list[float]:
    """Relative errors of the gradient of a weighted sum of the picture ``make(*inputs)`` along random directions."""
    tensors = [torch.from_numpy(x).requires_grad_(i == which) for i, x in enumerate(inputs)]
    image = make(*tensors)
    target = weights(tuple(image.shape))
    (image * target).sum().backward()
    gradient = tensors[which].grad.numpy()
    rng = np.random.default_rng(seed)
    errors = []
    for _ in range(DIRECTIONS):
        along = rng.normal(size=inputs[which].shape)

        def at(step: float, along: np.ndarray = along) -> float:
            moved = [torch.from_numpy(x + step * along if i == which else x) for i, x in enumerate(inputs)]
            with torch.no_grad():
                return float((make(*moved) * target).sum())

        expected = (at(STEP) - at(-STEP)) / (2 * STEP)
        scale = np.linalg.norm(gradient) * np.sqrt(along.size) / np.sqrt(gradient.size)
        errors.append(abs(float((gradient * along).sum()) - expected) / scale)
    return sorted(errors)


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("what", ["points", "uv", "texture", "K"])
def test_a_textured_picture(name: str, what: str) -> None:
    """Through every step: rasterize, interpolate, derivatives, mip-mapped sample_texture, antialias."""
    scene = SCENES[name]()
    edges = Edges(scene.faces)
    K = transforms.fov_to_K(42, SIZE[1], SIZE[0])
    K[0, 1] = 1.5
    texture = np.random.default_rng(1).uniform(size=(24, 20, 2))

    def whole(K: torch.Tensor) -> torch.Tensor:
        return torch.cat([K, torch.tensor([[0.0, 0, 1]], dtype=K.dtype)])

    def make(points: torch.Tensor, uv: torch.Tensor, texture: torch.Tensor, K: torch.Tensor) -> torch.Tensor:
        raster = rasterize(points, scene.faces, whole(K), *SIZE, edges=edges)
        slopes = derivatives(rasterize(fixed[0], scene.faces, whole(fixed[3]), *SIZE), fixed[1])
        return antialias(raster, sample_texture(texture, interpolate(raster, uv), slopes))

    inputs = [scene.points, scene.uv, texture, K[:2]]
    fixed = [torch.from_numpy(x) for x in inputs]  # slopes count as constants
    errors = compare(make, inputs, ["points", "uv", "texture", "K"].index(what))
    assert max(errors) < 1e-6


@pytest.mark.parametrize("cull", [False, True])
@pytest.mark.parametrize("name", SCENES)
def test_a_mask_alone(name: str, cull: bool) -> None:
    scene = SCENES[name]()
    edges, K = Edges(scene.faces), transforms.fov_to_K(42, SIZE[1], SIZE[0])
    errors = compare(lambda p: render(p, scene.faces, K, *SIZE, cull=cull, edges=edges), [scene.points], 0)
    assert max(errors) < 1e-6


@pytest.mark.parametrize("name", SCENES)
def test_depth_and_barycentrics(name: str) -> None:
    scene, K = SCENES[name](), transforms.fov_to_K(42, SIZE[1], SIZE[0])

    def make(points: torch.Tensor) -> torch.Tensor:
        raster = rasterize(points, scene.faces, K, *SIZE)
        depth = torch.where(raster.face >= 0, raster.depth, 0)
        # Inside, or the jumps at silhouettes, which nothing smooths here, would be met.
        inner = torch.nn.functional.max_pool2d((raster.face < 0)[:, None].float(), 3, 1, 1) == 0
        return torch.cat([depth[..., None], raster.barycentric[..., :1] * 0], -1) * inner[:, 0, ..., None]

    assert np.median(compare(make, [scene.points], 0)) < 1e-6
