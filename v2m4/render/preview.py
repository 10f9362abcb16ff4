"""Contact sheets, turntables, overlays and short films: what an artist looks at."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from v2m4 import transforms
from v2m4.errors import InputError
from v2m4.render.shade import Mode, render_mesh
from v2m4.types import Camera, Mesh, Texture

#: Grey behind sheets and under labels.
PAPER = 32
LABEL_HEIGHT = 16


def on_color(rgba: np.ndarray, background: np.ndarray) -> np.ndarray:
    """(H,W,4) straight alpha over ``background`` (broadcast to (H,W,3), uint8 sRGB) -> (H,W,3) uint8."""
    if rgba.shape[-1] == 3:
        return np.ascontiguousarray(rgba)
    alpha = rgba[..., 3:].astype(np.uint32)
    mixed = rgba[..., :3] * alpha + np.asarray(background, np.uint32) * (255 - alpha)
    return ((mixed + 127) // 255).astype(np.uint8)


def on_white(rgba: np.ndarray) -> np.ndarray:
    """(H,W,4) straight alpha -> (H,W,3) on white."""
    return on_color(rgba, np.full(3, 255, np.uint8))


def on_checker(rgba: np.ndarray, square: int = 16) -> np.ndarray:
    """(H,W,4) straight alpha -> (H,W,3) on a grey checkerboard, so that transparency can be seen."""
    y, x = np.indices(rgba.shape[:2]) // square
    return on_color(rgba, np.where((x + y) % 2, 102, 153).astype(np.uint8)[..., None])


def contact_sheet(images: Sequence[np.ndarray], columns: int, labels: Sequence[str] | None = None) -> np.ndarray:
    """Pictures of any sizes, (H,W,3|4) uint8, in a grid of equal cells, row by row, each with its label underneath.

    (H,W,4) when one of them has alpha, else (H,W,3). InputError when there is no picture or a label is missing.
    """
    if not images:
        raise InputError("a contact sheet needs at least one picture")
    if labels is not None and len(labels) != len(images):
        raise InputError(f"{len(labels)} labels for {len(images)} pictures")
    columns = max(1, min(columns, len(images)))
    channels = max(image.shape[2] for image in images)
    cell_height = max(image.shape[0] for image in images)
    cell_width = max(image.shape[1] for image in images)
    step = cell_height + (LABEL_HEIGHT if labels is not None else 0)
    rows = -(-len(images) // columns)
    sheet = np.zeros((rows * step, columns * cell_width, channels), np.uint8)
    if channels == 3:
        sheet[:] = PAPER
    for i, image in enumerate(images):
        y, x = i // columns * step, i % columns * cell_width
        top, left = y + (cell_height - image.shape[0]) // 2, x + (cell_width - image.shape[1]) // 2
        place = sheet[top : top + image.shape[0], left : left + image.shape[1]]
        place[..., : image.shape[2]] = image
        if image.shape[2] < channels:
            place[..., 3] = 255
        if labels is not None:
            _label(sheet[y + cell_height : y + step, x : x + cell_width], labels[i])
    return sheet


def turntable(
    mesh: Mesh, views: int = 8, size: int = 256, texture: Texture | None = None, mode: Mode = "color"
) -> list[np.ndarray]:
    """``views`` pictures (size,size,4) all around the mesh, from a little above; the first sees its front (+Z)."""
    low, high = mesh.vertices.min(0).astype(float), mesh.vertices.max(0).astype(float)
    centre = (low + high) / 2
    radius = max(float(np.linalg.norm(mesh.vertices - centre, axis=1).max()), 1e-6)
    # The renderer clips at a fixed distance in metres: turn a mesh of radius 1, whatever its real size.
    unit = mesh.moved((mesh.vertices - centre) / radius)
    fov_deg = 30.0
    distance = 1.04 / np.sin(np.radians(fov_deg / 2))
    K = transforms.fov_to_K(fov_deg, size, size)
    out = []
    for i in range(views):
        turn, tilt = 2 * np.pi * i / views, np.radians(15)
        eye = distance * np.array([np.sin(turn) * np.cos(tilt), np.sin(tilt), np.cos(turn) * np.cos(tilt)])
        out.append(render_mesh(unit, Camera(K, transforms.look_at(eye), size, size), texture=texture, mode=mode))
    return out


def overlay(frame: np.ndarray, render: np.ndarray) -> np.ndarray:
    """Frame | render | difference, (H,3W,3): two (H,W,4) pictures of one size, both over white. In the difference grey
    means equal; red lies outside the render, blue outside the frame, brightness elsewhere how far colours are apart."""
    if frame.shape[:2] != render.shape[:2]:
        raise InputError(
            f"the frame is {frame.shape[1]}x{frame.shape[0]}, the render {render.shape[1]}x{render.shape[0]}"
        )
    left, middle = on_white(frame), on_white(render)
    apart = np.abs(left.astype(int) - middle).mean(-1) / 255
    difference = np.repeat((40 + 215 * np.sqrt(apart))[..., None], 3, -1)
    if frame.shape[2] == 4 and render.shape[2] == 4:
        a, b = frame[..., 3] / 255.0, render[..., 3] / 255.0
        missing, extra = np.clip(a - b, 0, 1)[..., None], np.clip(b - a, 0, 1)[..., None]
        difference = difference * (1 - missing - extra) + missing * [230, 60, 50] + extra * [60, 110, 230]
    return np.concatenate([left, middle, np.round(difference).clip(0, 255).astype(np.uint8)], 1)


def write_mp4(path: Path, images: Sequence[np.ndarray], fps: float) -> None:
    """A film of (H,W,3|4) uint8 pictures of one size, H.264 (MPEG-4 where this PyAV has no H.264), yuv420p.

    Odd sizes are padded by repeating the last row or column; transparency goes over white. InputError when there is
    no picture, the sizes differ, or the place cannot be written.
    """
    from fractions import Fraction

    import av

    if not len(images):
        raise InputError(f"{path}: a film needs at least one picture")
    if not (np.isfinite(fps) and fps > 0):
        raise InputError(f"{path}: a film needs a positive frame rate, not {fps}")
    if any(image.shape[:2] != images[0].shape[:2] for image in images):
        raise InputError(f"{path}: all pictures of a film must have one size")
    temporary = path.with_name(f".{path.stem}.tmp.mp4")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with av.open(str(temporary), "w", format="mp4") as container:
            height, width = images[0].shape[:2]
            stream: Any = container.add_stream(_codec(), rate=Fraction(fps).limit_denominator(1001))
            stream.width, stream.height, stream.pix_fmt = width + width % 2, height + height % 2, "yuv420p"
            stream.thread_count = 1  # with more, the bytes depend on the machine
            if stream.codec_context.name == "libx264":
                stream.options = {"crf": "18", "preset": "medium"}
            else:
                stream.bit_rate = max(1_000_000, int(4 * width * height * fps))
            for image in images:
                padded = np.pad(on_white(image), ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
                for packet in stream.encode(av.VideoFrame.from_ndarray(padded, format="rgb24")):
                    container.mux(packet)
            for packet in stream.encode():
                container.mux(packet)
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}", "choose another place with -o") from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _codec() -> str:
    import av

    try:
        av.codec.Codec("libx264", "w")
    except Exception:  # av.UnknownCodecError, whose place differs between versions
        return "mpeg4"
    return "libx264"


def _label(strip: np.ndarray, text: str) -> None:
    """Write ``text`` into ``strip`` (LABEL_HEIGHT,W,3|4), light on dark, centred, cut where it does not fit."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("RGB", (strip.shape[1], strip.shape[0]), (PAPER,) * 3)
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default()
    x = max((strip.shape[1] - draw.textlength(text, font=font)) / 2, 1)
    draw.text((x, 2), text, fill=(230, 230, 230), font=font)
    strip[..., :3] = np.asarray(picture)
    if strip.shape[2] == 4:
        strip[..., 3] = 255
