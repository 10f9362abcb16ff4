"""What the numbers of a finished run say against it: sentences for the warnings of the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from v2m4.export.pictures import Run, Silhouettes

#: Silhouette agreement that is green, and that is still yellow.
GOOD_IOU, FAIR_IOU = 0.9, 0.75
#: Share of the faces turned over, over all keyframes, from which on it shows as folds and dark spots.
FLIPPED_SHARE = 0.001
#: Share of the surface the video never shows from which on most of the asset is a guess.
UNSEEN_SHARE = 0.5
#: Frames that are listed before "…" stands for the rest.
_LISTED = 8


def found(told: Mapping[str, Any], run: Run | None, outlines: Silhouettes | None) -> list[str]:
    """``told``: stage -> what its JSON file holds. Nothing is said of what a run has not measured."""
    faces = int(told["export"].get("faces") or 0)
    said = [_apart(outlines), *_missed(run, outlines), _flipped(told["topology"], faces), _unseen(told["texture"])]
    return [sentence for sentence in said if sentence]


def _apart(outlines: Silhouettes | None) -> str:
    mean = 1.0 if outlines is None else float(outlines.iou.mean())
    if mean >= GOOD_IOU:
        return ""
    return (
        f"the asset's outline matches the clip's by {mean:.3f} on average, below {GOOD_IOU:g}: compare them in the "
        "film above"
    )


def _flipped(quality: Mapping[str, Any], faces: int) -> str:
    rows = [row for row in quality.get("keyframes", []) if isinstance(row, dict) and row.get("flips")]
    summary = quality.get("summary", {})
    flips, keyframes = int(summary.get("flips") or 0), int(summary.get("keyframes") or 1)
    if flips <= FLIPPED_SHARE * faces * keyframes:
        return ""
    worst = max(rows, key=lambda row: row["flips"], default=None)
    where = f", most of them ({worst['flips']}) at frame {worst['index']}" if worst and len(rows) > 1 else ""
    return (
        f"{flips} {'face is' if flips == 1 else 'faces are'} turned over, counted in every keyframe{where}: look for "
        "folds and dark spots there"
    )


def _unseen(texture: Mapping[str, Any]) -> str:
    share = float(texture.get("unseen_share") or 0)
    if share <= UNSEEN_SHARE:
        return ""
    filled = texture.get("unseen_filled_from")
    return (
        f"{share:.0%} of the surface is never seen in the clip"
        + (f", its colours come from {filled}" if filled else "")
        + ": look at the asset from all sides, or film the object turning"
    )


def _missed(run: Run | None, outlines: Silhouettes | None) -> list[str]:
    """Frames in which an artist will see that the asset is not where the clip is."""
    if run is None or outlines is None:
        return []
    keyframe, bad = np.isin(outlines.frames, run.keyframes), outlines.iou < FAIR_IOU
    said = []
    for which, where, advice in (
        (bad & keyframe, "at", "look at these keyframes' meshes and poses"),
        (bad & ~keyframe, "between keyframes at", "a smaller ingest.keyframe_step helps"),
    ):
        if which.any():
            listed = ", ".join(map(str, outlines.frames[which][:_LISTED])) + (" …" if which.sum() > _LISTED else "")
            frames = "frame" if which.sum() == 1 else "frames"
            said.append(f"the asset misses the clip's outline {where} {frames} {listed}: {advice}")
    return said
