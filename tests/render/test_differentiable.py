"""The differentiable picture: what it shows, and that its gradient is the picture's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import trimesh

from v2m4 import transforms
from v2m4.errors import InputError
from v2m4.render import (
    Edges,
    ZBuffer,
    antialias,
    derivatives,
    differentiable,
    interpolate,
    masks,
    rasterize,
    render,
)

POSE = transforms.look_at([0.5, 0.6, 3.0])


def blob(subdivisions: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A bumpy ball that hides parts of itself: vertices, faces, colours. 5k faces at 4 subdivisions, 20k at 5."""
    ball = trimesh.creation.icosphere(subdivisions=subdivisions)
    x, y, z = ball.vertices.T
    radius = 0.8 + 0.2 * np.sin(4 * x) * np.cos(5 * y) + 0.12 * np.sin(7 * z + 2 * x)
    colors = 0.5 + 0.5 * np.sin(5 * ball.vertices + [0, 2, 4])
    return ball.vertices * radius[:, None], ball.faces.astype(np.int32), colors


def in_camera(vertices: np.ndarray) -> np.ndarray:
    return transforms.apply(POSE, vertices)[None]


def coverage(vertices: np.ndarray, faces: np.ndarray, size: int, samples: int = 8) -> np.ndarray:
    """(size,size) share of each pixel that is covered, from samples² centres in it."""
    K = transforms.scale_K(transforms.fov_to_K(40, size, size), samples)
    fine = masks(in_camera(vertices), faces, K, size * samples, size * samples)[0]
    return fine.reshape(size, samples, size, samples).mean((1, 3))


def smooth_target(size: int, channels: int) -> torch.Tensor:
    y, x = np.indices((size, size)) / size
    waves = [0.5 + 0.5 * np.sin(3 * x + 2 * c) * np.cos(4 * y - c) for c in range(channels)]
    return torch.from_numpy(np.stack(waves, -1))


def value(points: Any, faces: np.ndarray, K: Any, size: int, attributes: Any, **options: Any) -> torch.Tensor:
    """A smooth functional of the picture, summed in double precision."""
    image = render(points, faces, K, size, size, attributes, **options)
    return (image.double() * smooth_target(size, image.shape[-1])).sum()


# --- what it shows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("subdivisions", [3, 4, 5])
def test_coverage_is_the_area_covered(subdivisions):
    vertices, faces, _ = blob(subdivisions)
    true = coverage(vertices, faces, 128)
    K = transforms.fov_to_K(40, 128, 128)
    shown = render(torch.from_numpy(in_camera(vertices)), faces, K, 128, 128)[0, ..., 0].numpy()
    partly = (true > 0) & (true < 1)
    assert np.abs(shown - true)[partly].mean() < 0.025  # of the plain mask it is about 0.2
    assert np.abs(shown - true)[~partly].mean() < 1e-3
    assert shown.min() >= -1e-6 and shown.max() <= 1 + 1e-6


def test_colour_is_the_interpolated_attribute_times_coverage():
    vertices, faces, colors = blob(4)
    K = transforms.fov_to_K(40, 96, 96)
    points = in_camera(vertices).astype(np.float32)
    image = render(torch.from_numpy(points), faces, K, 96, 96, torch.from_numpy(colors))[0].numpy()
    found = ZBuffer().rasterize(points, faces, K, 96, 96)
    seen = found.face[0] >= 0
    expected = np.einsum("hwk,hwkc->hwc", found.barycentric[0], colors[faces[found.face[0]]])
    untouched = seen & (image[..., 3] == 1)
    # Inside, only the few pixels on inner contours are blended.
    assert (np.abs(image[..., :3] - expected)[untouched].max(-1) < 1e-5).mean() > 0.97
    assert (image[..., :3] <= image[..., 3:] + 1e-5).all()  # multiplied by coverage
    assert not image[~seen & (image[..., 3] == 0)].any()


def test_several_views_are_the_views_one_by_one():
    vertices, faces, colors = blob(3)
    moves = np.array([[0, 0, 0], [0.2, 0.1, 0], [0, -0.1, 0.5]])
    points = torch.from_numpy((in_camera(vertices) + moves[:, None]).astype(np.float32))
    Ks = np.stack([transforms.fov_to_K(fov, 48, 48) for fov in (40, 50, 30)])
    attributes = torch.from_numpy(np.stack([colors, colors**2, 1 - colors]).astype(np.float32))
    gradients = []
    for split in (False, True):
        p, a = points.clone().requires_grad_(), attributes.clone().requires_grad_()
        groups = [slice(i, i + 1) for i in range(3)] if split else [slice(0, 3)]
        image = torch.cat([render(p[g], faces, Ks[g], 48, 48, a[g]) for g in groups])
        (image.double() * smooth_target(48, 4)).sum().backward()
        gradients.append((image.detach(), p.grad, a.grad))
    for together, alone in zip(*gradients, strict=True):
        np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-6)


def test_edges_and_a_rasterizer_of_one_s_own_change_nothing():
    vertices, faces, colors = blob(3)
    args = (torch.from_numpy(in_camera(vertices)), faces, transforms.fov_to_K(40, 48, 48), 48, 48)
    plain = render(*args, torch.from_numpy(colors))
    given = render(*args, torch.from_numpy(colors), edges=Edges(faces), rasterizer=ZBuffer())
    np.testing.assert_allclose(plain, given, atol=1e-6)


def test_same_input_same_bytes_whatever_the_threads(monkeypatch):
    vertices, faces, colors = blob(4)
    results = []
    for threads in ("1", "2", "4", "2"):
        monkeypatch.setenv("V2M4_THREADS", threads)
        points = torch.from_numpy(in_camera(vertices).astype(np.float32)).requires_grad_()
        attributes = torch.from_numpy(colors.astype(np.float32)).requires_grad_()
        image = render(points, faces, transforms.fov_to_K(40, 64, 64), 64, 64, attributes)
        (image * image).sum().backward()
        results.append(tuple(x.detach().numpy().tobytes() for x in (image, points.grad, attributes.grad)))
    assert len(set(results)) == 1


# --- gradients: exactly those of the picture --------------------------------------------------------------------------


def difference(function: Any, at: np.ndarray, index: tuple[int, ...], step: float) -> float:
    """Central finite difference, extrapolated (Richardson)."""

    def slope(h: float) -> float:
        low, high = at.copy(), at.copy()
        low[index] -= h
        high[index] += h
        return float(function(high) - function(low)) / (2 * h)

    return (4 * slope(step / 2) - slope(step)) / 3


def window() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A wavy sheet that fills the picture, some of it behind the camera: no silhouette in sight."""
    rng = np.random.default_rng(3)
    y, x = np.indices((6, 6)).reshape(2, -1) / 5 * 2 - 1
    points = np.stack([4 * x, 4 * y, 2 + 0.3 * rng.normal(size=36)], -1)
    points[x > 0.9, 2] = -0.5
    corner = np.array([6 * r + c for r in range(5) for c in range(5)])
    faces = np.concatenate([corner[:, None] + [0, 1, 7], corner[:, None] + [0, 7, 6]]).astype(np.int32)
    return points[None], faces, rng.uniform(size=(36, 3))


def test_gradients_inside_the_surface_agree_with_finite_differences():
    points, faces, colors = window()
    K = transforms.fov_to_K(60, 32, 32)
    K[0, 1] = 1.0
    p, a, k = (torch.from_numpy(x).requires_grad_() for x in (points, colors, K))
    value(p, faces, k, 32, a).backward()

    def of_points(x: np.ndarray) -> torch.Tensor:
        return value(torch.from_numpy(x), faces, K, 32, torch.from_numpy(colors))

    # Inner vertices only: where an outer one ends lies far outside the picture.
    for v in (7, 8, 14, 15, 20, 21, 27, 28):
        for axis in range(3):
            expected = difference(of_points, points, (0, v, axis), 0.02)
            assert p.grad[0, v, axis] == pytest.approx(expected, rel=0.02, abs=0.02 * float(p.grad.abs().max()))
    for v in (7, 14, 21):
        expected = difference(
            lambda x: value(torch.from_numpy(points), faces, K, 32, torch.from_numpy(x)), colors, (v, 1), 0.5
        )
        assert a.grad[v, 1] == pytest.approx(expected, rel=1e-3, abs=1e-3)
    for index in ((0, 0), (0, 2), (1, 1), (1, 2)):
        expected = difference(lambda x: value(p.detach(), faces, x, 32, a.detach()), K, index, 0.2)
        assert k.grad[index] == pytest.approx(expected, rel=0.02)


def test_gradients_of_a_silhouette_agree_with_finite_differences():
    """Two triangles, one in front of the other, small steps: between events the blend is a smooth function."""
    points = np.array(
        [
            [-0.71, -0.53, 2.0],
            [0.64, -0.41, 2.4],
            [0.13, 0.67, 1.8],
            [-0.5, 0.37, 3.1],
            [1.1, 0.2, 3.3],
            [0.6, -1.0, 2.9],
        ]
    )
    faces = np.array([[0, 1, 2], [3, 4, 5]], np.int32)
    attributes = torch.tensor([[1.0, 0.2], [0.9, 0.4], [0.8, 0.1], [0.1, 0.9], [0.2, 0.7], [0.3, 0.8]])
    K = transforms.fov_to_K(50, 64, 64)
    p = torch.from_numpy(points[None]).requires_grad_()
    value(p, faces, K, 64, attributes).backward()
    largest = float(p.grad.abs().max())
    close = []
    for v in range(6):
        for axis in range(3):
            expected = difference(
                lambda x: value(torch.from_numpy(x[None]), faces, K, 64, attributes), points, (v, axis), 1e-4
            )
            close.append(abs(float(p.grad[0, v, axis]) - expected) < 0.02 * largest)
    # A step may make a crossing appear or vanish at the end of an edge: those few differences mean nothing.
    assert np.mean(close) > 0.85


def test_the_gradient_of_attributes_is_exact_across_silhouettes():
    """The picture is linear in the attributes: applying the gradient to any attributes gives their picture's value."""
    vertices, faces, colors = blob(3)
    points, K = torch.from_numpy(in_camera(vertices)), transforms.fov_to_K(40, 48, 48)
    a = torch.from_numpy(colors).requires_grad_()
    target = smooth_target(48, 4) * torch.tensor([1, 1, 1, 0])
    (render(points, faces, K, 48, 48, a).double() * target).sum().backward()
    other = torch.from_numpy(np.random.default_rng(0).normal(size=colors.shape))
    expected = (render(points, faces, K, 48, 48, other).double() * target).sum()
    assert float((a.grad * other).sum()) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("size_px", [0.7, 1.2, 1.9])
def test_specks_and_pinholes_stay_within_bounds_and_keep_their_gradient(size_px):
    """A quad about as large as a pixel, then a hole of that size: four crossings share one pixel."""
    low, high = 4.55 - size_px / 2, 4.45 + size_px / 2
    square = np.array([[low, low + 0.02], [high, low], [high + 0.03, high], [low + 0.01, high + 0.02]])
    speck = np.concatenate([square, np.ones((4, 1))], 1)
    ring = np.array([[-9.0, -8, 1], [18, -9, 1], [19, 17, 1], [-8, 18, 1]])
    hole = np.concatenate([speck, ring])
    hole_faces = [f for i in range(4) for f in ([i, 4 + i, 4 + (i + 1) % 4], [i, 4 + (i + 1) % 4, (i + 1) % 4])]
    for points, faces in ((speck, [[0, 1, 2], [0, 2, 3]]), (hole, hole_faces)):
        p = torch.from_numpy(points[None]).requires_grad_()
        image = render(p, faces, np.eye(3), 9, 9)
        assert image.min() >= 0 and image.max() <= 1 + 1e-6
        middle = float(image.detach()[0, 4, 4, 0])
        assert 0 <= middle <= 1 and (size_px > 1 or 0 < middle < 1)
        weights = torch.from_numpy(np.random.default_rng(0).uniform(0.5, 1, (9, 9)))

        def weighted(x: np.ndarray, faces: Any = faces, weights: torch.Tensor = weights) -> torch.Tensor:
            return (render(torch.from_numpy(x[None]), faces, np.eye(3), 9, 9)[0, ..., 0].double() * weights).sum()

        (image[0, ..., 0].double() * weights).sum().backward()
        for v, axis in ((0, 0), (1, 1), (2, 0), (3, 1)):
            expected = difference(weighted, points, (v, axis), 1e-3)
            assert float(p.grad[0, v, axis]) == pytest.approx(expected, rel=0.02, abs=2e-3)


def test_a_speck_that_vanishes_between_its_edges_still_wants_to_grow():
    speck = np.array([[4.35, 4.36, 1], [4.65, 4.35, 1], [4.66, 4.65, 1], [4.34, 4.66, 1]])
    p = torch.from_numpy(speck[None]).requires_grad_()
    image = render(p, [[0, 1, 2], [0, 2, 3]], np.eye(3), 9, 9)
    assert image.min() >= -1e-12 and image.max() <= 1 + 1e-12
    image.sum().backward()
    outward = torch.from_numpy(speck - [4.5, 4.5, 1])
    assert float((p.grad[0] * outward).sum()) > 0.1


# --- gradients: those of the area -------------------------------------------------------------------------------------


@pytest.mark.parametrize("subdivisions", [3, 4, 5])
def test_growing_changes_the_area_as_it_should(subdivisions):
    vertices, faces, _ = blob(subdivisions)
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    rotation, move = (torch.from_numpy(x) for x in (POSE[:3, :3], POSE[:3, 3]))
    points = (scale * torch.from_numpy(vertices)) @ rotation.T + move
    render(points[None], faces, transforms.fov_to_K(40, 256, 256), 256, 256).double().sum().backward()
    true = (coverage(vertices * 1.004, faces, 256, 4).sum() - coverage(vertices * 0.996, faces, 256, 4).sum()) / 0.008
    assert 0.97 < float(scale.grad) / true < 1.03


def test_any_motion_changes_a_weighted_area_as_it_should():
    vertices, faces, _ = blob(4)
    size = 128
    target = smooth_target(size, 1)[..., 0].numpy()
    points = torch.from_numpy(in_camera(vertices)).requires_grad_()
    value(points, faces, transforms.fov_to_K(40, size, size), size, None).backward()
    per_vertex = points.grad[0].numpy() @ POSE[:3, :3]
    rng = np.random.default_rng(0)
    errors, sizes = [], []
    for _ in range(6):
        motion = np.sin(vertices @ rng.normal(size=(3, 3)) * 2 + rng.uniform(0, 6, 3))
        step = 0.004
        true = sum(
            sign * (coverage(vertices + sign * step * motion, faces, size) * target).sum() / (2 * step)
            for sign in (1, -1)
        )
        errors.append((per_vertex * motion).sum() - true)
        sizes.append(np.abs(per_vertex * motion).sum())
    assert np.sqrt(np.mean(np.square(errors))) < 0.04 * np.mean(sizes)


@pytest.mark.slow
def test_a_pose_is_found_from_colour_and_silhouette():
    """From 15 degrees and 5 % of the distance off, with a plain optimiser."""
    vertices, faces, colors = blob(4)
    size, K, edges = 96, transforms.fov_to_K(40, 96, 96), Edges(faces)
    V, C = (torch.from_numpy(x.astype(np.float32)) for x in (vertices, colors))
    R, t = (torch.from_numpy(x).float() for x in (POSE[:3, :3], POSE[:3, 3]))
    target = render((V @ R.T + t)[None], faces, K, size, size, C, edges=edges)
    rng = np.random.default_rng(5)
    axis, shift = (x / np.linalg.norm(x) for x in rng.normal(size=(2, 3)))
    R_start = torch.from_numpy(transforms.rotation_from_vector(axis * np.radians(15))).float() @ R
    turn = torch.zeros(3, requires_grad=True)
    move = (t + torch.from_numpy(shift * 0.05 * 3).float()).requires_grad_()
    optimizer = torch.optim.Adam([{"params": [turn], "lr": 0.02}, {"params": [move], "lr": 0.01}], betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 90)

    def rotation() -> torch.Tensor:
        zero = torch.zeros(())
        x, y, z = turn
        skew = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero]).reshape(3, 3)
        return torch.linalg.matrix_exp(skew) @ R_start

    for _ in range(90):
        optimizer.zero_grad()
        image = render((V @ rotation().T + move)[None], faces, K, size, size, C, edges=edges)
        ((image - target) ** 2).mean().backward()
        optimizer.step()
        schedule.step()
    assert transforms.rotation_angle_deg(rotation().detach().double().numpy(), R.double().numpy()) < 0.5
    assert float((move.detach() - t).norm()) < 0.01


# --- what cannot be drawn ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "points",
    [
        pytest.param([[0, 0, -2], [1, 0, -2], [0, 1, -2]], id="behind the camera"),
        pytest.param([[0, 0, 2], [0, 0, 2], [0, 0, 2]], id="a point"),
        pytest.param([[0, 0, 2], [0.1, 0.1, 2], [0.2, 0.2, 2]], id="a line"),
        pytest.param([[0, 0, 0], [0, 0, 0], [0, 0, 0]], id="on the camera"),
    ],
)
def test_what_cannot_be_seen_has_no_gradient(points):
    p = torch.tensor([points], dtype=torch.float32, requires_grad=True)
    a = torch.ones(3, 2, requires_grad=True)
    image = render(p, [[0, 1, 2]], transforms.fov_to_K(40, 16, 16), 16, 16, a)
    image.sum().backward()
    assert not image.any() and not p.grad.any() and not a.grad.any()


def test_empty_meshes_and_single_pixels():
    K = transforms.fov_to_K(40, 4, 4)
    assert not render(torch.zeros(2, 0, 3), np.zeros((0, 3)), K, 4, 4, torch.zeros(0, 3)).any()
    assert render(torch.zeros(0, 3, 3), [[0, 1, 2]], K, 4, 4).shape == (0, 4, 4, 1)
    big = torch.tensor([[[-9.0, -9, 1], [9, -9, 1], [0, 9, 1]]], requires_grad=True)
    image = render(big, [[0, 1, 2]], np.eye(3), 1, 1, torch.full((3, 1), 0.5))
    image.sum().backward()
    assert image.reshape(-1).tolist() == [0.5, 1.0] and torch.isfinite(big.grad).all()


def test_arrays_and_lists_are_taken_and_no_channels_give_the_mask():
    points, colors = np.array([[0.0, 0, 1], [9, 0, 1], [0, 9, 1]], np.float32), [[1.0, 0.5], [0, 0.5], [1, 0.5]]
    image = render(points, [[0, 1, 2]], np.eye(3).tolist(), 8, 8, colors)
    torch.testing.assert_close(image, render([points], [np.array([[0, 1, 2]])], np.eye(3), 8, 8, [np.array(colors)]))
    mask = render(points, [[0, 1, 2]], np.eye(3), 8, 8, np.zeros((3, 0)))
    torch.testing.assert_close(mask, render(points, [[0, 1, 2]], np.eye(3), 8, 8))
    assert mask.shape == (1, 8, 8, 1)


@pytest.mark.parametrize("cull", [False, True])
def test_what_runs_on_other_devices_makes_the_same_picture(cull):
    """Everything but visibility in plain torch, here on the CPU: the same values and gradients."""
    vertices, faces, colors = blob(3)
    points, uv = torch.from_numpy(in_camera(vertices)), torch.from_numpy(colors[:, :2].copy())
    K = torch.from_numpy(transforms.fov_to_K(40, 48, 48))
    results = []
    for plain in (False, True):
        p, u, k = (x.clone().requires_grad_() for x in (points, uv, K))
        raster = rasterize(p, faces, k, 48, 48, cull=cull)
        if plain:
            raster = differentiable._on_device(p, faces, k, raster.batch, cull, None, ZBuffer())
        found = interpolate(raster, u)
        slopes, depth = derivatives(raster, u), torch.where(raster.face >= 0, raster.depth, 0)[..., None]
        image = antialias(raster, torch.cat([found, slopes.flatten(-2), raster.barycentric, depth], -1))
        (image * smooth_target(48, image.shape[-1])).sum().backward()
        results.append((image.detach(), p.grad, u.grad, k.grad))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9 * float(a.abs().max()))


def test_an_edge_seen_through_the_near_plane_has_a_finite_gradient():
    corners = torch.tensor([[[-0.5, 0.3, -1], [0.5, 0.3, -1], [0.4, 0.35, 9], [-0.4, 0.3, 9]]], requires_grad=True)
    image = render(corners, [[0, 1, 2], [0, 2, 3]], transforms.fov_to_K(90, 64, 64), 64, 64)
    assert 0.1 < image.mean() < 0.5
    image.sum().backward()
    assert torch.isfinite(corners.grad).all() and corners.grad.abs().max() > 1


def test_bad_input_is_refused():
    points, faces, K = torch.ones(1, 3, 3), [[0, 1, 2]], np.eye(3)
    for bad in (float("nan"), float("inf")):
        with pytest.raises(InputError):
            render(torch.full((1, 3, 3), bad), faces, K, 4, 4)
    with pytest.raises(InputError):
        render(points, faces, K, 4, 4, torch.ones(4, 3))
    with pytest.raises(InputError):
        render(points, faces, K, 4, 4, torch.ones(2, 3, 3))
    for other in ([[0, 1, 2], [0, 2, 1]], [[0, 2, 1]], [[0, 1, 99]]):
        with pytest.raises(InputError):
            render(points, faces, K, 4, 4, edges=Edges(other))
    with pytest.raises(InputError):
        render(points, [[0, 1, 7]], K, 4, 4)


def test_changing_the_points_in_place_is_noticed():
    points = torch.rand(1, 3, 3) + 1
    p = points.clone().requires_grad_()
    moved = p * 1
    image = render(moved, [[0, 1, 2]], np.eye(3), 4, 4)
    moved.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        image.sum().backward()
