"""A textured wall is moved behind an object that moves by itself."""

from __future__ import annotations

import cv2
import numpy as np

from v2m4.ingest.background import BackgroundTracks
from v2m4.types import Crop


def _wall(seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).integers(0, 256, (60, 80), dtype=np.uint8)
    return cv2.resize(noise, (960, 720), interpolation=cv2.INTER_CUBIC)


def _followed(shift: tuple[float, float], wall: np.ndarray, frames: int = 8, size: tuple = (640, 480)) -> dict:
    """The wall moves by ``shift`` a frame, the object by (9, 3); the crop is a part of the picture, half as fine."""
    width, height = size
    crop = Crop(60, 40, 320, 320, width, height)
    tracks = BackgroundTracks(width, height)
    for t in range(frames):
        matrix = np.array([[1.0, 0, t * shift[0] - 100], [0, 1.0, t * shift[1] - 80]])
        picture = cv2.warpAffine(wall, matrix, size, borderMode=cv2.BORDER_REFLECT)
        x, y = 200 + 9 * t, 180 + 3 * t
        cv2.circle(picture, (x, y), 50, 255, -1)
        cv2.circle(picture, (x - 15, y + 10), 12, 30, -1)
        alpha = np.zeros((160, 160), np.uint8)
        cv2.circle(alpha, ((x - crop.left) // 2, (y - crop.top) // 2), 25, 255, -1)
        tracks.add(t, *tracks.small(np.repeat(picture[..., None], 3, -1), alpha, crop))
    return tracks.arrays()


def _ways(found: dict) -> np.ndarray:
    """Way of each track from its first to its last frame, by frame."""
    out = []
    for name in np.unique(found["track"]):
        mine = found["track"] == name
        frames, xy = found["frame"][mine], found["xy"][mine]
        assert (np.diff(frames) == 1).all()
        out.append((xy[-1] - xy[0]) / (frames[-1] - frames[0]))
    return np.array(out)


def test_points_go_with_the_background_and_not_with_the_object() -> None:
    found = _followed((2.5, -1.5), _wall())
    ways = _ways(found)
    assert len(ways) > 100
    off = np.abs(ways - [2.5, -1.5]).max(1)
    assert np.percentile(off, 90) < 0.1
    assert off.max() < 1  # beside the object, or where the wall is folded over
    for t in range(8):
        here = found["xy"][found["frame"] == t]
        assert np.linalg.norm(here - [200 + 9 * t, 180 + 3 * t], axis=1).min() > 50


def test_pixels_are_those_of_the_full_picture_with_centres_at_a_half() -> None:
    wall = np.full((720, 960), 90, np.uint8)
    for x in range(120, 700, 60):
        for y in range(100, 540, 60):
            wall[y : y + 20, x : x + 20] = 220
    found = _followed((0, 0), wall)
    corners = np.stack(np.meshgrid(np.arange(20, 600, 60), np.arange(20, 460, 60)), -1).reshape(-1, 2)
    corners = np.concatenate([corners + np.array(edge) for edge in ((0, 0), (0, 20), (20, 0), (20, 20))])
    away = np.linalg.norm(found["xy"][:, None] - corners, axis=-1).min(1)
    assert np.median(away) < 1.0


def test_a_large_picture_is_told_in_its_own_pixels() -> None:
    wall = cv2.resize(_wall(), (2880, 2160), interpolation=cv2.INTER_CUBIC)
    ways = _ways(_followed((6.0, 0.0), wall, frames=4, size=(1920, 1440)))
    assert np.abs(np.median(ways, 0) - [6.0, 0.0]).max() < 0.3


def test_a_bare_background_has_no_points() -> None:
    found = _followed((0, 0), np.full((720, 960), 128, np.uint8))
    assert len(found["track"]) == 0 and found["xy"].shape == (0, 2)
