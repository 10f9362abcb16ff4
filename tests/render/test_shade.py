"""Pictures for people."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import trimesh

from v2m4 import transforms
from v2m4.errors import InputError
from v2m4.render.shade import CLAY, Mode, render_mesh
from v2m4.types import Camera, Mesh, Texture


def camera(size: int = 64, eye: tuple[float, float, float] = (0, 0, 4)) -> Camera:
    return Camera(transforms.fov_to_K(40, size, size), transforms.look_at(eye), size, size)


def square(colors: np.ndarray | None = None) -> Mesh:
    """2 x 2 in the xy plane, facing +Z; corners: bottom left, bottom right, top right, top left."""
    corners = [[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]]
    return Mesh(np.array(corners), np.array([[0, 1, 2], [0, 2, 3]]), colors)


FULL_UV = np.array([[0, 1], [1, 1], [1, 0], [0, 0]], float)


def test_colours_come_out_as_they_went_in_and_alpha_is_the_area():
    mesh = square(np.full((4, 3), [200, 100, 37], np.uint8))
    image = render_mesh(mesh, camera(), supersample=4)
    assert image.shape == (64, 64, 4) and image.dtype == np.uint8
    np.testing.assert_array_equal(np.unique(image[image[..., 3] > 0][:, :3], axis=0), [[200, 100, 37]])
    assert not image[image[..., 3] == 0].any()
    side = 2 / 4 * transforms.fov_to_K(40, 64, 64)[0, 0]
    assert image[..., 3].sum() / 255 == pytest.approx(side**2, rel=0.01)


def test_a_texture_lies_the_right_way_round():
    """Red top left, green top right, blue bottom left, white bottom right of both the texture and the square."""
    texels = np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [255, 255, 255]]], np.uint8).repeat(8, 0).repeat(8, 1)
    image = render_mesh(square(), camera(), texture=Texture(FULL_UV, square().faces, texels))
    assert image[22, 22].tolist() == [255, 0, 0, 255] and image[22, 41].tolist() == [0, 255, 0, 255]
    assert image[41, 22].tolist() == [0, 0, 255, 255] and image[41, 41].tolist() == [255, 255, 255, 255]


def test_a_texture_is_interpolated_between_texel_centres():
    """A ramp of 64 greys: the shown linear light is the ramp at the pixel's own place."""
    ramp = np.repeat(np.arange(64, dtype=np.uint8)[None, :, None] * 4, 64, 0).repeat(3, 2)
    image = render_mesh(square(), camera(), texture=Texture(FULL_UV, square().faces, ramp), supersample=1)
    focal = transforms.fov_to_K(40, 64, 64)[0, 0]
    columns = np.arange(12, 52)
    u = ((columns + 0.5 - 32) / focal * 4 + 1) / 2
    np.testing.assert_allclose(image[32, columns, 0], (u * 64 - 0.5) * 4, atol=1.1)


def test_normals_are_camera_normals():
    straight = render_mesh(square(), camera(), mode="normals")[32, 32]
    np.testing.assert_allclose(straight, [128, 128, 255, 255], atol=1)
    # Seen from its right at a grazing angle, the square faces to the left of the picture.
    right = render_mesh(square(), camera(eye=(4, 0, 0.5)), mode="normals")
    assert right[right[..., 3] == 255][:, 0].max() < 20


def test_clay_is_lit_from_the_upper_left_and_from_both_sides():
    ball = trimesh.creation.icosphere(4)
    image = render_mesh(Mesh(ball.vertices, ball.faces), camera(), mode="clay").astype(float)
    light = image[..., :3].mean(-1)
    assert light[26, 26] > light[38, 38] + 30
    inside_out = render_mesh(Mesh(ball.vertices, ball.faces[:, ::-1]), camera(), mode="clay")
    np.testing.assert_allclose(inside_out[20:44, 20:44], image[20:44, 20:44], atol=3)
    # Without colours, "color" is clay.
    np.testing.assert_array_equal(image, render_mesh(Mesh(ball.vertices, ball.faces), camera()))


@pytest.mark.parametrize("supersample", [1, 2, 3])
def test_every_shade_of_every_colour_comes_out_exactly(supersample):
    """256 flat triangles, each with its own colour, apart from each other."""
    k = np.arange(256)
    x, y = (k % 16 - 7.5) / 8, (k // 16 - 7.5) / 8
    corners = np.stack([np.stack([x + dx, y + dy, 0 * x], 1) for dx, dy in ((-0.04, -0.04), (0.04, -0.04), (0, 0.04))])
    colors = np.stack([k, 255 - k, 250 - k], 1).clip(0).astype(np.uint8)
    mesh = Mesh(corners.transpose(1, 0, 2).reshape(-1, 3), np.arange(768).reshape(-1, 3), colors.repeat(3, 0))
    image = render_mesh(mesh, camera(192), supersample=supersample)
    found = np.unique(image[image[..., 3] > 0][:, :3], axis=0)
    np.testing.assert_array_equal(found, np.unique(colors, axis=0))


def test_a_flat_texture_comes_out_exactly():
    texture = Texture(FULL_UV, square().faces, np.full((5, 7, 3), (200, 50, 50), np.uint8))
    image = render_mesh(square(), camera(), texture=texture)
    np.testing.assert_array_equal(np.unique(image[image[..., 3] > 0][:, :3], axis=0), [[200, 50, 50]])


def test_a_lit_mesh_keeps_its_hue_under_the_light_of_clay():
    """Lit divided by unlit is the same light for texture, vertex colours and clay, and never more than 1."""
    ball = trimesh.creation.icosphere(4)
    orange = np.full((len(ball.vertices), 3), (250, 120, 30), np.uint8)
    mesh = Mesh(ball.vertices, ball.faces, orange)
    texture = Texture(np.zeros((3, 2)), np.tile([0, 1, 2], (len(ball.faces), 1)), orange[None, :1])
    clay = render_mesh(mesh, camera(), mode="clay")
    seen = clay[..., 3] == 255
    light = transforms.srgb_to_linear(clay[seen][:, :3] / 255) / transforms.srgb_to_linear(CLAY)
    assert light.max() <= 1.01 and light.max() > 0.9 and 0.1 < light.min() < 0.4
    for given in (None, texture):
        lit = render_mesh(mesh, camera(), texture=given, mode="lit")
        expected = transforms.linear_to_srgb(light * transforms.srgb_to_linear(orange[0] / 255)) * 255
        np.testing.assert_allclose(lit[seen][:, :3], expected, atol=2.5)
    bare = Mesh(ball.vertices, ball.faces)
    np.testing.assert_array_equal(render_mesh(bare, camera(), mode="lit"), clay)


def test_the_texture_goes_before_vertex_colours_unless_it_is_left_out():
    blue = square(np.full((4, 3), (0, 0, 200), np.uint8))
    red = Texture(FULL_UV, blue.faces, np.full((2, 2, 3), (200, 0, 0), np.uint8))
    assert render_mesh(blue, camera(), texture=red)[32, 32].tolist() == [200, 0, 0, 255]
    assert render_mesh(blue, camera())[32, 32].tolist() == [0, 0, 200, 255]


@pytest.mark.parametrize("mode", get_args(Mode))
def test_a_mesh_behind_the_camera_or_without_faces_gives_an_empty_picture(mode):
    away = Camera(transforms.fov_to_K(40, 8, 8), transforms.look_at((0, 0, 4), (0, 0, 9)), 8, 8)
    assert not render_mesh(square(), away, mode=mode).any()
    nothing = Mesh(np.zeros((0, 3)), np.zeros((0, 3), int))
    assert not render_mesh(nothing, camera(8), mode=mode).any()
    assert not render_mesh(Mesh(square().vertices, nothing.faces), camera(1), mode=mode).any()


def test_what_does_not_fit_is_refused():
    texture = Texture(FULL_UV, [[0, 1, 2]], np.zeros((2, 2, 3), np.uint8))
    with pytest.raises(InputError, match="1 UV faces"):
        render_mesh(square(), camera(), texture=texture)
    with pytest.raises(InputError, match="shading"):
        render_mesh(square(), camera(), mode="glossy")
    with pytest.raises(InputError, match="supersample"):
        render_mesh(square(), camera(), supersample=0)
