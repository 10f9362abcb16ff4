"""report.html: one page, without anything from outside, that shows what a run made and how good it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from v2m4 import formats
from v2m4.export import cameras, clip, doubts, pictures
from v2m4.export import page as html
from v2m4.export.doubts import FAIR_IOU, GOOD_IOU
from v2m4.export.pictures import Run, Silhouettes

STAGES = ("ingest", "generate", "camera", "refine", "repose", "topology", "texture", "export")
#: The JSON file of each stage whose numbers are shown, and the part of it that holds them.
NUMBERS = {
    "ingest": "clip.json",
    "camera": "cameras.json",
    "repose": "world.json",
    "topology": "quality.json",
    "texture": "texture.json",
    "export": "export.json",
}
#: Parts of those files that are for programs, or that are shown elsewhere.
NOT_SHOWN = {
    "anchor_scores",
    "crop",
    "numbers",
    "reasons",
    "K",
    "keyframes",
    "frames",
    "world_to_camera",
    "camera_motion",
    "licences",
    "translation",
    "normals",
    "background",
    "target_names",
    "hints",
}
ROWS = 12
#: What the field of view is without --fov; a run does not write down who chose it.
ASSUMED_FOV_DEG = 40.0
LEGEND = (
    "What the stages wrote into their JSON files. iou: silhouette match, 1 is perfect. flips: faces turned over, "
    "counted in every keyframe. stretch: how far edges are from their length in the anchor keyframe. jitter and "
    "residual: shares of the object's size. seen share: part of the surface that the video paints. m: metres."
)


def write_report(run_dir: Path, manifest: Mapping[str, Any]) -> Path:
    """Write ``report.html`` on top of a run directory and return its path.

    ``manifest`` is the run's manifest. Stages that did not run and keys that are missing are left out of the page;
    InputError when a file that is there is damaged.
    """
    folders = {name: folder for name in STAGES if (folder := _folder(run_dir, name)) is not None}
    told = {name: _json(folders.get(name), file) for name, file in NUMBERS.items()}
    told["generate"] = _json(folders.get("generate"), "generate.json")
    needed = ("ingest", "repose", "topology", "texture")
    run = pictures.read_run(*(folders[name] for name in needed)) if set(needed) <= set(folders) else None
    outlines = pictures.silhouettes(run) if run is not None else None
    name = str(told["export"].get("name") or run_dir.resolve().name)
    body = "".join(
        [
            _head(name, told, run, outlines),
            "" if run is not None else clip.verdict(told["ingest"], manifest),  # first, until there is a result
            _stand_in(told["generate"]),
            _film(run, outlines),
            _turntable(run),
            _silhouettes(run, outlines),
            _comparison(run, outlines),
            _texture(folders.get("texture"), told["texture"]),
            cameras.section(folders.get("camera"), told["camera"]),
            clip.verdict(told["ingest"], manifest) if run is not None else "",
            clip.sheet(folders.get("ingest"), told["ingest"]),
            _hints(told["export"]),
            _warnings(manifest, told, doubts.found(told, run, outlines)),
            _work(manifest),
            _numbers(told),
            _licences(manifest, told["generate"]),
        ]
    )
    path = run_dir / "report.html"
    formats.write_bytes(path, html.page(f"{name} · v2m4 report", body).encode("utf-8"))
    return path


def _folder(run_dir: Path, stage: str) -> Path | None:
    """The finished folder of a stage (``6_topology``), or None."""
    found = [p for p in sorted(run_dir.glob(f"*_{stage}")) if p.is_dir() and p.name.split("_")[0].isdigit()]
    return found[0] if found else None


def _json(folder: Path | None, name: str) -> dict[str, Any]:
    if folder is None or not (folder / name).is_file():
        return {}
    data = formats.read_json(folder / name)
    return data if isinstance(data, dict) else {}


def _bytes(count: float) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"


def _head(name: str, told: Mapping[str, Any], run: Run | None, outlines: Silhouettes | None) -> str:
    export, source = told["export"], told["ingest"].get("source", {})
    values = []
    if export:
        values += [("seconds", f"{export.get('duration_s', 0):.2f}"), ("faces", f"{export.get('faces', 0):,}")]
        values += [("morph targets", str(export.get("targets", 0))), ("file", _bytes(export.get("bytes", 0)))]
    frames = told["ingest"].get("frames", [])
    if frames:
        values.insert(0, ("frames", f"{len(frames):,}"))
    if run is not None:
        values.insert(1, ("keyframes", f"{len(run.keyframes):,}"))
        values.append(("texture", f"{run.texture.base_color.shape[1]} px"))
    if outlines is not None:
        values.append(("silhouette match, all frames", f"{outlines.iou.mean():.3f}"))
    made = [str(export["file"])] if export.get("file") else []
    made += [f"from {source['name']}"] if source.get("name") else []
    line = f'<p class="soft">{html.escape(" ".join(made))}</p>' if made else ""
    return f"<header><h1>{html.escape(name)}</h1>{line}</header>{html.tiles(values)}"


def _stand_in(generate: Mapping[str, Any]) -> str:
    """Where the meshes come from: an artist has to know before looking at the shape."""
    if not generate.get("description"):
        return ""
    title = f"Meshes made by: {generate.get('generator', 'unknown')}"
    inner = f"<h3>{html.escape(title)}</h3><p>{html.escape(generate['description'])}</p>"
    kind = "note" if generate.get("stand_in") else "card"
    return f'<div class="{kind}">{inner}{html.bullets(map(str, generate.get("notes", [])))}</div>'


def _film(run: Run | None, outlines: Silhouettes | None) -> str:
    if run is None or outlines is None or len(run.times_s) < 2:
        return ""
    moving = html.image(pictures.film(run, outlines.box), "image/webp", "the clip beside the asset, playing", "wide")
    caption = "The clip on the left, the asset on the right. With every frame: 8_export/side_by_side.mp4."
    return html.section("Input beside result", html.figure(moving, caption))


def _rows(keyframes: np.ndarray, outlines: Silhouettes) -> tuple[list[int], int]:
    """(keyframes to show: spread over the clip and the worst one, the worst one)."""
    scores = outlines.iou[np.searchsorted(outlines.frames, keyframes)]
    worst = int(scores.argmin())
    spread = np.linspace(0, len(keyframes) - 1, min(ROWS, len(keyframes))).round().astype(int)
    nearest = int(np.abs(spread - worst).argmin())
    if 0 < nearest < len(spread) - 1:
        spread[nearest] = worst
    return keyframes[np.unique(np.append(spread, worst))].tolist(), int(keyframes[worst])


def _comparison(run: Run | None, outlines: Silhouettes | None) -> str:
    if run is None or outlines is None:
        return ""
    shown, worst = _rows(run.keyframes, outlines)
    match = dict(zip(outlines.frames.tolist(), outlines.iou.tolist(), strict=True))
    rows = []
    for index in shown:
        label = f"frame {index} · {run.times_s[index]:.2f} s · silhouette match {match[index]:.3f}"
        label += " · the worst keyframe" if index == worst and len(run.keyframes) > 1 else ""
        panels = pictures.comparison(run, index, outlines.box)
        cells = [
            html.picture(panel, f"{what} at frame {index}")
            for what, panel in zip(("clip", "asset", "difference"), panels, strict=True)
        ]
        rows.append(f'<figure><div class="compare">{"".join(cells)}</div>{html.caption(label)}</figure>')
    return html.section(
        "Keyframes: clip, asset, difference",
        f'<div class="card rows">{"".join(rows)}</div>',
        lead="The textured asset from the clip's own camera. In the difference, red is missing from the asset, blue is "
        "too much, and brightness shows how far the colours are apart.",
    )


def _silhouettes(run: Run | None, outlines: Silhouettes | None) -> str:
    if run is None or outlines is None:
        return ""
    keyframe = np.isin(outlines.frames, run.keyframes)
    scores, lowest = outlines.iou[keyframe], int(outlines.iou.argmin())
    lead = (
        "Overlap of the asset's outline with the clip's: 1 is perfect. "
        f"Keyframes: mean {scores.mean():.3f}, median {np.median(scores):.3f}. "
    )
    if not keyframe.all():
        lead += f"Frames between them (pale): mean {outlines.iou[~keyframe].mean():.3f}. "
    lead += f"Lowest of all: {outlines.iou[lowest]:.3f} at frame {outlines.frames[lowest]}."
    labels = [str(frame) for frame in outlines.frames]
    chart = html.bars(outlines.iou.tolist(), labels, (GOOD_IOU, FAIR_IOU), pale=(~keyframe).tolist())
    return html.section("Silhouettes", f'<div class="card">{chart}</div>', lead=lead)


def _turntable(run: Run | None) -> str:
    if run is None:
        return ""
    sheet = html.picture(pictures.turntable(run), "the first pose from six sides", "wide")
    caption = "The first pose from six sides: textured, and as clay."
    return html.section("All around", html.figure(sheet, caption))


def _texture(folder: Path | None, told: Mapping[str, Any]) -> str:
    if folder is None:
        return ""
    captions = {
        "base_color.png": "The texture.",
        "coverage.png": "Coverage: green is painted by the video, grey is filled in.",
    }
    shown = [
        html.figure(html.picture(html.limited(folder / name, 720), caption), caption)
        for name, caption in captions.items()
        if (folder / name).is_file()
    ]
    return html.section("Texture", f'<div class="pair">{"".join(shown)}</div>' if shown else "")


def _hints(export: Mapping[str, Any]) -> str:
    hints = [str(hint) for hint in export.get("hints", [])]
    if export.get("normals"):
        hints.append(f"Normals: {export['normals']}.")
    return html.section("Using the file", html.bullets(hints))


def _warnings(manifest: Mapping[str, Any], told: Mapping[str, Any], doubted: list[str]) -> str:
    found = list(doubted)
    for stage, record in manifest.get("stages", {}).items():
        found += [f"{stage}: {text}" for text in record.get("warnings") or []]
    for text in told["ingest"].get("warnings") or []:
        if f"ingest: {text}" not in found:
            found.append(f"ingest: {text}")
    return html.section("Warnings", html.bullets(found) or '<p class="soft">None.</p>')


def _work(manifest: Mapping[str, Any]) -> str:
    rows = []
    for stage, record in manifest.get("stages", {}).items():
        seconds, memory = record.get("seconds"), record.get("peak_memory_mb")
        state = str(record.get("state", ""))
        edited = ", ".join(map(str, record.get("edited") or []))
        rows.append(
            (
                stage,
                f"{state} ({edited})" if edited else state,
                round(float(seconds), 2) if seconds is not None else "",
                round(float(memory)) if memory else "",
                record.get("device") or "",
            )
        )
    return html.section("Work", html.table(("stage", "state", "seconds", "peak memory, MB", "device"), rows))


def _numbers(told: Mapping[str, Any]) -> str:
    parts = []
    for stage in NUMBERS:
        rows = html.facts({key: _lens(key, value) for key, value in told[stage].items() if key not in NOT_SHOWN})
        keyframes = told[stage].get("keyframes")
        if stage == "camera" and keyframes:
            rows += _camera_numbers(keyframes)
        if rows:
            parts.append(f'<div class="card"><h3>{html.escape(stage)}</h3>{html.table(("", ""), rows)}</div>')
    return html.section(
        "Numbers", f'<div class="columns">{"".join(parts)}</div>' if parts else "", _motion(told), lead=LEGEND
    )


def _lens(key: str, value: Any) -> Any:
    """An assumed field of view, marked as such: it decides the depth of everything."""
    assumed = key == "fov_y_deg" and value == ASSUMED_FOV_DEG
    return f"{value:g}, assumed unless given with --fov" if assumed else value


def _motion(told: Mapping[str, Any]) -> str:
    """What the topology stage says of each keyframe, folded."""
    entries = [entry for entry in told["topology"].get("keyframes", []) if isinstance(entry, dict)]
    if not entries:
        return ""
    names = [key for key, value in entries[0].items() if not isinstance(value, (list, dict))]
    rows = [[_short(entry.get(name, "")) for name in names] for entry in entries]
    inner = html.table([name.replace("_", " ") for name in names], rows)
    return f'<details class="card"><summary>Motion, keyframe by keyframe</summary>{inner}</details>'


def _short(value: Any) -> Any:
    return "" if value is None else value


def _camera_numbers(keyframes: list[dict[str, Any]]) -> list[tuple[str, object]]:
    ious = [float(k["iou"]) for k in keyframes if k.get("iou") is not None]
    trusted = sum(bool(k.get("trusted")) for k in keyframes)
    rows: list[tuple[str, object]] = [("poses trusted", f"{trusted} of {len(keyframes)}")]
    return [*rows, ("median silhouette match of a pose", float(np.median(ious)))] if ious else rows


def _licences(manifest: Mapping[str, Any], generate: Mapping[str, Any]) -> str:
    rows = [(str(what), str(licence)) for what, licence in manifest.get("licences", {}).items()]
    if not rows and generate.get("licence"):
        rows = [(str(generate.get("generator", "generator")), str(generate["licence"]))]
    return html.section("Licences", html.table(("used", "licence"), rows))
