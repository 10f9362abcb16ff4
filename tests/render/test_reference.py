"""The compiled kernels and the same in plain torch: values and gradients, in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import trimesh

from v2m4 import transforms
from v2m4.errors import InputError
from v2m4.render import Edges, antialias, derivatives, interpolate, rasterize, reference, reference_texture
from v2m4.render.sampling import sample_texture

SIZE = (40, 56)  # height, width
LENS = np.array([[45.0, 1.5, 27.0], [0, 47.0, 21.0], [0, 0, 1]])


def blob(subdivisions: int) -> tuple[np.ndarray, np.ndarray]:
    """A bumpy ball that hides parts of itself, with a hole: at 4 subdivisions its triangles are below a pixel."""
    ball = trimesh.creation.icosphere(subdivisions=subdivisions)
    x, y, z = np.array(ball.vertices).T
    radius = 0.8 + 0.2 * np.sin(4 * x) * np.cos(5 * y) + 0.12 * np.sin(7 * z + 2 * x)
    points = transforms.apply(transforms.look_at([0.5, 0.6, 3.0]), np.array(ball.vertices) * radius[:, None])
    return points, ball.faces[: -len(ball.faces) // 8].astype(np.int32)


def soup(near: float) -> tuple[np.ndarray, np.ndarray]:
    """Triangles of all sizes that cut each other, share some vertices, and come nearer than the near plane."""
    rng = np.random.default_rng(3)
    corners = rng.uniform([-1.5, -1.2, near + 0.5], [1.5, 1.2, 4.5], (60, 1, 3))
    corners = corners + rng.normal(size=(60, 3, 3)) * rng.choice([0.03, 0.3, 1.0], (60, 1, 1))
    faces = np.arange(180).reshape(-1, 3)
    faces[::7] = rng.integers(0, 180, faces[::7].shape)
    faces[3] = [5, 5, 8]
    return np.maximum(corners, [-9, -9, near]).reshape(-1, 3), faces.astype(np.int32)


def decals() -> tuple[np.ndarray, np.ndarray]:
    """Two squares on a wall, one nearer to it than what counts as in front, one not; the wall ends in the picture."""
    wall = np.array([[-0.7, -0.6, 0], [0.5, -0.7, 0], [0.6, 0.6, 0], [-0.6, 0.5, 0]])
    near, nearer = (wall * 0.4 + [x, 0, 3 * (1 - share)] for x, share in ((-0.4, 6e-5), (0.2, 3e-4)))
    places = np.concatenate([wall + np.array([-0.1, 0, 3]), near, nearer])
    return places, np.array([[i, i + 2 + k, i + 1 + k] for i in (0, 4, 8) for k in (0, 1)], np.int32)


def path() -> tuple[np.ndarray, np.ndarray]:
    """A narrow strip just under the camera, from behind it to far ahead: its edges are seen down to the near plane."""
    corners = np.array([[-0.01, 0.01, -1], [0.01, 0.01, -1], [0.4, 0.02, 9], [-0.4, 0.01, 9]])
    return corners, np.array([[0, 1, 2], [0, 2, 3]], np.int32)


SCENES = {
    "large": lambda: blob(2),
    "small": lambda: blob(4),
    "soup": lambda: soup(1.5),
    "behind": lambda: soup(-2.0),
    "decals": decals,
    "path": path,
}


def assert_agree(points: Any, faces: Any, K: np.ndarray, attributes: Any, cull: bool = False) -> None:
    """Pictures equal to 1e-12 and gradients of a random functional of them to 1e-9 of the largest."""
    inputs = [torch.tensor(K, dtype=torch.float64)]
    inputs += list(points) if isinstance(points, list) else [points]
    inputs += list(attributes) if isinstance(attributes, list) else [attributes]
    for tensor in inputs:
        tensor.requires_grad_()
    edges = [Edges(f) for f in faces] if isinstance(faces, list) else Edges(faces)
    raster = rasterize(points, faces, inputs[0], *SIZE, cull=cull, edges=edges)
    mesh = points, faces, inputs[0], raster.face
    color = interpolate(raster, attributes)
    plain = reference.interpolate(*mesh, attributes)
    images = antialias(raster, color), reference.antialias(*mesh, raster.depth, plain, edges, cull)
    assert images[0].dtype == images[1].dtype == torch.float64
    flat = torch.cat([color, (raster.face >= 0)[..., None]], -1)
    assert (images[0] - flat).abs().gt(1e-3).any(-1).sum() > 20  # there are silhouettes
    np.testing.assert_allclose(plain.detach(), color.detach(), atol=1e-12)
    np.testing.assert_allclose(images[1].detach(), images[0].detach(), atol=1e-12)
    target = torch.from_numpy(np.random.default_rng(0).normal(size=images[0].shape))
    compiled, torch_ = (torch.autograd.grad((image * target).sum(), inputs, retain_graph=True) for image in images)
    for fast, slow in zip(compiled, torch_, strict=True):
        assert torch.isfinite(slow).all() and fast.abs().max() > 0
        np.testing.assert_allclose(slow, fast, atol=1e-9 * float(fast.abs().max()))


@pytest.mark.parametrize("cull", [False, True])
@pytest.mark.parametrize("scene", SCENES)
def test_values_and_gradients(scene, cull):
    points, faces = SCENES[scene]()
    attributes = torch.from_numpy(np.random.default_rng(1).uniform(size=(len(points), 3)))
    assert_agree(torch.from_numpy(points)[None], faces, LENS, attributes, cull)


def test_several_views():
    points, faces = blob(2)
    moved = torch.from_numpy(points + np.array([[0, 0, 0], [0.3, 0, 0.5], [0, -0.2, -0.4]])[:, None])
    Ks = np.stack([LENS, transforms.fov_to_K(50, *SIZE[::-1]), transforms.scale_K(LENS, 1.1)])
    rng = np.random.default_rng(2)
    assert_agree(moved, faces, Ks, torch.from_numpy(rng.uniform(size=(3, len(points), 2))))
    assert_agree(moved, faces, LENS, torch.from_numpy(rng.uniform(size=(len(points), 2))))


def test_several_meshes():
    scenes = [blob(1), soup(-1.0), blob(2)]
    points = [torch.from_numpy(p) for p, _ in scenes]
    rng = np.random.default_rng(2)
    attributes = [torch.from_numpy(rng.uniform(size=(len(p), 2))) for p in points]
    Ks = np.stack([LENS, transforms.fov_to_K(50, *SIZE[::-1]), transforms.scale_K(LENS, 0.9)])
    assert_agree(points, [f for _, f in scenes], Ks, attributes)


@pytest.mark.parametrize("scene", SCENES)
def test_attributes_with_faces_of_their_own_and_their_slopes(scene):
    points, faces = SCENES[scene]()
    rng = np.random.default_rng(1)
    uv, uv_faces = torch.from_numpy(rng.uniform(size=(50, 2))), rng.integers(0, 50, faces.shape).astype(np.int32)
    raster = rasterize(torch.from_numpy(points)[None], faces, LENS, *SIZE)
    mesh = torch.from_numpy(points)[None], faces, LENS, raster.face, uv, uv_faces
    np.testing.assert_allclose(reference.interpolate(*mesh), interpolate(raster, uv, uv_faces), atol=1e-12)
    slow, fast = reference.derivatives(*mesh), derivatives(raster, uv, uv_faces)
    np.testing.assert_allclose(slow, fast, rtol=1e-9, atol=1e-12 * float(fast.abs().max()))


def test_slopes_are_the_difference_to_the_neighbours_on_the_same_plane():
    """Halved pixels: on a plane seen at an angle, the slope is the derivative of the attribute along the picture."""
    corners = torch.tensor([[[-9.0, -9, 5], [9, -9, 7], [0, 9, 3]]], dtype=torch.float64)
    uv = torch.tensor([[0.1, 0.9], [0.7, 0.3], [0.4, 0.2]], dtype=torch.float64)
    args = torch.zeros(1, 8, 8, dtype=torch.int32), uv
    K = np.array([[4.0, 0.3, 4], [0, 5, 4], [0, 0, 1]])
    slopes = reference.derivatives(corners, [[0, 1, 2]], K, *args)
    for axis in (0, 1):
        values = []
        for step in (0.01, -0.01):
            moved = K.copy()
            moved[axis, 2] -= step
            values.append(reference.interpolate(corners, [[0, 1, 2]], moved, *args))
        np.testing.assert_allclose(slopes[..., axis], (values[0] - values[1]) / 0.02, atol=1e-6)


def test_single_precision_sees_the_same_edges():
    points, faces = blob(3)
    single = torch.from_numpy(points.astype(np.float32))[None]
    attributes = torch.rand(len(points), 3)
    found = []
    for p in (single, single.double()):
        raster = rasterize(p, faces, LENS, *SIZE)
        mesh = p, faces, LENS, raster.face
        found.append(
            reference.antialias(*mesh, raster.depth, reference.interpolate(*mesh, attributes), Edges(faces)).double()
        )
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)


def test_an_edge_table_is_moved_to_a_device_once_and_goes_with_its_owner():
    points, faces = blob(1)
    edges, p = Edges(faces), torch.from_numpy(points)[None]
    raster = rasterize(p, faces, LENS, *SIZE)
    before = len(reference._tables)
    for _ in range(2):
        reference.antialias(p, faces, LENS, raster.face, raster.depth, raster.barycentric, edges)
        assert len(reference._tables) == before + 1
    del edges
    assert len(reference._tables) == before


@pytest.mark.parametrize("size", [(8, 8), (5, 3), (1, 1), (13, 1)])
@pytest.mark.parametrize("wrap", ["clamp", "repeat"])
@pytest.mark.parametrize("minified", [False, True])
def test_texture_lookup(size, wrap, minified):
    rng = np.random.default_rng(4)
    uv = torch.from_numpy(rng.uniform(-0.7, 1.6, (2, 6, 7, 2)))
    slopes = torch.from_numpy(rng.normal(size=(2, 6, 7, 2, 2)) * 10 ** rng.uniform(-3, 1, (2, 6, 7, 1, 1)))
    for textures in (1, 2):
        texture = torch.from_numpy(rng.uniform(size=(textures, *size, 3)))
        inputs = [texture.requires_grad_(), uv.requires_grad_()]
        target = torch.from_numpy(rng.normal(size=(2, 6, 7, 3)))
        step = slopes if minified else None
        fast = sample_texture(texture, uv, step, wrap)
        slow = reference_texture.sample_texture(texture, uv, step, repeat=wrap == "repeat")
        np.testing.assert_allclose(slow.detach(), fast.detach(), atol=1e-6)  # levels are single precision
        gradients = [torch.autograd.grad((image * target).sum(), inputs) for image in (fast, slow)]
        for a, b in zip(*gradients, strict=True):
            np.testing.assert_allclose(b, a, atol=1e-6 * max(float(a.abs().max()), 1))


def test_a_texture_lookup_refuses_what_is_not_a_number():
    texture, uv = torch.ones(1, 2, 2, 1), torch.zeros(1, 1, 1, 2)
    for bad_uv, slopes in ((uv * np.nan, None), (uv + np.inf, None), (uv, torch.full((1, 1, 1, 2, 2), np.nan))):
        with pytest.raises(InputError):
            reference_texture.sample_texture(texture, bad_uv, slopes, repeat=True)
