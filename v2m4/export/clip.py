"""The part of the report that is about the clip: a go or no-go, and what was read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from v2m4.export import page as html

#: Where the masks of a clip come from, in words.
MASKS = {
    "given": "the pictures' own alpha",
    "masks": "yours",
    "key": "keyed from a plain background",
    "rembg": "found by rembg",
    "sam2": "found and followed by SAM 2",
}


def verdict(ingest: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    """Go or no-go, what speaks against the clip, and what it will cost or has cost."""
    if not ingest.get("verdict"):
        return ""
    title = {"go": "Go: nothing speaks against this clip", "look": "Go, but look first", "no-go": "No-go"}
    cost = str((manifest.get("expected") or {}).get("sentence", ""))
    unfinished = any(record.get("state") == "not run" for record in manifest.get("stages", {}).values())
    inner = f"<h3>{html.escape(title.get(ingest['verdict'], ingest['verdict']))}</h3>"
    inner += html.bullets(str(reason.get("text", "")) for reason in ingest.get("reasons", []))
    inner += html.table(("", ""), _numbers(ingest))
    if cost and unfinished:
        inner += f"<p>{html.escape(cost[:1].upper() + cost[1:])}.</p>"
    kind = "card" if ingest["verdict"] == "go" else "note"
    return html.section("The clip, judged", f'<div class="{kind}">{inner}</div>')


def _numbers(ingest: Mapping[str, Any]) -> list[tuple[str, object]]:
    """What an artist asks of a clip, in words and units."""
    numbers, source = ingest.get("numbers", {}), ingest.get("source", {})
    frames, crop = ingest.get("frames", []), ingest.get("crop") or {}
    rows: list[tuple[str, object]] = [("frames", f"{len(frames)} in {float(source.get('duration_s', 0)):.2f} s")]
    if crop:
        picture = f"{crop['picture_width']}x{crop['picture_height']}"
        larger = crop["width"] > crop["picture_width"] and crop["height"] > crop["picture_height"]
        shown = (
            f"all of {picture}, with a margin" if larger else f"{crop['width']}x{crop['height']} of {picture} pixels"
        )
        rows.append(("part of the picture that is used", shown))
    rows.append(("the object's length", f"{numbers.get('object_px', 0)} pixels"))
    if "motion" in numbers:
        rows.append(("it moves, from frame to frame", f"{numbers['shift']:.1%} of its length"))
        rows.append(
            ("it changes, from frame to frame", f"{numbers['motion']:.1%}, at most {numbers['motion_most']:.1%}")
        )
        rows.append(("it turns, in all", f"about {numbers['turn_deg']}°"))
    rows.append(("blur (0 sharp, 0.7 soft, 0.82 smeared)", f"{numbers.get('blur', 0):.2f}"))
    rows.append(("touches the picture's border in", f"{numbers.get('frames_at_border', 0)} of {len(frames)} frames"))
    rows.append(("masks", MASKS.get(str(ingest.get("alpha")), str(ingest.get("alpha")))))
    for key, what in (("rebuilt_masks", "masks rebuilt from their neighbours"), ("suspect_masks", "masks to look at")):
        if ingest.get(key):
            rows.append((what, ", ".join(map(str, ingest[key]))))
    if ingest.get("keyframes"):
        rows.append(("keyframes", f"{len(ingest['keyframes'])}, {ingest.get('keyframe_rule', '')}"))
        rows.append(("keyframe with the best view of all limbs", f"frame {ingest.get('anchor_candidate')}"))
    return rows


def sheet(folder: Path | None, ingest: Mapping[str, Any]) -> str:
    """The contact sheet, and how much changes from frame to frame."""
    if folder is None or not (folder / "contact_sheet.png").is_file():
        return ""
    sheet = html.picture(
        html.limited(folder / "contact_sheet.png", 1400), "contact sheet of the clip", "wide", quality=75
    )
    parts = [
        html.figure(sheet, "What was read: the checkerboard must show everywhere around the object, and nowhere in it.")
    ]
    moved = [float(frame["motion"]) for frame in ingest.get("frames", []) if frame.get("motion") is not None]
    if moved:
        keys = set(ingest.get("keyframes", []))
        pale = [i + 1 not in keys for i in range(len(moved))]
        top = max(*moved, 1e-6)
        bars = html.bars([m / top for m in moved], [str(i + 1) for i in range(len(moved))], (0.0, 0.0), pale=pale)
        text = f"Change from each frame to the next; 1 is {top:.1%} of the object's length. Keyframes are strong."
        parts.append(html.figure(bars, text))
    return html.section("The clip", *parts)
