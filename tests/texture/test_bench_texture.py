"""True meshes and cameras of a shared clip: the texture must show the clip again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import texture_cases as cases

from v2m4 import formats
from v2m4.render.shade import render_mesh
from v2m4.texture.visibility import View
from v2m4.types import Camera, Mesh, Texture


def true_views(clip: Path) -> tuple[list[View], np.ndarray]:
    """The frames with their true surfaces (welded) and cameras, and the faces."""
    truth, about = np.load(clip / "gt.npz"), json.loads((clip / "camera.json").read_text())
    _, first, welded = np.unique(truth["weld"], return_index=True, return_inverse=True)
    views = []
    for k, pose in enumerate(about["world_to_camera"]):
        camera = Camera(np.array(about["K"]), np.array(pose), about["width"], about["height"])
        image = formats.read_rgba(clip / "frames" / f"{k:03d}.png")
        views.append(View(k, image, truth["vertices"][k][first], camera))
    return views, welded.reshape(-1)[truth["faces"]].astype(np.int32)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least_db"), [("fox_run", 27.5), ("panda_walk", 29.0)])
def test_the_texture_shows_the_clip_again(shared, name, least_db):
    views, faces = true_views(shared / "bench" / "dev" / name)
    unwrapped, painting = cases.painted(views[0].positions, faces, views, size=1024)
    texture = Texture(unwrapped.uv, unwrapped.uv_faces, painting.base_color)
    decibels = []
    for view in views[::3]:
        again = render_mesh(Mesh(view.positions, faces), view.camera, texture=texture)
        inside = (again[..., 3] == 255) & (view.image[..., 3] == 255)
        error = (again[..., :3].astype(float) - view.image[..., :3])[inside] / 255
        decibels.append(-10 * np.log10((error**2).mean()))
    assert np.mean(decibels) >= least_db
    assert unwrapped.gutter_px >= 8
