"""HDR clips come out in the colours an ordinary recording of the same scene has."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest

from v2m4 import hdr
from v2m4.transforms import linear_to_srgb, srgb_to_linear
from v2m4.video import read_frames

#: sRGB colours of the scene below the knee: greys, skin, and strongly coloured cloth.
COLOURS = np.array([[46] * 3, [119] * 3, [200] * 3, [196, 140, 118], [200, 40, 40], [30, 120, 60], [40, 60, 180]])
TAGS = {"PQ": "smpte2084", "HLG": "arib-std-b67"}


def encoded(srgb: np.ndarray, transfer: str, whites: float = 1.0) -> np.ndarray:
    """sRGB colours as a camera writes them in BT.2020 with a transfer curve, in [0, 1]; written from BT.2100's inverse
    curves, not from the product's own. ``whites``: how many reference whites full sRGB white is."""
    light = srgb_to_linear(srgb / 255) * whites
    to_2020 = np.array([[0.6274, 0.3293, 0.0433], [0.0691, 0.9195, 0.0114], [0.0164, 0.0880, 0.8956]])
    nits = light @ to_2020.T * 203
    if transfer == "PQ":
        power = (np.maximum(nits, 0) / 10_000) ** 0.1593017578125
        return ((0.8359375 + 18.8515625 * power) / (1 + 18.6875 * power)) ** 78.84375
    shown = nits / 1000
    luminance = (shown @ [0.2627, 0.6780, 0.0593])[..., None]
    scene = shown * np.maximum(luminance, 1e-9) ** (1 / 1.2 - 1)
    return np.where(
        scene <= 1 / 12, np.sqrt(3 * scene), 0.17883277 * np.log(np.maximum(12 * scene - 0.28466892, 1e-9)) + 0.55991073
    )


def clip(path: Path, signal: np.ndarray, transfer: str) -> Path:
    """Squares of the given signal values as a 10-bit H.265 video tagged BT.2020."""
    row = np.repeat(np.round(signal * 65535).astype(np.uint16), 16, 0)
    picture = np.repeat(row[None], 32, 0)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx265", rate=25)
        stream.width, stream.height, stream.pix_fmt = picture.shape[1], picture.shape[0], "yuv444p10le"
        tags = f"colorprim=bt2020:transfer={TAGS[transfer]}:colormatrix=bt2020nc"
        stream.options = {"x265-params": f"lossless=1:log-level=none:{tags}"}
        for i in range(2):
            frame = av.VideoFrame.from_ndarray(picture, "rgb48le").reformat(
                format="yuv444p10le", dst_colorspace=9, dst_color_range=1
            )
            frame.pts = i
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


@pytest.mark.parametrize("transfer", ["PQ", "HLG"])
def test_a_clip_comes_out_in_its_colours(tmp_path, transfer):  # F10
    reader = read_frames(clip(tmp_path / "clip.mkv", encoded(COLOURS, transfer), transfer))
    frames = list(reader)
    assert len(frames) == 2 and reader.info["hdr"] == transfer
    assert any("HDR source" in fact for fact in reader.facts)
    seen = frames[0].image[16].reshape(len(COLOURS), 16, 3)[:, 8]
    assert np.abs(seen.astype(int) - COLOURS).max() <= 3


@pytest.mark.parametrize("transfer", ["PQ", "HLG"])
def test_what_is_brighter_than_white_stays_apart_and_keeps_its_hue(transfer):
    steps = [np.round(encoded(np.array([[255] * 3]), transfer, w) * 65535).astype(np.uint16) for w in (0.8, 1, 2, 4)]
    greys = [int(hdr.to_srgb(step[None], transfer)[0, 0, 0]) for step in steps]
    assert greys[0] < greys[1] < greys[2] <= greys[3] <= 255 and greys[1] > 235
    light = np.array([[255.0, 188, 188]])
    dim, bright = (
        srgb_to_linear(
            hdr.to_srgb(np.round(encoded(light, transfer, w) * 65535).astype(np.uint16)[None], transfer) / 255
        )
        for w in (0.4, 2.5)
    )
    ratio = [float(x[0, 0, 1] / x[0, 0, 0]) for x in (dim, bright)]
    assert ratio[0] == pytest.approx(ratio[1], rel=0.03)


def test_colours_that_srgb_cannot_show_keep_their_luminance_order_and_are_not_clipped_to_black():
    pure = np.array([[[65535 * 0.5, 0, 0], [0, 65535 * 0.5, 0], [0, 0, 65535 * 0.5]]]).astype(np.uint16)
    seen = hdr.to_srgb(pure, "PQ")[0].astype(int)
    assert (seen.argmax(1) == [0, 1, 2]).all() and (seen.max(1) - seen.min(1) > 60).all()


def test_the_curve_is_smooth_and_rises():
    light = np.linspace(0, 6, 4000)
    toned = hdr._toned(light)
    slope = np.diff(toned) / np.diff(light)
    assert (slope > 0).all() and np.abs(np.diff(slope)).max() < 0.01 and toned[-1] <= 1
    np.testing.assert_allclose(linear_to_srgb(toned[light <= hdr.KNEE]), linear_to_srgb(light[light <= hdr.KNEE]))
