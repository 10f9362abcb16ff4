"""Two hundred damaged files: each gives frames, or one clear sentence, soon and without much memory."""

from __future__ import annotations

import io
import random
import struct
import time
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from v2m4.errors import V2M4Error
from v2m4.video import read_frames

COUNT = 200
SECONDS, BYTES = 10, 2 << 30


def pictures(count: int = 6, size: int = 64) -> list[np.ndarray]:
    y, x = np.indices((size, size))
    return [
        np.stack([(x * 3 + 20 * i) % 256, (y * 5) % 256, np.where((x - 8 * i) ** 2 + (y - 30) ** 2 < 200, 220, 40)], -1)
        .astype(np.uint8)
        for i in range(count)
    ]  # fmt: skip


def film(path: Path, codec: str, pix_fmt: str = "yuv420p") -> bytes:
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 64, pix_fmt
        for picture in pictures():
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24")))
        container.mux(stream.encode())
    return path.read_bytes()


def animation(kind: str) -> bytes:
    first, *rest = (Image.fromarray(p) for p in pictures())
    out = io.BytesIO()
    first.save(out, kind, save_all=True, append_images=rest, duration=40)
    return out.getvalue()


def huge_png(width: int, height: int) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


def zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("clip.mp4", bytes(5000))
    return out.getvalue()


def originals(folder: Path) -> dict[str, bytes]:
    out = {
        "a.mp4": film(folder / "a.mp4", "libx264"),
        "b.mkv": film(folder / "b.mkv", "libx264"),
        "c.webm": film(folder / "c.webm", "libvpx-vp9"),
        "d.avi": film(folder / "d.avi", "mpeg4"),
        "e.mov": film(folder / "e.mov", "prores_ks", "yuv422p10le"),
        "f.gif": animation("GIF"),
        "g.webp": animation("WEBP"),
        "h.png": animation("PNG"),
    }
    picture = Image.fromarray(pictures()[0])
    for name, kind in (("i.jpg", "JPEG"), ("j.tif", "TIFF"), ("k.bmp", "BMP")):
        data = io.BytesIO()
        picture.save(data, kind)
        out[name] = data.getvalue()
    return out


def mutations(folder: Path) -> Iterator[tuple[str, bytes]]:
    """(name, content), the same in every run."""
    chance = random.Random(4)
    kept = originals(folder)
    yield "zip.mp4", zipped()
    yield "zip.png", zipped()
    for name, size in (("wide.png", (65_535, 65_535)), ("tall.png", (3, 65_535)), ("flat.png", (2**31 - 1, 2))):
        yield name, huge_png(*size)
    names = list(kept)
    for name, other in zip(names, names[3:] + names[:3], strict=True):
        yield f"is {other[0]} {name}", kept[other]  # the suffix of another kind
    number = 0
    while True:
        name = names[number % len(names)]
        data = bytearray(kept[name])
        how = chance.choice(("cut", "cut", "flip", "flip", "noise", "hole", "append", "double"))
        if how == "cut":
            data = data[: chance.randrange(len(data))]
        elif how == "flip":
            for _ in range(chance.choice((1, 4, 40))):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        elif how == "noise":
            at = chance.randrange(len(data))
            data[at : at + 200] = chance.randbytes(min(200, len(data) - at))
        elif how == "hole":
            at = chance.randrange(len(data))
            del data[at : at + chance.randrange(1, 300)]
        elif how == "append":
            data += chance.randbytes(500)
        else:
            data += bytes(data)
        yield f"{number} {how} {name}", bytes(data)
        number += 1


@pytest.mark.slow
def test_damaged_files_give_frames_or_one_clear_sentence(tmp_path):
    resource = pytest.importorskip("resource")  # not on Windows
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    for number, (name, content) in enumerate(mutations(tmp_path)):
        if number == COUNT:
            break
        path = tmp_path / "case" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        start = time.monotonic()
        try:
            frames = [picture.image.shape for picture in read_frames(path)]
            assert frames and len(set(frames)) == 1, name
        except V2M4Error as error:
            refused += 1
            said = str(error)
            assert path.name in said and len(said) < 400 and "\n" not in said and "Traceback" not in said, (name, said)
        assert time.monotonic() - start < SECONDS, name
        path.unlink()
    assert 50 < refused < COUNT  # some damage does no harm, most is noticed
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * 1024 < BYTES
