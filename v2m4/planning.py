"""What has to be done in a run directory, and why; reads only.

A stage is identified by a key: its name and version, its resolved options, the seed, and the content of the folders
and files it reads. While the key of its finished folder stands, the folder is kept; :meth:`RunState.decide` is the
whole rule. Nothing here knows what a stage does.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from v2m4 import config, manifest
from v2m4.config import Options, Values
from v2m4.errors import ConfigError, InputError
from v2m4.stages import STAGES, Stage
from v2m4.store import Digests, StageFolder, clean_name, combined, differences


@dataclass(frozen=True)
class RunOptions:
    """What holds for the whole run: the ``[run]`` table of a configuration."""

    seed: int = config.opt(0, "every random choice derives from it and from the frame", minimum=0)
    device: str = config.opt("auto", "where torch computes", choices=("auto", "cpu", "cuda"))
    weights_dir: Path | None = config.opt(None, "folder with the weights of networks, looked into first")


@dataclass(frozen=True)
class Request:
    """What is asked of a run. ``options`` come from :func:`resolve_options`; ``until`` is the last stage to run,
    ``only`` the single one; ``force`` names stages that run again whatever their state."""

    run_dir: Path
    options: Mapping[str, Options]
    until: str | None = None
    only: str | None = None
    force: frozenset[str] = frozenset()
    dry_run: bool = False


@dataclass(frozen=True)
class Decision:
    """What happens to a stage: "keep", "run", "resume", or in a plan "maybe", and ``why`` in a few words.

    ``edited`` are files changed by hand since the stage wrote them, ``stale`` says that an edited stage is kept
    although its options or inputs have changed.
    """

    stage: str
    action: str
    why: str
    key: str = ""
    edited: tuple[str, ...] = ()
    stale: bool = False


@dataclass(frozen=True)
class StageStatus:
    """One row of ``v2m4 status``. ``state`` is "finished", "edited", "out of date", "may change" (a stage it reads is
    out of date), "unfinished" or "not run"."""

    name: str
    state: str
    note: str = ""
    record: Mapping[str, Any] = field(default_factory=dict)


# --- options ----------------------------------------------------------------------------------------------------------


def resolve_options(*layers: Values, stages: Sequence[Stage] = STAGES) -> dict[str, Options]:
    """Checked options of the run and of every stage; later layers win. Paths become absolute.

    ConfigError names an unknown or impossible value.
    """
    classes: dict[str, type] = {"run": RunOptions, **{s.name: s.options for s in stages}}
    resolved = config.resolve(classes, config.merge(*layers))
    return {name: _with_absolute_paths(options) for name, options in resolved.items()}


def read_run_options(run_dir: Path, *layers: Values, stages: Sequence[Stage] = STAGES) -> dict[str, Options]:
    """The options a run directory was made with, and ``layers`` over them. InputError where there is no run."""
    path = run_dir / "run.toml"
    if not path.is_file():
        raise InputError(f"{run_dir} is not a run directory", "it has no run.toml; make one with: v2m4 run CLIP -o DIR")
    try:
        own = config.read_toml(path)
    except ConfigError as error:
        raise InputError(error.message, f"delete it; v2m4 run CLIP -o {run_dir} writes it anew") from None
    return resolve_options(own, *layers, stages=stages)


def content_fields(options: Options) -> dict[str, Path]:
    """Option name -> path, of the options whose content counts and that are set."""
    named = {f.name: getattr(options, f.name) for f in dataclasses.fields(options) if f.metadata.get("content")}
    return {name: Path(value) for name, value in named.items() if value not in (None, "")}


def _with_absolute_paths(options: Options) -> Options:
    named = {f.name: getattr(options, f.name) for f in dataclasses.fields(options)}
    named = {name: path for name, path in named.items() if isinstance(path, Path)} | content_fields(options)
    paths = {name: Path(os.path.expanduser(path)).absolute() for name, path in named.items()}
    kinds = {name: type(getattr(options, name)) for name in paths}
    return dataclasses.replace(
        options, **{name: str(path) if kinds[name] is str else path for name, path in paths.items()}
    )


def check_paths(request: Request, chosen: Iterable[Stage], stages: Sequence[Stage]) -> None:
    """Before anything is written: every file the options name is there and has a name that can be written down, the
    run does not lie inside one, and none lies where the run replaces it."""
    run_dir = request.run_dir.resolve()
    _check_names([str(run_dir)])
    for stage in chosen:
        for name, path in content_fields(request.options[stage.name]).items():
            if not path.exists():
                raise InputError(f"{path}: no such file or folder ({stage.name}.{name})", _nearest_file(path))
            if path.is_dir() and run_dir.is_relative_to(path.resolve()):
                raise ConfigError(f"the run directory {request.run_dir} lies inside {path}", "choose another -o")
            if any(path.resolve().is_relative_to(run_dir / f"{n}_{s.name}") for n, s in enumerate(stages, 1)):
                raise ConfigError(
                    f"{path} belongs to a stage of this run, which replaces it ({stage.name}.{name})",
                    "edit the files there in place and run again, or copy them elsewhere first",
                )
            _check_names([str(path), *(p.name for p in path.rglob("*"))])


def _check_names(names: Iterable[str]) -> None:
    """InputError for names from another time and encoding: no JSON, TOML or glTF can hold them."""
    for text in names:
        shown = text.encode("utf-8", "backslashreplace").decode("utf-8")
        if shown != text:
            raise InputError(f"the file name {shown} is not valid UTF-8", "rename it")


def _nearest_file(path: Path) -> str:
    try:
        close = difflib.get_close_matches(path.name, [p.name for p in path.parent.iterdir()], 1)
    except OSError:
        return f"there is no folder {path.parent}"
    return f"did you mean {path.parent / close[0]}?" if close else "check the spelling and the current folder"


# --- what has to be done ----------------------------------------------------------------------------------------------


class RunState:
    """The state of a run directory while the stages are gone through in order."""

    def __init__(self, request: Request, stages: Sequence[Stage]) -> None:
        self.request = request
        self.stages = {s.name: s for s in stages}
        self.digests = Digests(request.run_dir / ".digests.json")
        self.folders = {
            s.name: StageFolder(request.run_dir / f"{number}_{s.name}") for number, s in enumerate(stages, 1)
        }
        self.options = dict(request.options)
        export = self.options.get(manifest.PUBLISHED)
        if export is not None and getattr(export, "name", None) == "":
            name = clean_name(Path(os.path.abspath(request.run_dir)).name)  # "..", too, has a name
            self.options[manifest.PUBLISHED] = dataclasses.replace(export, name=name)
        self.unknown: set[str] = set()  # stages a plan would run: what they give is not known
        self._trees: dict[str, dict[str, str]] = {}

    def tree(self, name: str) -> dict[str, str]:
        """Files and digests of a finished stage."""
        if name not in self._trees:
            folder = self.folders[name]
            self._trees[name] = self.digests.tree(folder.current, folder.path) if folder.current else {}
        return self._trees[name]

    def forget(self, name: str) -> None:
        """The stage's folder has changed."""
        self._trees.pop(name, None)

    def ingredients(self, stage: Stage) -> dict[str, Any]:
        """All that decides what a stage writes."""
        options = self.options[stage.name]
        paths = content_fields(options)
        contents = {name: self.digests.content(p) if p.exists() else "missing" for name, p in paths.items()}
        return {
            "stage": stage.name,
            "version": stage.version,
            "options": {**config.plain(options), **contents},
            "seed": self.options["run"].seed,
            "inputs": {need: combined(self.tree(need)) for need in stage.needs},
        }

    def decide(self, stage: Stage) -> Decision:
        """What has to happen to a stage, and why. Reads only.

        In this order: nothing finished -> run, or resume what the same key left unfinished; forced -> run; a file
        missing -> run; a file edited by hand -> keep; another key -> run; else keep.
        """
        folder, forced = self.folders[stage.name], stage.name in self.request.force
        ingredients = self.ingredients(stage)
        key = combined(ingredients)
        waits = [need for need in stage.needs if need in self.unknown]
        mark, record = folder.partial_mark(), folder.record()
        resumable = not waits and mark.get("key") == key and (bool(mark.get("forced")) or not forced)
        act = "resume" if resumable else "run"
        if record is None:
            other = "other options were interrupted" if mark else "the first time"
            return Decision(stage.name, act, "was interrupted" if resumable else other, key)
        missing, edited = differences(record, self.tree(stage.name))
        if forced:
            return Decision(stage.name, act, "asked for with --force", key)
        if missing:
            why = f"{missing[0]} is missing" + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
            return Decision(stage.name, act, why, key, tuple(edited))
        certain = _as_recorded(ingredients, record, waits)
        changed = combined(certain) != record["key"]
        if edited:
            return Decision(stage.name, "keep", "edited", key, tuple(edited), stale=changed)
        if changed:
            return Decision(stage.name, act, _difference(record.get("ingredients", {}), certain), key)
        if waits:
            return Decision(
                stage.name,
                "maybe",
                f"unless {' and '.join(waits)} give{'s' * (len(waits) == 1)} the same as before",
                key,
            )
        return Decision(stage.name, "keep", "unchanged", key)


def _as_recorded(now: dict[str, Any], record: Mapping[str, Any], waits: list[str]) -> dict[str, Any]:
    """``now`` with the inputs that are not known yet (``waits``) taken from the record."""
    before = record.get("ingredients", {}).get("inputs", {})
    return {**now, "inputs": {need: before.get(need) if need in waits else d for need, d in now["inputs"].items()}}


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first thing that differs between two sets of ingredients."""
    old, new = before.get("options", {}), now["options"]
    for name in new:
        if old.get(name) != new[name]:
            digests = len(str(new[name])) == 64 or len(str(old.get(name))) == 64
            return f"{name} has changed" if digests else f"{name} was {old.get(name)!r} and is {new[name]!r}"
    for need, digest in now["inputs"].items():
        if before.get("inputs", {}).get(need) != digest:
            return f"{need} has changed"
    for name in ("seed", "version"):
        if before.get(name) != now[name]:
            return f"the {name} was {before.get(name)} and is {now[name]}"
    return "its options have changed"


def selected(request: Request, stages: Sequence[Stage]) -> list[Stage]:
    names = [s.name for s in stages]
    for name in (request.until, request.only, *sorted(request.force)):
        if name is not None and name not in names:
            close = difflib.get_close_matches(name, names, 1)
            raise ConfigError(f"unknown stage {name}", f"did you mean {close[0]}?" if close else ", ".join(names))
    if request.only:
        return [s for s in stages if s.name == request.only]
    last = names.index(request.until) if request.until else len(names) - 1
    late = [name for name in names[last + 1 :] if name in request.force]
    if late:
        raise ConfigError(f"--force {late[0]} comes after --until {names[last]}", "leave one of the two out")
    return list(stages[: last + 1])


def plan(request: Request, stages: Sequence[Stage] = STAGES) -> list[Decision]:
    """What :func:`run` would do. Touches nothing."""
    walk = RunState(request, stages)
    decisions = []
    for stage in selected(request, stages):
        decisions.append(walk.decide(stage))
        if decisions[-1].action != "keep":
            walk.unknown.add(stage.name)
    return decisions


def status(run_dir: Path, stages: Sequence[Stage] = STAGES) -> list[StageStatus]:
    """The state of every stage of a run directory. Touches nothing."""
    walk = RunState(Request(run_dir, read_run_options(run_dir, stages=stages)), stages)
    rows = []
    for stage in stages:
        decision, folder = walk.decide(stage), walk.folders[stage.name]
        record, note = folder.record() or {}, decision.why
        if decision.action == "keep":
            state = "edited" if decision.edited else "finished"
            note = ", ".join(decision.edited) + (" (out of date)" if decision.stale else "")
        elif record:
            state = "may change" if decision.action == "maybe" else "out of date"
        else:
            state = "unfinished" if folder.partial.is_dir() else "not run"
            note = ""
        if decision.action != "keep":
            walk.unknown.add(stage.name)
        rows.append(StageStatus(stage.name, state, note, record))
    return rows
