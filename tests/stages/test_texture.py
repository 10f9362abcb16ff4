"""The texture stage: from three folders to the picture of the asset."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import texture_cases as cases

from v2m4 import formats
from v2m4.errors import InputError
from v2m4.stages import texture
from v2m4.stages.texture import TextureOptions
from v2m4.types import AnimatedMesh, Mesh

RED = np.array([200, 50, 50])
OPTIONS = TextureOptions(size=256)


def folders(root: Path, brightness: tuple[float, ...] = (1.0, 1.0, 1.0), colors: np.ndarray | None = None):
    """A cube of one colour that turns in front of a fixed camera."""
    vertices, faces = cases.box()
    positions = np.stack([cases.turned(vertices, 20 * k) for k in range(len(brightness))])
    view = cases.camera(elevation_deg=35)
    images = []
    for pose, factor in zip(positions, brightness, strict=True):
        shade = np.tile(np.round(RED * factor), (8, 1)).astype(np.uint8)
        images.append(cases.picture(Mesh(pose, faces, shade), view, under=(255, 255, 255)))
    animation = AnimatedMesh(faces, positions, np.arange(len(brightness)) / 12)
    return cases.stage_folders(root, animation, images, view, colors)


def test_one_colour_comes_out_as_itself_everywhere(tmp_path, context):
    texture.run(context, OPTIONS, *folders(tmp_path))
    made = formats.read_texture(context.out)
    assert made.base_color.shape == (256, 256, 3)
    assert np.abs(made.base_color.astype(int) - RED).max() <= 2  # every texel: seen, unseen and between the charts
    facts = formats.read_json(context.out / "texture.json")
    assert facts["size"] == 256 and facts["charts"] == 6
    assert 0.4 < facts["seen_share"] < 0.75  # the back and the bottom were never seen
    assert facts["seen_share"] + facts["unseen_share"] == pytest.approx(1)
    assert [k["iou"] > 0.98 for k in facts["keyframes"]] == [True] * 3
    assert formats.read_rgb(context.out / "preview.png").size and formats.read_rgb(context.out / "coverage.png").size


def test_brightness_that_varies_by_ten_percent_leaves_one_even_colour(tmp_path, context):
    brightness = (0.95, 1.05, 1.0, 0.96, 1.04)
    texture.run(context, OPTIONS, *folders(tmp_path, brightness))
    color = formats.read_texture(context.out).base_color.astype(int)
    assert np.abs(color - RED).max() <= 4
    assert np.ptp(color.reshape(-1, 3), axis=0).max() <= 4


def test_what_was_never_seen_takes_the_mesh_colours_in_the_tone_of_the_video(tmp_path, context):
    colors = np.tile(np.array([150, 40, 40], np.uint8), (8, 1))  # the generator made it too dark
    texture.run(context, OPTIONS, *folders(tmp_path, colors=colors))
    assert np.abs(formats.read_texture(context.out).base_color.astype(int) - RED).max() <= 3
    assert formats.read_json(context.out / "texture.json")["unseen_filled_from"] == "the generated mesh's colours"


def test_runs_are_equal_to_the_byte_also_when_resumed(tmp_path, context):
    inputs = folders(tmp_path)
    texture.run(context, OPTIONS, *inputs)
    first = {p.name: p.read_bytes() for p in context.out.iterdir()}
    for name in ("base_color.png", "texture.json", "coverage.png", "preview.png"):
        (context.out / name).unlink()
    texture.run(context, OPTIONS, *inputs)  # finds uv.npz, as after an interruption
    resumed = {p.name: p.read_bytes() for p in context.out.iterdir()}
    other = dataclasses.replace(context, out=tmp_path / "other", seed=99)
    texture.run(other, OPTIONS, *inputs)
    assert first == resumed == {p.name: p.read_bytes() for p in other.out.iterdir()}
    assert set(first) == {"base_color.png", "uv.npz", "texture.json", "coverage.png", "preview.png"}


def test_a_camera_that_misses_the_mesh_is_named(tmp_path, context):
    inputs = folders(tmp_path)
    world = formats.read_json(inputs[1] / "world.json")
    world["world_to_camera"][0][3] += 50.0
    formats.write_json(inputs[1] / "world.json", world)
    with pytest.raises(InputError, match="no keyframe shows any of the mesh"):
        texture.run(context, OPTIONS, *inputs)


def test_an_object_too_thin_to_paint_keeps_the_mesh_colours_and_says_so(tmp_path, context, monkeypatch):
    """Every pixel lies at the rim: the cameras do look at it, only nothing is sure."""
    from v2m4.texture import visibility

    monkeypatch.setattr(visibility, "pixel_quality", lambda opaque, *_: np.zeros(opaque.shape, np.float32))
    colors = np.tile(np.array([150, 40, 40], np.uint8), (8, 1))
    texture.run(context, OPTIONS, *folders(tmp_path, colors=colors))
    assert np.abs(formats.read_texture(context.out).base_color.astype(int) - colors[0]).max() <= 2
    assert formats.read_json(context.out / "texture.json")["seen_share"] == 0
    assert [m for m in context.messages if m.startswith("warning") and "paints none of the surface surely" in m]
