"""Pictures and scores of a finished run: the clip's frames beside the asset, seen from the clip's camera."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from v2m4 import formats, transforms
from v2m4.export.keyframes import hat_weights
from v2m4.export.notes import frame_rate
from v2m4.types import AnimatedMesh, ClipCamera, Mesh, Texture

PANEL = 360
TURNTABLE_SIZE = 256
MASK_SIZE, OUTLINE_FRAMES = 256, 300
#: The report's film: largest width and height of one half, most pictures, and about how large it may be.
FILM_SIZE, FILM_FRAMES, FILM_BYTES = (480, 320), 48, 1_500_000
#: The same of side_by_side.mp4, which shows every frame.
MP4_SIZE = (720, 540)


@dataclass(frozen=True)
class View:
    """A part of the clip's picture, ``box`` (left, top, right, bottom) in its pixels, and the camera that sees it."""

    box: tuple[float, float, float, float]
    camera: ClipCamera


@dataclass(frozen=True)
class Silhouettes:
    """How well the outlines agree: ``iou`` (N,) in [0, 1] (1 where both are empty) at ``frames`` (N,), the keyframes
    and, in clips that are not too long, the frames between them. Frame and asset stay inside ``box`` of the clip's
    picture, with a margin."""

    frames: np.ndarray
    iou: np.ndarray
    box: tuple[float, float, float, float]


@dataclass(frozen=True)
class Run:
    """What the pictures are made of. ``keyframes`` (K,) are the frame numbers of the animation's poses."""

    ingest: Path
    animation: AnimatedMesh
    texture: Texture
    camera: ClipCamera
    keyframes: np.ndarray
    times_s: np.ndarray

    def mesh(self, time_s: float) -> Mesh:
        """The textured mesh at a time of the clip, in the world."""
        row = hat_weights(self.animation.times_s, np.array([time_s]))[0]
        active = np.flatnonzero(row)
        positions = np.einsum("k,kvc->vc", row[active], self.animation.positions[active].astype(float))
        return Mesh(positions, self.animation.faces)

    def frame(self, index: int, view: View) -> np.ndarray:
        """A frame of the clip (H,W,4), cut and resized to the view."""
        from PIL import Image

        pixels = formats.read_rgba(self.ingest / "frames" / f"{formats.frame_name(index)}.png")
        size = view.camera.width, view.camera.height
        return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BOX, box=view.box))

    def result(self, index: int, view: View) -> np.ndarray:
        """The asset at the time of that frame (H,W,4), through the same view."""
        from v2m4.render.shade import render_mesh

        return render_mesh(self.mesh(float(self.times_s[index])), view.camera.at(index), texture=self.texture)


def read_run(ingest: Path, repose: Path, topology: Path, texture: Path) -> Run:
    """The finished stages. InputError when one of their files is missing or damaged."""
    data = formats.read_npz(topology / "animation.npz")
    animation = AnimatedMesh(data["faces"], data["positions"], data["times_s"])
    times = formats.read_clip(ingest, only=()).times_s
    nearest = np.abs(animation.times_s[:, None] - times).argmin(1)
    return Run(
        ingest=ingest,
        animation=animation,
        texture=formats.read_texture(texture),
        camera=formats.read_camera(repose),
        keyframes=np.asarray(data.get("keyframes", nearest)),
        times_s=times,
    )


def part(camera: ClipCamera, box: tuple[float, float, float, float], longest: float) -> View:
    """What ``camera`` sees inside ``box``, in a picture whose longer side has ``longest`` pixels (never enlarged)."""
    left, top, right, bottom = box
    factor = min(1.0, longest / max(right - left, bottom - top))
    width, height = max(1, round((right - left) * factor)), max(1, round((bottom - top) * factor))
    moved = np.array([[1, 0, -left], [0, 1, -top], [0, 0, 1]]) @ camera.K
    K = transforms.scale_K(moved, width / (right - left), height / (bottom - top))
    return View(box, ClipCamera(K, camera.world_to_camera, width, height))


def silhouettes(run: Run) -> Silhouettes:
    """Outline of the asset against the frame's alpha."""
    from v2m4.render import masks

    whole = (0.0, 0.0, float(run.camera.width), float(run.camera.height))
    view = part(run.camera, whole, MASK_SIZE)
    camera = view.camera
    frames = np.arange(len(run.times_s)) if len(run.times_s) <= OUTLINE_FRAMES else run.keyframes
    iou, everywhere = [], np.zeros((camera.height, camera.width), bool)
    for index in frames.tolist():
        mesh = run.mesh(float(run.times_s[index]))
        pose = camera.at(index).world_to_camera
        points = transforms.apply(pose, mesh.vertices.astype(float)).astype(np.float32)
        found = masks(points[None], mesh.faces, camera.K, camera.height, camera.width)[0]
        wanted = run.frame(index, view)[..., 3] >= 128
        union = np.count_nonzero(found | wanted)
        iou.append(np.count_nonzero(found & wanted) / union if union else 1.0)
        everywhere |= found | wanted
    return Silhouettes(frames, np.array(iou), _around(everywhere, whole))


def _around(mask: np.ndarray, whole: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    """The box of a mask (H,W) with a margin of 6 % of its size, in pixels of the picture ``whole`` spans."""
    if not mask.any():
        return whole
    scale = np.array([whole[2] / mask.shape[1], whole[3] / mask.shape[0]])
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    low = np.array([columns[0], rows[0]]) * scale
    high = np.array([columns[-1] + 1, rows[-1] + 1]) * scale
    margin = 0.06 * float((high - low).max())
    low, high = np.maximum(np.floor(low - margin), 0), np.minimum(np.ceil(high + margin), whole[2:])
    return float(low[0]), float(low[1]), float(high[0]), float(high[1])


def comparison(run: Run, index: int, box: tuple[float, float, float, float]) -> tuple[np.ndarray, ...]:
    """(frame, asset, difference) of one frame inside ``box``, (H,W,3) each."""
    from v2m4.render.preview import BACKDROP, difference, on_color

    view = part(run.camera, box, PANEL)
    frame, result = run.frame(index, view), run.result(index, view)
    return on_color(frame, BACKDROP), on_color(result, BACKDROP), difference(frame, result)


def turntable(run: Run) -> np.ndarray:
    """The first pose from six sides, textured above, as clay below: (H,W,3)."""
    from v2m4.render.preview import BACKDROP, contact_sheet, on_color, turntable_labels
    from v2m4.render.preview import turntable as turn

    first = run.mesh(float(run.animation.times_s[0]))
    size = TURNTABLE_SIZE
    views = turn(first, views=6, size=size, texture=run.texture) + turn(first, views=6, size=size, mode="clay")
    labels = turntable_labels(6) + [f"{label}, clay" for label in turntable_labels(6)]
    return contact_sheet([on_color(view, BACKDROP) for view in views], 6, labels)


def beside(
    run: Run, box: tuple[float, float, float, float], frames: Sequence[int], size: tuple[int, int]
) -> Iterator[np.ndarray]:
    """Frame beside asset inside ``box`` at the given frames, each at most ``size`` (width, height): (H,W,3) each."""
    from v2m4.render.preview import side_by_side

    width, height = box[2] - box[0], box[3] - box[1]
    view = part(run.camera, box, min(size[0] / width, size[1] / height) * max(width, height))
    clip, asset = (run.frame(k, view) for k in frames), (run.result(k, view) for k in frames)
    return side_by_side(clip, asset, titles=("clip", "asset"))


def write_film(path: Path, run: Run, box: tuple[float, float, float, float]) -> None:
    """``beside`` as an mp4 with all frames of the clip, at its own speed and rate.

    Where the frames are not evenly spaced, each picture shows the frame nearest to its time.
    """
    from v2m4.render.preview import write_mp4

    fps = frame_rate(run.times_s)[0] or 1.0
    ticks = run.times_s[0] + np.arange(len(run.times_s)) / fps
    nearest = np.searchsorted((run.times_s[1:] + run.times_s[:-1]) / 2, ticks)
    write_mp4(path, beside(run, box, nearest.tolist(), MP4_SIZE), fps)


def film(run: Run, box: tuple[float, float, float, float]) -> bytes:
    """An endless WebP film, frame beside asset inside ``box``, at the clip's own speed; at most about FILM_BYTES."""
    count = len(run.times_s)
    shown = np.unique(np.linspace(0, count - 1, min(count, FILM_FRAMES)).round().astype(int))
    pictures = list(beside(run, box, shown.tolist(), FILM_SIZE))
    end = run.times_s[-1] + (run.times_s[-1] / max(count - 1, 1) or 1.0)
    durations = np.diff(np.append(run.times_s[shown], end)) * 1000
    for quality in (75, 50, 30, 15):
        data = _animated(pictures, durations.round().astype(int).tolist(), quality)
        if len(data) <= FILM_BYTES:
            break
    return data


def _animated(pictures: Sequence[np.ndarray], durations_ms: list[int], quality: int) -> bytes:
    from PIL import Image

    first, *others = [Image.fromarray(p) for p in pictures]
    buffer = io.BytesIO()
    first.save(
        buffer, "webp", save_all=True, append_images=others, duration=durations_ms, loop=0, quality=quality, method=3
    )
    return buffer.getvalue()
