"""What changes from frame to frame is measured as it was painted."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from clips import figure, spots

from v2m4.ingest.motion import OBJECT_PX, compare, small


def frame(dx: float = 0, dy: float = 0, angle: float = 0, scale: float = 1, size: int = 320) -> np.ndarray:
    """(size,size,4): the spotted figure, moved, turned in the picture and scaled."""
    turn = cv2.getRotationMatrix2D((80, 80), angle, scale * 1.4)
    turn[:, 2] += [size / 2 - 80 + dx, size / 2 - 80 + dy]
    mask = cv2.warpAffine(figure(), turn, (size, size))
    colours = cv2.warpAffine(spots(160, 160), turn, (size, size), borderMode=cv2.BORDER_REFLECT)
    return np.dstack([colours, mask])


def tiny(picture: np.ndarray, zoom: float = OBJECT_PX / 170):
    return small(picture, zoom)


def test_nothing_changes():
    change = compare(tiny(frame()), tiny(frame()))
    assert change.overlap == 1 and change.outline == 0 and change.bend < 1e-3
    assert np.abs(change.shift).max() < 1e-6 and np.abs(change.turn).max() < 1e-3


@pytest.mark.parametrize("zoom", [0.4, 0.75, 1.0])
def test_a_shift_is_a_shift_and_nothing_else(zoom):
    change = compare(tiny(frame(), zoom), tiny(frame(40, -24), zoom))
    length = max(np.ptp(np.argwhere(frame()[..., 3] > 127), axis=0) + 1)
    np.testing.assert_allclose(np.multiply(change.shift, length), (40, -24), atol=2.5)
    assert change.overlap > 0.9 and change.outline < 0.02 and change.bend < 0.02
    assert np.abs(np.degrees(change.turn)).max() < 4


def test_what_turns_in_the_picture_bends_more_the_more_it_turns():
    changes = [compare(tiny(frame()), tiny(frame(angle=a))) for a in (2, 4, 8, 16)]
    for name, last in (("outline", 4), ("bend", 3)):  # the flow loses sight of a pattern that turns by 16 degrees
        values = [getattr(c, name) for c in changes[:last]]
        assert values == sorted(values) and values[-1] > 3 * values[0]
    assert [c.overlap for c in changes] == sorted((c.overlap for c in changes), reverse=True)


def test_one_thin_limb_is_seen_in_the_outline():
    """A tail that swings is one twentieth of the surface."""
    a, b = frame(), frame()
    tail = np.zeros_like(a[..., 3])
    for picture, end in ((a, (40, 60)), (b, (40, 120))):
        tail[:] = 0
        cv2.line(tail, (100, 150), end, 255, 6)
        picture[..., 3] = np.maximum(picture[..., 3], tail)
    change = compare(tiny(a), tiny(b))
    assert change.outline > 0.06 and change.overlap > 0.75


@pytest.mark.parametrize(("axis", "degrees"), [(0, 8), (0, -8), (1, 8)])
def test_a_textured_ball_that_turns(axis, degrees):
    """The surface of a ball moves on its outline as the ball turns; the turn is read from that to a third."""

    def ball(angle: float) -> np.ndarray:
        y, x = (np.indices((300, 300)) + 0.5 - 150) / 110
        z = np.sqrt(np.clip(1 - x**2 - y**2, 0, 1))
        c, s = np.cos(angle), np.sin(angle)
        turned = (c * x - s * z, y, s * x + c * z) if axis == 0 else (x, c * y - s * z, s * y + c * z)
        wave = sum(np.sin(f * p + i) for i, (f, p) in enumerate(zip((9, 11, 13), turned, strict=True)))
        grey = np.clip(128 + 40 * wave, 0, 255).astype(np.uint8)
        alpha = ((x**2 + y**2) < 1) * 255
        return np.dstack([grey, grey, grey, alpha.astype(np.uint8)])

    change = compare(tiny(ball(0), OBJECT_PX / 220), tiny(ball(np.radians(degrees)), OBJECT_PX / 220))
    assert np.degrees(change.turn[axis]) == pytest.approx(degrees, rel=0.33)
    assert abs(np.degrees(change.turn[1 - axis])) < 2
    assert change.overlap > 0.99


@pytest.mark.parametrize("scale", [0.5, 0.125, 0.03, 0.01])
def test_what_rounding_would_take_away_stays_where_it_is(scale):
    """The scale is made for the other frames, in which the object is larger."""
    picture = np.zeros((400, 600, 4), np.uint8)
    picture[100:102, 301:304] = (200, 90, 40, 255)
    got = small(picture, scale)
    assert 1 <= got.mask.sum() <= 9
    np.testing.assert_allclose(got.centre + 0.5, [302.5 * scale, 101 * scale], atol=1)
