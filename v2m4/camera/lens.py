"""How wide is the lens? Perspective tells, a little: near parts are larger and hide more than a long lens would show.

A few keyframes are refined with lenses from long to wide, the distance following the lens, and what is left of their
cost is compared. The answer is good to some degrees where the object has depth, and there is none where all lenses fit
alike (a flat object, a mesh inflated from the very picture).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from v2m4.camera import keyframe
from v2m4.camera.keyframe import KeyframeOptions
from v2m4.camera.refine import Level, refine
from v2m4.camera.search import fit_positions
from v2m4.camera.subject import Subject
from v2m4.camera.view import make_view
from v2m4.types import Mesh

#: What is taken where the clip does not tell, in degrees.
USUAL_DEG = 40.0
#: Lenses that are tried, in degrees.
TRIED_DEG = (12.0, 16.0, 21.0, 27.0, 34.0, 40.0, 48.0, 58.0, 70.0, 85.0)
#: The best lens must leave this share less of the cost than the worst, else all fit alike.
MUST_GAIN = 0.1
#: Keyframes that are looked at, and the pictures they are refined in.
KEYFRAMES = 6
_LEVEL = Level(128, 2.0, 8)


@dataclass(frozen=True)
class Lens:
    """``fov_y_deg`` of the full picture; ``reason`` why it was not told by the clip, empty where it was."""

    fov_y_deg: float
    reason: str


def estimate(
    images: Sequence[np.ndarray],
    meshes: Sequence[Mesh],
    lens: Callable[[float], np.ndarray],
    options: KeyframeOptions,
    seed: int = 0,
) -> Lens:
    """The lens of a clip from ``images`` (H,W,4) and the ``meshes`` they show; ``lens`` gives K (3,3) for an angle."""
    picked = sorted({round(k) for k in np.linspace(0, len(images) - 1, min(KEYFRAMES, len(images)))})
    costs = np.mean([_costs(images[k], meshes[k], lens, options, seed + k) for k in picked], axis=0)
    best = int(costs.argmin())
    if costs[best] > (1 - MUST_GAIN) * costs.max():
        return Lens(USUAL_DEG, "all lenses fit alike")
    if best in (0, len(TRIED_DEG) - 1):
        return Lens(USUAL_DEG, f"the best of those tried would be {TRIED_DEG[best]:g} degrees, the last one")
    return Lens(round(_lowest(costs, best), 2), "")


def _costs(
    image: np.ndarray, mesh: Mesh, lens: Callable[[float], np.ndarray], options: KeyframeOptions, seed: int
) -> np.ndarray:
    """What each lens leaves of the cost of one keyframe."""
    usual = lens(USUAL_DEG)
    found = keyframe.solve(image, mesh, usual, options, seed)[0]
    subject = Subject.of(mesh)
    turned = make_view(image, usual, _LEVEL.size).rotation @ found.rotation
    out = []
    for fov in TRIED_DEG:
        view = make_view(image, lens(fov), _LEVEL.size)
        light = subject.simplified(_LEVEL.size**2 // 2)
        start = keyframe.as_poses(turned[None], fit_positions(view, light, turned[None]))
        out.append(float(refine(view, light, start, _LEVEL).costs[0]))
    return np.array(out)


def _lowest(costs: np.ndarray, best: int) -> float:
    """Where the parabola through the best lens and its neighbours, over the log of the focal length, is lowest."""
    at = -np.log(np.tan(np.radians(np.array(TRIED_DEG)) / 2))[best - 1 : best + 2]
    a, b, _ = np.polyfit(at - at[1], costs[best - 1 : best + 2], 2)
    focal = at[1] + (np.clip(-b / (2 * a), at[2] - at[1], at[0] - at[1]) if a > 0 else 0.0)
    return float(np.degrees(2 * np.arctan(np.exp(-focal))))
