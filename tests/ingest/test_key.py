"""Masks and edge colours on pictures whose true alpha is known because the tests draw them."""

from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from v2m4.errors import InputError
from v2m4.ingest import edges
from v2m4.ingest.edges import cut_out
from v2m4.ingest.key import Background, BorderSurvey, KeyMatte

SIZE = 160
GROUNDS = {"white": (255, 255, 255), "black": (0, 0, 0), "grey": (128, 128, 128), "green": (0, 200, 60)}


def coverage(inside, size: int = SIZE, times: int = 4) -> np.ndarray:
    """(H,W) in [0,1] of a shape given by ``inside(x, y)`` in pixels, by supersampling."""
    y, x = (np.indices((size * times, size * times)) + 0.5) / times
    return inside(x, y).astype(float).reshape(size, times, size, times).mean((1, 3))


def ring(x, y):
    """A disc with arms left and right, and a hole."""
    disc = np.hypot(x - 80, y - 80) < 45
    arms = (np.abs(y - 80) < 8) & (np.abs(x - 80) < 68)
    return (disc | arms) & ~(np.hypot(x - 80, y - 62) < 12)


def paint(alpha: np.ndarray, colour: np.ndarray, ground) -> np.ndarray:
    """The object's colours (H,W,3) or (3,) over a plain ground."""
    mixed = alpha[..., None] * np.asarray(colour, float) + (1 - alpha[..., None]) * np.asarray(ground, float)
    return np.round(mixed).astype(np.uint8)


def shades(low, high) -> np.ndarray:
    """Colours that run from ``low`` to ``high`` across the picture."""
    t = np.linspace(0, 1, SIZE)[None, :, None]
    return np.broadcast_to(np.asarray(low) * (1 - t) + np.asarray(high) * t, (SIZE, SIZE, 3))


def survey(*images: np.ndarray) -> Background | None:
    border = BorderSurvey()
    for image in images:
        border.add(image)
    return border.background()


def jpeg(image: np.ndarray, quality: int) -> np.ndarray:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "jpeg", quality=quality)
    return np.asarray(Image.open(buffer))


def iou(a: np.ndarray, b: np.ndarray) -> float:
    return float((a & b).sum() / (a | b).sum())


@pytest.mark.parametrize("name", GROUNDS)
def test_key_finds_object_soft_edge_and_hole(name):
    true = coverage(ring)
    image = paint(true, shades((200, 90, 40), (120, 40, 150)), GROUNDS[name])
    background = survey(image)
    assert background is not None and np.abs(np.subtract(background.colour, GROUNDS[name])).max() <= 1
    alpha = KeyMatte(background).alpha(image)
    assert iou(alpha > 127, true > 0.5) > 0.995
    assert alpha[62, 80] == 0 and alpha[80, 80] == 255  # the hole, the body
    edge = (true > 0) & (true < 1)
    assert np.abs(alpha[edge] / 255 - true[edge]).mean() < 0.06  # soft, not a staircase


@pytest.mark.parametrize("name", GROUNDS)
def test_edge_colours_carry_nothing_of_the_background(name):
    true, colour = coverage(ring), shades((200, 90, 40), (120, 40, 150))
    image = paint(true, colour, GROUNDS[name])
    background = survey(image)
    result = edges.fill_transparent(cut_out(image, KeyMatte(background).alpha(image), background.colour))
    error = np.abs(result[..., :3] - colour).max(-1)
    shown = (result[..., 3] > 0) & (true < 1)
    before = np.abs(image - colour).max(-1)[shown].mean()
    assert error[shown].mean() < before / 10 and error[shown].max() <= 28
    around = ndimage.binary_dilation(result[..., 3] > 0, iterations=6) & (result[..., 3] == 0)
    assert error[around].mean() < 12  # what filters reach outside the object has its colour too


@pytest.mark.parametrize("quality", [85, 50])
@pytest.mark.parametrize("name", GROUNDS)
def test_compression_noise_is_tolerated(name, quality):
    true = coverage(ring)
    image = jpeg(paint(true, shades((210, 120, 40), (90, 40, 150)), GROUNDS[name]), quality)
    alpha = KeyMatte(survey(image)).alpha(image)
    assert iou(alpha > 127, true > 0.5) > (0.97 if quality > 80 else 0.94)  # one pixel around so small a shape
    assert (alpha[:20] == 0).all() and (alpha[-20:] == 0).all()  # no specks in the open


def test_white_eyes_on_white_and_black_belts_on_black_stay():
    for ground, object_colour, detail in ((255, (60, 140, 60), 255), (0, (90, 110, 130), 0)):
        true = coverage(lambda x, y: np.hypot(x - 80, y - 80) < 60)
        image = paint(true, object_colour, (ground,) * 3)
        image[70:74, 60:64] = detail
        image[95:97, 40:100] = np.clip(abs(detail - 9), 0, 255)  # nearly the background's colour, like dark cloth
        alpha = KeyMatte(survey(image)).alpha(image)
        assert iou(alpha > 127, true > 0.5) > 0.99
        assert (alpha[65:105, 45:100] == 255).all()


def test_holes_by_rule():
    true = coverage(ring)
    image = paint(true, (60, 140, 60), GROUNDS["white"])
    background = survey(image)
    assert KeyMatte(background, "keep").alpha(image)[62, 80] == 255
    image[85:89, 60:64] = 255
    assert (KeyMatte(background, "auto").alpha(image)[85:89, 60:64] == 255).all()
    assert (KeyMatte(background, "cut").alpha(image)[86:88, 61:63] == 0).all()


def test_a_dark_object_on_black_keeps_its_outline():
    true = coverage(lambda x, y: (np.abs(x - 80) < 40) & (np.abs(y - 80) < 60))
    image = jpeg(paint(true, shades((24, 22, 20), (60, 70, 80)), (0, 0, 0)), 90)
    assert iou(KeyMatte(survey(image)).alpha(image) > 127, true > 0.5) > 0.97


def test_background_does_not_leak_through_a_crack():
    true = coverage(lambda x, y: np.hypot(x - 80, y - 80) < 60)
    image = paint(true, (90, 110, 130), (0, 0, 0))
    image[20:80, 80] = 8  # a dark seam, one pixel wide, that opens to the outside
    image[60:90, 65:95] = 8  # and leads into a dark patch
    alpha = KeyMatte(survey(image)).alpha(image)
    assert (alpha[60:90, 65:95] == 255).all()


def test_thin_parts_stay_and_specks_go():
    true = coverage(lambda x, y: (np.hypot(x - 80, y - 80) < 40) | ((np.abs(x - 80) < 1) & (y > 10) & (y < 60)))
    image = paint(true, (220, 40, 40), GROUNDS["grey"])
    image[140, 140] = 150
    image[10:13, 20:22] = 142
    alpha = KeyMatte(survey(image)).alpha(image)
    assert (alpha[15:40, 78:82].max(1) == 255).all()
    assert alpha[138:143, 138:143].max() == 0 and alpha[8:15, 18:24].max() == 0


def test_object_may_touch_the_border():
    true = coverage(lambda x, y: (np.abs(x - 80) < 30) & (y > 60))
    image = paint(true, (220, 40, 40), GROUNDS["white"])
    assert iou(KeyMatte(survey(image)).alpha(image) > 127, true > 0.5) > 0.995


def test_what_is_not_plain_is_not_keyed():
    rng = np.random.default_rng(0)
    assert survey(rng.integers(0, 255, (64, 64, 3), np.uint8)) is None
    assert survey(np.dstack([np.tile(np.arange(0, 256, 4, np.uint8), (64, 1))] * 3)) is None  # a gradient
    assert survey() is None
    plain = np.full((64, 64, 3), (127, 128, 128), np.uint8) + rng.integers(0, 3, (64, 64, 3)).astype(np.uint8)
    assert survey(plain, plain) is not None


def test_fill_and_premultiplied():  # F27
    true = coverage(ring)
    colour = np.array([200.0, 90, 40])
    alpha = np.round(true * 255).astype(np.uint8)
    straight = np.dstack([np.where(alpha[..., None] > 0, colour, 255).astype(np.uint8), alpha])  # white where clear
    multiplied = np.dstack([np.round(colour * true[..., None]).astype(np.uint8), alpha])
    assert not edges.is_premultiplied([straight])
    assert edges.is_premultiplied([multiplied])
    for image in (straight, edges.unmultiply(multiplied)):
        filled = edges.fill_transparent(image)
        solid = alpha >= 64  # 8-bit multiplied colours are coarse below
        assert np.abs(filled[solid][:, :3] - colour).max() <= 4
        assert np.abs(filled[alpha == 0][:, :3].astype(float) - colour).mean() <= 4
        assert (filled[..., 3] == alpha).all()


def test_black_objects_are_not_called_premultiplied():
    true = coverage(ring)
    alpha = np.round(true * 255).astype(np.uint8)
    assert not edges.is_premultiplied([np.dstack([np.zeros((SIZE, SIZE, 3), np.uint8), alpha])])
    assert not edges.is_premultiplied(
        [np.dstack([np.full((SIZE, SIZE, 3), 90, np.uint8), (alpha > 127) * np.uint8(255)])]
    )


def test_empty_and_weak_masks():  # M01
    weak = np.zeros((40, 40), np.uint8)
    weak[10:30, 10:30] = 204
    assert edges.foreground(weak).sum() == 400
    edges.require_object(weak, "clip: frame 1", "given")
    with pytest.raises(InputError, match=r"frame 3.*mask is empty") as caught:
        edges.require_object(np.zeros((40, 40), np.uint8), "clip: frame 3", "given")
    assert "alpha" in caught.value.hint
    assert not edges.foreground(np.full((4, 4), 10, np.uint8)).any()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fox_run", "panda_walk", "sheep_walk_root"])
def test_masks_of_compressed_clips_meet_the_truth(shared, name):
    from v2m4.video import read_frames

    folder = shared / "bench" / "dev" / name
    border = BorderSurvey()
    pictures = list(read_frames(folder / "clip.mp4"))
    for picture in pictures:
        border.add(picture.image)
    key = KeyMatte(border.background())
    truth = read_frames(folder / "frames")
    assert truth.length == len(pictures)
    for picture, true in zip(pictures, truth, strict=True):
        assert iou(key.alpha(picture.image) > 127, true.image[..., 3] > 127) >= 0.97


@pytest.mark.parametrize("ground", [0, 255])
def test_a_faint_rim_before_the_edge_is_no_object(ground):
    """What coarse video leaves before a dark arm on white: three pixels hardly darker than the background."""
    true = np.zeros((120, 120), np.float32)
    true[40:90, 30:] = 1
    rim = (cv2.dilate(true, np.ones((7, 7))) - true) * np.float32(0.12)
    colour = np.array([70, 50, 60] if ground else [190, 170, 180], np.float32)
    image = np.round(ground + (true + rim)[..., None] * (colour - ground)).astype(np.uint8)
    background = survey(image)
    cut = cut_out(image, KeyMatte(background).alpha(image), background.colour)
    assert (cut[true == 1][:, 3] == 255).all() and cut[true == 0][:, 3].max() < 80
    shown = cut[..., 3] > 0
    assert np.abs(cut[shown][:, :3].astype(float) - colour).max() < 0.1 * abs(colour - ground).max()
