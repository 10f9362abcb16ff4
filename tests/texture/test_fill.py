"""Colours where the video never looked, and between the charts."""

from __future__ import annotations

import numpy as np
import texture_cases as cases

from v2m4.render.shade import render_mesh
from v2m4.texture import fill
from v2m4.texture.visibility import View
from v2m4.types import Mesh, Texture


def half_red_half_blue(vertices: np.ndarray) -> np.ndarray:
    return np.where(vertices[:, :1] > 0, [200, 60, 50], [50, 70, 190]).astype(np.uint8)


def test_gutters_carry_the_colour_of_their_island_and_nothing_is_black():
    picture = np.zeros((96, 96, 3), np.uint8)
    covered = np.zeros((96, 96), bool)
    covered[10:30, 10:30] = covered[60:90, 50:80] = True
    picture[10:30, 10:30], picture[60:90, 50:80] = [200, 50, 50], [20, 90, 160]
    out = fill.fill_gutters(picture, covered)
    assert (out[2:38, 2:38] == [200, 50, 50]).all()  # eight texels round the island
    assert (out[52:96, 42:88] == [20, 90, 160]).all()
    assert (out.sum(-1) > 0).all()
    np.testing.assert_array_equal(out[covered], picture[covered])


def test_the_back_follows_the_mesh_colours_in_the_tone_of_the_video():
    vertices, faces = cases.ball()
    truth = half_red_half_blue(vertices)
    dark = np.round(truth * 0.85).astype(np.uint8)  # the generator's tone
    front = cases.camera(0, 0)
    image = cases.picture(Mesh(vertices, faces, truth), front)
    unwrapped, painting = cases.painted(vertices, faces, [View(0, image, vertices, front)], colors=dark)
    assert 0.2 < painting.seen_share < 0.5
    texture = Texture(unwrapped.uv, unwrapped.uv_faces, painting.base_color)
    back = cases.camera(180, 0)
    wanted, got = (
        render_mesh(Mesh(vertices, faces, truth), back),
        render_mesh(Mesh(vertices, faces), back, texture=texture),
    )
    inside = (wanted[..., 3] == 255) & (got[..., 3] == 255)
    error = np.abs(wanted[..., :3].astype(int) - got[..., :3])[inside]
    untoned = np.abs(wanted[..., :3].astype(int) - wanted[..., :3] * 0.85)[inside]
    assert error.mean() < 6 and error.mean() < untoned.mean() / 2


def test_without_mesh_colours_the_seen_ones_spread_over_the_surface():
    vertices, faces = cases.ball()
    truth = half_red_half_blue(vertices)
    front = cases.camera(0, 0)
    image = cases.picture(Mesh(vertices, faces, truth), front)
    unwrapped, painting = cases.painted(vertices, faces, [View(0, image, vertices, front)])
    texture = Texture(unwrapped.uv, unwrapped.uv_faces, painting.base_color)
    back = render_mesh(Mesh(vertices, faces), cases.camera(180, 0), texture=texture).astype(int)
    middle = back[back.shape[0] // 2]
    seen = np.flatnonzero(middle[:, 3] == 255)
    left, right = middle[seen[5]], middle[seen[-5]]  # from behind, +x is on the left
    assert left[0] > left[2] + 30 and right[2] > right[0] + 30
    assert painting.base_color.reshape(-1, 3).max(1).min() > 50  # nowhere black


def test_a_mesh_nobody_saw_is_grey_or_has_its_own_colours():
    vertices, faces = cases.ball(8)
    away = cases.camera(0, 0)
    image = np.zeros((away.height, away.width, 4), np.uint8)
    for colors, expected in ((None, 128), (np.full((len(vertices), 3), 77, np.uint8), 77)):
        _, painting = cases.painted(vertices, faces, [View(0, image, vertices, away)], colors=colors)
        assert painting.seen_share == 0
        assert np.abs(painting.base_color.astype(int) - expected).max() <= 1


def test_tone_is_found_in_spite_of_outliers():
    rng = np.random.default_rng(0)
    prior = rng.uniform(0.1, 0.6, (500, 3))
    seen = prior * [1.2, 0.9, 1.0] + [0.02, 0.0, -0.03]
    seen[::10] = 1.0
    weight = np.ones(500)
    weight[250:] = 0  # never seen: must follow the rest
    toned = fill.matched_tone(prior, np.where(weight[:, None] > 0, seen, 0), weight)
    good = np.arange(500) % 10 > 0
    expected = prior * [1.2, 0.9, 1.0] + [0.02, 0.0, -0.03]
    assert np.abs(toned - expected)[good].max() < 0.03
