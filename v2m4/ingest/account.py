"""What is told of a clip: in clip.json, in the log, and as a contact sheet."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from v2m4 import formats
from v2m4.ingest.cutter import Cutter
from v2m4.ingest.judge import Verdict, listed
from v2m4.ingest.keyframes import Chooser, anchor_scores
from v2m4.ingest.passes import Finished, Survey
from v2m4.protocols import Progress
from v2m4.types import Crop
from v2m4.video import FrameReader, resize

THUMBNAILS = 24
THUMBNAIL_PX = 192
#: Doubtful masks that are described one by one.
SHOWN_SUSPECTS = 6
#: Background noise in levels from which on a key is doubtful.
UNEVEN = 6


def clip_json(survey: Survey, done: Finished, crop: Crop, chooser: Chooser, verdict: Verdict) -> dict[str, Any]:
    """What clip.json says of frames, crop, keyframes and anchor, and the verdict."""
    keyframes, rule = chooser.chosen()
    scores = anchor_scores([done.facts[k].look() for k in keyframes])
    index = {shot.number: i for i, shot in enumerate(survey.shots)}
    moved = [None, *(round(max(c.outline, c.bend), 4) for c in chooser.changes)]
    frames = [
        {
            "index": i,
            "time_s": shot.time_s,
            "name": shot.name,
            "source_index": shot.source_index,
            "motion": moved[i],
            "blur": done.facts[i].blur,
            "border": list(done.facts[i].border),
            **({"holds": index[shot.shows]} if shot.shows != shot.number else {}),
        }
        for i, shot in enumerate(survey.shots)
    ]
    return {
        "width": done.width,
        "height": done.height,
        "crop": asdict(crop),
        "frames": frames,
        "keyframes": keyframes,
        "keyframe_rule": rule,
        "anchor_candidate": keyframes[int(np.argmax(scores))],
        "anchor_scores": [round(score, 4) for score in scores],
        "verdict": verdict.level,
        "reasons": [asdict(reason) for reason in verdict.reasons],
        "numbers": verdict.numbers,
    }


def tell(log: Progress, clip: dict[str, Any], verdict: Verdict) -> None:
    """Notes, warnings and the verdict, for the log."""
    for note in clip["notes"]:
        log.info(note)
    for warning in clip["warnings"]:
        log.warning(warning)
    crop, source = clip["crop"], clip["source"]
    part = ""
    if (crop["width"], crop["height"]) != (crop["picture_width"], crop["picture_height"]):
        part = f", the part of {crop['picture_width']}x{crop['picture_height']} that holds the object"
    length = f"{_count(len(clip['frames']), 'frame')} in {source['duration_s']:.2f} s"
    log.info(f"{length}, {clip['width']}x{clip['height']}{part}")
    log.info(f"{_count(len(clip['keyframes']), 'keyframe')}: {clip['keyframe_rule']}")
    log.info(verdict.sentence())


def describe(cutter: Cutter) -> str:
    """Where the masks come from."""
    if cutter.masks is not None:
        return cutter.masks.note
    if cutter.background is not None:
        red, green, blue = (round(c) for c in cutter.background.colour)
        return f"the background is plain, RGB {red} {green} {blue}: it is keyed out"
    if cutter.method == "given":
        return "the pictures bring their alpha" + (", premultiplied" if cutter.premultiplied else "")
    assert cutter.matte is not None
    model = getattr(cutter.matte, "model", "")
    return f"masks from {cutter.matte.name}{f' ({model}, licence {cutter.matte.licence})' if model else ''}"


def doubts(cutter: Cutter, reader: FrameReader) -> list[str]:
    """What may be wrong with the masks of the whole clip."""
    out = []
    if reader.masks and cutter.masks is None:
        out.append(
            f"{len(reader.masks)} pictures named like masks lie beside {len(reader.files)} frames and were not used: "
            "every frame needs one, named like it (0001.png, 0001_mask.png), and ingest.background = auto"
        )
    if cutter.background is not None and cutter.background.noise > UNEVEN:
        out.append(
            f"the background is not quite even (pixels stray by {cutter.background.noise:.0f} levels): look at the "
            "masks in contact_sheet.png; alpha, or ingest.background = rembg, may do better"
        )
    return out


def mask_doubts(survey: Survey, rebuilt: set[int]) -> list[str]:
    """Masks that do not fit those around them: what was done about them, or that somebody has to look."""
    index = {shot.number: i for i, shot in enumerate(survey.shots)}
    out = [
        f"the mask of frame {index[n]} {s.reason}: it was rebuilt from its neighbours, look at it"
        if n in rebuilt
        else f"the mask of frame {index[n]} {s.reason}: look at it"
        for n, s in survey.suspects.items()
    ]
    if len(out) <= SHOWN_SUSPECTS:
        return out
    rest = ", ".join(str(index[n]) for n in list(survey.suspects)[SHOWN_SUSPECTS:])
    return [*out[:SHOWN_SUSPECTS], f"so do the masks of frames {rest}"]


def without_object(survey: Survey, rule: str) -> list[str]:
    """What became of the frames that show no object."""
    if not survey.empty:
        return []
    what = "skipped; the time they took stays" if rule == "skip" else "filled with the frame before"
    frames = f"{_count(len(survey.empty), 'frame')} without an object ({listed(survey.empty)})"
    return [f"{frames}: {what} (ingest.empty = {rule})"]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def contact_sheet(out: Path, frames: list[dict[str, Any]]) -> None:
    """Up to 24 frames, evenly over the clip, on a checkerboard, each with its number and time."""
    from v2m4.render import preview

    picked = sorted({round(i) for i in np.linspace(0, len(frames) - 1, min(THUMBNAILS, len(frames)))})
    thumbnails, labels = [], []
    for index in picked:
        image = formats.read_rgba(out / "frames" / f"{formats.frame_name(index)}.png")
        scale = THUMBNAIL_PX / max(image.shape[:2])
        height, width = (max(1, round(s * min(scale, 1))) for s in image.shape[:2])
        thumbnails.append(preview.on_checker(resize(image, width, height), 8))
        labels.append(f"{index}  {frames[index]['time_s']:.3f} s")
    formats.write_image(out / "contact_sheet.png", preview.contact_sheet(thumbnails, 6, labels))
