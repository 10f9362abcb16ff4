"""Still and animated pictures: any mode Pillow can read -> 8-bit sRGB with straight alpha, upright, read once.

What goes wrong elsewhere and is settled here: EXIF orientation, 16-bit grey that collapses to two levels, palettes with
transparency, grey with alpha, CMYK, colour profiles, GIF/WebP/APNG frames that hold only what changed.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from v2m4.errors import InputError

#: File names taken as pictures in a folder.
PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp", ".tga", ".gif", ".ppm", ".pgm")
#: A picture whose name ends like this is a mask that belongs to another picture.
MASK_NAME = re.compile(r"(^|[_\-. ])(mask|matte)s?$", re.IGNORECASE)
#: 16384 x 16384; a larger picture is a mistake or an attack.
MAX_PIXELS = 1 << 28
_ORIENTATION = 0x0112
_SIDEWAYS = (5, 6, 7, 8)
_BROWSER_DELAY_MS = 100.0
_opening = threading.Lock()


def natural_key(name: str) -> tuple[Any, ...]:
    """Sort key: digits as numbers, letters without case, so that 2 < 10 and ``Frame_4`` follows ``frame_3``."""
    parts = re.split(r"(\d+)", name)
    folded = tuple((0, int(p)) if p.isdecimal() else (1, p.casefold()) for p in parts if p)
    return (*folded, (2, name))


@dataclass(frozen=True)
class Listing:
    """The pictures of a folder in natural order, and a sentence about everything odd in it."""

    files: tuple[Path, ...]
    facts: tuple[str, ...]
    warnings: tuple[str, ...]
    masks: tuple[Path, ...] = ()  #: pictures named like masks, which are no frames


def is_picture(path: Path) -> bool:
    """A file that is named like a picture and not hidden."""
    return path.suffix.lower() in PICTURE_SUFFIXES and not path.name.startswith(".") and path.is_file()


def list_pictures(folder: Path) -> Listing:
    """Pictures of ``folder`` in natural, case-insensitive order. InputError when there is none."""
    files: list[Path] = []
    masks: list[Path] = []
    skipped: list[Path] = []
    for path in sorted(folder.iterdir(), key=lambda p: natural_key(p.name)):
        if is_picture(path) and not MASK_NAME.search(path.stem):
            files.append(path)
            continue
        skipped.append(path)
        if is_picture(path):
            masks.append(path)
    if not files:
        held = f"it holds {_names(skipped)}" if skipped else "it is empty"
        raise InputError(f"{folder}: no pictures in this folder ({held})", f"known are {', '.join(PICTURE_SUFFIXES)}")
    facts = [f"{len(files)} pictures in natural order, {files[0].name} to {files[-1].name}"]
    if skipped:
        facts.append(f"skipped, not taken as frames: {_names(skipped)}")
    return Listing(tuple(files), tuple(facts), tuple(_numbering(files)), tuple(masks))


def _names(paths: list[Path], limit: int = 6) -> str:
    more = f" and {len(paths) - limit} more" if len(paths) > limit else ""
    return ", ".join(p.name for p in paths[:limit]) + more


def _numbering(files: list[Path]) -> list[str]:
    """Warnings about gaps, doubles and foreign names in the numbering of the files."""
    found = [re.search(r"^(.*?)(\d+)\D*$", p.stem) for p in files]
    if not all(found) or len(files) < 2:
        return []
    numbers = [int(m.group(2)) for m in found if m]
    prefixes = sorted({m.group(1).casefold() for m in found if m})
    if len(prefixes) > 1:
        return [f"the pictures have {len(prefixes)} kinds of names ({', '.join(repr(p) for p in prefixes[:4])}): check"]
    if len(set(numbers)) < len(numbers):
        double = next(n for n in numbers if numbers.count(n) > 1)
        return [f"more than one picture has the number {double}: both are used"]
    missing = sorted(set(range(min(numbers), max(numbers) + 1)) - set(numbers)) if max(numbers) < 10**7 else []
    if missing:
        shown = ", ".join(map(str, missing[:5])) + (" ..." if len(missing) > 5 else "")
        return [f"{len(missing)} numbers are missing between the first and the last picture: {shown}"]
    return []


def open_picture(path: Path) -> Any:
    """A Pillow image whose pixels are not decoded yet. InputError when it is no picture, damaged or too large."""
    from PIL import Image, UnidentifiedImageError

    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})", "check the permissions of the file") from None
    if not data:
        raise InputError(f"{path}: the file is empty (0 bytes)", "copy or export it again")
    with _opening:  # frames are read beside masks, and Pillow's limit counts for all threads
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None  # our own limit follows
        try:
            image = Image.open(io.BytesIO(data))
        except UnidentifiedImageError:
            raise InputError(f"{path}: not a readable picture", "export it again as PNG") from None
        except Exception as error:  # each format's plugin has its own ways to fail
            raise InputError(f"{path}: damaged picture ({error})", "export it again as PNG") from None
        finally:
            Image.MAX_IMAGE_PIXELS = limit
    if image.width * image.height > MAX_PIXELS:
        raise InputError(f"{path}: {image.width}x{image.height} pixels are too many", "scale the picture down first")
    return image


def upright_size(image: Any) -> tuple[int, int]:
    """(width, height) once the EXIF orientation is applied; reads the header only."""
    late = image.format == "PNG" and "exif" not in image.info  # to look behind the pixels Pillow would decode them all
    sideways = not late and image.getexif().get(_ORIENTATION, 1) in _SIDEWAYS
    return (image.height, image.width) if sideways else (image.width, image.height)


def read_picture(path: Path) -> np.ndarray:
    """One still -> (H,W,3) or, where the file has transparency, (H,W,4) uint8 sRGB, straight alpha, upright."""
    from PIL import ImageOps

    image = open_picture(path)
    with damage(path):
        return to_pixels(ImageOps.exif_transpose(image))


def to_pixels(image: Any) -> np.ndarray:
    """A Pillow image of any mode -> (H,W,3) or (H,W,4) uint8 sRGB, straight alpha."""
    mode = image.mode
    if mode.startswith(("I", "F")):
        return _deep_grey(image)
    transparent = "A" in mode or "a" in mode or "transparency" in image.info
    if transparent:
        rgba = image.convert("RGBA")
        return np.dstack([_srgb(rgba.convert("RGB"), image), np.asarray(rgba)[..., 3]])
    return _srgb(image, image)


def _deep_grey(image: Any) -> np.ndarray:
    """16-bit or float grey; Pillow's own conversion clips at 255 instead of scaling."""
    values = np.asarray(image).astype(np.float64)
    if image.mode.startswith("I;16") or (image.mode == "I" and values.max(initial=0) <= 65535):
        top = 65535.0
    else:
        top = max(float(values.max(initial=0)), 1.0)
    grey = np.round(np.clip(values / top, 0, 1) * 255).astype(np.uint8)
    pixels = np.repeat(grey[..., None], 3, -1)
    key = image.info.get("transparency")
    if isinstance(key, int):
        return np.dstack([pixels, np.where(values == key, 0, 255).astype(np.uint8)])
    return pixels


def _srgb(image: Any, source: Any) -> np.ndarray:
    """Colours (H,W,3) uint8 of ``image``, taken through the colour profile of ``source`` where it has a usable one."""
    profile = source.info.get("icc_profile")
    if profile and image.mode in ("RGB", "CMYK"):
        from PIL import ImageCms

        try:
            held = ImageCms.ImageCmsProfile(io.BytesIO(profile))
            if "sRGB" not in ImageCms.getProfileDescription(held):
                converted = ImageCms.profileToProfile(image, held, ImageCms.createProfile("sRGB"), outputMode="RGB")
                return np.array(converted)
        except (ImageCms.PyCMSError, OSError, ValueError):
            pass  # a profile of another colour space than the pixels: the pixels alone must do
    return np.array(image.convert("RGB"))


class damage:
    """Turns whatever a Pillow plugin raises while decoding into one InputError that names the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, InputError):
            truncated = "truncated" in str(error).lower()
            what = "the picture is truncated" if truncated else f"damaged picture ({error})"
            raise InputError(f"{self.path}: {what}", "copy or export it again") from None


def is_animated(image: Any) -> bool:
    """More than one frame that plays (a multi-page TIFF does not)."""
    return bool(getattr(image, "is_animated", False)) and image.format in ("GIF", "WEBP", "PNG", "AVIF", "JXL")


def pages(image: Any) -> int:
    """How many pictures a file holds (the preview or depth map in a phone's JPEG does not count)."""
    return 1 if image.format == "MPO" else int(getattr(image, "n_frames", 1))


def animation_frames(path: Path, warnings: list[str]) -> Iterator[tuple[float, float, np.ndarray]]:
    """(start in s, duration in s, pixels) of each frame of a GIF, WebP or APNG, composited.

    A frame without a duration lasts 0.1 s as in browsers; the caller's ``warnings`` say so.
    """
    image = open_picture(path)
    first = 1 if image.info.get("default_image") else 0  # an APNG's stand-in picture is no frame of the animation
    start, unset = 0.0, 0
    with damage(path):
        count = image.n_frames
    for number in range(first, count):
        with damage(path):
            image.seek(number)
            image.load()  # WebP knows the duration only now
            duration = float(image.info.get("duration") or 0)
            pixels = to_pixels(image)
        if duration <= 0:
            duration, unset = _BROWSER_DELAY_MS, unset + 1
        yield start / 1000, duration / 1000, pixels
        start += duration
    if unset:
        warnings.append(f"{unset} frames of {path.name} have no duration; each is shown for {_BROWSER_DELAY_MS:.0f} ms")


def resize(image: np.ndarray, width: int, height: int) -> np.ndarray:
    """(H,W,3|4) uint8 -> (height,width,3|4): area filter where it shrinks, linear where it grows.

    With alpha the colours are weighted by it: no colour of transparent pixels gets into the object, and what is
    transparent in the result is black.
    """
    import cv2

    if image.shape[:2] == (height, width):
        return image
    filter_ = cv2.INTER_AREA if width * height < image.shape[0] * image.shape[1] else cv2.INTER_LINEAR
    if image.shape[2] == 3:
        return np.asarray(cv2.resize(image, (width, height), interpolation=filter_))
    # In 16 bits, where colour times alpha is exact: half the memory of floats, and faster; and where the object is.
    part = _shown(image)
    weighted = np.zeros(image.shape, np.uint16)
    weighted[part] = image[part]
    for channel in range(4):
        weighted[part][..., channel] *= image[part][..., 3] if channel < 3 else np.uint16(255)
    small: np.ndarray = cv2.resize(weighted, (width, height), interpolation=filter_)
    part = _shown(small)
    out = np.zeros((height, width, 4), np.uint8)
    share = small[part][..., 3].astype(np.float32)
    for channel in range(3):
        out[part][..., channel] = np.minimum(
            (small[part][..., channel] * np.float32(255) / np.maximum(share, 1)) + 0.5, 255
        )
    out[part][..., 3] = (share + 127) / 255
    return out


def _shown(image: np.ndarray) -> tuple[slice, slice]:
    """The part of (H,W,4) in which alpha is above zero; all of it where it is nowhere."""
    shown = image[..., 3] > 0
    rows, columns = np.flatnonzero(shown.any(1)), np.flatnonzero(shown.any(0))
    if not len(rows):
        return slice(None), slice(None)
    return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)
