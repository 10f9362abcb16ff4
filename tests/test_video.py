"""Decoding: exact frames, exact times, the right way up, alpha kept, and one clear sentence for what cannot be read."""

from __future__ import annotations

import struct
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from v2m4 import stills
from v2m4.errors import InputError
from v2m4.video import read_frames, resize

BITS = 6


def number_picture(number: int, width: int = 96, height: int = 64) -> np.ndarray:
    """Carries ``number`` as bright blocks along its upper half: readable after lossy compression."""
    picture = np.full((height, width, 3), 40, np.uint8)
    for bit in range(BITS):
        if number >> bit & 1:
            picture[8 : height // 2, bit * 16 + 2 : bit * 16 + 14] = 230
    return picture


def read_number(image: np.ndarray) -> int:
    bright = [image[12 : image.shape[0] // 2 - 4, b * 16 + 5 : b * 16 + 11, :3].mean() > 128 for b in range(BITS)]
    return sum(1 << b for b, on in enumerate(bright) if on)


def write_video(
    path: Path,
    pictures: list[np.ndarray],
    times_ms: list[int] | None = None,
    *,
    codec: str = "libx264",
    pix_fmt: str = "yuv420p",
    options: dict[str, str] | None = None,
    container_options: dict[str, str] | None = None,
    metadata: dict[str, str] | None = None,
    aspect: Fraction | None = None,
) -> Path:
    """A video of ``pictures`` (H,W,3|4) uint8 at the given presentation times (30 per second without)."""
    with av.open(str(path), "w", options=container_options or {}) as container:
        stream = container.add_stream(codec, rate=30)
        stream.width, stream.height, stream.pix_fmt = pictures[0].shape[1], pictures[0].shape[0], pix_fmt
        stream.codec_context.time_base = Fraction(1, 1000) if times_ms else Fraction(1, 30)
        stream.options = options or {}
        stream.metadata.update(metadata or {})
        if aspect:
            stream.codec_context.sample_aspect_ratio = aspect
        for i, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture, "rgba" if picture.shape[2] == 4 else "rgb24")
            frame.pts = times_ms[i] if times_ms else i
            frame.time_base = stream.codec_context.time_base
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def numbered(path: Path, count: int = 10, times_ms: list[int] | None = None, **more) -> Path:
    more.setdefault("options", {"bf": "2", "crf": "18"})
    return write_video(path, [number_picture(i) for i in range(count)], times_ms, **more)


def save_numbered(folder: Path, names: list[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(names):
        Image.fromarray(number_picture(i)).save(folder / name)
    return folder


def numbers(reader) -> list[int]:
    return [read_number(picture.image) for picture in reader]


# --- count and times --------------------------------------------------------------------------------------------------


def test_every_frame_comes_out_in_order_with_b_frames(tmp_path):  # F01
    reader = read_frames(numbered(tmp_path / "clip.mp4"))
    pictures = list(reader)
    assert [read_number(p.image) for p in pictures] == list(range(10))
    assert [p.index for p in pictures] == list(range(10))
    assert reader.info["frames_decoded"] == 10
    np.testing.assert_allclose([p.time_s for p in pictures], np.arange(10) / 30, atol=1e-9)
    assert reader.info["fps"] == 30 and reader.info["constant_rate"]
    assert reader.info["duration_s"] == pytest.approx(10 / 30)


def test_a_path_may_be_text(tmp_path):
    path = write_video(tmp_path / "a.mp4", [number_picture(n) for n in range(3)])
    found = read_frames(str(path))
    assert [read_number(p.image) for p in found] == [0, 1, 2] and found.info["name"] == "a.mp4"


def test_a_reader_can_be_gone_through_twice(tmp_path):
    reader = read_frames(numbered(tmp_path / "clip.mp4", 4))
    assert numbers(reader) == numbers(reader) == [0, 1, 2, 3]
    assert len(reader.notes) == len(set(reader.notes))


def test_count_is_what_was_decoded_and_not_what_the_header_says(tmp_path):  # F02
    path = numbered(tmp_path / "clip.mkv", codec="libx264")
    reader = read_frames(path)
    assert numbers(reader) == list(range(10)) and reader.info["header_frames"] is None
    lying = tmp_path / "lying.mp4"
    data = bytearray(numbered(tmp_path / "true.mp4").read_bytes())
    data[data.index(b"stts") + 12 : data.index(b"stts") + 16] = struct.pack(">I", 99)  # count of the time table
    lying.write_bytes(data)
    reader = read_frames(lying)
    assert numbers(reader) == list(range(10)) and reader.info["frames_decoded"] == 10
    if reader.info["header_frames"] != 10:
        assert any("99" in note and "10 were decoded" in note for note in reader.notes)


def test_raw_stream_without_any_times(tmp_path):  # F02
    reader = read_frames(numbered(tmp_path / "clip.h264", options={"bf": "0"}))
    pictures = list(reader)
    assert [read_number(p.image) for p in pictures] == list(range(10))
    assert np.all(np.diff([p.time_s for p in pictures]) > 0) and pictures[0].time_s == 0


VFR = [0, 33, 67, 400, 433, 467, 1500, 1533, 1567, 2000]


@pytest.mark.parametrize("name", ["vfr.mp4", "vfr.mkv"])
def test_variable_frame_rate_is_kept(tmp_path, name):  # F03
    reader = read_frames(numbered(tmp_path / name, 10, VFR))
    pictures = list(reader)
    np.testing.assert_allclose([p.time_s * 1000 for p in pictures], VFR, atol=1)
    assert [read_number(p.image) for p in pictures] == list(range(10))
    assert not reader.info["constant_rate"]


def test_resampling_takes_the_nearest_frame(tmp_path):  # F03
    reader = read_frames(numbered(tmp_path / "vfr.mp4", 10, VFR), fps=30)
    pictures = list(reader)
    assert len(pictures) == 61
    np.testing.assert_allclose([p.time_s for p in pictures], np.arange(61) / 30, atol=1e-12)
    want = [int(np.argmin(np.abs(np.array(VFR) - 1000 * k / 30))) for k in range(61)]
    assert [read_number(p.image) for p in pictures] == want == [p.source_index for p in pictures]
    assert reader.info["frames_decoded"] == 10 and any("10 of 10" in note for note in reader.notes)


def test_resampling_down_keeps_the_speed(tmp_path):
    pictures = list(read_frames(numbered(tmp_path / "clip.mp4", 30), fps=10))
    assert [p.source_index for p in pictures] == list(range(0, 30, 3))


def test_first_frame_is_at_zero(tmp_path):  # F05
    reader = read_frames(numbered(tmp_path / "late.mkv", 5, [1000, 1033, 1067, 1100, 1133]))
    times = [p.time_s for p in reader]
    np.testing.assert_allclose(times, [0, 0.033, 0.067, 0.1, 0.133], atol=1e-3)
    assert times[0] == 0 and reader.info["offset_s"] == pytest.approx(1.0)
    assert any("1.000 s" in note for note in reader.notes)


def test_times_that_do_not_rise_are_spread_and_said():
    from v2m4.containers import _Clock

    class Stamp:
        time_base = Fraction(1, 1000)
        duration = 0

        def __init__(self, pts):
            self.pts = pts

    clock = _Clock(Fraction(30))
    times = [clock.read(Stamp(pts), Fraction(1, 1000))[0] for pts in (500, 533, 533, 530, 600, 0, 33)]
    np.testing.assert_allclose(times, [0, 0.033, 0.034, 0.035, 0.1, 0.165, 0.198], atol=1e-9)
    assert any("2 frames do not come later" in n for n in clock.warnings())
    assert any("jumps back 1 times" in n for n in clock.warnings())


# --- shape ------------------------------------------------------------------------------------------------------------


def rotated_copy(path: Path, degrees: int) -> Path:
    """The same mp4 with another matrix in its track header, as a phone writes it."""
    one, zero = 1 << 16, 0
    a, b = {90: (zero, one), 180: (-one, zero), 270: (zero, -one)}[degrees]
    matrix = struct.pack(">9i", a, b, 0, -b, a, 0, 0, 0, 1 << 30)
    data = bytearray(path.read_bytes())
    start = data.index(b"tkhd") + 4 + 40  # version 0: 4 flags, 20 times and ids, 8 reserved, 8 layer to volume
    assert bytes(data[start : start + 4]) == struct.pack(">i", one), "the matrix is not where the test thinks"
    data[start : start + 36] = matrix
    out = path.with_name(f"rotated_{degrees}.mp4")
    out.write_bytes(data)
    return out


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_phone_video_is_turned_as_a_player_shows_it(tmp_path, degrees):  # F06
    picture = np.full((48, 64, 3), 90, np.uint8)
    picture[:, :12] = (220, 20, 20)
    picture[:10, 16:30] = 255
    upright = write_video(tmp_path / "clip.mp4", [picture] * 3)
    reader = read_frames(rotated_copy(upright, degrees))
    image = next(iter(reader)).image
    want = np.rot90(picture, -degrees // 90)  # the matrix turns clockwise
    assert image.shape == want.shape
    assert np.abs(image.astype(int) - want).mean() < 12
    corner = {90: image[16:30, -10:], 180: image[-10:, -30:-16], 270: image[-30:-16, :10]}[degrees]
    assert corner.mean() > 230
    assert reader.info["rotation_deg"] == degrees


def test_pixel_aspect_is_applied_once(tmp_path):
    path = write_video(tmp_path / "clip.mp4", [number_picture(5)] * 2, aspect=Fraction(3, 2))
    reader = read_frames(path)
    assert [p.image.shape for p in reader] == [(64, 144, 3)] * 2
    assert reader.info["pixel_aspect"] == 1.5


def test_odd_sizes_stay(tmp_path):  # F12
    path = write_video(tmp_path / "odd.mov", [number_picture(3, 63, 47)] * 2, codec="png", pix_fmt="rgb24")
    assert [p.image.shape for p in read_frames(path)] == [(47, 63, 3)] * 2


# --- alpha and colour -------------------------------------------------------------------------------------------------


def square_on_nothing(size: int = 64) -> np.ndarray:
    picture = np.zeros((size, size, 4), np.uint8)
    picture[16:48, 16:48] = (220, 60, 30, 255)
    return picture


@pytest.mark.parametrize("codec", ["libvpx-vp9", "libvpx"])
def test_webm_alpha_is_kept(tmp_path, codec):  # F08
    path = write_video(
        tmp_path / "clip.webm",
        [square_on_nothing()] * 3,
        codec=codec,
        pix_fmt="yuva420p",
        options={"crf": "10", "b": "1M", "auto-alt-ref": "0"},
        metadata={"alpha_mode": "1"},
    )
    images = [p.image for p in read_frames(path)]
    assert len(images) == 3
    for image in images:
        assert image.shape == (64, 64, 4)
        assert image[20:44, 20:44, 3].min() > 250 and image[:10, :, 3].max() < 5
        assert np.abs(image[32, 32, :3].astype(int) - (220, 60, 30)).max() < 12


def test_prores_4444_alpha_is_kept(tmp_path):
    picture = square_on_nothing()
    picture[20:28, 20:28, 3] = 129
    path = write_video(tmp_path / "clip.mov", [picture] * 2, codec="prores_ks", pix_fmt="yuva444p10le")
    image = next(iter(read_frames(path))).image
    assert abs(int(image[24, 24, 3]) - 129) <= 2 and image[40, 40, 3] == 255 and image[2, 2, 3] == 0


@pytest.mark.parametrize("tag, matrix", [(1, "ITU709"), (5, "ITU601")])
def test_colours_follow_the_tag(tmp_path, tag, matrix):
    colour = np.zeros((64, 64, 3), np.uint8)
    colour[:] = (40, 160, 90)
    with av.open(str(tmp_path / "clip.mp4"), "w") as container:
        stream = container.add_stream("libx264", rate=30)
        stream.width = stream.height = 64
        stream.pix_fmt, stream.options = "yuv420p", {"crf": "5"}
        stream.codec_context.colorspace = tag
        frame = av.VideoFrame.from_ndarray(colour, "rgb24").reformat(format="yuv420p", dst_colorspace=matrix)
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    image = next(iter(read_frames(tmp_path / "clip.mp4"))).image
    assert np.abs(image[32, 32].astype(int) - (40, 160, 90)).max() <= 4


def test_resize_does_not_mix_the_colour_of_transparent_pixels_in():
    image = np.zeros((64, 64, 4), np.uint8)
    image[...] = (255, 255, 255, 0)
    image[:, :30] = (200, 30, 30, 255)
    small = resize(image, 16, 16)
    assert small.shape == (16, 16, 4)
    solid = small[..., 3] > 0
    assert np.abs(small[solid][:, :3].astype(int) - (200, 30, 30)).max() <= 1
    assert small[8, 7, 3] in (127, 128)  # half covered


# --- animated pictures ------------------------------------------------------------------------------------------------


def test_gif_frames_are_whole_and_timed(tmp_path):  # F14
    frames = []
    for i in range(4):
        picture = np.full((32, 64, 3), 40, np.uint8)
        picture[4:28, 4 + 14 * i : 16 + 14 * i] = (230, 20, 20)
        frames.append(Image.fromarray(picture).quantize(16))
    frames[0].save(
        tmp_path / "clip.gif", save_all=True, append_images=frames[1:], duration=[100, 20, 300, 50], disposal=1
    )
    reader = read_frames(tmp_path / "clip.gif")
    pictures = list(reader)
    np.testing.assert_allclose([p.time_s for p in pictures], [0, 0.1, 0.12, 0.42])
    for i, picture in enumerate(pictures):
        red = picture.image[..., 0] > 150
        assert red[4:28, 4 + 14 * i : 16 + 14 * i].all() and red.sum() == 24 * 12  # nothing of the frames before
    assert reader.info["duration_s"] == pytest.approx(0.47) and reader.kind == "animation"


@pytest.mark.parametrize("name", ["clip.webp", "clip.png"])
def test_webp_and_apng_keep_alpha_and_times(tmp_path, name):
    frames = []
    for i in range(3):
        picture = np.zeros((32, 32, 4), np.uint8)
        picture[8:24, 4 + 6 * i : 14 + 6 * i] = (20, 200, 40, 255)
        picture[8, 4 + 6 * i, 3] = 0  # not a plain rectangle: libwebp stores those without alpha
        frames.append(Image.fromarray(picture))
    extra = {"lossless": True} if name.endswith("webp") else {"disposal": 1, "blend": 0}
    frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], duration=[40, 80, 120], **extra)
    pictures = list(read_frames(tmp_path / name))
    np.testing.assert_allclose([p.time_s for p in pictures], [0, 0.04, 0.12])
    for i, picture in enumerate(pictures):
        alpha = picture.image[..., 3] > 128
        assert alpha.sum() == 159 and alpha[9:24, 4 + 6 * i : 14 + 6 * i].all()


# --- folders of stills ------------------------------------------------------------------------------------------------


def test_natural_order(tmp_path):  # F18
    reader = read_frames(save_numbered(tmp_path / "a", ["frame_1.png", "frame_2.png", "frame_10.png"]))
    assert [p.name for p in reader] == ["frame_1.png", "frame_2.png", "frame_10.png"]
    assert any("frame_1.png to frame_10.png" in note for note in reader.notes)
    assert any("7 numbers are missing" in note and "3, 4" in note for note in reader.notes)
    names = [f"{n}.png" for n in (9998, 9999, 10000, 10001)]
    assert numbers(read_frames(save_numbered(tmp_path / "b", names))) == [0, 1, 2, 3]


def test_strays_are_skipped_and_named(tmp_path):  # F19
    folder = save_numbered(tmp_path / "clip", ["frame_1.png", "frame_0003.png", "Frame_4.png", "frame_1_mask.png"])
    for junk in (".DS_Store", "Thumbs.db", "notes.txt", ".hidden.png"):
        (folder / junk).write_bytes(b"junk")
    reader = read_frames(folder)
    assert [p.name for p in reader] == ["frame_1.png", "frame_0003.png", "Frame_4.png"]
    skipped = next(note for note in reader.notes if "skipped" in note)
    assert all(name in skipped for name in (".DS_Store", "Thumbs.db", "notes.txt", "frame_1_mask.png"))


def test_rate_of_a_folder(tmp_path):
    folder = save_numbered(tmp_path / "clip", [f"{i}.png" for i in range(4)])
    reader = read_frames(folder)
    np.testing.assert_allclose([p.time_s for p in reader], np.arange(4) / 24)
    assert any("24 frames/s" in note for note in reader.notes)
    reader = read_frames(folder, fps=10)
    np.testing.assert_allclose([p.time_s for p in reader], np.arange(4) / 10)
    assert reader.info["duration_s"] == pytest.approx(0.4) and reader.info["fps"] == pytest.approx(10)
    assert not any("24" in note for note in reader.notes)


def test_paths_in_any_language(tmp_path):  # F21
    folder = save_numbered(tmp_path / "папка é 空 space", ["кадр 1.png", "кадр 2.png"])
    assert [p.name for p in read_frames(folder)] == ["кадр 1.png", "кадр 2.png"]
    assert numbers(read_frames(numbered(folder / "ролик 空.mp4", 3))) == [0, 1, 2]


def test_two_sizes_name_both_files(tmp_path):
    folder = save_numbered(tmp_path / "clip", ["1.png", "2.png"])
    Image.new("RGB", (20, 10)).save(folder / "3.png")
    with pytest.raises(InputError, match=r"1\.png is 96x64 but 3\.png is 20x10"):
        read_frames(folder)


def test_exif_orientation_is_applied_once(tmp_path):  # F22
    picture = np.zeros((10, 20, 3), np.uint8)
    picture[:, :5] = 255
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(picture).save(tmp_path / "clip.jpg", exif=exif, quality=95)
    for _ in range(2):
        image = next(iter(read_frames(tmp_path / "clip.jpg"))).image
        assert image.shape == (20, 10, 3)
        assert image[:4].mean() > 220 and image[8:].mean() < 30


def one_still(folder: Path, image: Image.Image, name: str = "still.png", **more) -> np.ndarray:
    image.save(folder / name, **more)
    return next(iter(read_frames(folder / name))).image


def test_sixteen_bit_grey_keeps_its_levels(tmp_path):  # F23
    ramp = np.linspace(0, 65535, 256).astype(np.uint16)[None].repeat(8, 0)
    image = one_still(tmp_path, Image.fromarray(ramp))
    assert np.abs(image[0, :, 0].astype(int) - np.arange(256)).max() <= 1
    assert len(np.unique(image)) == 256


@pytest.mark.parametrize("channels", [3, 4])
def test_sixteen_bit_colour(tmp_path, channels):  # F23
    import cv2

    ramp = np.linspace(0, 65535, 256).astype(np.uint16)
    pixels = np.stack([ramp, ramp[::-1], ramp // 2, ramp][:channels], -1)[None].repeat(8, 0)
    cv2.imwrite(str(tmp_path / "deep.png"), pixels)
    image = next(iter(read_frames(tmp_path / "deep.png"))).image
    assert image.shape[2] == channels
    want = pixels[0][:, [2, 1, 0, 3][:channels]] / 257
    assert np.abs(image[0].astype(float) - want).max() <= 1


def test_palette_grey_alpha_and_cmyk(tmp_path):
    picture = np.zeros((8, 8, 4), np.uint8)
    picture[:, :4] = (200, 30, 60, 255)
    palette = Image.fromarray(picture[..., :3]).quantize(4)
    index = palette.getpixel((6, 2))
    image = one_still(tmp_path, palette, transparency=index)
    assert image.shape[2] == 4 and image[2, 6, 3] == 0 and tuple(image[2, 1]) == (200, 30, 60, 255)
    grey = one_still(tmp_path, Image.fromarray(picture).convert("LA"))
    assert grey.shape[2] == 4 and grey[2, 6, 3] == 0 and grey[2, 1, 0] == grey[2, 1, 2] > 0
    solid = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    print_red = one_still(tmp_path, solid, "print.tif")
    assert print_red.shape == (8, 8, 3) and print_red[0, 0, 0] > 220 and print_red[0, 0, 1:].max() < 40
    assert one_still(tmp_path, Image.fromarray(picture[..., 0]))[2, 1].tolist() == [200, 200, 200]


def test_a_file_of_several_pages_says_that_one_is_used(tmp_path):
    pages = [Image.fromarray(number_picture(i)) for i in (5, 6)]
    pages[0].save(tmp_path / "pages.tif", save_all=True, append_images=pages[1:])
    reader = read_frames(tmp_path / "pages.tif")
    assert numbers(reader) == [5] and any("pages.tif holds more than one picture" in w for w in reader.warnings)


# --- refusals ---------------------------------------------------------------------------------------------------------


def refusal(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        list(read_frames(path))
    assert str(path.name) in caught.value.message and "\n" not in caught.value.message
    return caught.value


def test_missing_empty_and_unknown(tmp_path):  # F16
    assert "no such file" in refusal(tmp_path / "none.mp4").message
    (tmp_path / "zero.mp4").touch()
    assert "empty" in refusal(tmp_path / "zero.mp4").message
    (tmp_path / "notes.txt").write_text("not a video\n" * 50)
    assert "not a video" in refusal(tmp_path / "notes.txt").message
    (tmp_path / "zipped.mp4").write_bytes(b"PK\x03\x04" + bytes(range(256)) * 20)
    assert "not a video" in refusal(tmp_path / "zipped.mp4").message
    (tmp_path / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    refusal(tmp_path / "bad.png")
    (tmp_path / "empty").mkdir()
    assert "no pictures" in refusal(tmp_path / "empty").message
    (tmp_path / "empty" / "notes.txt").touch()
    assert "notes.txt" in refusal(tmp_path / "empty").message


def test_a_playlist_does_not_open_other_files(tmp_path):
    numbered(tmp_path / "part.ts")
    (tmp_path / "list.m3u8").write_text("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:0.3,\npart.ts\n#EXT-X-ENDLIST\n")
    assert "not a video" in refusal(tmp_path / "list.m3u8").message


def test_sound_without_pictures(tmp_path):  # F16
    path = tmp_path / "sound.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=44100)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 4096), np.float32), "fltp", "mono")
        frame.sample_rate = 44100
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    assert "no picture in this file, only audio" in refusal(path).message


@pytest.mark.parametrize("name, more", [("clip.mp4", {}), ("clip.mkv", {}), ("fast.mp4", {"movflags": "faststart"})])
def test_half_a_file_is_called_truncated(tmp_path, name, more):  # F13
    whole = numbered(tmp_path / f"whole_{name}", 30, container_options=more, options={"crf": "1"})
    half = tmp_path / name
    data = whole.read_bytes()
    half.write_bytes(data[: len(data) // 2])
    assert "truncated" in refusal(half).message


def test_a_damaged_frame_is_named(tmp_path):
    path = numbered(tmp_path / "clip.mov", 10, codec="png", pix_fmt="rgb24", options={})
    data = bytearray(path.read_bytes())
    starts = [i for i in range(len(data)) if data[i : i + 4] == b"\x89PNG"]
    data[starts[6] : starts[6] + 60] = bytes(60)
    path.write_bytes(data)
    assert "frame 6 cannot be decoded" in refusal(path).message


def test_one_frame(tmp_path):  # F16
    reader = read_frames(numbered(tmp_path / "clip.mp4", 1))
    assert [p.time_s for p in reader] == [0.0] and reader.info["frames_decoded"] == 1
    assert len(list(read_frames(tmp_path / "clip.mp4", fps=12))) == 1


@pytest.mark.parametrize("fps", [None, 20.0])
def test_never_more_than_three_pictures_in_memory(tmp_path, fps):
    import weakref

    seen = []
    for picture in read_frames(numbered(tmp_path / "clip.mp4", 40), fps):
        seen.append(weakref.ref(picture.image))
        assert sum(ref() is not None for ref in seen) <= 3
    assert len(seen) == (40 if fps is None else 27)


@pytest.mark.parametrize("seed", range(3))
def test_damaged_files_give_frames_or_one_sentence(tmp_path, seed):
    rng = np.random.default_rng(seed)
    stack = [Image.fromarray(number_picture(i)) for i in range(3)]
    files = [numbered(tmp_path / "a.mp4", 6), numbered(tmp_path / "b.mkv", 6)]
    for name in ("c.gif", "d.webp", "e.png"):
        stack[0].save(tmp_path / name, save_all=True, append_images=stack[1:], duration=50)
        files.append(tmp_path / name)
    for name in ("f.jpg", "g.tif", "h.bmp"):
        stack[0].save(tmp_path / name)
        files.append(tmp_path / name)
    good = 0
    for file in files:
        whole = np.frombuffer(file.read_bytes(), np.uint8)
        for kind in range(9):
            data = whole.copy()
            if kind < 3:
                data = data[: rng.integers(1, len(data))]
            else:
                places = rng.integers(0, len(data), (1, 4, 30)[kind % 3])
                data[places] = rng.integers(0, 256, len(places))
            suffix = file.suffix if kind < 8 else ".txt"
            broken = tmp_path / f"broken{suffix}"
            broken.write_bytes(data.tobytes())
            try:
                good += len(list(read_frames(broken))) > 0
            except InputError as error:
                assert error.message and error.hint and "\n" not in error.message
    assert good > 5


def test_rates_that_make_no_sense(tmp_path):
    for fps in (0.0, -5.0, float("nan"), 1e9):
        with pytest.raises(InputError, match="not a usable rate"):
            read_frames(save_numbered(tmp_path / "clip", ["1.png"]), fps=fps)


def test_the_real_animal_comes_in_natural_order_with_its_alpha(shared):
    reader = read_frames(shared / "data" / "triceratops")
    first = next(iter(reader))
    assert reader.length == 32 and first.name == "0.png" and first.image.shape == (720, 720, 4)
    assert [p.name for p in reader.files] == [f"{i}.png" for i in range(32)]


def combed(step: int, width: int = 96, height: int = 64) -> np.ndarray:
    """A moment of a bar that moves 8 px a frame, as an interlaced camera sees it: odd lines 4 px further on."""
    picture = np.full((height, width, 3), 50, np.uint8)
    for line in range(height):
        left = 8 + 8 * step + (4 if line % 2 else 0)
        picture[line, left : left + 20] = 210
    return picture


def combs(image: np.ndarray) -> float:
    """How much lines alternate: mean of |line - mean of its neighbours| where the bar's sides are."""
    grey = image.mean(-1)
    return float(np.abs(grey[1:-1] - (grey[:-2] + grey[2:]) / 2).mean())


def test_interlaced_video_gives_whole_pictures(tmp_path):  # F11
    pictures = [combed(i) for i in range(8)]
    options = {"crf": "4", "flags": "+ilme+ildct", "x264-params": "tff=1"}
    reader = read_frames(write_video(tmp_path / "clip.mp4", pictures, codec="libx264", options=options))
    frames = list(reader)
    assert len(frames) == 8 and reader.info["frames_decoded"] == 8
    np.testing.assert_allclose([f.time_s for f in frames], np.arange(8) / 30, atol=1e-3)
    assert any("interlaced" in fact for fact in reader.facts)
    for picture, frame in zip(pictures[1:-1], frames[1:-1], strict=True):
        assert combs(picture) > 10 and combs(frame.image) < 0.25 * combs(picture)
        bar = frame.image[..., 0].mean(0) > 130  # it is still where it was, and as wide
        assert abs(np.flatnonzero(bar).mean() - np.flatnonzero(picture[..., 0].mean(0) > 130).mean()) < 3


def test_progressive_video_is_not_touched_by_the_deinterlacer(tmp_path):
    reader = read_frames(write_video(tmp_path / "clip.mp4", [combed(i) for i in range(4)], options={"crf": "4"}))
    assert combs(list(reader)[1].image) > 8 and not any("interlaced" in fact for fact in reader.facts)


def test_pillows_limit_is_lifted_for_our_own_and_put_back_whatever_is_read_at_once(tmp_path, monkeypatch):
    """Frames and masks are opened by several threads, and Pillow has one limit for all."""
    real, seen, limit = Image.open, [], Image.MAX_IMAGE_PIXELS

    def slow(*args):
        time.sleep(0.02)
        seen.append(Image.MAX_IMAGE_PIXELS)
        return real(*args)

    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "open", slow)
    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(stills.open_picture, tmp_path / "a.png") for _ in range(8)]:
            assert future.result().size == (8, 8)
            time.sleep(0.007)
    assert seen == [None] * 8 and limit == Image.MAX_IMAGE_PIXELS
