"""Contact sheets, turntables, overlays and short films: what an artist looks at."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from v2m4 import transforms
from v2m4.errors import InputError
from v2m4.render.shade import Mode, render_mesh
from v2m4.types import Camera, Mesh, Texture

#: Grey behind sheets and under labels.
PAPER = 32
#: Behind moving pictures with alpha: a grey on which both dark and light objects stand out, sRGB.
BACKDROP = np.array([164, 164, 168], np.uint8)
#: Numbers of H.273 for the YUV matrix, and FFmpeg's for the range.
BT601, LIMITED = 6, 1


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
        raise InputError("a contact sheet needs at least one picture", "give a list of pictures that is not empty")
    if labels is not None and len(labels) != len(images):
        raise InputError(f"{len(labels)} labels for {len(images)} pictures", "give one for each picture, or None")
    columns = max(1, min(columns, len(images)))
    channels = max(image.shape[2] for image in images)
    cell_height = max(image.shape[0] for image in images)
    cell_width = max(image.shape[1] for image in images)
    step = cell_height + (_label_height(cell_width) if labels is not None else 0)
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
    """``views`` pictures (size,size,4) all around the mesh, from a little above; the first sees its front (+Z).

    72 views make three seconds of film at 24 pictures a second (``write_mp4``), without a jump when it starts again.
    """
    vertices = mesh.vertices if len(mesh.vertices) else np.zeros((1, 3))
    centre = (vertices.min(0).astype(float) + vertices.max(0)) / 2
    radius = max(float(np.linalg.norm(vertices - centre, axis=1).max()), 1e-6)
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


def turntable_labels(views: int) -> list[str]:
    """What each picture of a turntable of so many views shows: "front", "45°", "90°" (from +X), ... "back" ..."""
    sides = {0.0: "front", 180.0: "back"}
    return [sides.get(angle, f"{angle:.0f}°") for angle in (360 * i / views for i in range(views))]


def difference(frame: np.ndarray, render: np.ndarray) -> np.ndarray:
    """Where two (H,W,4) pictures of one size differ over white: (H,W,3). Dark grey means equal; red lies outside the
    render, blue outside the frame, brightness elsewhere how far colours are apart. InputError when the sizes differ."""
    if frame.shape[:2] != render.shape[:2]:
        raise InputError(
            f"the frame is {frame.shape[1]}x{frame.shape[0]}, the render {render.shape[1]}x{render.shape[0]}",
            "render with a camera of the frame's size",
        )
    apart = np.abs(on_white(frame).astype(int) - on_white(render)).mean(-1) / 255
    shown = np.repeat((40 + 215 * np.sqrt(apart))[..., None], 3, -1)
    if frame.shape[2] == 4 and render.shape[2] == 4:
        a, b = frame[..., 3] / 255.0, render[..., 3] / 255.0
        missing, extra = np.clip(a - b, 0, 1)[..., None], np.clip(b - a, 0, 1)[..., None]
        shown = shown * (1 - missing - extra) + missing * [230, 60, 50] + extra * [60, 110, 230]
    return np.round(shown).clip(0, 255).astype(np.uint8)


def overlay(
    frame: np.ndarray, render: np.ndarray, titles: Sequence[str] = ("frame", "render", "difference")
) -> np.ndarray:
    """Frame | render | ``difference``, each with its title underneath: two (H,W,4) pictures of one size, both over
    white -> (H+h,3W,3). InputError when the sizes differ."""
    return contact_sheet([on_white(frame), on_white(render), difference(frame, render)], 3, titles)


def side_by_side(*films: Iterable[np.ndarray], titles: Sequence[str] | None = None) -> Iterator[np.ndarray]:
    """Films of equally many (H,W,3|4) uint8 pictures, playing beside each other: (H,W,3) pictures for ``write_mp4``.

    The first pictures are brought to the height of the tallest; later ones fit into the same cells. Nothing is
    stretched: what is left of a cell, and what is transparent, shows BACKDROP. ``titles`` stand under the films.
    InputError when one film ends before another or a title is missing.
    """
    if titles is not None and len(titles) != len(films):
        raise InputError(f"{len(titles)} titles for {len(films)} films", "give one for each film, or None")
    cells: list[tuple[int, int]] = []
    for pictures in zip_longest(*films):
        if any(picture is None for picture in pictures):
            raise InputError("films beside each other need equally many pictures", "cut the longer one")
        if not cells:
            height = max(picture.shape[0] for picture in pictures)
            cells = [(height, max(1, round(p.shape[1] * height / p.shape[0]))) for p in pictures]
        row = [_fit(picture, cell) for picture, cell in zip(pictures, cells, strict=True)]
        yield np.concatenate(row if titles is None else [_titled(p, t) for p, t in zip(row, titles, strict=True)], 1)


def _fit(picture: np.ndarray, cell: tuple[int, int]) -> np.ndarray:
    """The picture as large as the cell (height, width) allows, in its middle, over BACKDROP: (H,W,3)."""
    from PIL import Image

    height, width = picture.shape[:2]
    scale = min(cell[0] / height, cell[1] / width)
    size = min(cell[1], max(1, round(width * scale))), min(cell[0], max(1, round(height * scale)))
    if size != (width, height):
        picture = np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS))
    top, left = (cell[0] - size[1]) // 2, (cell[1] - size[0]) // 2
    out = np.empty((*cell, 3), np.uint8)
    out[:] = BACKDROP
    out[top : top + size[1], left : left + size[0]] = on_color(picture, BACKDROP)
    return out


def _titled(picture: np.ndarray, title: str) -> np.ndarray:
    strip = np.empty((_label_height(picture.shape[1]), picture.shape[1], 3), np.uint8)
    _label(strip, title)
    return np.concatenate([picture, strip])


def write_mp4(path: Path | str, images: Iterable[np.ndarray], fps: float) -> None:
    """A film of (H,W,3|4) uint8 pictures of one size, H.264 (MPEG-4 where this PyAV has no H.264), yuv420p.

    ``images`` may be made while they are written, so that a long film needs little memory. Odd sizes are padded by
    repeating the last row or column; transparency goes over white. InputError when there is no picture, the sizes
    differ, or the place cannot be written; then no file is left behind.
    """
    from fractions import Fraction

    import av

    if not (np.isfinite(fps) and fps > 0):
        raise InputError(f"{path}: a film needs a positive frame rate, not {fps}", "24 is usual")
    path, pictures = Path(path), iter(images)
    first = next(pictures, None)
    if first is None:
        raise InputError(f"{path}: a film needs at least one picture", "is the generator used up already?")
    temporary = path.with_name(f".{path.stem}.tmp.mp4")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with av.open(str(temporary), "w", format="mp4") as container:
            height, width = first.shape[:2]
            stream: Any = container.add_stream(_codec(), rate=Fraction(fps).limit_denominator(1001))
            stream.width, stream.height, stream.pix_fmt = width + width % 2, height + height % 2, "yuv420p"
            stream.thread_count = 1  # with more, the bytes depend on the machine
            # Say which matrix and range the pictures are converted with: players guess another one for large films.
            stream.codec_context.colorspace, stream.codec_context.color_range = BT601, LIMITED
            if stream.codec_context.name == "libx264":
                stream.options = {"crf": "18", "preset": "medium"}
            else:
                stream.bit_rate = max(1_000_000, int(4 * width * height * fps))
            for image in chain([first], pictures):
                if image.shape[:2] != (height, width):
                    raise InputError(f"{path}: all pictures of a film must have one size", "side_by_side fits them")
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


def _font_size(width: int) -> int:
    """Letters that can be read in a picture of this width."""
    return min(max(10, width // 28), 20)


def _label_height(width: int) -> int:
    return _font_size(width) + 6


def _label(strip: np.ndarray, text: str) -> None:
    """Write ``text`` into ``strip`` (h,W,3|4), light on dark, centred, cut where it does not fit."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("RGB", (strip.shape[1], strip.shape[0]), (PAPER,) * 3)
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(_font_size(strip.shape[1]))
    x = max((strip.shape[1] - draw.textlength(text, font=font)) / 2, 1)
    draw.text((x, 2), text, fill=(230, 230, 230), font=font)
    strip[..., :3] = np.asarray(picture)
    if strip.shape[2] == 4:
        strip[..., 3] = 255
