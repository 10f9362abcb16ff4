"""A tiny pipeline of four stages that write text, to test the engine without any of the real work.

Run as a script it walks one run directory, and can be told to die: ``fakewalk.py CLIP RUN_DIR [ITEM]``.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from v2m4.config import opt
from v2m4.files import write_text
from v2m4.pipeline import Summary, run
from v2m4.planning import Request, resolve_options
from v2m4.stages import Stage

ITEMS = 6


class Walk:
    """The stages, what ran so far, and what is to happen at an item (``at``: (stage, item) -> function)."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.items: list[tuple[str, int]] = []
        self.at: dict[tuple[str, int], Any] = {}
        self.stages = (
            Stage("ingest", self.ingest, IngestOptions),
            Stage("make", self.make, MakeOptions, ("ingest",)),
            Stage("paint", self.paint, PaintOptions, ("ingest", "make")),
            Stage("export", self.export, ExportOptions, ("make", "paint")),
        )

    def ingest(self, ctx: Any, options: Any) -> None:
        self.calls.append("ingest")
        write_text(ctx.out / "clip.txt", Path(options.clip).read_text("utf-8")[: options.length])

    def make(self, ctx: Any, options: Any, ingest: Path) -> None:
        self.calls.append("make")
        (ctx.out / "meshes").mkdir(exist_ok=True)
        if options.warn:
            ctx.log.warning(options.warn)
        for k in ctx.track(list(range(ITEMS)), "meshes"):
            path = ctx.out / "meshes" / f"{k:05d}.txt"
            if path.exists():
                continue
            self.items.append(("make", k))
            if ("make", k) in self.at:
                self.at["make", k]()
            text = (ingest / "clip.txt").read_text("utf-8")
            write_text(path, f"{text} {round(options.scale)} {ctx.seed_for(k) % options.seeds}\n")

    def paint(self, ctx: Any, options: Any, ingest: Path, make: Path) -> None:
        self.calls.append("paint")
        parts = [p.read_text("utf-8") for p in sorted((make / "meshes").glob("*.txt"))]
        write_text(ctx.out / "color.txt", options.color + "".join(parts))
        write_text(ctx.out / "paint.json", '{"model": "brush", "licence": "MIT"}')

    def export(self, ctx: Any, options: Any, make: Path, paint: Path) -> None:
        self.calls.append("export")
        write_text(ctx.out / f"{options.name}.glb", "glTF " + (paint / "color.txt").read_text("utf-8"))


@dataclass(frozen=True)
class IngestOptions:
    clip: Path | None = opt(None, "the clip", content=True)
    length: int = opt(100, "characters used", minimum=1)


@dataclass(frozen=True)
class MakeOptions:
    scale: float = opt(1.0, "rounded, so that 1.1 gives the same bytes as 1.0")
    seeds: int = opt(1, "how many kinds of seed")
    warn: str = opt("", "a warning to give")


@dataclass(frozen=True)
class PaintOptions:
    color: str = opt("red", "the colour", choices=("red", "blue"))


@dataclass(frozen=True)
class ExportOptions:
    name: str = opt("", "name of the asset")


def report(run_dir: Path, facts: Any) -> Path:
    write_text(run_dir / "report.html", f"<p>{len(facts['stages'])} stages</p>\n")
    return run_dir / "report.html"


def walk(stages: Any, run_dir: Path, clip: Path, *, values: Any = None, log: Any = None, **request: Any) -> Summary:
    """One run of the engine."""
    options = resolve_options({"ingest": {"clip": str(clip)}}, values or {}, stages=stages)
    return run(Request(run_dir, options, **request), stages, log, report)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    fake = Walk()
    if len(sys.argv) > 3:
        fake.at["make", int(sys.argv[3])] = die
    walk(fake.stages, Path(sys.argv[2]), Path(sys.argv[1]))
