"""Moving pictures in: a video file, an animated picture, a still or a folder of stills -> frames with real times.

:func:`read_frames` gives a reader that can be gone through more than once and never holds more than two pictures.
Nothing is lost in silence: what was decoded is what is counted, whatever a header says; a file that is cut off or has
a frame that cannot be decoded is refused with the number of that frame, because a clip with a hole in the middle would
only be noticed an hour later. Everything odd that is *not* refused becomes a sentence in
``reader.warnings``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from v2m4 import containers, stills
from v2m4.errors import InputError
from v2m4.stills import resize

__all__ = ["FrameReader", "Picture", "read_frames", "resize"]

DEFAULT_FOLDER_FPS = 24.0
#: Steps that differ by less come from a container that counts milliseconds.
_JITTER_S = 0.002 + 1e-9


@dataclass(frozen=True)
class Picture:
    """One frame of the clip as it comes in.

    ``image`` (H,W,3) uint8, or (H,W,4) with straight alpha where the source has alpha; sRGB, upright, square pixels.
    ``index`` counts the frames given out, ``source_index`` those decoded; ``time_s`` starts at 0 and always rises.
    """

    index: int
    source_index: int
    time_s: float
    name: str
    image: np.ndarray


@dataclass(frozen=True)
class _Decoded:
    """A frame before any resampling; ``duration_s`` is None where the source does not tell."""

    time_s: float
    duration_s: float | None
    name: str
    image: np.ndarray


class FrameReader:
    """Iterate over it for :class:`Picture`; afterwards ``info``, ``facts`` and ``warnings`` describe the whole clip.

    ``info``: name, kind ("video", "animation", "picture" or "folder"), frames_decoded, duration_s, fps (mean),
    constant_rate, and what the container says (codec, pixel format, header frame count, offset_s, ...). ``files``: the
    frames of a folder; ``masks``: pictures in it that are named like masks (``0001_mask.png``).
    """

    def __init__(self, path: Path | str, fps: float | None = None) -> None:
        self.path, self.fps = Path(path), _checked_rate(fps)
        self.kind = _kind(self.path)
        self.length: int | None = None
        self.files: tuple[Path, ...] = ()
        self.masks: tuple[Path, ...] = ()
        self._listing: stills.Listing | None = None
        self._more_inside = ""
        if self.kind in ("folder", "picture"):
            self._list()
        self._start()

    def _start(self) -> None:
        self.facts: list[str] = list(self._listing.facts) if self._listing else []
        self.warnings: list[str] = list(self._listing.warnings) if self._listing else []
        if self._more_inside:
            self.warnings.append(f"{self._more_inside} holds more than one picture; only the first is used")
        self.info: dict[str, Any] = {"name": self.path.name, "kind": self.kind}

    @property
    def notes(self) -> list[str]:
        """Everything there is to say about the clip: facts, then warnings."""
        return self.facts + self.warnings

    def _list(self) -> None:
        if self.kind == "picture":
            self.files = (self.path,)
        else:
            self._listing = stills.list_pictures(self.path)
            self.files, self.masks = self._listing.files, self._listing.masks
        self.length = len(self.files)
        self._more_inside = _check_headers(self.files)

    def __iter__(self) -> Iterator[Picture]:
        self._start()
        decode = {"video": self._video, "animation": self._animation}.get(self.kind, self._stills)
        watched = self._watch(decode())
        yield from self._resampled(watched) if self.fps and self._resamples else self._plain(watched)

    @property
    def _resamples(self) -> bool:
        return self.kind in ("video", "animation")

    def _plain(self, frames: Iterator[_Decoded]) -> Iterator[Picture]:
        for index, frame in enumerate(frames):
            yield Picture(index, index, frame.time_s, frame.name, frame.image)

    def _resampled(self, frames: Iterator[_Decoded]) -> Iterator[Picture]:
        """Samples at k/fps, each the decoded frame nearest in time (the earlier one of two that are equally near)."""
        assert self.fps is not None
        held, number, k = next(frames), 0, 0
        last: set[int] = set()
        for source_index, frame in enumerate(frames, start=1):
            while k / self.fps <= (held.time_s + frame.time_s) / 2 + 1e-9:
                last.add(number)
                yield Picture(k, number, k / self.fps, held.name, held.image)
                k += 1
            held, number = frame, source_index
        while k == 0 or k <= held.time_s * self.fps + 0.05:  # a container that counts milliseconds rounds the end down
            last.add(number)
            yield Picture(k, number, k / self.fps, held.name, held.image)
            k += 1
        self.info.update(fps=self.fps, constant_rate=True, source_fps=self.info["fps"])
        self.facts.append(f"resampled to {self.fps:g} frames/s: {k} frames from {len(last)} of {number + 1} decoded")

    def _watch(self, frames: Iterator[_Decoded]) -> Iterator[_Decoded]:
        """Passes frames on, checks that they keep one size, and sums up the clip at the end."""
        times: list[float] = []
        size, tail = None, None
        for frame in frames:
            here = (frame.image.shape[1], frame.image.shape[0])
            if size and here != size:
                raise InputError(
                    f"{self.path}: frame {len(times)} ({frame.name}) is {here[0]}x{here[1]}, "
                    f"the frames before are {size[0]}x{size[1]}",
                    "a clip needs one picture size: cut it there or scale the pictures to one size",
                )
            size, tail = here, frame.duration_s
            times.append(frame.time_s)
            yield frame
        if not times:
            raise InputError(f"{self.path}: not one frame could be decoded", "the file is damaged: export it again")
        self.info.update(_summary(np.array(times), tail, self.info.get("header_fps")))

    # --- where frames come from ---------------------------------------------------------------------------------------

    def _stills(self) -> Iterator[_Decoded]:
        fps = self.fps or DEFAULT_FOLDER_FPS
        if not self.fps and len(self.files) > 1:
            self.facts.append(f"a folder of pictures has no rate: taken as {fps:g} frames/s (set ingest.fps)")
        for index, path in enumerate(self.files):
            yield _Decoded(index / fps, 1 / fps, path.name, stills.read_picture(path))

    def _animation(self) -> Iterator[_Decoded]:
        frames = stills.animation_frames(self.path, self.warnings)
        for index, (start, duration, image) in enumerate(frames):
            yield _Decoded(start, duration, f"{self.path.name}#{index}", image)

    def _video(self) -> Iterator[_Decoded]:
        frames = containers.video_frames(self.path, self.info, self.facts, self.warnings)
        for index, (start, duration, image) in enumerate(frames):
            yield _Decoded(start, duration, f"{self.path.name}#{index}", image)


def read_frames(path: Path | str, fps: float | None = None) -> FrameReader:
    """Frames of a video, an animated picture, a still or a folder of stills, with their real times.

    ``fps``: the rate of a folder of stills (24 without it, with a note); a video or an animation is resampled to the
    nearest frames at k/fps. InputError for a path that is missing, empty, of an unknown kind, cut off or damaged; a
    folder's pictures must all have one size. A damaged frame in the middle is an error when the reader gets there.
    """
    return FrameReader(path, fps)


# --- what is it? ------------------------------------------------------------------------------------------------------


def _checked_rate(fps: float | None) -> float | None:
    if fps is not None and not 0 < fps <= 1000:
        raise InputError(f"{fps} frames per second is not a usable rate", "give a number above 0, at most 1000")
    return fps


def _kind(path: Path) -> str:
    """By content, not by name. InputError when there is nothing to read."""
    if path.is_dir():
        return "folder"
    try:
        with open(path, "rb") as handle:
            head = handle.read(16)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file or folder", "check the spelling") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})", "check the permissions of the file") from None
    if not head:
        raise InputError(f"{path}: the file is empty (0 bytes)", "copy or export it again")
    if head[4:8] in (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot") and head[8:12] != b"avif":
        return "video"
    if head[:4] == b"\x1aE\xdf\xa3" or (head[:4] == b"RIFF" and head[8:12] != b"WEBP"):
        return "video"
    return (
        _picture_kind(path) if path.suffix.lower() in stills.PICTURE_SUFFIXES or _looks_like_picture(head) else "video"
    )


def _looks_like_picture(head: bytes) -> bool:
    return head[:4] in (b"\x89PNG", b"GIF8", b"RIFF") or head[:3] == b"\xff\xd8\xff" or head[8:12] == b"avif"


def _picture_kind(path: Path) -> str:
    with stills.damage(path):
        return "animation" if stills.is_animated(stills.open_picture(path)) else "picture"


def _check_headers(files: tuple[Path, ...]) -> str:
    """InputError unless all pictures have one size. Gives the name of the first that holds several pictures, or ""."""
    several = ""
    first: tuple[Path, tuple[int, int]] | None = None
    for path in files:
        with stills.damage(path):
            image = stills.open_picture(path)
            size = stills.upright_size(image)
            several = several or (path.name if stills.pages(image) > 1 else "")
        first = first or (path, size)
        if size != first[1]:
            (w0, h0), (w1, h1) = first[1], size
            raise InputError(
                f"{path.parent}: {first[0].name} is {w0}x{h0} but {path.name} is {w1}x{h1}",
                "all pictures of a clip need one size: take out the stray ones or scale them",
            )
    return several


# --- what to tell about the clip --------------------------------------------------------------------------------------


def _summary(times: np.ndarray, last_duration: float | None, rate: float | None) -> dict[str, Any]:
    steps = np.diff(times)
    tail = last_duration or (float(steps[-1]) if len(steps) else 1 / DEFAULT_FOLDER_FPS)
    duration = float(times[-1]) + tail
    constant = bool(len(steps) == 0 or steps.max() - steps.min() <= _JITTER_S)
    mean = len(steps) / float(times[-1]) if len(steps) else 1 / tail
    fps = rate if constant and rate and abs(rate / mean - 1) < 0.01 else mean
    return {"frames_decoded": len(times), "duration_s": duration, "fps": fps, "constant_rate": constant}
