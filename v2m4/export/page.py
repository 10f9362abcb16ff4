"""Pieces of a self-contained HTML page. Every text goes through :func:`escape`; nothing is loaded from outside."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from v2m4 import formats

STYLE = """
:root { color-scheme: light dark; --paper: #f6f5f3; --card: #fff; --ink: #1d1d1f; --soft: #6b6b70; --line: #e2e0dc;
  --accent: #c2571a; --good: #2f8f5b; --fair: #d39a1e; --bad: #c8402f; --note: #fff4e0; --note-line: #e8b45a; }
@media (prefers-color-scheme: dark) { :root { --paper: #17181a; --card: #212225; --ink: #ececee; --soft: #a0a1a7;
  --line: #35363b; --accent: #f0935a; --good: #58c08a; --fair: #e6b84d; --bad: #ef7160; --note: #332a17;
  --note-line: #8a6a25; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI",
  Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1200px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { margin: 0; font-size: 30px; line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin: 44px 0 6px; font-size: 20px; }
h3 { margin: 0 0 8px; font-size: 15px; }
p { margin: 4px 0 14px; max-width: 75ch; }
.soft, figcaption, th { color: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(118px, 1fr)); gap: 10px; margin: 22px 0; }
.tile, .card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 14px; }
.tile b { display: block; font-size: 21px; line-height: 1.25; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: 13px; }
.note { background: var(--note); border: 1px solid var(--note-line); border-radius: 10px; padding: 12px 16px;
  margin: 18px 0; }
.note p:last-child { margin-bottom: 0; }
figure { margin: 0; }
figcaption { font-size: 13px; margin-top: 4px; }
img { display: block; max-width: 100%; height: auto; border-radius: 8px; }
.wide { width: 100%; }
.rows { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(460px, 100%), 1fr)); gap: 18px 22px; }
.compare { display: grid; grid-template-columns: repeat(3, 1fr); gap: 4px; }
.compare img { width: 100%; border-radius: 6px; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(300px, 1fr)); gap: 16px; }
.columns { columns: 330px; column-gap: 16px; margin-bottom: 16px; }
.columns .card { break-inside: avoid; margin-bottom: 16px; }
summary { cursor: pointer; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 5px 18px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 500; font-size: 13px; }
td.n { text-align: right; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
li { margin: 3px 0; }
"""


def escape(text: object) -> str:
    """Text that is safe between tags and in quoted attributes."""
    return html.escape(str(text), quote=True)


def page(title: str, body: str) -> str:
    """A whole document."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n"
        "</html>\n"
    )


def section(title: str, *parts: str, lead: str = "") -> str:
    """A heading, a sentence and its parts; nothing when all parts are empty."""
    if not any(parts):
        return ""
    return (
        f"<section><h2>{escape(title)}</h2>"
        + (f'<p class="soft">{escape(lead)}</p>' if lead else "")
        + "".join(parts)
        + "</section>\n"
    )


def tiles(values: Sequence[tuple[str, str]]) -> str:
    """Key figures: (what, value) each."""
    cells = (f'<div class="tile"><b>{escape(value)}</b><span>{escape(what)}</span></div>' for what, value in values)
    return f'<div class="tiles">{"".join(cells)}</div>' if values else ""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows under a head; numbers stand to the right."""
    body = "".join("<tr>" + "".join(_cell(value) for value in row) + "</tr>" for row in rows)
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    first = f"<tr>{top}</tr>" if any(head) else ""
    return f'<div class="scroll"><table>{first}{body}</table></div>' if body else ""


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"<td>{escape('yes' if value is True else 'no' if value is False else value)}</td>"
    return f'<td class="n">{escape(number(value))}</td>'


def bullets(items: Iterable[str]) -> str:
    """A list of sentences."""
    inner = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<ul>{inner}</ul>" if inner else ""


def number(value: float) -> str:
    """Up to four significant digits, thousands apart."""
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def facts(values: Mapping[str, Any]) -> list[tuple[str, object]]:
    """(readable name, value) of the numbers and short texts in a JSON object, one level of objects unfolded."""
    out: list[tuple[str, object]] = []
    for key, value in values.items():
        name = str(key).replace("_", " ").replace(" percent", ", %")
        if isinstance(value, Mapping):
            out += [(f"{name}: {inner}", item) for inner, item in facts(value) if not isinstance(item, Mapping)]
        elif isinstance(value, (bool, int, float)) or (isinstance(value, str) and 0 < len(value) <= 90):
            out.append((name, value))
        elif isinstance(value, list) and 0 < len(value) <= 4 and all(isinstance(v, (int, float)) for v in value):
            out.append((name, ", ".join(number(v) for v in value)))
    return out


def image(data: bytes, mime: str, alt: str, css: str = "") -> str:
    """A picture inside the page."""
    uri = f"data:{mime};base64,{base64.b64encode(data).decode('ascii')}"
    return f'<img src="{uri}" alt="{escape(alt)}"' + (f' class="{escape(css)}"' if css else "") + ">"


def picture(pixels: np.ndarray, alt: str, css: str = "", quality: int = 82) -> str:
    """(H,W,3|4) uint8 as a WebP inside the page."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, "webp", quality=quality, method=4)
    return image(buffer.getvalue(), "image/webp", alt, css)


def limited(path: Path, longest: int) -> np.ndarray:
    """A PNG with its longer side at most ``longest``, over grey where it is transparent: (H,W,3)."""
    from PIL import Image

    from v2m4.render.preview import BACKDROP, on_color

    pixels = Image.fromarray(formats.read_rgba(path))
    pixels.thumbnail((longest, longest), Image.Resampling.LANCZOS)
    return on_color(np.asarray(pixels), BACKDROP)


def caption(text: str) -> str:
    """The line under a figure."""
    return f"<figcaption>{escape(text)}</figcaption>"


def figure(inner: str, text: str) -> str:
    """A picture with a line of text under it."""
    return f"<figure>{inner}{caption(text)}</figure>" if inner else ""


def bars(
    values: Sequence[float], labels: Sequence[str], limits: tuple[float, float], pale: Sequence[bool] | None = None
) -> str:
    """Values in [0, 1] as an SVG bar chart: each bar named by its label and coloured by ``limits``, the lowest value
    that is good and the lowest that is fair."""
    width, height, left, base = 1000, 190, 34, 166
    step = (width - left) / max(len(values), 1)
    says = f"{len(values)} values between 0 and 1"
    out = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{says}">']
    for mark in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = base - mark * (base - 10)
        out.append(f'<line x1="{left}" x2="{width}" y1="{y:.1f}" y2="{y:.1f}" style="stroke:var(--line)"/>')
        out.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{mark:g}</text>')
    every = max(1, -(-len(values) // 20))
    for i, (value, label) in enumerate(zip(values, labels, strict=True)):
        color = "good" if value >= limits[0] else "fair" if value >= limits[1] else "bad"
        faint = ";opacity:.45" if pale is not None and pale[i] else ""
        tall = max(min(value, 1.0), 0.0) * (base - 10)
        x, wide = left + i * step + step * 0.12, max(step * 0.76, 0.6)
        out.append(
            f'<rect x="{x:.2f}" y="{base - tall:.2f}" width="{wide:.2f}" height="{tall:.2f}" rx="1.5" '
            f'style="fill:var(--{color}){faint}"><title>{escape(label)}: {value:.3f}</title></rect>'
        )
        if i % every == 0:
            out.append(f'<text x="{x + wide / 2:.2f}" y="{base + 15}" text-anchor="middle">{escape(label)}</text>')
    return "".join(out) + "</svg>"
