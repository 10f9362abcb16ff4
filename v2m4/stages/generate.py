"""A mesh for every keyframe: from a generator, from a folder of your own meshes, or one reference mesh for all.

Without anything else the silhouette is inflated (``generator = inflate``): no weights, no GPU, a 2.5D stand-in.
``meshes`` takes your own, one file a frame or keyframe: as many as frames, else matched by the numbers in their names,
else as many as keyframes. Where every frame has a mesh, every frame becomes a keyframe. ``mesh`` takes one for all.
Your meshes must stand upright (+Y) and look along +Z; they are welded, cleaned and reduced to ``max_faces``, but never
moved, and every change is written to generate.json.

Writes ``meshes/NNNNN.glb``, ``notes/NNNNN.json``, ``generate.json`` and ``turntable.png`` (up to four keyframes, a row
each).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from v2m4 import formats
from v2m4.config import opt
from v2m4.errors import ConfigError, InputError, MissingBackend
from v2m4.protocols import Generated, Generator, StageContext
from v2m4.types import Mesh

TURNTABLES = 4  #: rows of the turntable sheet
VIEWS = 8
_CONTRACT = "what a generator needs stands in v2m4/protocols.py: generate() returns Generated(Mesh(...))"


@dataclass(frozen=True)
class GenerateOptions:
    """Options of the stage."""

    generator: str = opt("inflate", "what makes a mesh from a picture: inflate, or your own as package.module:Class")
    meshes: Path | None = opt(None, "folder of your own meshes, one a frame or keyframe", content=True)
    mesh: Path | None = opt(None, "one mesh of your own, used for every keyframe", content=True)
    max_faces: int = opt(8000, "meshes with more faces are reduced to this many", minimum=100)
    depth: float = opt(1.0, "inflate: thickness of a limb, 1 makes it round", minimum=0.05, maximum=4.0)


def run(ctx: StageContext, options: GenerateOptions, ingest: Path) -> None:
    """Make, clean and store the meshes. ConfigError for options that exclude each other, InputError for unusable
    meshes (all are checked before any work) or frames without a silhouette."""
    clip = formats.read_json(ingest / "clip.json")
    generator, keyframes, rule = choose(options, clip)
    ctx.log.info(f"{generator.name}: {generator.description}")
    if rule:
        ctx.log.info(rule)
    last: tuple[Mesh, Mesh, tuple[str, ...]] | None = None
    for index in ctx.track(keyframes, "meshes"):
        if formats.mesh_path(ctx.out, index).exists():
            continue
        generated = _generate(generator, ingest, index, ctx.seed_for(index))
        if last is None or generated.mesh is not last[0]:  # one reference mesh is cleaned once
            last = (generated.mesh, *_clean(generated.mesh, options.max_faces, index))
        _store(ctx.out, index, last[1], [*generated.notes, *last[2]])
    _summary(ctx, generator, keyframes, [rule] if rule else [])


def choose(options: GenerateOptions, clip: dict[str, Any]) -> tuple[Generator, list[int], str]:
    """(generator, keyframes, how meshes were matched to frames) for these options and this clip.json."""
    from v2m4.models import GENERATORS, load
    from v2m4.models.folder import assign, check, check_mesh, list_meshes

    keyframes = [int(k) for k in clip["keyframes"]]
    if options.meshes is not None and options.mesh is not None:
        raise ConfigError(
            "generate.meshes and generate.mesh exclude each other", "give a folder of meshes, or one mesh for all"
        )
    brought = "meshes" if options.meshes is not None else "mesh" if options.mesh is not None else ""
    if brought and options.generator not in ("inflate", "folder", "reference"):
        raise ConfigError(
            f"generate.{brought} and generator {options.generator} exclude each other", "leave one of the two out"
        )
    if options.meshes is not None:
        paths = list_meshes(options.meshes)
        assignment = assign(paths, clip["frames"], keyframes)
        check(paths)
        return load(GENERATORS, "folder")(assignment.files), list(assignment.files), assignment.rule
    if options.mesh is not None:
        check_mesh(options.mesh)
        return load(GENERATORS, "reference")(options.mesh), keyframes, "one reference mesh for every keyframe"
    if options.generator in ("folder", "reference"):
        flag = "meshes" if options.generator == "folder" else "mesh"
        raise ConfigError(f"generator {options.generator} needs generate.{flag}", f"give the path with --{flag}")
    kind = load(GENERATORS, options.generator)
    if options.generator == "inflate":
        return kind(depth=options.depth), keyframes, ""
    return _own(kind, options.generator), keyframes, ""


def _own(kind: Callable[[], Generator], name: str) -> Generator:
    """The user's own generator. MissingBackend for a package it lacks, ConfigError when it is not a generator."""
    try:
        generator = kind()
    except ModuleNotFoundError as error:
        raise MissingBackend(f"{error.name}, which {name} imports,", f"pip install {error.name}") from error
    lacks = [a for a in ("name", "licence", "description", "generate") if not hasattr(generator, a)]
    if lacks:
        raise ConfigError(f"{name} is no generator: it has no {' and no '.join(lacks)}", _CONTRACT)
    return generator


def _generate(generator: Generator, ingest: Path, index: int, seed: int) -> Generated:
    frame = formats.read_clip(ingest, only=[index]).frame(index)
    generated = generator.generate(frame.image, index, seed)
    if not isinstance(generated, Generated) or not isinstance(generated.mesh, Mesh):
        given = generated.mesh if isinstance(generated, Generated) else generated
        raise InputError(f"{generator.name} gave {type(given).__name__} instead of a mesh", _CONTRACT)
    return generated


def _clean(mesh: Mesh, max_faces: int, index: int) -> tuple[Mesh, tuple[str, ...]]:
    from v2m4.models.clean import clean

    try:
        cleaned = clean(mesh, max_faces)
    except InputError as error:
        raise InputError(f"mesh of frame {index}: {error.message}", error.hint) from None
    return cleaned.mesh, cleaned.notes


def _store(out: Path, index: int, mesh: Mesh, notes: list[str]) -> None:
    """The notes first: a mesh that exists is finished."""
    formats.write_json(out / "notes" / f"{formats.frame_name(index)}.json", notes)
    formats.write_mesh(formats.mesh_path(out, index), mesh)


def _summary(ctx: StageContext, generator: Generator, keyframes: list[int], notes: list[str]) -> None:
    from v2m4.models.clean import is_closed

    entries, shown = [], {}
    rows = {
        keyframes[i] for i in np.linspace(0, len(keyframes) - 1, min(TURNTABLES, len(keyframes))).round().astype(int)
    }
    for index in keyframes:
        mesh = formats.read_mesh(formats.mesh_path(ctx.out, index))
        said = formats.read_json(ctx.out / "notes" / f"{formats.frame_name(index)}.json")
        closed = is_closed(mesh.faces)
        entries.append(dict(index=index, vertices=len(mesh.vertices), faces=len(mesh.faces), closed=closed, notes=said))
        if index in rows:
            shown[index] = mesh
    opened = [e["index"] for e in entries if not e["closed"]]
    if opened:
        notes = [*notes, f"{len(opened)} of {len(entries)} meshes are not closed (first: frame {opened[0]})"]
        ctx.log.warning(notes[-1])
    _turntable(ctx.out / "turntable.png", shown)
    formats.write_json(
        ctx.out / "generate.json",
        dict(
            generator=generator.name,
            licence=generator.licence,
            description=generator.description,
            stand_in=bool(getattr(generator, "stand_in", False)),
            keyframes=keyframes,
            notes=notes,
            meshes=entries,
        ),
    )


def _turntable(path: Path, meshes: dict[int, Mesh]) -> None:
    from v2m4.render.preview import contact_sheet, on_white, turntable, turntable_labels

    views = [on_white(view) for mesh in meshes.values() for view in turntable(mesh, views=VIEWS, mode="lit")]
    labels = [f"frame {index}, {side}" for index in meshes for side in turntable_labels(VIEWS)]
    formats.write_image(path, contact_sheet(views, VIEWS, labels))
