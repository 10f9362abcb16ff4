"""Pictures for people."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh

from v2m4 import transforms
from v2m4.errors import InputError
from v2m4.render.shade import render_mesh
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


def test_a_mesh_behind_the_camera_gives_an_empty_picture():
    away = Camera(transforms.fov_to_K(40, 8, 8), transforms.look_at((0, 0, 4), (0, 0, 9)), 8, 8)
    assert not render_mesh(square(), away).any()


def test_what_does_not_fit_is_refused():
    texture = Texture(FULL_UV, [[0, 1, 2]], np.zeros((2, 2, 3), np.uint8))
    with pytest.raises(InputError, match="1 UV faces"):
        render_mesh(square(), camera(), texture=texture)
    with pytest.raises(InputError, match="shading"):
        render_mesh(square(), camera(), mode="glossy")
    with pytest.raises(InputError, match="supersample"):
        render_mesh(square(), camera(), supersample=0)
