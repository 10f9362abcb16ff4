"""What every rasteriser has to do, run over all that are here; and that the names lead to them."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import fake_nvdiffrast
import numpy as np
import pytest
import torch
import trimesh

from v2m4 import transforms
from v2m4.errors import InputError, MissingBackend
from v2m4.protocols import Rasterizer
from v2m4.render import ZBuffer
from v2m4.render.backends import load_rasterizer
from v2m4.render.nvdiffrast import NvDiffRast
from v2m4.render.outside import fragments
from v2m4.render.packed import pack

SIZE = (47, 61)  # height, width
K = np.array([[52.0, 2.5, 29.0], [0, 49.0, 25.0], [0, 0, 1]])  # skewed, off centre, pixels that are not square


def why_missing(name: str) -> str:
    """Empty where the rasteriser can be used here."""
    if name == "nvdiffrast" and not torch.cuda.is_available():
        return "nvdiffrast draws on CUDA devices only, there is none"
    try:
        load_rasterizer(name)
    except MissingBackend as error:
        return error.message
    return ""


MISSING = {name: why for name in ("pytorch3d", "nvdiffrast") if (why := why_missing(name))}
OUTSIDE = [name for name in ("pytorch3d", "nvdiffrast") if name not in MISSING] + ["nvdiffrast stand-in"]


def backend(name: str, monkeypatch: pytest.MonkeyPatch) -> Rasterizer:
    if name != "nvdiffrast stand-in":
        return load_rasterizer(name)
    package = ModuleType("nvdiffrast")
    package.torch = fake_nvdiffrast  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nvdiffrast", package)
    monkeypatch.setitem(sys.modules, "nvdiffrast.torch", fake_nvdiffrast)
    monkeypatch.setattr(NvDiffRast, "device_type", "cpu")
    return load_rasterizer("nvdiffrast")


@pytest.fixture(params=OUTSIDE)
def outside(request: Any, monkeypatch: pytest.MonkeyPatch) -> Rasterizer:
    return backend(request.param, monkeypatch)


@pytest.fixture(params=["zbuffer", *OUTSIDE])
def any_backend(request: Any, monkeypatch: pytest.MonkeyPatch) -> Rasterizer:
    return backend(request.param, monkeypatch)


@pytest.mark.parametrize("name", MISSING)
def test_a_rasterizer_that_is_not_here_goes_untested(name):
    pytest.skip(MISSING[name])


# --- scenes -----------------------------------------------------------------------------------------------------------


def ball(subdivisions: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """A bumpy ball in front of the camera that hides parts of itself."""
    mesh = trimesh.creation.icosphere(subdivisions=subdivisions)
    x, y, z = mesh.vertices.T
    radius = 0.8 + 0.2 * np.sin(4 * x) * np.cos(5 * y) + 0.12 * np.sin(7 * z + 2 * x)
    points = transforms.apply(transforms.look_at([0.5, 0.6, 2.4]), np.array(mesh.vertices) * radius[:, None])
    return points.astype(np.float32), mesh.faces.astype(np.int32)


def occluded() -> tuple[np.ndarray, np.ndarray]:
    """A small ball before a large one before a wall."""
    points, faces = ball(2)
    centre = points.mean(0)
    small = (points - centre) * 0.3 + [0.2, 0.1, 1.2]
    wall = np.array([[-4, -4, 5], [4, -4, 5.5], [4, 4, 6], [-4, 4, 5.5]])
    both = [faces, faces + len(points), np.array([[0, 1, 2], [0, 2, 3]]) + 2 * len(points)]
    return np.concatenate([points, small, wall]).astype(np.float32), np.concatenate(both).astype(np.int32)


def soup(near: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Triangles of all sizes that cut each other, some outside the picture, seen from both sides."""
    rng = np.random.default_rng(5)
    corners = rng.uniform([-1.5, -1.2, 2], [1.5, 1.2, 4.5], (80, 1, 3))
    corners = corners + rng.normal(size=(80, 3, 3)) * rng.choice([0.05, 0.3, 1.0], (80, 1, 1))
    corners[..., 2] = np.maximum(corners[..., 2] * (1 if near > 0 else 2) - (0 if near > 0 else 4), near)
    return corners.reshape(-1, 3).astype(np.float32), np.arange(240, dtype=np.int32).reshape(-1, 3)


def assert_same(outside: Rasterizer, found: Any, expected: Any) -> None:
    """Ids equal in at least 99.5 % of the pixels, and there depth and barycentrics as well."""
    rounds = getattr(outside, "device_type", "cpu") == "cuda"  # the real nvdiffrast, to a sixteenth of a pixel
    share = 0.98 if rounds else 0.995
    np.testing.assert_array_equal(found.face.shape, expected.face.shape)
    same = found.face == expected.face
    assert same.mean() >= share
    np.testing.assert_allclose(found.depth[same], expected.depth[same], rtol=1e-4)
    np.testing.assert_allclose(found.barycentric[same], expected.barycentric[same], atol=1e-4)


# --- contract ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scene", [ball, occluded, soup])
def test_pixels_see_what_the_z_buffer_says(outside, scene):
    points, faces = scene()
    expected = ZBuffer().rasterize(points, faces, K, *SIZE)
    assert (expected.face >= 0).mean() > 0.3
    assert_same(outside, outside.rasterize(points, faces, K, *SIZE), expected)


def test_several_views_each_with_its_own_lens(outside):
    points, faces = ball(2)
    moved = points + np.array([[0, 0, 0], [0.3, 0, 0.5], [0, -0.2, -0.4]], np.float32)[:, None]
    Ks = np.stack([K, transforms.fov_to_K(50, *SIZE[::-1]), K * [[1.2, 0, 1], [1, 1.2, 1], [1, 1, 1]]])
    assert_same(outside, outside.rasterize(moved, faces, Ks, *SIZE), ZBuffer().rasterize(moved, faces, Ks, *SIZE))


@pytest.mark.parametrize("size", [(64, 24), (24, 64), (9, 9)])
def test_any_size(outside, size):
    points, faces = ball(2)
    lens = transforms.scale_K(K, 0.5)
    assert_same(outside, outside.rasterize(points, faces, lens, *size), ZBuffer().rasterize(points, faces, lens, *size))


def test_meshes_of_their_own(any_backend):
    """Different topologies, empty ones among them, as one batch: each as it is alone."""
    nothing = np.zeros((0, 3), np.float32), np.zeros((0, 3), np.int32)
    scenes = [ball(2), nothing, soup(), (np.ones((4, 3), np.float32), nothing[1]), ball(1), nothing]
    Ks = np.stack([transforms.scale_K(K, s) for s in (1, 1, 1.1, 1, 0.8, 1)])
    together = any_backend.rasterize([p for p, _ in scenes], [f for _, f in scenes], Ks, *SIZE)
    for n, (points, faces) in enumerate(scenes):
        alone = any_backend.rasterize(points, faces, Ks[n], *SIZE)
        np.testing.assert_array_equal(together.face[n], alone.face[0])
        np.testing.assert_allclose(together.depth[n], alone.depth[0], rtol=1e-6)
        np.testing.assert_allclose(together.barycentric[n], alone.barycentric[0], atol=1e-6)
        assert (alone.face >= 0).any() == (len(faces) > 0)


def test_the_near_plane_cuts_instead_of_dropping(outside):
    points, faces = soup(near=-2.0)
    reach = points.reshape(-1, 3, 3)[..., 2]
    assert ((reach.min(1) < 0) & (reach.max(1) > 0)).sum() >= 4
    expected = ZBuffer().rasterize(points, faces, K, *SIZE)
    assert_same(outside, outside.rasterize(points, faces, K, *SIZE), expected)


@pytest.mark.parametrize("height", [1, 0.01])
def test_a_floor_under_the_camera_reaches_to_the_picture_s_edge(any_backend, height):
    """Two huge triangles from behind the camera to the horizon, one corner in the camera's own plane: depth is height /
    slope of the ray everywhere below it."""
    corners = np.array([[-50, 1, -50], [50, 1, 0], [50, 1, 1000], [-50, 1, 1000]], np.float32) * height
    found = any_backend.rasterize(corners[None], [[0, 1, 2], [0, 2, 3]], transforms.fov_to_K(90, 64, 64), 64, 64)
    slope = (np.arange(64) + 0.5 - 32) / 32
    below = slope > 0.05
    assert (found.face[0][below] >= 0).all() and (found.face[0][slope < 0] == -1).all()
    np.testing.assert_allclose(found.depth[0][below], np.repeat(height / slope[below, None], 64, 1), rtol=1e-4)


def test_culling_drops_what_is_seen_from_behind(any_backend):
    corners = np.array([[0, 1, 0], [-1, -1, 1], [1, -1, 1], [0, -1, -1]], float)
    faces = np.array([[0, 1, 2], [0, 2, 3], [0, 3, 1], [1, 3, 2]], np.int32)
    args = transforms.apply(transforms.look_at([1.5, 0.7, 3.0]), corners).astype(np.float32), K, *SIZE
    whole, culled, inside_out = (
        any_backend.rasterize(args[0], f, *args[1:], cull=cull)
        for f, cull in ((faces, False), (faces, True), (faces[:, ::-1].copy(), True))
    )
    np.testing.assert_array_equal(whole.face, culled.face)
    seen = (whole.face >= 0) & (inside_out.face >= 0)
    assert seen.sum() > 0.97 * (whole.face >= 0).sum() > 100  # the inner walls cover the same
    assert (inside_out.depth[seen] > whole.depth[seen]).all()


@pytest.mark.parametrize(
    ("points", "faces"),
    [
        pytest.param(np.zeros((2, 0, 3)), np.zeros((0, 3), int), id="no vertices"),
        pytest.param(np.ones((2, 5, 3)), np.zeros((0, 3), int), id="no faces"),
        pytest.param([[0, 0, -2], [1, 0, -2], [0, 1, -2]], [[0, 1, 2]], id="behind the camera"),
        pytest.param([[0, 0, 0], [0, 0, 0], [0, 0, 0]], [[0, 1, 2]], id="on the camera"),
        pytest.param([[0, 0, 2], [0.1, 0.1, 2], [0, 0, 2]], [[0, 1, 2]], id="two corners in one place"),
        pytest.param([[0, 0, 2], [0.1, 0.1, 2], [0, 0, 2]], [[0, 1, 1]], id="one corner twice"),
        pytest.param([[9, 0, 1], [9, 1, 1], [9, 0, 2]], [[0, 1, 2]], id="outside the picture"),
    ],
)
def test_what_cannot_be_seen_leaves_the_picture_empty(any_backend, points, faces):
    found = any_backend.rasterize(np.array(points, np.float32), faces, K, *SIZE)
    assert (found.face == -1).all() and np.isposinf(found.depth).all() and not found.barycentric.any()


def test_a_picture_of_one_pixel(any_backend):
    huge = np.array([[[-9, -9, 2], [9, -9, 2], [0, 9, 2]]], np.float32)
    found = any_backend.rasterize(huge, [[0, 1, 2]], np.eye(3), 1, 1)
    assert found.face.tolist() == [[[0]]] and found.depth.item() == pytest.approx(2)
    np.testing.assert_allclose(found.barycentric.reshape(3) @ huge[0], [1, 1, 2], atol=1e-5)


@pytest.mark.parametrize(
    ("points", "faces", "intrinsics", "size"),
    [
        ([[0, 0, np.nan], [1, 0, 2], [0, 1, 2]], [[0, 1, 2]], K, SIZE),
        ([[0, 0, 1], [np.inf, 0, 2], [0, 1, 2]], [[0, 1, 2]], K, SIZE),
        ([[0, 0], [1, 0], [0, 1]], [[0, 1, 2]], K, SIZE),
        ([[0, 0, 1], [1, 0, 2], [0, 1, 2]], [[0, 1, 3]], K, SIZE),
        ([[0, 0, 1], [1, 0, 2], [0, 1, 2]], [[0, 1, 2]], np.full((3, 3), np.nan), SIZE),
        ([[0, 0, 1], [1, 0, 2], [0, 1, 2]], [[0, 1, 2]], np.stack([K] * 3), SIZE),
        ([[0, 0, 1], [1, 0, 2], [0, 1, 2]], [[0, 1, 2]], K, (0, 5)),
    ],
)
def test_what_cannot_be_drawn_is_refused(any_backend, points, faces, intrinsics, size):
    one = np.array(points, np.float32)
    with pytest.raises(InputError):
        any_backend.rasterize(np.stack([one, one]), np.array(faces), intrinsics, *size)
    with pytest.raises(InputError):
        any_backend.rasterize([one, one], [np.array(faces)] * 2, intrinsics, *size)
    with pytest.raises(InputError):
        any_backend.rasterize([one, one], [np.array(faces)], K, *SIZE)


def test_tensors_in_tensors_out(outside):
    device = getattr(outside, "device_type", "cpu")
    points, faces = ball(1)
    tensors = outside.rasterize(torch.from_numpy(points).to(device), faces, K, *SIZE)
    arrays = outside.rasterize(points, faces, K, *SIZE)
    for name, dtype in (("face", torch.int32), ("depth", torch.float32), ("barycentric", torch.float32)):
        tensor = getattr(tensors, name)
        assert tensor.dtype == dtype and tensor.device.type == device
        np.testing.assert_array_equal(tensor.cpu().numpy(), getattr(arrays, name))


def test_a_centre_beside_its_face_gets_the_nearest_weights():
    """As a rasteriser that rounds coordinates may have it."""
    scene = pack(torch.tensor([[[1.0, 1, 1], [3, 1, 1], [1, 3, 1]]]), [[0, 1, 2]], np.eye(3))
    found = fragments(scene, torch.zeros(1, 1, 4, dtype=torch.int32), as_numpy=True)
    np.testing.assert_allclose(found.barycentric[0, 0].sum(-1), 1, atol=1e-6)
    assert (found.barycentric >= 0).all() and found.depth.tolist() == [[[1, 1, 1, 1]]]


# --- one by one -------------------------------------------------------------------------------------------------------


def test_nvdiffrast_refuses_what_it_cannot_draw(monkeypatch):
    stand_in = backend("nvdiffrast stand-in", monkeypatch)
    points, faces = ball(1)
    with pytest.raises(InputError, match="2048"):
        stand_in.rasterize(points, faces, K, 16, 2049)
    monkeypatch.setattr(NvDiffRast, "device_type", "cuda")
    with pytest.raises(InputError, match="CUDA"):
        stand_in.rasterize(torch.from_numpy(points), faces, K, *SIZE)


@pytest.mark.parametrize(("name", "licence"), [("pytorch3d", "BSD"), ("nvdiffrast", "non-commercial")])
def test_a_package_that_is_not_there_is_named_with_its_licence(name, licence, monkeypatch):
    for module in (name, f"{name}.torch", f"{name}.structures", f"{name}.renderer.mesh.rasterize_meshes"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingBackend, match="is not installed") as error:
        load_rasterizer(name)
    assert licence in error.value.hint and "pip install" in error.value.hint


def test_names():
    assert isinstance(load_rasterizer("zbuffer"), ZBuffer)
    with pytest.raises(InputError) as error:
        load_rasterizer("z-bufer")
    assert error.value.hint == "did you mean zbuffer?"
