"""Tune the generator's condition embedding until its mesh meets the frame, where the generator has one.

None of the generators here has one, so the meshes pass through bit for bit, and ``refine.json`` says so. The stage
keeps its place: what comes after reads its folder, whatever the generator.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from v2m4 import formats
from v2m4.errors import InputError
from v2m4.protocols import StageContext


@dataclass(frozen=True)
class RefineOptions:
    """The stage has no options yet."""


def run(ctx: StageContext, options: RefineOptions, ingest: Path, generate: Path, camera: Path) -> None:
    """Copy the meshes. InputError when there is none."""
    made_by = formats.read_json(generate / "generate.json")["generator"]
    sources = sorted((generate / "meshes").glob("*.glb"))
    if not sources:
        raise InputError(f"{generate}: no meshes to refine", "run the generate stage again")
    for source in ctx.track(sources, "meshes"):
        target = ctx.out / "meshes" / source.name
        if not target.exists():
            formats.write_bytes(target, source.read_bytes())
    reason = f"the generator {made_by} has no condition embedding that could be tuned; meshes passed through unchanged"
    ctx.log.info(reason)
    keyframes = [int(source.stem) for source in sources]
    formats.write_json(ctx.out / "refine.json", {"refined": False, "reason": reason, "keyframes": keyframes})
