"""Frames are bent onto the surface: features land where they belong, and nothing is bent that fits."""

from __future__ import annotations

import numpy as np
import pytest
import texture_cases as cases

from v2m4.render.shade import render_mesh
from v2m4.texture.align import align, aligned, warp
from v2m4.texture.visibility import View, silhouette_slip
from v2m4.types import Mesh, Texture


def spotted_ball() -> Mesh:
    vertices, faces = cases.ball(32)
    colors = np.clip(130 + 90 * np.sin(14 * vertices) + 20 * vertices, 0, 255).astype(np.uint8)
    return Mesh(vertices, faces, colors)


@pytest.fixture(scope="module")
def render():
    return cases.picture(spotted_ball(), cases.camera(20, scale=2))


@pytest.mark.parametrize("shift", [(3, 0), (0, -3), (2, 2)])
def test_a_shifted_frame_is_brought_back(render, shift):
    frame = np.roll(render, shift, (0, 1))
    inside = lambda image: image[..., 3] > 127  # noqa: E731
    slip = silhouette_slip(inside(render), inside(frame))
    bent = align(frame, render, slip)
    before = np.abs(frame[..., :3].astype(int) - render[..., :3])[inside(render) & inside(frame)].mean()
    after = np.abs(bent[..., :3].astype(int) - render[..., :3])[inside(render) & inside(bent)].mean()
    assert after < before / 3
    assert silhouette_slip(inside(render), inside(bent)) < slip / 2


def test_a_frame_that_fits_is_not_touched(render):
    assert align(render, render, 0.0) is render
    assert align(render, render, 5.0) is render  # no flow makes a perfect fit better


def test_warping_mixes_no_hidden_colour_into_the_rim(render):
    flow = np.full((*render.shape[:2], 2), 0.5, np.float32)
    under = render.copy()
    under[under[..., 3] == 0, :3] = 255
    np.testing.assert_array_equal(warp(render, flow)[..., 3], warp(under, flow)[..., 3])
    visible = warp(render, flow)[..., 3] > 0
    np.testing.assert_array_equal(warp(render, flow)[visible], warp(under, flow)[visible])


def test_misplaced_frames_paint_a_sharper_texture_when_aligned():
    mesh, size = spotted_ball(), 256
    cameras = [cases.camera(20 + k, 10, scale=2) for k in range(5)]
    shifts = [(0, 0), (3, 2), (-3, 1), (2, -3), (-2, -2)]
    views = [
        View(k, np.roll(cases.picture(mesh, camera), shift, (0, 1)), mesh.vertices, camera)
        for k, (camera, shift) in enumerate(zip(cameras, shifts, strict=True))
    ]
    unwrapped, draft = cases.painted(mesh.vertices, mesh.faces, views, size=size)
    textures = [Texture(unwrapped.uv, unwrapped.uv_faces, draft.base_color)]
    _, better = cases.painted(mesh.vertices, mesh.faces, list(aligned(views, mesh.faces, textures[0])), size=size)
    textures.append(Texture(unwrapped.uv, unwrapped.uv_faces, better.base_color))
    truth = render_mesh(mesh, cameras[2])
    middle = (slice(60, 200), slice(90, 230))
    errors = [
        np.abs(render_mesh(mesh, cameras[2], texture=t)[middle].astype(int) - truth[middle])[..., :3].mean()
        for t in textures
    ]
    assert errors[1] < 0.9 * errors[0]
