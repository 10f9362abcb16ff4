"""The report's part on the camera: how sure every pose is, and overlays of those worth a look."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from v2m4 import formats
from v2m4.export import page as html

#: A confidence that is good, and one that is fair.
GOOD, FAIR = 0.8, 0.5
#: Overlays shown at most: all of the poses that are not trusted come first, then the least sure, the rest is spread.
SHOWN = 6
OVERLAY_PX = 900
_FOUND = {
    "search": "found by the search",
    "stereo": "found by the stereo network",
    "neighbours": "found from its neighbours",
    "bridged": "taken from its neighbours",
}
_MOTION = {
    "still": "The camera stands still.",
    "turning": "The camera turns; its turn is taken out of the object's motion.",
    "moving": "The camera travels; its way is taken out of the object's motion.",
    "unknown": "The camera is taken as fixed: the background does not tell.",
}


def section(folder: Path | None, told: Mapping[str, Any]) -> str:
    """``folder`` of the camera stage and its cameras.json; empty where there are none."""
    keyframes = [k for k in told.get("keyframes", []) if isinstance(k, dict) and k.get("confidence") is not None]
    if folder is None or not keyframes:
        return ""
    labels = [str(k["index"]) for k in keyframes]
    sure = [float(k["confidence"]) for k in keyframes]
    chart = html.bars(sure, labels, (GOOD, FAIR), pale=[not k.get("trusted", True) for k in keyframes])
    lead = "How sure the pose of every keyframe is: how well it fits, less where another pose fits as well. "
    if not all(k.get("trusted", True) for k in keyframes):
        lead += "Pale ones are not trusted. "
    lead += _MOTION.get(str(told.get("camera_motion", {}).get("kind", "")), "")
    overlays = [_overlay(folder, keyframes[k]) for k in _worth_a_look(keyframes)]
    shown = f'<div class="card rows">{"".join(overlays)}</div>' if any(overlays) else ""
    return html.section("Cameras", f'<div class="card">{chart}</div>', shown, lead=lead)


def _worth_a_look(keyframes: list[dict[str, Any]]) -> list[int]:
    """Numbers of the keyframes whose overlays are shown, in the order of time."""
    bad = [n for n, k in enumerate(keyframes) if not k.get("trusted", True)][: SHOWN - 1]
    least = int(np.argmin([float(k["confidence"]) for k in keyframes]))
    picked = dict.fromkeys([*bad, least])
    for n in np.linspace(0, len(keyframes) - 1, SHOWN).round().astype(int).tolist():
        if len(picked) < SHOWN:
            picked.setdefault(n)
    return sorted(picked)


def _overlay(folder: Path, keyframe: dict[str, Any]) -> str:
    path = folder / "overlays" / f"{formats.frame_name(int(keyframe['index']))}.png"
    if not path.is_file():
        return ""
    says = f"frame {keyframe['index']} · confidence {float(keyframe['confidence']):.2f}"
    says += f" · {_FOUND[keyframe['found']]}" if keyframe.get("found") in _FOUND else ""
    says += f": {keyframe['reason']}" if keyframe.get("reason") else ""
    picture = html.picture(html.limited(path, OVERLAY_PX), f"frame, drawing and difference of {says}", "wide")
    return html.figure(picture, says)
