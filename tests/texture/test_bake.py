"""The video's pixels on the surface: right place, right colour, nothing from in front, nothing from behind the rim."""

from __future__ import annotations

import numpy as np
import pytest
import texture_cases as cases

from v2m4.render.shade import render_mesh
from v2m4.texture import bake
from v2m4.texture.visibility import View, silhouette_slip
from v2m4.types import Camera, Mesh, Texture


def view(index: int, mesh: Mesh, camera: Camera, under: tuple[int, int, int] = (0, 0, 0)) -> View:
    return View(index, cases.picture(mesh, camera, under), mesh.vertices, camera)


@pytest.fixture(scope="module")
def ball():
    """A coloured ball seen from four sides, painted: (mesh, texture, painting, cameras)."""
    vertices, faces = cases.ball(24)
    colors = np.clip(128 + 220 * vertices + 40 * np.sin(9 * vertices[:, [1, 2, 0]]), 0, 255).astype(np.uint8)
    mesh = Mesh(vertices, faces, colors)
    cameras = [cases.camera(a, e) for a, e in ((0, 20), (90, -20), (180, 20), (270, -20))]
    unwrapped, painting = cases.painted(vertices, faces, [view(k, mesh, c) for k, c in enumerate(cameras)])
    return mesh, Texture(unwrapped.uv, unwrapped.uv_faces, painting.base_color), painting, cameras


def test_a_ball_seen_all_round_comes_back(ball):
    mesh, texture, painting, cameras = ball
    assert painting.seen_share > 0.85
    for camera in cameras:
        truth, again = render_mesh(mesh, camera), render_mesh(mesh, camera, texture=texture)
        inside = (truth[..., 3] == 255) & (again[..., 3] == 255)
        error = np.abs(truth[..., :3].astype(int) - again[..., :3])[inside]
        assert error.mean() < 1.5 and np.percentile(error, 99) <= 10
        assert np.abs(painting.baked.gains - 1).max() < 0.03


def test_a_view_nobody_had_shows_no_seam(ball):
    mesh, texture, _, _ = ball
    camera = cases.camera(45, 30)
    truth, again = render_mesh(mesh, camera), render_mesh(mesh, camera, texture=texture)
    inside = (truth[..., 3] == 255) & (again[..., 3] == 255)
    error = np.abs(truth[..., :3].astype(int) - again[..., :3])[inside]
    assert error.mean() < 2.5 and error.max() < 60


def two_boxes() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A green wall with a red block before it: vertices (16,3), faces (24,3), colours (16,3)."""
    wall, faces = cases.box((-0.5, -0.5, -0.3), (0.5, 0.5, -0.2))
    block, _ = cases.box((-0.15, -0.15, 0.1), (0.15, 0.15, 0.3))
    colors = np.repeat([[40, 180, 60], [220, 40, 40]], 8, axis=0).astype(np.uint8)
    return np.concatenate([wall, block]), np.concatenate([faces, faces + 8]), colors


def test_what_is_hidden_does_not_take_the_colour_of_what_hides_it():
    vertices, faces, colors = two_boxes()
    mesh = Mesh(vertices, faces, colors)
    unwrapped, painting = cases.painted(vertices, faces, [view(0, mesh, cases.camera(0, 0))])
    texture = Texture(unwrapped.uv, unwrapped.uv_faces, painting.base_color)
    aside = cases.camera(0, 0, 2.2)
    bare = Mesh(vertices[:8], faces[:12])
    wall = render_mesh(bare, aside, texture=Texture(texture.uv, texture.uv_faces[:12], texture.base_color))
    inside = wall[..., 3] == 255
    assert inside.sum() > 2000
    # The patch behind the block was filled, the rest seen: all of it is the wall's green.
    assert np.abs(wall[..., :3].astype(int) - [40, 180, 60])[inside].max() <= 4
    front = unwrapped.uv_faces[[k for k in range(12) if (vertices[faces[k], 2] > -0.21).all()]]
    middle = (unwrapped.uv[front].mean((0, 1)) * 256).astype(int)  # behind the block
    assert (painting.coverage[middle[1], middle[0]] == 150).all()


@pytest.mark.parametrize("under", [(255, 255, 255), (0, 0, 0)])
def test_what_lies_under_transparent_pixels_leaves_no_fringe(under):
    vertices, faces = cases.ball()
    colour = np.array([70, 110, 160])
    mesh = Mesh(vertices, faces, np.tile(colour, (len(vertices), 1)).astype(np.uint8))
    _, painting = cases.painted(vertices, faces, [view(k, mesh, cases.camera(60 * k), under) for k in range(3)])
    assert np.abs(painting.base_color.astype(int) - colour).max() <= 4


def test_a_rim_mixed_with_the_background_is_not_read():
    """A matte whose outermost opaque pixels are half white background."""
    import cv2

    vertices, faces = cases.ball()
    colour = np.array([70, 110, 160])
    mesh = Mesh(vertices, faces, np.tile(colour, (len(vertices), 1)).astype(np.uint8))
    views = []
    for k in range(3):
        camera = cases.camera(60 * k)
        image = cases.picture(mesh, camera)
        inside = (image[..., 3] == 255).astype(np.uint8)
        rim = (inside == 1) & (cv2.erode(inside, np.ones((3, 3), np.uint8)) == 0)
        image[rim, :3] = image[rim, :3] // 2 + 128
        views.append(View(k, image, vertices, camera))
    _, painting = cases.painted(vertices, faces, views)
    assert np.abs(painting.base_color.astype(int) - colour).max() <= 4


def test_two_bad_views_of_five_are_outvoted():
    rng = np.random.default_rng(0)
    truth = rng.integers(60, 200, (1, 50, 3))
    colour = np.repeat(truth, 5, axis=0).astype(np.uint8)
    colour[1] = 255 - colour[1]
    colour[3] = rng.integers(0, 255, (50, 3))
    fused = bake.fuse(colour, np.ones((5, 50), np.float32), np.ones((5, 50, 3)))
    expected = bake.LINEAR_OF_BYTE[truth[0]]
    assert np.abs(fused - expected).max() < 0.02


def faces_that_change() -> tuple[np.ndarray, np.ndarray, list[Mesh], Camera]:
    """A ball before one camera whose coarse pattern is another one in every picture; half of the third is the
    others' average, so that it is the one they agree with most."""
    vertices, faces = cases.ball(24)
    cells = np.floor(vertices * 6).astype(int) + 3
    rng = np.random.default_rng(3)
    patterns = rng.integers(40, 216, (5, 7, 7, 7, 3))
    patterns[2] = (patterns[2] + 3 * np.delete(patterns, 2, 0).mean(0)) // 4
    looks = [Mesh(vertices, faces, p[tuple(cells.T)].astype(np.uint8)) for p in patterns]
    return vertices, faces, looks, cases.camera()


def test_where_pictures_differ_one_of_them_is_shown_and_not_a_patchwork():
    vertices, faces, looks, camera = faces_that_change()
    views = [view(10 + k, mesh, camera) for k, mesh in enumerate(looks)]
    _, all_alike = cases.painted(vertices, faces, views)
    assert bake.choose_lead(all_alike.baked) == 12
    unwrapped, led = cases.painted(vertices, faces, views, lead=12)
    assert np.array_equal(led.coverage, all_alike.coverage), "leading changes who decides, not what was seen"
    errors = []
    for painting in (led, all_alike):
        texture = Texture(unwrapped.uv, unwrapped.uv_faces, painting.base_color)
        truth, again = render_mesh(looks[2], camera), render_mesh(looks[2], camera, texture=texture)
        middle = np.zeros(truth.shape[:2], bool)
        middle[44:-44, 60:-60] = True
        errors.append(np.abs(truth[..., :3].astype(int) - again[..., :3])[middle].mean())
    assert errors[0] < 5 and errors[0] < 0.5 * errors[1], errors


def test_a_view_that_sees_little_does_not_lead():
    vertices, faces, looks, camera = faces_that_change()
    views = [view(10 + k, mesh, camera) for k, mesh in enumerate(looks)]
    views[2].image[:, 70:, 3] = 0
    _, painting = cases.painted(vertices, faces, views)
    assert bake.choose_lead(painting.baked) not in (12, None)


def test_the_exposure_of_each_view_is_found():
    rng = np.random.default_rng(1)
    true_gain = np.array([0.95, 1.05, 1.0, 0.9, 1.1])
    true_gain /= np.exp(np.log(true_gain).mean())
    seen = bake.Observations(2000, kept=5)
    base = rng.uniform(0.1, 0.6, (2000, 3))
    for k, gain in enumerate(true_gain):
        seen.add(k, np.arange(2000), (base * gain).astype(np.float32), np.full(2000, 0.5, np.float32))
    assert np.abs(bake.exposure_gains(seen, 5) - true_gain[:, None]).max() < 0.01


def test_only_the_best_observations_are_kept():
    seen = bake.Observations(1, kept=2)
    for k, weight in enumerate([0.3, 0.1, 0.2, 0.05]):
        seen.add(k, np.array([0]), np.full((1, 3), 0.5), np.array([weight], np.float32))
    assert sorted(zip(seen.view[:, 0].tolist(), np.round(seen.weight[:, 0], 2).tolist(), strict=True)) == [
        (0, pytest.approx(0.3)),
        (2, pytest.approx(0.2)),
    ]


def test_weighted_median():
    values = np.array([[1.0], [2.0], [10.0]])[:, :, None]
    assert bake.weighted_median(values, np.array([[1.0], [1.0], [1.0]]))[0, 0] == 2
    assert bake.weighted_median(values, np.array([[1.0], [1.0], [5.0]]))[0, 0] == 10
    assert bake.weighted_median(values, np.array([[0.0], [1.0], [0.0]]))[0, 0] == 2


def test_slip_is_the_shift_of_a_square():
    square = np.zeros((60, 60), bool)
    square[20:40, 20:40] = True
    assert silhouette_slip(square, square) == 0
    # Moved by 4 along x: two of its four sides move, so 2 on average.
    assert silhouette_slip(np.roll(square, 4, 1), square) == pytest.approx(2, rel=0.4)
