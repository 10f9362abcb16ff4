"""Bake: the video's own pixels, gathered per texel over all frames, become one colour.

Colours are averaged in linear light, because exposure is a factor only there; they are stored as sRGB. What comes out
is what the camera saw: the lighting of the clip stays in the picture.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from v2m4 import transforms
from v2m4.protocols import Rasterizer
from v2m4.texture.texels import Texels
from v2m4.texture.visibility import View, look, observe

#: Best observations kept per texel. Bounds the memory of long clips; enough to outvote two bad frames.
KEPT = 6
#: The best views count with this power of their weight: averaging many slightly misplaced views blurs.
SHARPNESS = 2.0
#: Colours (sRGB, 0..1) this far from the robust centre still count fully, about.
TOLERANCE = 0.04
#: Exposure differences beyond this are not exposure.
GAIN_LIMIT = 1.5
#: A texel whose best view weighs this much is taken from the video alone; below, the fill fades in.
FULL_CONFIDENCE = 0.06

#: The leading view counts this much more than the others: where it sees well, it decides alone.
LEAD = 40.0
#: Only a view that sees this share of what the best one sees can lead.
LEAD_COVERAGE = 0.75

#: sRGB byte -> linear light.
LINEAR_OF_BYTE = transforms.srgb_to_linear(np.arange(256) / 255)


class Observations:
    """The ``KEPT`` best observations of every texel, whatever the number of frames.

    ``weight`` (S,N) float32, 0 where empty; ``colour`` (S,N,3) uint8 sRGB; ``view`` (S,N) int16 running number.
    """

    def __init__(self, count: int, kept: int = KEPT) -> None:
        self.weight = np.zeros((kept, count), np.float32)
        self.colour = np.zeros((kept, count, 3), np.uint8)
        self.view = np.zeros((kept, count), np.int16)

    def add(self, view: int, which: np.ndarray, colour: np.ndarray, weight: np.ndarray) -> None:
        """Offer linear ``colour`` (n,3) with ``weight`` (n,) for texels ``which`` (n,); the weakest gives way."""
        slot = self.weight[:, which].argmin(0)
        better = weight > self.weight[slot, which]
        slot, which = slot[better], which[better]
        self.weight[slot, which] = weight[better]
        encoded = transforms.linear_to_srgb(np.clip(colour[better], 0, 1))
        self.colour[slot, which] = np.round(encoded * 255).astype(np.uint8)
        self.view[slot, which] = view

    def without_lead(self, view: int) -> Observations:
        """The same colours, with the weights as they were before view number ``view`` was made to lead."""
        out = Observations(0)
        out.weight = np.where((self.view == view) & (self.weight > 0), self.weight / np.float32(LEAD), self.weight)
        out.colour, out.view = self.colour, self.view
        return out


@dataclass(frozen=True)
class Baked:
    """``colour`` (N,3) float32 linear light (0 where unseen); ``confidence`` (N,) float32 in [0,1], 0 where unseen;
    ``gains`` (views,3) exposure of each view over the common one; ``ious`` (views,); ``indices`` frame of each view;
    ``coverage`` (views,) sum of its weights; ``dissent`` (views,) mean distance (sRGB, 0..1) of its colours from what
    most views say."""

    colour: np.ndarray
    confidence: np.ndarray
    gains: np.ndarray
    ious: np.ndarray
    indices: tuple[int, ...]
    coverage: np.ndarray
    dissent: np.ndarray


def bake(
    views: Iterable[View], texels: Texels, faces: np.ndarray, rasterizer: Rasterizer, lead: int | None = None
) -> Baked:
    """Paint ``texels`` with what ``views`` show of the surface ``faces`` (F,3). Views are taken one at a time.

    ``lead`` is the frame index of the view that decides where it sees well (None: all count alike). A face that turns
    and laughs is different in every frame; taken from several of them it becomes a patchwork, taken from one it is a
    face.
    """
    seen = Observations(len(texels))
    ious, indices, coverage = [], [], []
    for number, view in enumerate(views):
        sight = look(view, faces, rasterizer)
        ious.append(sight.iou)
        indices.append(view.index)
        coverage.append(0.0)
        for part in texels.parts():
            which, colour, weight = observe(sight, texels, part, faces)
            weight = weight * np.float32(trust_of_iou(sight.iou))
            coverage[-1] += float(weight.sum(dtype=np.float64))
            seen.add(number, which, colour, weight * np.float32(LEAD if view.index == lead else 1.0))
    plain = seen.without_lead(indices.index(lead)) if lead in indices else seen
    gains = exposure_gains(plain, len(ious))
    colour = np.zeros((len(texels), 3), np.float32)
    for part in texels.parts():
        colour[part] = fuse(seen.colour[:, part], seen.weight[:, part], gains[seen.view[:, part]])
    confidence = np.clip(plain.weight.max(0) / FULL_CONFIDENCE, 0, 1).astype(np.float32)
    dissent = disagreement(plain, gains)
    return Baked(colour, confidence, gains, np.array(ious), tuple(indices), np.array(coverage), dissent)


def choose_lead(baked: Baked) -> int | None:
    """Frame index of the view that the others agree with most, among those that see nearly as much as the best one."""
    able = baked.coverage >= LEAD_COVERAGE * baked.coverage.max(initial=0)
    if len(baked.indices) < 2 or not (able & (baked.coverage > 0)).any():
        return None
    return baked.indices[int(np.where(able, baked.dissent, np.inf).argmin())]


def disagreement(seen: Observations, gains: np.ndarray, samples: int = 40_000) -> np.ndarray:
    """(views,) weighted mean distance (sRGB, 0..1) of each view's colours from the robust centre of each texel."""
    several = np.flatnonzero((seen.weight > 0).sum(0) >= 2)
    several = several[:: max(1, len(several) // samples)]
    view, weight = seen.view[:, several], seen.weight[:, several].astype(np.float64)
    encoded = transforms.linear_to_srgb(LINEAR_OF_BYTE[seen.colour[:, several]] / gains[view])
    distance = np.abs(encoded - weighted_median(encoded, weight)).mean(2)
    total = np.bincount(view.ravel(), weight.ravel(), len(gains))
    far = np.bincount(view.ravel(), (weight * distance).ravel(), len(gains))
    return np.where(total > 0, far / np.maximum(total, 1e-12), 1.0)


def trust_of_iou(iou: float) -> float:
    """A frame whose surface misses the picture's silhouette has its pixels in the wrong places too."""
    return float(np.clip((iou - 0.5) / 0.4, 0.02, 1) ** 2)


def exposure_gains(seen: Observations, views: int, samples: int = 40_000, rounds: int = 8) -> np.ndarray:
    """(views,3) factor of each view over the common exposure, per channel in linear light.

    Alternates between the mean colour of each texel and the median ratio of each view to it. The weighted mean of all
    log factors is 0, so that the common exposure is the clip's own.
    """
    several = np.flatnonzero((seen.weight > 0).sum(0) >= 2)
    several = several[:: max(1, len(several) // samples)]
    log_gain = np.zeros((views, 3))
    if len(several) == 0 or views < 2:
        return np.exp(log_gain)
    weight = seen.weight[:, several].astype(np.float64)
    view = seen.view[:, several]
    value = np.log(np.maximum(LINEAR_OF_BYTE[seen.colour[:, several]], 1e-3))
    # Too dark or clipped: the ratio says nothing about the exposure.
    usable = ((seen.colour[:, several] > 25) & (seen.colour[:, several] < 250)) * (weight > 0)[..., None]
    share = np.bincount(view.reshape(-1), weight.reshape(-1), views)
    for _ in range(rounds):
        corrected = value - log_gain[view]
        w = weight[..., None] * usable
        centre = (corrected * w).sum(0) / np.maximum(w.sum(0), 1e-12)
        for k in range(views):
            mine = view == k
            for channel in range(3):
                good = mine & usable[..., channel]
                if good.sum() >= 50:
                    log_gain[k, channel] += np.median((corrected - centre)[..., channel][good])
        log_gain -= (log_gain * share[:, None]).sum(0) / max(share.sum(), 1e-12)
    return np.exp(np.clip(log_gain, -np.log(GAIN_LIMIT), np.log(GAIN_LIMIT)))


def fuse(colour: np.ndarray, weight: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """One linear colour (n,3) from observations: ``colour`` (S,n,3) uint8 sRGB, ``weight`` (S,n), ``gain`` (S,n,3).

    A weighted median finds what most views agree on; then the views near it are averaged, the best counting most.
    """
    linear = LINEAR_OF_BYTE[colour] / gain
    encoded = transforms.linear_to_srgb(linear)
    centre = weighted_median(encoded, weight)
    distance = np.abs(encoded - centre).max(2)
    spread = weighted_median(distance[..., None], weight)[:, 0]
    agree = 1 / (1 + (distance / np.maximum(TOLERANCE, 1.5 * spread)) ** 2) ** 2
    final = (weight.astype(np.float64) ** SHARPNESS * agree)[..., None]
    total = final.sum(0)
    return ((linear * final).sum(0) / np.maximum(total, 1e-30)).astype(np.float32)


def weighted_median(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Median of ``values`` (S,n,C) along the first axis, per channel, with weights (S,n) -> (n,C)."""
    order = values.argsort(0, kind="stable")
    ordered = np.take_along_axis(values, order, 0)
    weights = np.take_along_axis(np.broadcast_to(weight[..., None], values.shape), order, 0)
    reached = weights.cumsum(0) >= weights.sum(0) / 2
    return np.take_along_axis(ordered, reached.argmax(0)[None], 0)[0]
