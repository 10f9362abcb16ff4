"""Which pixels are the object, where the picture does not say: a plain background, keyed out.

Keying is by connection, not by colour alone: background is what hangs together with the picture's border and has its
colour. A white eye on white or a black boot on black stays whole, because nothing connects it to the outside; a gap
between an arm and the body goes, because it is as flat as the background itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from v2m4.ingest.edges import box, core, depth_px, nearest

#: Share of the border that must have one colour before a background counts as plain.
PLAIN_SHARE = 0.6
_NEAR = 24  # largest channel difference of pixels that can belong to one plain colour
_SAMPLES_PER_FRAME = 256
_FIRST_PX, _CORNER_PX, _SECOND_PX = (
    1.2,
    1.5,
    2.1,
)  # depth of the outermost pixels of an object, and of those behind them
_RAMP_PX, _RAMP_SHARE = 4.6, 0.25  # how far in a smeared edge may reach, and how faint it is against what is behind it
_SAME = 4  # channel difference that cannot be told from the background
_CLIPPED = 6  # a background this near to 0 or 255 in every channel looks exactly like a highlight or a black cloth


@dataclass(frozen=True)
class Background:
    """One plain colour. ``colour`` (3,) sRGB in 0..255; ``noise``: how far, by channel, its pixels ordinarily stray."""

    colour: tuple[float, float, float]
    noise: float

    @property
    def threshold(self) -> float:
        """Pixels that differ by more are not background (compression rings around the object stay below)."""
        return 10.0 + 2.0 * self.noise

    @property
    def clipped(self) -> bool:
        """Black or white."""
        return max(self.colour) <= _CLIPPED or min(self.colour) >= 255 - _CLIPPED


class BorderSurvey:
    """Collects border pixels over the clip; memory is a few hundred bytes a frame."""

    def __init__(self) -> None:
        self._samples: list[np.ndarray] = []

    def add(self, image: np.ndarray) -> None:
        """``image`` (H,W,3) uint8."""
        edge = np.concatenate([image[0], image[-1], image[1:-1, 0], image[1:-1, -1]])
        self._samples.append(edge[:: max(1, len(edge) // _SAMPLES_PER_FRAME)].copy())

    def background(self) -> Background | None:
        """The plain colour most of the border has; None where there is none."""
        if not self._samples:
            return None
        pixels = np.concatenate(self._samples).astype(np.int16)
        centre = max(_candidates(pixels), key=lambda c: (_near(pixels, c).mean(), tuple(-c)))
        near = pixels[_near(pixels, centre)]
        if len(near) < PLAIN_SHARE * len(pixels):
            return None
        colour = np.median(near, 0)
        noise = np.percentile(np.abs(near - colour).max(1), 99)
        return Background((float(colour[0]), float(colour[1]), float(colour[2])), float(noise))


def _candidates(pixels: np.ndarray) -> list[np.ndarray]:
    """The most frequent colours, counted in two sets of bins so that one on a bin's edge is not split."""
    out = []
    for shift in (0, 8):
        bins = (pixels + shift) // 16
        keys, counts = np.unique(bins[:, 0] * 10000 + bins[:, 1] * 100 + bins[:, 2], return_counts=True)
        best = keys[counts.argmax()]
        inside = pixels[bins[:, 0] * 10000 + bins[:, 1] * 100 + bins[:, 2] == best]
        out.append(np.median(inside, 0).astype(np.int16))
    return out


def _near(pixels: np.ndarray, colour: np.ndarray) -> np.ndarray:
    return np.asarray(np.abs(pixels - colour).max(-1) <= _NEAR)


class KeyMatte:
    """Keys a plain background out. ``holes``: what to do with background colour that the object encloses: "auto" cuts
    what is as flat as the background and, on black or white, large enough; "cut" and "keep" do so always or never."""

    name = "key"
    licence = "MIT (part of v2m4)"

    def __init__(self, background: Background, holes: str = "auto") -> None:
        self.background, self.holes = background, holes

    def alpha(self, image: np.ndarray) -> np.ndarray:
        """``image`` (H,W,3) uint8 sRGB -> (H,W) uint8, soft over the pixels in which object and background mix."""
        distance = _distance(image, self.background)
        part = box(distance > self.background.threshold, 4)
        solid = _object(distance[part], self.background, self.holes)
        out = np.zeros(distance.shape, np.uint8)
        out[part] = _soften(image[part], solid, self.background)
        return out


def _distance(image: np.ndarray, background: Background) -> np.ndarray:
    """(H,W) float32: largest difference by channel from the background colour."""
    apart = [np.abs(image[..., c] - np.float32(background.colour[c])) for c in range(3)]
    return np.maximum(np.maximum(apart[0], apart[1]), apart[2])


def _object(distance: np.ndarray, background: Background, holes: str) -> np.ndarray:
    """(H,W) bool: not connected to the outside through background colour, and no speck of compression noise."""
    like = distance <= background.threshold
    outside = _connected_to_border(distance, background)
    inside = ~outside
    if holes != "keep":
        inside &= ~_holes(like & inside, distance, background, holes, int(inside.sum()))
    return _without_specks(_without_rings(inside, distance, background), distance, background.threshold)


def _connected_to_border(distance: np.ndarray, background: Background) -> np.ndarray:
    """What can be reached from beyond the border: through background colour three pixels wide, so that nothing leaks
    through a crack into a dark or bright object, or, however narrow, through what cannot be told from background."""
    import cv2

    padded = np.pad(distance, 3, constant_values=0)
    like = (padded <= background.threshold).astype(np.uint8)
    kernel = np.ones((3, 3), np.uint8)
    passable = cv2.erode(like, kernel, borderType=cv2.BORDER_REPLICATE).astype(bool)
    passable |= padded <= _SAME + background.noise
    _, labels = cv2.connectedComponents(passable.astype(np.uint8), connectivity=4)
    grown = np.asarray(labels == labels[0, 0], np.uint8)
    for _ in range(2):  # back into what the erosion took off, and one pixel into narrow corners
        grown = np.asarray(cv2.dilate(grown, kernel), np.uint8) & like
    return grown[3:-3, 3:-3].astype(bool)


def _holes(enclosed: np.ndarray, distance: np.ndarray, background: Background, rule: str, area: int) -> np.ndarray:
    """Those enclosed patches that are background seen through the object."""
    import cv2

    count, labels, stats, _ = cv2.connectedComponentsWithStats(enclosed.astype(np.uint8), connectivity=4)
    if count == 1:
        return np.zeros_like(enclosed)
    sizes = stats[:, cv2.CC_STAT_AREA]
    least = max(24.0, 0.0015 * area) if rule == "auto" and background.clipped else 8.0
    wanted = sizes >= least  # a highlight in an eye is as white and as flat as a white background, but small
    wanted[0] = False
    if rule == "auto":
        for label in np.flatnonzero(wanted):
            x, y, w, h = stats[label, :4]
            patch = distance[y : y + h, x : x + w][labels[y : y + h, x : x + w] == label]
            wanted[label] = np.median(patch) <= _SAME + background.noise
    return np.asarray(wanted[labels])


def _without_rings(inside: np.ndarray, distance: np.ndarray, background: Background) -> np.ndarray:
    """Drops the thin, faint bumps that compression leaves along an edge; what is thin but distinct stays."""
    import cv2

    opened = cv2.morphologyEx(inside.astype(np.uint8), cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    return inside & (opened.astype(bool) | (distance > 3 * background.threshold))


def _without_specks(inside: np.ndarray, distance: np.ndarray, threshold: float) -> np.ndarray:
    """Drops islands that are tiny or hardly differ from the background; keeps every real part, however small."""
    import cv2

    count, labels, stats, _ = cv2.connectedComponentsWithStats(inside.astype(np.uint8), connectivity=8)
    if count <= 2:
        return inside
    strongest = np.zeros(count, np.float32)
    np.maximum.at(strongest, labels.ravel().astype(np.intp), distance.ravel())
    keep = (stats[:, cv2.CC_STAT_AREA] >= 6) & (strongest >= 3 * threshold)
    largest = 1 + int(np.argmax(stats[1:, cv2.CC_STAT_AREA]))
    keep[largest] = strongest[largest] > threshold
    keep[0] = False
    return np.asarray(keep[labels])


def _ramp(distance: np.ndarray, solid: np.ndarray, depth: np.ndarray, background: Background) -> np.ndarray:
    """(H,W) bool: pixels near the edge that are much more like the background than what lies further in: the edge as a
    coarsely compressed video smears it over several pixels. Only on black and white: a surface passes through grey
    while it is shaded, but seldom comes that near to the ends."""
    import cv2

    if not background.clipped:
        return np.zeros_like(solid)

    size = (2 * int(_RAMP_PX) + 1,) * 2
    further_in = cv2.dilate(np.where(solid, distance, 0).astype(np.float32), np.ones(size, np.uint8))
    return np.asarray(solid & (depth < _RAMP_PX) & (distance < _RAMP_SHARE * further_in))


def _soften(image: np.ndarray, solid: np.ndarray, background: Background) -> np.ndarray:
    """Alpha from un-mixing each edge pixel into background and the nearest colour from well inside the object."""
    depth = depth_px(solid)
    own = image.astype(np.float32) - np.asarray(background.colour, np.float32)
    ramp = _ramp(np.abs(own).max(-1), solid, depth, background)
    inner = nearest(own, core(solid, depth) & ~ramp)
    strength = (inner**2).sum(-1)
    share = (own * inner).sum(-1) / np.maximum(strength, 1)
    clear = strength > (4 * background.threshold) ** 2  # object and background differ enough to tell the share
    stray = ((own - share[..., None] * inner) ** 2).sum(-1)
    # Mixing reaches one pixel in, round corners one step across, rarely two; behind the first pixel only what lies on
    # the line between both colours is mixed, the rest is the object's own shading.
    second = (depth < _SECOND_PX) & (share < np.where(depth < _CORNER_PX, 0.9, 0.6)) & (stray < 0.0225 * strength)
    ramp &= stray < 0.0225 * strength
    mixed = solid & clear & (share < 0.9) & ((depth < _FIRST_PX) | second | ramp)
    return np.round(np.where(mixed, np.clip(share, 0, 1), solid) * 255).astype(np.uint8)
