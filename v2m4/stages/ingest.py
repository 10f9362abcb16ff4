"""Read the clip: frames with their real times, the object cut out, and which frames become keyframes.

``source`` is a video file, an animated GIF, WebP or APNG, a single picture, or a folder of pictures (natural order).
``fps`` is the rate of a folder; a video is resampled to it by taking the nearest frames, else it keeps its own times.

The object is found in this order (``background`` picks one): ``masks`` you bring, or that lie beside the pictures of a
folder as ``NAME_mask.png``, are used bit for bit; alpha the pictures bring is used as it is; a plain background is
keyed out; else ``rembg`` cuts the object out, where it is installed and its weights are on disk. A frame without any
object is an error that names it.

Frames keep the full picture and its proportions; they are scaled down only where the longer side exceeds ``max_size``.

Writes ``frames/NNNNN.png`` (RGBA, straight alpha; transparent pixels near the object carry its colour, so that no
filter brings in a fringe), ``contact_sheet.png`` and ``clip.json``.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from v2m4 import formats
from v2m4.config import opt
from v2m4.errors import ConfigError, InputError
from v2m4.masks import Masks, by_name, paired
from v2m4.ingest.watch import MaskWatch
from v2m4.ingest.objects import ObjectTracker
from v2m4.protocols import Matte, StageContext
from v2m4.video import FrameReader, Picture, read_frames, resize

if TYPE_CHECKING:
    from v2m4.ingest.key import Background

#: Frames in work at a time: one is read while others are cut out and written.
WORKERS = 2
THUMBNAILS = 24
THUMBNAIL_PX = 192
#: Alpha above this everywhere is no cut-out: lossy alpha planes stray by a few levels.
OPAQUE = 250
#: A frame whose most opaque pixel is below this is faint as a whole; its alpha is stretched.
FAINT = 192
#: Doubtful masks that are described one by one.
SHOWN_SUSPECTS = 6
#: Background noise in levels from which on a key is doubtful.
UNEVEN = 6
#: Pictures with alpha that are looked at to tell straight from premultiplied colours.
_EVIDENCE = 8


@dataclass(frozen=True)
class IngestOptions:
    """Options of the stage."""

    source: Path | None = opt(None, "the clip: a video, an animated picture, or a folder of pictures", content=True)
    fps: float | None = opt(
        None, "rate of a folder of pictures (24 without); a video is resampled to it", minimum=0.01, maximum=1000
    )
    keyframe_step: int = opt(2, "every n-th frame is a keyframe, and the last one", minimum=1)
    max_size: int = opt(1024, "longer side of the frames in pixels; larger ones are scaled down", minimum=16)
    masks: Path | None = opt(
        None, "folder of masks, one a frame: white (or opaque) is the object; used as they are", content=True
    )
    background: str = opt(
        "auto",
        "where the object's mask comes from without masks: auto tries alpha, then a plain background, then rembg",
        choices=("auto", "alpha", "key", "rembg"),
    )
    object: str = opt(
        "all",
        "of several objects in the masks: all, largest, nearest (to the middle), or its number from the left, from 0; "
        "chosen in the first frame and followed",
    )
    alpha_colours: str = opt(
        "auto",
        "colours of pictures with alpha: straight, or premultiplied by it",
        choices=("auto", "straight", "premultiplied"),
    )
    key_holes: str = opt(
        "auto",
        "background colour enclosed by the object: cut it out, keep it, or judge by flatness and size",
        choices=("auto", "cut", "keep"),
    )
    matte_model: str = opt("u2net", "model of rembg, for example u2net, u2netp, isnet-general-use, birefnet-general")

    def __post_init__(self) -> None:
        ObjectTracker(self.object)  # refuses what is no object before anything is written


@dataclass(frozen=True)
class Cutter:
    """How the object is cut out of every frame of one clip.

    ``method`` is "masks", "given", "key" or "rembg"; ``matte`` finds the mask of the latter two.
    """

    method: str
    masks: Masks | None = None
    matte: Matte | None = None
    background: Background | None = None
    premultiplied: bool = False

    def cut(self, picture: Picture, label: str) -> np.ndarray:
        """(H,W,4) uint8, straight alpha, clean colours. InputError when there is no object in the picture."""
        from v2m4.ingest import edges as room

        rgb = picture.image[..., :3]
        if self.masks is not None:
            alpha = self.masks.alpha(picture.source_index, rgb.shape[:2])
            room.require_object(alpha, label, self.method)
            return room.cut_out(rgb, alpha)
        if self.matte is not None:
            alpha = self.matte.alpha(rgb)
            room.require_object(alpha, label, self.method)
            return room.cut_out(rgb, alpha, self.background.colour if self.background else None)
        image = with_alpha(picture.image)
        room.require_object(image[..., 3], label, self.method)
        image = room.unmultiply(image) if self.premultiplied else image
        return room.fill_transparent(_stretched(image))


@dataclass
class Review:
    """What is worth a warning, gathered frame by frame from the finished pictures."""

    touching: list[int] = field(default_factory=list)
    faint: list[int] = field(default_factory=list)
    opaque: list[int] = field(default_factory=list)
    smallest_px: int = 1 << 30
    watch: MaskWatch = field(default_factory=MaskWatch)

    def add(self, index: int, source: np.ndarray, frame: np.ndarray, method: str) -> None:
        """``source`` (H,W,3|4) as read, ``frame`` (H,W,4) as stored."""
        from v2m4.ingest.edges import foreground

        mask = foreground(frame[..., 3])
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        if mask[[0, -1]].any() or mask[:, [0, -1]].any():
            self.touching.append(index)
        self.watch.add(frame[..., 3])
        self.smallest_px = min(self.smallest_px, int(max(np.ptp(rows), np.ptp(columns))) + 1)
        if method == "given":
            top = source[..., 3].max() if source.shape[2] == 4 else 255
            if top < FAINT:
                self.faint.append(index)
            if source.shape[2] == 3 or source[..., 3].min() >= OPAQUE:
                self.opaque.append(index)

    def warnings(self, count: int) -> list[str]:
        out = []
        if self.opaque:
            out.append(f"{_frames(self.opaque, count)} fully opaque: the whole picture is taken as the object")
        elif self.touching:
            out.append(f"the object touches the picture's border in {_frames(self.touching, count, '')}")
        if self.faint:
            out.append(f"{_frames(self.faint, count)} faint as a whole; the alpha was stretched to reach 255")
        if self.smallest_px < 64:
            out.append(f"the object is only {self.smallest_px} pixels long in one frame: expect little detail")
        suspects = self.watch.suspects()
        out += [f"the mask of frame {s.index} {s.reason}: look at it" for s in suspects[:SHOWN_SUSPECTS]]
        if len(suspects) > SHOWN_SUSPECTS:
            rest = ", ".join(str(s.index) for s in suspects[SHOWN_SUSPECTS:])
            out.append(f"so do the masks of frames {rest}")
        return out


def run(ctx: StageContext, options: IngestOptions) -> None:
    """Decode, cut out, store. InputError for a source that cannot be read and for frames without an object."""
    if options.source is None:
        raise ConfigError("there is no clip to read", "give a video file or a folder of pictures (ingest.source)")
    reader = read_frames(options.source, options.fps)
    tracker = ObjectTracker(options.object)
    cutter = plan(reader, options)
    ctx.log.info(_describe(cutter))
    review, frames, size = Review(), [], (0, 0)

    def store(picture: Picture) -> np.ndarray:
        return _store(ctx.out, picture, cutter, tracker, options.max_size, reader.path)

    # What is followed from frame to frame goes in order, and a network takes all cores by itself.
    workers = 1 if tracker.which != "all" or cutter.method == "rembg" else WORKERS
    for picture, frame in _ahead(ctx.track(reader, "frames", reader.length), store, workers):
        review.add(picture.index, picture.image, frame, cutter.method)
        size = (frame.shape[1], frame.shape[0])
        frames.append(_entry(picture))
    if cutter.masks is not None:
        cutter.masks.check_count(reader.info["frames_decoded"])
    warnings = [*reader.warnings, *_doubts(cutter, reader), *review.warnings(len(frames))]
    for fact in reader.facts:
        ctx.log.info(fact)
    for warning in warnings:
        ctx.log.warning(warning)
    keyframes = choose_keyframes(len(frames), options.keyframe_step)
    rule = f"every {options.keyframe_step}. frame and the last one" if options.keyframe_step > 1 else "all frames"
    ctx.log.info(
        f"{_count(len(frames), 'frame')} in {reader.info['duration_s']:.2f} s, {size[0]}x{size[1]}; "
        f"{_count(len(keyframes), 'keyframe')}: {rule} (ingest.keyframe_step)"
    )
    _contact_sheet(ctx.out, frames)
    clip = {
        "source": reader.info,
        "width": size[0],
        "height": size[1],
        "frames": frames,
        "keyframes": keyframes,
        "alpha": cutter.method,
        "premultiplied": cutter.premultiplied,
        "background": list(cutter.background.colour) if cutter.background else None,
        "suspect_masks": [s.index for s in review.watch.suspects()],
        "notes": reader.facts,
        "warnings": warnings,
    }
    formats.write_json(ctx.out / "clip.json", clip)


def plan(reader: FrameReader, options: IngestOptions) -> Cutter:
    """Look the clip through, as far as it takes, and settle where its masks come from."""
    from v2m4.ingest.key import BorderSurvey, KeyMatte
    from v2m4.models.rembg import Rembg

    wanted = options.background
    masks = _masks(reader, options)
    if masks is not None:
        return Cutter("masks", masks)
    if wanted == "rembg":
        return Cutter("rembg", matte=Rembg(options.matte_model))
    border = BorderSurvey()
    pictures = iter(reader)
    for picture in pictures:
        if wanted != "key" and _has_cut_out(picture.image):
            evidence = [with_alpha(p.image) for p in itertools.islice(pictures, _EVIDENCE - 1)]
            return Cutter("given", premultiplied=_premultiplied([picture.image, *evidence], options.alpha_colours))
        border.add(picture.image[..., :3])
    if wanted == "alpha":
        raise InputError(
            f"{reader.path}: the pictures have no alpha, and ingest.background asks for it",
            "give pictures with alpha, or set ingest.background to auto, key or rembg",
        )
    background = border.background()
    if background is not None:
        return Cutter("key", matte=KeyMatte(background, options.key_holes), background=background)
    if wanted == "key":
        raise InputError(
            f"{reader.path}: the picture's border has no single colour, so there is nothing to key out",
            "give pictures with alpha, or set ingest.background to rembg",
        )
    return Cutter("rembg", matte=Rembg(options.matte_model))


def _masks(reader: FrameReader, options: IngestOptions) -> Masks | None:
    """The masks the user gave, or those that lie beside every picture of a folder."""
    if options.masks is not None:
        if options.background != "auto":
            raise ConfigError(
                f"ingest.masks and ingest.background = {options.background} exclude each other",
                "leave ingest.background on auto to use the masks",
            )
        return paired(options.masks, reader.files if reader.kind == "folder" else None)
    if options.background != "auto" or not reader.masks:
        return None
    beside = by_name(reader.masks, reader.files)
    found = tuple(m for m in beside if m)
    return Masks(found, "masks lie beside the pictures") if len(found) == len(beside) else None


def with_alpha(image: np.ndarray) -> np.ndarray:
    """(H,W,3|4) uint8 -> (H,W,4); a picture without alpha is opaque."""
    return image if image.shape[2] == 4 else np.dstack([image, np.full(image.shape[:2], 255, np.uint8)])


def choose_keyframes(count: int, step: int) -> list[int]:
    """Every ``step``-th of ``count`` frames, and the last."""
    return sorted({*range(0, count, step), count - 1})


def _has_cut_out(image: np.ndarray) -> bool:
    return image.shape[2] == 4 and int(image[..., 3].min()) < OPAQUE


def _premultiplied(images: list[np.ndarray], rule: str) -> bool:
    from v2m4.ingest.edges import is_premultiplied

    return is_premultiplied(images) if rule == "auto" else rule == "premultiplied"


def _stretched(image: np.ndarray) -> np.ndarray:
    """A frame that is faint as a whole, with its alpha stretched to 255; any other as it is."""
    top = int(image[..., 3].max())
    if top >= FAINT:
        return image
    alpha = np.round(image[..., 3:] * (255 / top)).astype(np.uint8)
    return np.concatenate([image[..., :3], alpha], -1)


def _ahead(
    pictures: Iterable[Picture], work: Callable[[Picture], np.ndarray], workers: int
) -> Iterator[tuple[Picture, np.ndarray]]:
    """Every picture with what ``work`` makes of it, in order, a few of them in work at a time."""
    waiting: deque[tuple[Picture, Future[np.ndarray]]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="v2m4-ingest") as pool:
        try:
            for picture in pictures:
                waiting.append((picture, pool.submit(work, picture)))
                if len(waiting) > workers:
                    first, future = waiting.popleft()
                    yield first, future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
        finally:
            for _, future in waiting:
                future.cancel()


def _store(
    out: Path, picture: Picture, cutter: Cutter, tracker: ObjectTracker, max_size: int, source: Path
) -> np.ndarray:
    """The finished frame, from disk where an interrupted run left it."""
    from v2m4.ingest.edges import fill_transparent

    path = out / "frames" / f"{formats.frame_name(picture.index)}.png"
    if path.exists():
        frame = formats.read_rgba(path)
        tracker.follow(frame[..., 3])
        return frame
    label = f"{source.name}: frame {picture.index} ({picture.name})"
    frame = cutter.cut(picture, label)
    height, width = frame.shape[:2]
    scale = max_size / max(height, width)
    if scale < 1:
        frame = fill_transparent(resize(frame, max(1, round(width * scale)), max(1, round(height * scale))))
    if tracker.which != "all":
        frame = fill_transparent(np.dstack([frame[..., :3], tracker.keep(frame[..., 3], label)]))
    formats.write_image(path, frame)
    return frame


def _entry(picture: Picture) -> dict[str, Any]:
    return {
        "index": picture.index,
        "time_s": picture.time_s,
        "name": picture.name,
        "source_index": picture.source_index,
    }


def _describe(cutter: Cutter) -> str:
    if cutter.masks is not None:
        return cutter.masks.note
    if cutter.background is not None:
        red, green, blue = (round(c) for c in cutter.background.colour)
        return f"the background is plain, RGB {red} {green} {blue}: it is keyed out"
    if cutter.method == "given":
        return "the pictures bring their alpha" + (", premultiplied" if cutter.premultiplied else "")
    return f"masks from {cutter.matte.name if cutter.matte else cutter.method}"


def _doubts(cutter: Cutter, reader: FrameReader) -> list[str]:
    out = []
    if reader.masks and cutter.masks is None:
        out.append(
            f"{len(reader.masks)} pictures named like masks lie beside {len(reader.files)} frames and were not used: "
            "every frame needs one, named like it (0001.png, 0001_mask.png), and ingest.background = auto"
        )
    if cutter.background is not None and cutter.background.noise > UNEVEN:
        out.append(
            f"the background is not quite even (pixels stray by {cutter.background.noise:.0f} levels): look at the "
            "masks in contact_sheet.png; alpha, or ingest.background = rembg, may do better"
        )
    return out


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _frames(indices: list[int], count: int, verb: str = " are") -> str:
    """ "frames 3, 4 and 7 are" or "all frames are"."""
    if len(indices) == count:
        return f"all {count} frames{verb}" if count > 1 else f"the only frame{' is' if verb else ''}"
    shown = ", ".join(map(str, indices[:8])) + (" ..." if len(indices) > 8 else "")
    return f"{len(indices)} of {count} frames ({shown}){verb}"


def _contact_sheet(out: Path, frames: list[dict[str, Any]]) -> None:
    """Up to 24 frames, evenly over the clip, on a checkerboard, each with its number and time."""
    from v2m4.render.preview import contact_sheet, on_checker

    picked = sorted({round(i) for i in np.linspace(0, len(frames) - 1, min(THUMBNAILS, len(frames)))})
    thumbnails, labels = [], []
    for index in picked:
        image = formats.read_rgba(out / "frames" / f"{formats.frame_name(index)}.png")
        scale = THUMBNAIL_PX / max(image.shape[:2])
        height, width = (max(1, round(s * min(scale, 1))) for s in image.shape[:2])
        thumbnails.append(on_checker(resize(image, width, height), 8))
        labels.append(f"{index}  {frames[index]['time_s']:.3f} s")
    formats.write_image(out / "contact_sheet.png", contact_sheet(thumbnails, 6, labels))
