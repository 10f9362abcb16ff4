"""Video files through PyAV: which stream, which decoder, when is each frame shown, which way up, in what colours."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from v2m4 import hdr
from v2m4.errors import InputError, MissingBackend
from v2m4.stills import resize

#: Containers that may be opened; a playlist (HLS, concat) could name other files or the network.
CONTAINERS = (
    "mov,mp4,matroska,webm,avi,mpegts,mpeg,mpegvideo,m4v,flv,asf,ogg,mxf,nut,ivf,h264,hevc,av1,obu,vc1,dv,gxf,yuv4mpegpipe"
    ",wav,mp3,flac,aac"
)
#: Decoders that keep the alpha plane of a WebM; FFmpeg's own drop it.
ALPHA_DECODERS = {"vp9": "libvpx-vp9", "vp8": "libvpx"}
_BT601, _BT709, _UNTAGGED = 5, 1, 2
_BT2020 = 9
#: A step back in time longer than this is a new start (joined recordings), a shorter one is a slip of the muxer.
_RESTART_S = 0.5
_SMALLEST_STEP_S = 0.001
_GUESSED_RATE = 25.0


def video_frames(
    path: Path, info: dict[str, Any], facts: list[str], warnings: list[str]
) -> Iterator[tuple[float, float | None, np.ndarray]]:
    """(start in s, duration in s or None, (H,W,3|4) uint8 sRGB upright) of every frame, decoder flushed.

    ``info``, ``facts`` and ``warnings`` are filled on the way: codec, pixel format, header counts, and everything odd.
    InputError for a file that is cut off, has no pictures, or has a frame that cannot be decoded.
    """
    import av

    _check_whole(path)
    container = _open(path)
    with container:
        stream = _stream(container, path, warnings)
        decoder = _decoder(stream, path)
        clock = _Clock(stream.average_rate or stream.guessed_rate)
        info.update(_header(stream, decoder))
        index = 0
        # Asked once: a frame whose side data was looked at is part of a cycle, and lies about until that is found.
        turns: dict[float, tuple[int, bool]] = {}
        try:
            for frame in _Progressive(stream, facts).frames(_decoded(container, stream, decoder)):
                if frame.is_corrupt:
                    raise InputError(*_damaged(path, index))
                if index == 0:
                    info.update(_first_frame(frame, stream, facts))
                time, duration = clock.read(frame, stream.time_base)
                if frame.rotation not in turns:
                    turns[frame.rotation] = _orientation(frame)
                image = _upright(_square(_pixels(frame), _pixel_aspect(stream)), turns[frame.rotation])
                yield time, duration, image
                index += 1
        except av.error.FFmpegError:
            raise InputError(*_damaged(path, index)) from None
    header = stream.frames
    info["offset_s"] = clock.offset
    warnings += clock.warnings()
    if abs(clock.offset) > 1e-9:
        facts.append(f"the first frame is at {clock.offset:.3f} s; the clip starts at 0")
    if header and header != index:
        warnings.append(f"the header promises {header} frames, {index} were decoded; the clip has {index}")


def _decoded(container: Any, stream: Any, decoder: Any) -> Iterator[Any]:
    for packet in container.demux(stream):  # ends with an empty packet that flushes the decoder
        yield from decoder.decode(packet)


class _Progressive:
    """Makes whole pictures of interlaced frames (FFmpeg's bwdif), one each; others pass through.

    The filter starts at the first interlaced frame: a recording may begin with others.
    """

    def __init__(self, stream: Any, facts: list[str]) -> None:
        self.stream, self.facts = stream, facts
        self.graph: Any = None

    def frames(self, decoded: Iterator[Any]) -> Iterator[Any]:
        for frame in decoded:
            if self.graph is None and not frame.interlaced_frame:
                yield frame
                continue
            if self.graph is None:
                self._start(frame)
            self.graph.push(frame)
            yield from self._finished()
        if self.graph is not None:
            self.graph.push(None)
            yield from self._finished()

    def _start(self, frame: Any) -> None:
        from av.filter import Graph

        self.graph = Graph()
        source = self.graph.add_buffer(
            width=frame.width, height=frame.height, format=frame.format, time_base=frame.time_base
        )
        filter_, sink = self.graph.add("bwdif", "mode=send_frame:deint=interlaced"), self.graph.add("buffersink")
        source.link_to(filter_)
        filter_.link_to(sink)
        self.graph.configure()
        self.facts.append("the video is interlaced: whole pictures were made of its half pictures")

    def _finished(self) -> Iterator[Any]:
        import av

        while True:
            try:
                yield self.graph.pull()
            except (av.error.BlockingIOError, av.error.EOFError):
                return


# --- containers -------------------------------------------------------------------------------------------------------


def _open(path: Path) -> Any:
    import av

    try:
        return av.open(str(path.absolute()), options={"format_whitelist": CONTAINERS}, metadata_errors="replace")
    except av.error.FFmpegError as error:
        with open(path, "rb") as handle:
            head = handle.read(16)
        if head[4:8] == b"ftyp" or head[:4] in (b"\x1aE\xdf\xa3", b"RIFF"):
            raise InputError(
                f"{path}: the video is damaged or truncated and cannot be opened", "copy or export it again"
            ) from None
        raise InputError(
            f"{path}: not a video or picture that can be read ({error.strerror})",
            "give a video (mp4, mov, webm, mkv, avi), an animated GIF, WebP or APNG, or a folder of pictures",
        ) from None


def _stream(container: Any, path: Path, warnings: list[str]) -> Any:
    """The moving-picture stream (an mp3's cover is none)."""
    streams = [s for s in container.streams.video if not _is_cover(s)]
    if not streams:
        kinds = sorted({s.type for s in container.streams})
        raise InputError(
            f"{path}: there is no picture in this file, only {' and '.join(kinds) or 'nothing'}",
            "give a file with video",
        )
    if len(streams) > 1:
        warnings.append(f"the file has {len(streams)} video streams; the first is used")
    if streams[0].codec_context is None:
        raise InputError(f"{path}: no decoder for this video", "convert it to H.264 (mp4) or ProRes (mov)")
    streams[0].thread_type = "AUTO"
    return streams[0]


def _is_cover(stream: Any) -> bool:
    disposition = getattr(stream, "disposition", None)
    return disposition is not None and "attached_pic" in str(getattr(disposition, "name", disposition))


def _decoder(stream: Any, path: Path) -> Any:
    """The stream's own decoder, or the one that keeps alpha where the WebM says it has some."""
    import av

    has_alpha = any(k.lower() == "alpha_mode" and str(v) == "1" for k, v in stream.metadata.items())
    name = ALPHA_DECODERS.get(stream.codec_context.codec.canonical_name if has_alpha else "")
    if name is None:
        return stream.codec_context
    try:
        return av.CodecContext.create(name, "r")
    except ValueError:
        raise MissingBackend(f"the {name} decoder (for the alpha in {path.name})", "pip install -U av") from None


def _damaged(path: Path, index: int) -> tuple[str, str]:
    return (
        f"{path}: frame {index} cannot be decoded: the file is damaged or truncated there",
        "copy or export it again, or cut the clip before that frame",
    )


def _check_whole(path: Path) -> None:
    """InputError "truncated" when the container itself says that it is longer than the file."""
    size = path.stat().st_size
    with open(path, "rb") as handle:
        head = handle.read(12)
        missing = 0
        if head[4:8] in (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide"):
            missing = _missing_in_mp4(handle, size)
        elif head[:4] == b"\x1aE\xdf\xa3":
            missing = _missing_in_matroska(handle, size)
        elif head[:4] == b"RIFF":
            missing = int.from_bytes(head[4:8], "little") + 8 - size
    if missing > 0:
        raise InputError(f"{path}: the file is truncated, {missing} bytes are missing at the end", "copy it again")


def _missing_in_mp4(handle: Any, size: int) -> int:
    """Bytes by which the last top-level box is longer than the file."""
    position = 0
    while position + 8 <= size:
        handle.seek(position)
        header = handle.read(16)
        length = int.from_bytes(header[:4], "big")
        if length == 1:
            length = int.from_bytes(header[8:16], "big")
        if length < 8:  # 0: up to the end of the file; anything else is not a box
            return 0
        position += length
    return position - size


def _missing_in_matroska(handle: Any, size: int) -> int:
    """Bytes by which the Segment is longer than the file; 0 where it has no length (a live recording)."""

    def number(keep_marker: bool) -> tuple[int, int]:
        first = handle.read(1)
        if not first or first[0] == 0:
            return -1, 1
        length = 9 - first[0].bit_length()
        value = int.from_bytes(first + handle.read(length - 1), "big")
        return (value, length) if keep_marker else (value & ((1 << 7 * length) - 1), length)

    handle.seek(0)
    number(True)
    handle.seek(number(False)[0], 1)
    if number(True)[0] != 0x18538067:
        return 0
    value, length = number(False)
    unknown = value < 0 or value == (1 << 7 * length) - 1
    return 0 if unknown else int(handle.tell() + value - size)


# --- one frame --------------------------------------------------------------------------------------------------------


class _Clock:
    """Presentation times in seconds: from 0, rising, exact to the container's time base."""

    def __init__(self, rate: Fraction | None) -> None:
        self.step = 1 / float(rate) if rate else 1 / _GUESSED_RATE
        self.offset, self.previous, self.shift = 0.0, -1.0, 0.0
        self.count = self.untimed = self.slips = self.restarts = 0

    def read(self, frame: Any, base: Fraction) -> tuple[float, float | None]:
        """(time, duration or None) of the next frame in presentation order."""
        base = frame.time_base or base
        if frame.pts is None:
            self.untimed += 1
            time = self.count * self.step if self.count == self.untimed - 1 else self.previous + self.step
        else:
            time = float(frame.pts * base)
            if self.count == 0:
                self.offset = time
            time += self.shift - self.offset
        if self.count and time <= self.previous:
            if frame.pts is not None and time < self.previous - _RESTART_S:
                self.restarts += 1
                self.shift += self.previous + self.step - time
                time = self.previous + self.step
            else:
                self.slips += 1
                time = self.previous + _SMALLEST_STEP_S
        elif self.count and frame.pts is not None:
            self.step = time - self.previous
        self.previous = time
        self.count += 1
        duration = getattr(frame, "duration", None)
        return time, float(duration * base) if duration else None

    def warnings(self) -> list[str]:
        out = []
        if self.untimed:
            out.append(f"{self.untimed} frames carry no time; they are spaced by {self.step:.4g} s")
        if self.slips:
            out.append(f"{self.slips} frames do not come later than the one before; each was set 1 ms after it")
        if self.restarts:
            out.append(f"the time jumps back {self.restarts} times (joined recordings?); the parts follow one another")
        return out


def _pixels(frame: Any) -> np.ndarray:
    """(H,W,3|4) uint8 sRGB. Untagged pictures are read as players do: BT.709 from 720 lines on, BT.601 below."""
    space = int(frame.colorspace)
    transfer = hdr.TRANSFERS.get(int(frame.color_trc or 0))
    if transfer:
        space = _BT2020 if space == _UNTAGGED else space
        return hdr.to_srgb(frame.to_ndarray(format="rgb48le", src_colorspace=space), transfer)
    alpha = any(c.is_alpha for c in frame.format.components)
    if space == _UNTAGGED:
        space = _BT709 if max(frame.height, frame.width * 9 // 16) >= 720 else _BT601
    return np.asarray(frame.to_ndarray(format="rgba" if alpha else "rgb24", src_colorspace=space))


def _pixel_aspect(stream: Any) -> Fraction:
    aspect = stream.sample_aspect_ratio or stream.codec_context.sample_aspect_ratio
    return Fraction(aspect) if aspect and Fraction(1, 10) < aspect < 10 else Fraction(1)


def _square(image: np.ndarray, aspect: Fraction) -> np.ndarray:
    """Square pixels, by stretching the shorter side, never by losing lines."""
    height, width = image.shape[:2]
    if aspect > 1:
        return resize(image, max(1, round(width * aspect)), height)
    return resize(image, width, max(1, round(height / aspect))) if aspect < 1 else image


def _upright(image: np.ndarray, orientation: tuple[int, bool]) -> np.ndarray:
    """The picture as a player shows it: the container's display matrix (turn, and mirror where it says so)."""
    turn, mirror = orientation
    if mirror:
        image = image[:, ::-1]
    return np.ascontiguousarray(np.rot90(image, turn % 4))


def _orientation(frame: Any) -> tuple[int, bool]:
    """(quarter turns counter-clockwise, mirrored left-right before the turn)."""
    held = [side for side in frame.side_data if "DISPLAYMATRIX" in str(side.type)]
    if not held:
        return round(frame.rotation / 90), False
    m = np.frombuffer(bytes(held[0]), np.int32).astype(float)
    mirror = m[0] * m[4] - m[1] * m[3] < 0
    sign = -1.0 if mirror else 1.0
    return -round(math.degrees(math.atan2(sign * m[1], sign * m[0])) / 90), bool(mirror)


def _header(stream: Any, decoder: Any) -> dict[str, Any]:
    rate = stream.average_rate
    return {
        "codec": decoder.codec.name,
        "header_frames": stream.frames or None,
        "header_fps": float(rate) if rate else None,
    }


def _first_frame(frame: Any, stream: Any, facts: list[str]) -> dict[str, Any]:
    transfer = hdr.TRANSFERS.get(int(frame.color_trc or 0))
    if transfer:
        facts.append(f"HDR source ({transfer}): toned down to sRGB")
    turn, mirror = _orientation(frame)
    return {
        "pixel_format": frame.format.name,
        "hdr": transfer,
        "coded_width": frame.width,
        "coded_height": frame.height,
        "rotation_deg": -90 * turn % 360,  # clockwise, as a phone means it
        "mirrored": mirror,
        "pixel_aspect": float(_pixel_aspect(stream)),
    }
