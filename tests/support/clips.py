"""Clips that tests paint: a textured body that moves over a cluttered ground, with its true mask."""

from __future__ import annotations

import cv2
import numpy as np


def clutter(height: int, width: int, seed: int = 0) -> np.ndarray:
    """(H,W,3) uint8: noise of several octaves, like a room out of focus."""
    rng = np.random.default_rng(seed)
    out = np.zeros((height, width, 3), np.float32)
    for octave in (4, 8, 16, 32):
        coarse = rng.normal(size=(octave, octave, 3)).astype(np.float32)
        out += cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC) / np.sqrt(octave)
    return np.clip(128 + 90 * out / np.abs(out).max() * 2, 0, 255).astype(np.uint8)


def spots(height: int, width: int, seed: int = 1) -> np.ndarray:
    """(H,W,3) uint8: a fine, strong pattern, so that the flow has something to hold on to."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 255, (height // 6, width // 6, 3)).astype(np.uint8)
    return np.asarray(cv2.resize(coarse, (width, height), interpolation=cv2.INTER_LINEAR))


def figure(angle_deg: float = 0.0, size: int = 160, stretch: float = 1.0) -> np.ndarray:
    """(size,size) uint8, soft: a body with a head, four thin legs and a tail three pixels wide, turned about its middle
    and stretched along x."""
    big = np.zeros((size * 4, size * 4), np.uint8)
    s = size * 4 / 160

    def at(*p: float) -> tuple[int, int]:
        return round(p[0] * s), round(p[1] * s)

    cv2.ellipse(big, at(80, 75), at(40, 22), 0, 0, 360, 255, -1)
    cv2.circle(big, at(120, 52), round(15 * s), 255, -1)
    for x in (52, 66, 94, 108):
        cv2.line(big, at(x, 88), at(x, 128), 255, round(7 * s))
    cv2.line(big, at(42, 70), at(20, 45), 255, round(3 * s))
    turn = cv2.getRotationMatrix2D((size * 2.0, size * 2.0), angle_deg, 1.0) @ np.diag([stretch, 1.0, 1.0])
    turned = cv2.warpAffine(big, turn, big.shape[::-1], flags=cv2.INTER_LINEAR)
    return np.asarray(cv2.resize(turned, (size, size), interpolation=cv2.INTER_AREA))


def over(ground: np.ndarray, colours: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """(H,W,3) uint8: ``colours`` with coverage ``alpha`` (H,W) uint8 over ``ground``."""
    share = (alpha / 255.0)[..., None]
    return np.round(colours * share + ground * (1 - share)).astype(np.uint8)


def moving(count: int, step: tuple[float, float] = (4, 1), height: int = 200, width: int = 280) -> list[tuple]:
    """[(picture (H,W,3), mask (H,W))]: the figure walks over clutter that stands still, its pattern going with it."""
    ground, out = clutter(height, width), []
    pattern, shape = spots(160, 160), figure()
    for i in range(count):
        shift = np.array([[1, 0, 20 + step[0] * i], [0, 1, 20 + step[1] * i]], np.float32)
        mask = cv2.warpAffine(shape, shift, (width, height))
        colours = cv2.warpAffine(pattern, shift, (width, height), borderMode=cv2.BORDER_REFLECT)
        out.append((over(ground, colours, mask), mask))
    return out


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union of two masks (H,W) uint8."""
    a, b = a > 127, b > 127
    return float((a & b).sum() / max((a | b).sum(), 1))


def leaves(height: int, width: int, seed: int = 0) -> np.ndarray:
    """(H,W,3) uint8: a "dead leaves" picture, discs of all sizes that cover each other, which has the statistics of a
    photo (Lee, Mumford and Huang 2001); in muted colours, a little out of focus, with the noise of a sensor."""
    rng = np.random.default_rng(seed)
    out = np.zeros((height, width, 3), np.float32)
    base = rng.uniform(80, 150, 3)
    for _ in range(900):
        radius = 0.02 / np.sqrt(rng.uniform(0.002, 1.0)) * max(height, width) / 2  # as many small ones as in nature
        centre = int(rng.uniform(0, width)), int(rng.uniform(0, height))
        colour = base + rng.normal(0, 38) + rng.normal(0, 16, 3)
        cv2.circle(out, centre, int(radius) + 1, colour.tolist(), -1)
    out = cv2.GaussianBlur(out, (0, 0), 2.0)
    return np.clip(out + rng.normal(0, 2.5, out.shape), 0, 255).astype(np.uint8)
