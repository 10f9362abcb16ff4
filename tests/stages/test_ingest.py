"""The ingest stage on clips the tests make: what later stages will find in its folder."""

from __future__ import annotations

import json
import time
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from clips import moving, overlap
from PIL import Image

from v2m4 import formats
from v2m4.errors import ConfigError, InputError, MissingBackend
from v2m4.ingest import passes
from v2m4.stages import ingest
from v2m4.stages.ingest import IngestOptions


def ball(step: int, width: int = 96, height: int = 64, colour=(200, 90, 40), soft: bool = True) -> np.ndarray:
    """(H,W,4): a ball that rolls to the right, straight alpha, clear pixels white."""
    y, x = np.indices((height, width)) + 0.5
    depth = height / 4 - np.hypot(x - (width / 4 + 4 * step), y - height / 2)
    alpha = np.round(np.clip(depth + 0.5, 0, 1) * 255) if soft else (depth > 0) * 255
    picture = np.full((height, width, 4), 255, np.uint8)
    picture[alpha > 0, :3] = colour
    picture[..., 3] = alpha
    return picture


def on(picture: np.ndarray, ground) -> np.ndarray:
    alpha = picture[..., 3:] / 255
    return np.round(picture[..., :3] * alpha + np.asarray(ground, float) * (1 - alpha)).astype(np.uint8)


def save(folder: Path, pictures: list[np.ndarray], name: str = "frame_{}.png") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for i, picture in enumerate(pictures):
        Image.fromarray(picture).save(folder / name.format(i + 1))
    return folder


def film(path: Path, pictures: list[np.ndarray], times_ms: list[int], codec="libx264", pix_fmt="yuv420p", **options):
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=30)
        stream.width, stream.height, stream.pix_fmt = pictures[0].shape[1], pictures[0].shape[0], pix_fmt
        stream.codec_context.time_base = Fraction(1, 1000)
        stream.options = options
        if pix_fmt == "yuva420p":
            stream.metadata["alpha_mode"] = "1"
        for picture, time in zip(pictures, times_ms, strict=True):
            frame = av.VideoFrame.from_ndarray(picture, "rgba" if picture.shape[2] == 4 else "rgb24")
            frame.pts, frame.time_base = time, Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def whole(**options) -> IngestOptions:
    """Frames that show the full picture, so that a test can lay them over what it painted."""
    return IngestOptions(crop=False, **options)


def read_meta(context) -> dict:
    return json.loads((context.out / "clip.json").read_text("utf-8"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_given_alpha_is_used_as_it_is(tmp_path, context):
    pictures = [ball(i) for i in range(8)]
    ingest.run(context, whole(source=save(tmp_path / "clip", pictures), fps=12.0, keyframe_step=3))
    clip, meta = formats.read_clip(context.out), read_meta(context)
    assert meta["alpha"] == "given" and (clip.width, clip.height) == (96, 64) and clip.keyframes == (0, 3, 6, 7)
    np.testing.assert_allclose(clip.times_s, np.arange(8) / 12)
    for frame, picture in zip(clip.frames, pictures, strict=True):
        assert (frame.alpha == picture[..., 3]).all()
        assert np.abs(frame.image[..., :3].astype(int) - (200, 90, 40)).max() <= 1  # also where it is transparent
    assert [f["name"] for f in meta["frames"]] == [f"frame_{i + 1}.png" for i in range(8)]
    assert meta["source"]["frames_decoded"] == 8 and meta["source"]["fps"] == pytest.approx(12)
    assert meta["warnings"] == ["the object is only 32 pixels long: expect little detail"]
    sheet = formats.read_rgb(context.out / "contact_sheet.png")
    assert sheet.shape[1] == 6 * 96 and len(np.unique(sheet.reshape(-1, 3), axis=0)) > 10


def test_same_input_same_bytes_and_resume(tmp_path, context):
    options = IngestOptions(source=save(tmp_path / "clip", [on(ball(i), (128,) * 3) for i in range(5)]))
    ingest.run(context, options)
    first = contents(context.out)
    (context.out / "clip.json").unlink()
    (context.out / "contact_sheet.png").unlink()
    for index in (1, 4):
        (context.out / "frames" / f"{formats.frame_name(index)}.png").unlink()
    kept = (context.out / "frames" / "00000.png").stat().st_mtime_ns
    ingest.run(context, options)
    assert contents(context.out) == first
    assert (context.out / "frames" / "00000.png").stat().st_mtime_ns == kept


@pytest.mark.parametrize("ground", [(255, 255, 255), (0, 0, 0), (128, 128, 128), (0, 200, 60)])
def test_plain_background_is_keyed_out_of_a_video(tmp_path, context, ground):  # F01
    pictures = [ball(i) for i in range(10)]
    path = film(tmp_path / "clip.mp4", [on(p, ground) for p in pictures], [40 * i for i in range(10)], bf="2", crf="18")
    ingest.run(context, whole(source=path))
    clip, meta = formats.read_clip(context.out), read_meta(context)
    assert meta["alpha"] == "key" and np.abs(np.subtract(meta["background"], ground)).max() <= 3
    for frame, picture in zip(clip.frames, pictures, strict=True):
        mask, true = frame.alpha > 127, picture[..., 3] > 127
        assert (mask & true).sum() / (mask | true).sum() > 0.94  # a ball of 32 pixels at half-size chroma
        solid = frame.alpha > 0
        assert np.abs(frame.image[solid][:, :3].astype(int) - (200, 90, 40)).mean() < 8


def test_times_of_a_video_are_kept(tmp_path, context):  # F03, F05
    times = [500, 533, 567, 900, 933, 967, 2000, 2033, 2067, 2500]
    path = film(tmp_path / "vfr.mkv", [on(ball(i), (255,) * 3) for i in range(10)], times)
    ingest.run(context, IngestOptions(source=path))
    got = formats.read_clip(context.out, only=[]).times_s
    np.testing.assert_allclose(got * 1000, np.array(times) - 500, atol=1)
    assert got[0] == 0 and read_meta(context)["source"]["offset_s"] == pytest.approx(0.5)


def test_resampled_video(tmp_path, context):  # F03
    path = film(tmp_path / "clip.mp4", [on(ball(i), (255,) * 3) for i in range(4)], [0, 100, 400, 500])
    ingest.run(context, IngestOptions(source=path, fps=10.0, keyframe_step=2))
    meta = read_meta(context)
    np.testing.assert_allclose([f["time_s"] for f in meta["frames"]], np.arange(6) / 10)
    assert [f["source_index"] for f in meta["frames"]] == [0, 1, 1, 2, 2, 3]
    assert meta["keyframes"] == [0, 2, 4, 5] and meta["source"]["fps"] == 10 and meta["source"]["frames_decoded"] == 4


def test_webm_alpha_needs_no_background_model(tmp_path, context):  # F08
    pictures = [ball(i, soft=False) for i in range(3)]
    path = film(tmp_path / "clip.webm", pictures, [0, 33, 67], "libvpx-vp9", "yuva420p", crf="10", b="1M")
    ingest.run(context, whole(source=path))
    assert read_meta(context)["alpha"] == "given"
    for frame, picture in zip(formats.read_clip(context.out).frames, pictures, strict=True):
        assert ((frame.alpha > 127) == (picture[..., 3] > 127)).mean() > 0.99


def test_odd_sizes_and_one_frame(tmp_path, context):  # F12, F16
    ingest.run(context, whole(source=save(tmp_path / "clip", [ball(0, 63, 47)])))
    clip = formats.read_clip(context.out)
    assert (clip.width, clip.height) == (63, 47) and clip.keyframes == (0,) and len(clip.times_s) == 1
    assert clip.times_s[0] == 0


def test_large_pictures_are_scaled_in_proportion(tmp_path, context):
    ingest.run(context, whole(source=save(tmp_path / "clip", [ball(0, 300, 120)] * 2), max_size=100))
    clip = formats.read_clip(context.out)
    assert (clip.width, clip.height) == (100, 40)
    frame = clip.frames[0]
    assert abs(frame.alpha.sum() / 255 - np.pi * 10**2) < 5  # the ball, a third as large
    assert np.abs(frame.image[..., :3].astype(int) - (200, 90, 40)).max() <= 2


def test_order_and_names_in_any_language(tmp_path, context):  # F18, F19, F21
    folder = tmp_path / "папка é 空 space"
    for i, name in enumerate(["кадр 1.png", "Кадр 2.png", "кадр 10.png"]):
        folder.mkdir(exist_ok=True)
        Image.fromarray(ball(i)).save(folder / name)
    (folder / "Thumbs.db").touch()
    ingest.run(context, whole(source=folder))
    meta = read_meta(context)
    assert [f["name"] for f in meta["frames"]] == ["кадр 1.png", "Кадр 2.png", "кадр 10.png"]
    assert meta["source"]["name"] == "папка é 空 space" and any("Thumbs.db" in note for note in meta["notes"])
    centres = [np.flatnonzero((f.alpha > 127).any(0)).mean() for f in formats.read_clip(context.out).frames]
    assert np.allclose(np.diff(centres), 4)
    assert str(tmp_path) not in (context.out / "clip.json").read_text("utf-8")  # a run can be moved


def test_premultiplied_pictures_are_made_straight(tmp_path, context):  # F27
    pictures = [ball(i) for i in range(3)]
    for picture in pictures:
        picture[..., :3] = np.round(picture[..., :3] * (picture[..., 3:] / 255.0))
    source = save(tmp_path / "clip", pictures)
    ingest.run(context, IngestOptions(source=source))
    assert read_meta(context)["premultiplied"]
    for frame in formats.read_clip(context.out).frames:
        rim = (frame.alpha >= 64) & (frame.alpha < 255)
        assert rim.sum() > 20 and np.abs(frame.image[rim][:, :3].astype(int) - (200, 90, 40)).max() <= 4


def test_a_frame_without_an_object_is_named(tmp_path, context):  # M01
    pictures = [ball(i) for i in range(6)]
    pictures[3][..., 3] = 0
    pictures[4][..., 3] = np.minimum(pictures[4][..., 3], 204)
    with pytest.raises(InputError, match=r"frame 3 \(frame_4\.png\).*mask is empty") as caught:
        ingest.run(context, IngestOptions(source=save(tmp_path / "clip", pictures)))
    assert "alpha" in caught.value.hint and not (context.out / "clip.json").exists()


def test_weak_alpha_counts_and_faint_frames_are_stretched(tmp_path, context):  # M01
    pictures = [ball(i) for i in range(3)]
    pictures[1][..., 3] = np.minimum(pictures[1][..., 3], 204)
    pictures[2][..., 3] = pictures[2][..., 3] // 3
    ingest.run(context, whole(source=save(tmp_path / "clip", pictures)))
    frames = formats.read_clip(context.out).frames
    assert frames[1].alpha.max() == 204 and frames[2].alpha.max() == 255
    assert ((frames[2].alpha > 127) == (pictures[2][..., 3] > 42)).mean() > 0.99
    assert any("1 of 3 frames (2) are faint" in w for w in read_meta(context)["warnings"])


def test_an_object_with_the_backgrounds_colour_is_named(tmp_path, context):
    pictures = [on(ball(i), (255,) * 3) for i in range(3)]
    pictures[1][:] = 255
    with pytest.raises(InputError, match=r"frame 1 \(frame_2\.png\).*no object"):
        ingest.run(context, IngestOptions(source=save(tmp_path / "clip", pictures)))


def test_no_alpha_and_no_plain_background(tmp_path, context, monkeypatch):  # F25
    import sys

    monkeypatch.setitem(sys.modules, "rembg", None)
    noise = np.random.default_rng(0).integers(0, 255, (2, 64, 64, 3), np.uint8)
    folder = save(tmp_path / "clip", list(noise))
    with pytest.raises(InputError, match="no alpha") as caught:
        ingest.run(context, IngestOptions(source=folder, background="alpha"))
    assert "rembg" in caught.value.hint
    with pytest.raises(InputError, match="nothing to key out"):
        ingest.run(context, IngestOptions(source=folder, background="key"))
    with pytest.raises(MissingBackend) as missing:
        ingest.run(context, IngestOptions(source=folder))
    assert "alpha" in missing.value.hint and "plain background" in missing.value.hint
    with pytest.raises(ConfigError):
        ingest.run(context, IngestOptions())


def test_a_model_is_used_for_any_other_background(tmp_path, context, monkeypatch):
    class Fake:
        name, licence = "fake", "none"

        def __init__(self, model, weights_dir, log):
            pass

        def alpha(self, image):
            return (image[..., 0] == 200).astype(np.uint8) * 255

    monkeypatch.setattr("v2m4.models.rembg.Rembg", Fake)
    noise = np.random.default_rng(0).integers(0, 199, (3, 64, 96, 3), np.uint8)
    pictures = [ball(i, soft=False) for i in range(3)]
    ingest.run(context, whole(source=save(tmp_path / "clip", list(map(on, pictures, noise)))))
    assert read_meta(context)["alpha"] == "rembg"
    for frame, picture in zip(formats.read_clip(context.out).frames, pictures, strict=True):
        assert (frame.alpha == picture[..., 3]).all()


def test_a_noisy_background_is_doubted(tmp_path, context):
    rng = np.random.default_rng(0)
    grounds = 120 + rng.integers(-10, 11, (3, 64, 96, 1))
    pictures = [ball(i) for i in range(3)]
    ingest.run(context, whole(source=save(tmp_path / "clip", list(map(on, pictures, grounds)))))
    assert read_meta(context)["alpha"] == "key"
    assert any("not quite even" in w and "10 levels" in w for w in read_meta(context)["warnings"])
    for frame, picture in zip(formats.read_clip(context.out).frames, pictures, strict=True):
        mask, true = frame.alpha > 127, picture[..., 3] > 127
        assert (mask & true).sum() / (mask | true).sum() > 0.97


def test_a_mask_that_lost_half_of_the_object_is_named(tmp_path, context):  # M02
    pictures = [ball(i) for i in range(8)]
    pictures[4][:32, :, 3] = 0
    ingest.run(context, IngestOptions(source=save(tmp_path / "clip", pictures)))
    meta = read_meta(context)
    assert meta["suspect_masks"] == [4]
    assert any("mask of frame 4 has lost" in warning for warning in meta["warnings"])


def test_border_contact_is_said(tmp_path, context):
    pictures = [ball(i, 72, 64) for i in range(1, 12)]
    ingest.run(context, IngestOptions(source=save(tmp_path / "clip", pictures)))
    touching = [i for i, p in enumerate(pictures) if (p[:, -1, 3] > 127).any()]
    shown = ", ".join(map(str, touching))
    assert 0 < len(touching) < 5
    said = f"the object touches the picture's border in {len(touching)} of 11 frames ({shown}) (right): cut"
    assert any(warning.startswith(said) for warning in read_meta(context)["warnings"])


def birds(step: int) -> np.ndarray:
    """(H,W) uint8: a soft ball, and two birds three pixels wide that any clean-up would take for noise."""
    alpha = ball(step)[..., 3].copy()
    alpha[4:7, 80:83] = 255
    alpha[8:11, 70 + step : 73 + step] = 180
    return alpha


@pytest.mark.parametrize("kind", ["grey", "alpha", "one bit"])
def test_masks_are_used_bit_for_bit(tmp_path, context, kind):  # M03
    frames = [on(ball(i), (40, 90, 60)) for i in range(3)]
    masks = [birds(i) for i in range(3)]
    if kind == "one bit":
        masks = [np.where(m > 127, 255, 0).astype(np.uint8) for m in masks]
    source, folder = save(tmp_path / "frames", frames), tmp_path / "masks"
    folder.mkdir()
    for i, mask in enumerate(masks):
        picture = Image.fromarray(
            np.dstack([np.full((*mask.shape, 3), 7, np.uint8), mask]) if kind == "alpha" else mask
        )
        (picture.convert("1") if kind == "one bit" else picture).save(folder / f"m{i}.png")
    ingest.run(context, whole(source=source, masks=folder))
    for i, mask in enumerate(masks):
        np.testing.assert_array_equal(formats.read_rgba(context.out / "frames" / f"{i:05}.png")[..., 3], mask)
    assert read_meta(context)["alpha"] == "masks"


def test_masks_of_a_video_follow_its_decoded_frames(tmp_path, context):
    clip = film(tmp_path / "clip.mp4", [on(ball(i), (128,) * 3) for i in range(6)], [i * 100 for i in range(6)])
    masks = save(tmp_path / "masks", [ball(i)[..., 3] for i in range(6)], "{}.png")
    ingest.run(context, whole(source=clip, masks=masks, fps=5))
    assert [frame["source_index"] for frame in read_meta(context)["frames"]] == [0, 2, 4]
    for i in (0, 1, 2):
        np.testing.assert_array_equal(
            formats.read_rgba(context.out / "frames" / f"{i:05}.png")[..., 3], ball(2 * i)[..., 3]
        )


def test_masks_beside_the_pictures_are_paired_by_name(tmp_path, context):  # F19
    folder = save(tmp_path / "clip", [on(ball(i), (90, 90, 200)) for i in range(3)], "Frame_{}.png")
    save(folder, [birds(i) for i in range(3)], "frame_{}_mask.png")
    (folder / "notes.txt").write_text("no picture")
    ingest.run(context, whole(source=folder))
    meta = read_meta(context)
    assert [frame["name"] for frame in meta["frames"]] == ["Frame_1.png", "Frame_2.png", "Frame_3.png"]
    assert meta["alpha"] == "masks"
    np.testing.assert_array_equal(formats.read_rgba(context.out / "frames" / "00002.png")[..., 3], birds(2))


def test_masks_beside_some_pictures_only_are_not_used_and_said(tmp_path, context):
    folder = save(tmp_path / "clip", [on(ball(i), (90, 90, 200)) for i in range(3)])
    save(folder, [birds(0)], "frame_{}_mask.png")
    ingest.run(context, IngestOptions(source=folder))
    meta = read_meta(context)
    assert meta["alpha"] == "key" and any("1 pictures named like masks" in w for w in meta["warnings"])


@pytest.mark.parametrize(
    ("masks", "said"),
    [
        pytest.param([ball(0)[..., 3]] * 2, "2 masks for 3 frames", id="too few"),
        pytest.param([ball(0)[..., 3]] * 4, "4 masks for 3 frames", id="too many"),
        pytest.param([ball(0, width=48)[..., 3]] * 3, "the mask is 48x64, its frame 96x64", id="another size"),
        pytest.param([ball(0)[..., :3]] * 3, "coloured", id="a picture"),
        pytest.param([ball(0)[..., 3] // 255] * 3, "reach only 1 of 255", id="zeros and ones"),
        pytest.param([ball(0)[..., 3] * 0] * 3, "its mask is empty", id="empty"),
        pytest.param(
            [ball(0)[..., 3], ball(1)[..., 3] // 3, ball(2)[..., 3]], r"frame 1 .*reaches only 85 of 255", id="faint"
        ),
        pytest.param([], "no masks in this folder", id="none"),
    ],
)
def test_masks_that_do_not_fit_are_refused(tmp_path, context, masks, said):
    source = save(tmp_path / "frames", [on(ball(i), (40, 90, 60)) for i in range(3)])
    with pytest.raises(InputError, match=said):
        ingest.run(context, IngestOptions(source=source, masks=save(tmp_path / "masks", masks, "{}.png")))
    assert not (context.out / "clip.json").exists()


def test_too_few_masks_for_a_video(tmp_path, context):
    clip = film(tmp_path / "clip.mp4", [on(ball(i), (128,) * 3) for i in range(4)], [i * 100 for i in range(4)])
    for count, said in ((3, "frame 3 has none"), (5, "5 masks for 4 frames")):
        masks = save(tmp_path / f"masks{count}", [ball(i)[..., 3] for i in range(count)], "{}.png")
        with pytest.raises(InputError, match=said):
            ingest.run(context, IngestOptions(source=clip, masks=masks))


def test_masks_and_another_source_of_masks_exclude_each_other(tmp_path, context):
    source = save(tmp_path / "frames", [on(ball(0), (40, 90, 60))])
    with pytest.raises(ConfigError, match="exclude"):
        ingest.run(context, IngestOptions(source=source, masks=tmp_path, background="key"))
    with pytest.raises(InputError, match="no such folder"):
        ingest.run(context, IngestOptions(source=source, masks=tmp_path / "nowhere"))


def test_frames_in_work_at_once_come_in_order_and_the_first_fault_counts():
    def work(number: int) -> int:
        time.sleep(0.01 if number % 2 == 0 else 0)  # the later one is ready first
        if number in (5, 6):
            raise InputError(f"frame {number}")
        return number * number

    read: list[int] = []

    def pictures():
        for number in range(50):
            read.append(number)
            yield number

    got = []
    with pytest.raises(InputError, match="frame 5"):
        for number, square in passes.ahead(pictures(), work, 2):
            got.append((number, square))
    assert got == [(i, i * i) for i in range(5)]
    assert len(read) < 10  # nothing is read far ahead


def test_how_many_frames_are_used_and_why_is_said(tmp_path, context):  # F17
    source = save(tmp_path / "clip", [ball(i // 8) for i in range(50)])
    ingest.run(context, IngestOptions(source=source, fps=25, keyframe_step=7))
    meta = read_meta(context)
    assert len(meta["frames"]) == 50 and meta["keyframes"] == [0, 7, 14, 21, 28, 35, 42, 49]
    assert any("50 frames in 2.00 s" in line and "50 frames in 2.00 s" in line for line in context.messages)


def test_one_of_two_objects_is_kept(tmp_path, context):  # M05
    def both(i: int) -> np.ndarray:
        return np.concatenate([ball(i), ball(i, colour=(30, 60, 220))], 1)

    source = save(tmp_path / "clip", [both(i) for i in range(4)])
    ingest.run(context, whole(source=source, object="1"))
    for i in range(4):
        frame = formats.read_rgba(context.out / "frames" / f"{i:05}.png")
        assert not frame[:, :96, 3].any()
        np.testing.assert_array_equal(frame[:, 96:, 3], ball(i)[..., 3])
        assert (frame[..., 2] > frame[..., 0]).all()  # no colour of the other one is left, not even under clear pixels


def test_one_square_crop_with_the_map_back_to_the_picture(tmp_path, context):
    pictures = [ball(i, width=240, height=100) for i in range(10)]  # 50 pixels wide, and 36 further at the end
    ingest.run(context, IngestOptions(source=save(tmp_path / "clip", pictures)))
    meta, clip = read_meta(context), formats.read_clip(context.out)
    crop = clip.crop
    assert crop.width == crop.height and abs(crop.width - (50 + 36) / 0.85) < 3
    assert abs(crop.left + crop.width / 2 - (60 + 18)) < 2 and abs(crop.top + crop.height / 2 - 50) < 2
    assert (crop.picture_width, crop.picture_height) == (240, 100) and meta["crop"]["left"] == crop.left
    assert (clip.width, clip.height) == (crop.width, crop.height)  # nothing is enlarged or stretched
    for frame, picture in zip(clip.frames, pictures, strict=True):
        rows = slice(max(crop.top, 0), crop.top + crop.height)
        part = picture[rows, crop.left : crop.left + crop.width, 3]
        np.testing.assert_array_equal(frame.alpha[max(-crop.top, 0) :][: len(part)], part)
        assert int(frame.alpha.sum()) == int(picture[..., 3].sum())  # all of the object
    boxes = np.array([np.flatnonzero((f.alpha > 127).any(0))[[0, -1]] for f in clip.frames])
    assert 0.7 < (boxes[:, 1].max() - boxes[:, 0].min() + 1) / crop.width < 0.9


def test_a_large_crop_is_scaled_to_the_limit(tmp_path, context):
    ingest.run(context, IngestOptions(source=save(tmp_path / "clip", [ball(0, 300, 240)] * 2), max_size=64))
    clip = formats.read_clip(context.out)
    assert (clip.width, clip.height) == (64, 64) and clip.crop.width == clip.crop.height > 64
    assert np.ptp(np.flatnonzero((clip.frames[0].alpha > 127).any(0))) + 1 == pytest.approx(0.85 * 64, abs=2)


def test_an_empty_frame_is_skipped_and_its_time_stays(tmp_path, context):  # M01
    pictures = [ball(i) for i in range(6)]
    pictures[3][..., 3] = 0
    source = save(tmp_path / "clip", pictures)
    ingest.run(context, IngestOptions(source=source, fps=10, empty="skip", keyframe_step=1))
    meta = read_meta(context)
    np.testing.assert_allclose([f["time_s"] for f in meta["frames"]], [0, 0.1, 0.2, 0.4, 0.5])
    assert meta["keyframes"] == [0, 1, 2, 3, 4]  # five keys, and the gap is kept
    assert [f["name"] for f in meta["frames"]] == [f"frame_{i}.png" for i in (1, 2, 3, 5, 6)]
    assert any("1 frame without an object (3): skipped" in note for note in meta["notes"])
    assert len(list((context.out / "frames").iterdir())) == 5


def test_an_empty_frame_holds_the_one_before(tmp_path, context):  # M01
    pictures = [ball(i) for i in range(6)]
    for i in (0, 3):
        pictures[i][..., 3] = 0
    ingest.run(context, whole(source=save(tmp_path / "clip", pictures), fps=10, empty="hold"))
    meta, frames = read_meta(context), formats.read_clip(context.out).frames
    np.testing.assert_allclose([f["time_s"] for f in meta["frames"]], [0, 0.1, 0.2, 0.3, 0.4])  # the first one has none
    np.testing.assert_array_equal(frames[2].image, frames[1].image)
    assert [f.get("holds") for f in meta["frames"]] == [None, None, 1, None, None]
    for frame, i in zip(frames, (1, 2, 2, 4, 5), strict=True):
        np.testing.assert_array_equal(frame.alpha, pictures[i][..., 3])


@pytest.mark.parametrize("empty", ["hold", "skip"])
@pytest.mark.parametrize("gone", [[3], [2, 3], [6], [0, 3]])
def test_masks_are_mended_around_frames_without_an_object(tmp_path, context, monkeypatch, empty, gone):  # M01, M02
    """The held frames show the mended mask, too, and no mask is asked of a picture that has none."""
    clip = moving(8)
    pictures = [picture for picture, _ in clip]
    masks = [np.zeros_like(mask) if i in gone else mask.copy() for i, (_, mask) in enumerate(clip)]
    masks[5][6:14, 240:252] = 255  # a patch of ground for one frame
    monkeypatch.setattr("v2m4.models.rembg.Rembg", network(pictures, masks))
    source = save(tmp_path / "clip", pictures)
    ingest.run(context, whole(source=source, background="rembg", empty=empty, keyframe_step=1))
    meta, frames = read_meta(context), formats.read_clip(context.out).frames
    assert len(frames) == 8 - (len(gone) if empty == "skip" else 0 in gone)
    for frame, about in zip(frames, meta["frames"], strict=True):
        assert overlap(frame.alpha, clip[about["source_index"]][1]) > 0.97 and not frame.alpha[:20, 230:].any()


def test_a_held_frame_lies_where_the_mended_one_does(tmp_path, context, monkeypatch):  # M01, M02
    clip = moving(6, step=(1, 0))
    pictures, masks = [picture for picture, _ in clip], [mask.copy() for _, mask in clip]
    masks[2][6:14, 240:252] = 255
    masks[3][:] = 0
    monkeypatch.setattr("v2m4.models.rembg.Rembg", network(pictures, masks))
    ingest.run(context, IngestOptions(source=save(tmp_path / "clip", pictures), background="rembg", empty="hold"))
    crop = formats.read_clip(context.out).crop
    assert crop.left + crop.width < 235  # not widened for a patch that is gone


@pytest.mark.parametrize("at", [4, 8, 9, 11, 15])
def test_a_run_killed_in_any_pass_ends_with_the_same_bytes(tmp_path, context, monkeypatch, at):
    """Killed at a picture it writes. What flickers is judged by the neighbours' masks, which may be mended by then."""
    clip = moving(6)
    pictures, masks = [picture for picture, _ in clip], [mask.copy() for _, mask in clip]
    for i in (2, 4):
        masks[i][6:14, 240:252] = 255
    monkeypatch.setattr("v2m4.models.rembg.Rembg", network(pictures, masks))
    options = IngestOptions(source=save(tmp_path / "clip", pictures), background="rembg")
    written, write, limit = [], formats.write_image, [at, 99]

    def killed(path: Path, image: np.ndarray) -> None:
        written.append(path.parent.name)
        if len(written) >= limit[0]:
            raise KeyboardInterrupt
        write(path, image)

    monkeypatch.setattr(formats, "write_image", killed)
    with pytest.raises(KeyboardInterrupt):
        ingest.run(context, options)
    assert written[at - 1] == {4: "found", 8: "mended", 9: "mended", 11: "frames", 15: "frames"}[at]
    del limit[0]
    ingest.run(context, options)
    resumed, context.out = contents(context.out), tmp_path / "whole"
    written.clear()
    ingest.run(context, options)
    assert contents(context.out) == resumed


def test_flicker_in_own_masks_goes_only_when_asked(tmp_path, context):  # M02, M03
    clip = moving(6)
    masks = [mask.copy() for _, mask in clip]
    masks[3][6:14, 240:252] = 255
    source, folder = save(tmp_path / "clip", [picture for picture, _ in clip]), save(tmp_path / "masks", masks)
    for mend, there in (("auto", True), ("always", False)):
        context.out = tmp_path / mend
        ingest.run(context, whole(source=source, masks=folder, mend=mend))
        assert formats.read_clip(context.out).frames[3].alpha[:20, 230:].any() == there


@pytest.mark.parametrize(
    ("options", "why"),
    [({"object": "0"}, "one object"), ({"alpha_colours": "premultiplied"}, "premultiplied"), ({}, "")],
)
def test_masks_that_are_not_mended_though_asked_are_said(tmp_path, context, options, why):  # M02
    ingest.run(context, whole(source=save(tmp_path / "clip", [ball(i) for i in range(3)]), mend="always", **options))
    said = [note for note in read_meta(context)["notes"] if note.startswith("no mask is mended")]
    assert len(said) == bool(why) and all(why in note for note in said)


@pytest.mark.parametrize("options", [{"crop": False}, {}, {"max_size": 300}])
def test_an_object_that_scaling_down_takes_away_is_named(tmp_path, context, options):  # F16
    pictures = [np.zeros((1024, 1024, 4), np.uint8) for _ in range(3)]
    for i, picture in enumerate(pictures):
        picture[400 * i : 400 * i + 2, 400 * i : 400 * i + 2] = 255
    options = IngestOptions(source=save(tmp_path / "clip", pictures), **{"max_size": 16, **options})
    with pytest.raises(
        InputError, match=r"frame 0 \(frame_1\.png\).*nothing is left of the object, 2 pixels long"
    ) as e:
        ingest.run(context, options)
    assert "max_size" in e.value.hint and not (context.out / "clip.json").exists()


def test_a_clip_without_any_object_is_refused(tmp_path, context):
    pictures = [np.zeros((64, 64, 4), np.uint8)] * 3
    with pytest.raises(InputError, match="no object in any frame"):
        ingest.run(context, IngestOptions(source=save(tmp_path / "clip", pictures), empty="skip"))


def network(pictures: list[np.ndarray], masks: list[np.ndarray]) -> type:
    """Finds in each of the ``pictures`` what ``masks`` say."""

    class Network:
        name, licence = "network", "none"

        def __init__(self, model, weights_dir, log):
            pass

        def alpha(self, image):
            return masks[next(i for i, picture in enumerate(pictures) if (picture == image).all())]

    return Network


@pytest.mark.parametrize("empty", ["fail", "skip", "hold"])
def test_an_object_that_vanishes_behind_nothing_is_missed(tmp_path, context, empty):  # M01, M05
    """The frames in which only the other one is left have no object."""
    pictures = [np.concatenate([ball(i), ball(0, colour=(30, 60, 220))], 1) for i in range(6)]
    for i in (3, 5):
        pictures[i][:, :96, 3] = 0
    options = whole(source=save(tmp_path / "clip", pictures), object="0", empty=empty)
    if empty == "fail":
        with pytest.raises(InputError, match=r"frame 3 \(frame_4\.png\): --object 0 .* is not there any more"):
            ingest.run(context, options)
        return
    ingest.run(context, options)
    for frame, i in zip(
        formats.read_clip(context.out).frames, {"skip": [0, 1, 2, 4], "hold": [0, 1, 2, 2, 4, 4]}[empty], strict=True
    ):
        np.testing.assert_array_equal(frame.alpha[:, :96], pictures[i][:, :96, 3])
        assert not frame.alpha[:, 96:].any()


class Flawed:
    """A network that loses the left half of the object in frame 4, and finds a patch of ground in frame 7."""

    name, licence = "flawed", "none"

    def __init__(self, model, weights_dir, log):
        self.count = 0

    def alpha(self, image):
        mask = moving(10)[self.count][1].copy()
        assert (image == moving(10)[self.count][0]).all()
        if self.count == 4:
            mask[:, : int(np.flatnonzero(mask.any(0)).mean())] = 0
        if self.count == 7:
            mask[6:14, 240:252] = 255
        self.count += 1
        return mask


def test_masks_of_a_network_are_mended(tmp_path, context, monkeypatch):  # M02
    monkeypatch.setattr("v2m4.models.rembg.Rembg", Flawed)
    clip = moving(10)
    source = save(tmp_path / "clip", [picture for picture, _ in clip], "{:02}.png")
    ingest.run(context, whole(source=source, background="rembg"))
    meta, frames = read_meta(context), formats.read_clip(context.out).frames
    assert meta["rebuilt_masks"] == [4] and meta["suspect_masks"] == []
    assert any("frame 4 has lost" in w and "rebuilt" in w for w in meta["warnings"])
    assert overlap(frames[4].alpha, clip[4][1]) > 0.92 and not frames[7].alpha[:20, 230:].any()
    for i in (0, 1, 2, 3, 5, 6, 8, 9):
        assert overlap(frames[i].alpha, clip[i][1]) > 0.99
    assert not any((context.out / name).exists() for name in ("found", "mended"))


def test_own_masks_are_mended_only_when_asked(tmp_path, context):  # M02, M03
    clip = moving(8)
    masks = [mask.copy() for _, mask in clip]
    masks[4][:, : int(np.flatnonzero(masks[4].any(0)).mean())] = 0
    source = save(tmp_path / "clip", [picture for picture, _ in clip])
    folder = save(tmp_path / "masks", masks)
    ingest.run(context, whole(source=source, masks=folder))
    meta = read_meta(context)
    assert meta["suspect_masks"] == [4] and meta["rebuilt_masks"] == []
    np.testing.assert_array_equal(formats.read_clip(context.out).frames[4].alpha, masks[4])
    context.out = tmp_path / "mended"
    context.out.mkdir()
    ingest.run(context, whole(source=source, masks=folder, mend="always"))
    meta, frames = read_meta(context), formats.read_clip(context.out).frames
    assert meta["suspect_masks"] == [] and meta["rebuilt_masks"] == [4]
    assert overlap(frames[4].alpha, clip[4][1]) > 0.92
    np.testing.assert_array_equal(frames[3].alpha, masks[3])


def test_a_network_goes_on_where_it_was_killed(tmp_path, context, monkeypatch):
    looked: list[int] = []
    killed: list[bool] = []

    class Slow:
        name, licence = "slow", "none"

        def __init__(self, model, weights_dir, log):
            pass

        def alpha(self, image):
            number = next(i for i, (picture, _) in enumerate(clip) if (picture == image).all())
            looked.append(number)
            if number == 4 and looked.count(4) == 1 and not killed:
                killed.append(True)
                raise KeyboardInterrupt
            return clip[number][1]

    clip = moving(8)
    monkeypatch.setattr("v2m4.models.rembg.Rembg", Slow)
    options = IngestOptions(source=save(tmp_path / "clip", [p for p, _ in clip]), background="rembg")
    with pytest.raises(KeyboardInterrupt):
        ingest.run(context, options)
    ingest.run(context, options)
    assert [looked.count(i) for i in range(5)] == [1, 1, 1, 1, 2]
    again, context.out = context.out, tmp_path / "alone"
    context.out.mkdir()
    ingest.run(context, options)
    assert contents(again) == contents(context.out)


def test_keyframes_anchor_and_verdict_are_told(tmp_path, context):
    clip = moving(12, step=(6, 2))
    source = save(tmp_path / "clip", [np.dstack([picture, mask]) for picture, mask in clip], "{:02}.png")
    ingest.run(context, IngestOptions(source=source, max_keyframes=3))
    meta = read_meta(context)
    assert len(meta["keyframes"]) <= 3 and meta["anchor_candidate"] in meta["keyframes"]
    assert len(meta["anchor_scores"]) == len(meta["keyframes"]) and 0 < max(meta["anchor_scores"]) <= 1
    assert meta["verdict"] == "look" and meta["reasons"][0]["text"].startswith("the object is only")
    assert set(meta["numbers"]) >= {"object_px", "blur", "motion", "shift", "turn_deg", "frames_at_border"}
    assert all(set(frame) >= {"motion", "blur", "border"} for frame in meta["frames"])
    assert any(line.startswith("go, but look first: the object is 1") for line in context.messages)


def test_a_prompt_takes_sam2_and_excludes_the_others(tmp_path, context, monkeypatch):
    seen = {}

    class Fake:
        name, licence = "sam2", "none"

        def __init__(self, prompt, model, weights_dir, device, log):
            seen.update(prompt=prompt, model=model, device=device)

        def alpha(self, image):
            return (image[..., 0] == 200).astype(np.uint8) * 255

    monkeypatch.setattr("v2m4.models.sam2.Sam2", Fake)
    source = save(tmp_path / "clip", [on(ball(i, soft=False), (90,) * 3) for i in range(3)])
    ingest.run(context, IngestOptions(source=source, prompt="24,32", matte_model="sam2.1-hiera-tiny"))
    assert read_meta(context)["alpha"] == "sam2"
    assert seen == {"prompt": "24,32", "model": "sam2.1-hiera-tiny", "device": "cpu"}
    with pytest.raises(ConfigError, match="exclude"):
        IngestOptions(source=source, prompt="24,32", background="key")
    with pytest.raises(ConfigError, match=r"needs ingest\.prompt"):
        IngestOptions(source=source, background="sam2")
    with pytest.raises(ConfigError, match="exclude"):
        ingest.run(context, IngestOptions(source=source, prompt="24,32", masks=tmp_path))


def test_options_have_help_and_limits():
    from v2m4 import config

    assert config.resolve({"ingest": IngestOptions}, {"ingest": {"fps": 30}})["ingest"].fps == 30.0
    for key, value in (("keyframe_step", -1), ("background", "magic"), ("fps", 0.0), ("max_size", 16384)):
        with pytest.raises(ConfigError):
            config.resolve({"ingest": IngestOptions}, {"ingest": {key: value}})


@pytest.mark.slow
def test_the_real_clips(shared, context, tmp_path):
    ingest.run(context, whole(source=shared / "data" / "triceratops"))
    meta = read_meta(context)
    assert [f["name"] for f in meta["frames"]] == [f"{i}.png" for i in range(32)] and meta["alpha"] == "given"
    context.out = tmp_path / "frog"
    context.out.mkdir()
    ingest.run(context, whole(source=shared / "data" / "sighing_frog.mp4"))
    clip = formats.read_clip(context.out)
    assert len(clip.frames) == 32 and read_meta(context)["alpha"] == "key"
    areas = np.array([(f.alpha > 127).sum() for f in clip.frames])
    assert areas.min() > 30000 and areas.max() < 60000
    assert (clip.frames[0].alpha[180:184, 268:272] == 255).all()  # a white glint in its eye
    assert clip.frames[0].alpha[320, 223] == 0  # seen between arm and body


def test_a_mask_model_that_is_none_is_refused_whatever_the_clip_needs(tmp_path):
    with pytest.raises(ConfigError, match="no mask model") as wrong:
        IngestOptions(matte_model="u2nett")
    assert "u2net" in wrong.value.hint
    for name in ("", "u2netp", "sam2.1-hiera-tiny", str(tmp_path)):  # a folder holds a SAM 2 of the user's own
        IngestOptions(matte_model=name)
