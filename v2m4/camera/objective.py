"""How well a drawing of the mesh meets the frame: silhouette and colour, higher is better.

Colour is compared after both pictures lost their mean colour, so a tint does not count; the contrast of the drawing is
scaled to that of the frame within limits, so an exposure does not count either. Where an object has hardly any
contrast, there is nothing to compare and the term fades out by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from v2m4.camera.view import View, color_spread

#: Share of the colour agreement in a score, beside the silhouette's IoU.
COLOR_WEIGHT = 0.35
#: What a unit of a picture metric's distance costs, where one is asked.
METRIC_WEIGHT = 0.35
#: Colour contrast (standard deviation, 1 = black to white) under which the colour agreement fades out.
CONTRAST_FLOOR = 0.04
#: What a score loses at most to each of: a camera that hangs upside down, a camera right above or below. Generators
#: make upright meshes and people hold cameras level, so this breaks ties; it is far smaller than what a wrong view
#: costs in silhouette and colour.
ROLL_PRIOR, ELEVATION_PRIOR = 0.03, 0.02


@dataclass(frozen=True)
class Agreement:
    """``iou`` and ``color`` in [-1, 1] (0 where nothing can be said), ``prior`` <= 0; ``score`` is their sum."""

    iou: float
    color: float
    prior: float

    @property
    def score(self) -> float:
        return self.iou + COLOR_WEIGHT * self.color + self.prior


def agreement(view: View, drawing: np.ndarray, rotation: np.ndarray) -> Agreement:
    """Compare a ``drawing`` (S,S,4) of a mesh at ``rotation`` (3,3, in the view) with the view."""
    drawn, seen = drawing[..., 3] * view.inside, view.coverage
    both = np.minimum(drawn, seen)
    union = float(np.maximum(drawn, seen).sum())
    iou = float(both.sum()) / union if union > 0 else 0.0
    color = color_agreement(view, drawing, both)
    return Agreement(iou, color, float(prior((view.rotation.T @ rotation)[None])[0]))


def color_agreement(view: View, drawing: np.ndarray, both: np.ndarray) -> float:
    """Concordance of the two pictures over their common pixels ``both`` (S,S), 1 when they agree."""
    if view.contrast == 0 or color_spread(drawing) == 0:
        return 0.0
    weight = both[..., None]
    total = max(float(both.sum()), 1e-6)
    a = drawing[..., :3] / np.maximum(drawing[..., 3:], 1e-6)
    b = view.pixels[..., :3] / np.maximum(view.pixels[..., 3:], 1e-6)
    a = a - (weight * a).sum((0, 1)) / total
    b = b - (weight * b).sum((0, 1)) / total
    covariance = float((weight * a * b).sum()) / (3 * total)
    spread = float((weight * (a * a + b * b)).sum()) / (3 * total)
    return 2 * covariance / (spread + CONTRAST_FLOOR**2)


def prior(rotations: np.ndarray) -> np.ndarray:
    """What rotations (N,3,3) from the mesh (+Y up) to the frame's camera lose for being unusual: (N,), <= 0."""
    up = rotations[..., :, 1]  # the mesh's own up in camera axes, y down
    upside_down = (1 + up[..., 1]) / 2  # 0 upright, 1 upside down, however the camera looks
    steep = np.clip((np.abs(up[..., 2]) - 0.5) / 0.5, 0, 1)
    return -(ROLL_PRIOR * upside_down + ELEVATION_PRIOR * steep)
