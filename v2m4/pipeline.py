"""Run the stages over a run directory, and only those that have something to do.

A stage is identified by a key: its name and version, its resolved options, the seed, and the content of the folders
and files it reads. While the key of its finished folder stands, the folder is kept; ``_Walk.decide`` is the whole
rule. Nothing here knows what a stage does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from v2m4 import config, manifest
from v2m4.config import Options, Values
from v2m4.errors import ConfigError, InputError, MissingBackend, StageError, V2M4Error
from v2m4.files import write_json, write_text
from v2m4.log import FileSink, Log
from v2m4.stages import STAGES, Stage
from v2m4.store import (
    Context,
    Digests,
    StageFolder,
    StageLog,
    clean_name,
    combined,
    differences,
    locked,
    read_json,
)
from v2m4.usage import Usage, measured

Report = Callable[[Path, Mapping[str, Any]], Path]


@dataclass(frozen=True)
class RunOptions:
    """What holds for the whole run: the ``[run]`` table of a configuration."""

    seed: int = config.opt(0, "every random choice derives from it and from the frame", minimum=0)
    device: str = config.opt("auto", "where torch computes", choices=("auto", "cpu", "cuda"))


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
class Summary:
    """What a run did. ``asset`` and ``report`` are None while the last stage is not finished."""

    run_dir: Path
    decisions: tuple[Decision, ...]
    seconds: float
    asset: Path | None = None
    report: Path | None = None

    @property
    def ran(self) -> tuple[str, ...]:
        """Names of the stages that were run."""
        return tuple(d.stage for d in self.decisions if d.action in ("run", "resume"))


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
    """Checked options of the run and of every stage; later layers win. Content paths become absolute.

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


def _content_fields(options: Options) -> dict[str, Path]:
    """Option name -> path, of the options whose content counts and that are set."""
    named = {f.name: getattr(options, f.name) for f in dataclasses.fields(options) if f.metadata.get("content")}
    return {name: Path(value) for name, value in named.items() if value not in (None, "")}


def _with_absolute_paths(options: Options) -> Options:
    paths = {name: Path(os.path.expanduser(path)).absolute() for name, path in _content_fields(options).items()}
    kinds = {name: type(getattr(options, name)) for name in paths}
    return dataclasses.replace(
        options, **{name: str(path) if kinds[name] is str else path for name, path in paths.items()}
    )


def _check_paths(request: Request, chosen: Iterable[Stage], stages: Sequence[Stage]) -> None:
    """Before anything is written: every file the options name is there and has a name that can be written down, the
    run does not lie inside one, and none lies where the run replaces it."""
    run_dir = request.run_dir.resolve()
    _check_names([str(run_dir)])
    for stage in chosen:
        for name, path in _content_fields(request.options[stage.name]).items():
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


class _Walk:
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
        paths = _content_fields(options)
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


def _selected(request: Request, stages: Sequence[Stage]) -> list[Stage]:
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
    walk = _Walk(request, stages)
    decisions = []
    for stage in _selected(request, stages):
        decisions.append(walk.decide(stage))
        if decisions[-1].action != "keep":
            walk.unknown.add(stage.name)
    return decisions


def status(run_dir: Path, stages: Sequence[Stage] = STAGES) -> list[StageStatus]:
    """The state of every stage of a run directory. Touches nothing."""
    walk = _Walk(Request(run_dir, read_run_options(run_dir, stages=stages)), stages)
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


# --- doing it ---------------------------------------------------------------------------------------------------------


def choose_device(wanted: str) -> str:
    """ "cpu" or "cuda". MissingBackend when CUDA is demanded and torch has none."""
    if wanted == "cpu":
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if wanted == "cuda":
        raise MissingBackend("a CUDA build of torch that sees a GPU", "the command on pytorch.org, or use --device cpu")
    return "cpu"


def write_report(run_dir: Path, facts: Mapping[str, Any]) -> Path:
    """report.html of a finished run; ``facts`` is its manifest."""
    from v2m4.export.report import write_report as write

    return write(run_dir, dict(facts))


def run(
    request: Request, stages: Sequence[Stage] = STAGES, log: Log | None = None, report: Report = write_report
) -> Summary:
    """Bring a run directory up to date.

    Raises InputError or ConfigError before anything is written when the request cannot work, RunLocked when another
    process is at it, StageError when a stage fails; what was finished is kept and the same call resumes.
    """
    start, log = time.monotonic(), log or Log()
    chosen = _selected(request, stages)
    _check_paths(request, chosen, stages)
    if request.only:
        _check_inputs(request, chosen[0], stages)
    if request.options["run"].device == "cuda":
        choose_device("cuda")
    if request.dry_run:
        return Summary(request.run_dir, tuple(plan(request, stages)), time.monotonic() - start)
    _make_directory(request.run_dir)
    with locked(request.run_dir), log.attached(FileSink(request.run_dir / "log.txt")):
        return _Runner(request, stages, log, report).run(chosen, start)


def _check_inputs(request: Request, stage: Stage, stages: Sequence[Stage]) -> None:
    walk = _Walk(request, stages)
    unfinished = [need for need in stage.needs if walk.folders[need].current is None]
    if unfinished:
        raise InputError(
            f"stage {stage.name} reads {' and '.join(unfinished)}, which {'is' if len(unfinished) == 1 else 'are'} "
            "not finished",
            f"finish it first with: v2m4 run CLIP --until {unfinished[-1]}",
        )


def _make_directory(run_dir: Path) -> None:
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InputError(f"{run_dir} is a file, not a folder", "choose another place with -o") from None
    except OSError as error:
        raise InputError(f"cannot make {run_dir}: {error.strerror}", "choose another place with -o") from None


class _Runner:
    """Runs stages under the lock."""

    def __init__(self, request: Request, stages: Sequence[Stage], log: Log, report: Report) -> None:
        self.request, self.table, self.log, self.report = request, stages, log, report
        self.walk = _Walk(request, stages)
        self.failed: dict[str, str] = {}  # stage -> "failed" or "interrupted"

    def run(self, chosen: list[Stage], start: float) -> Summary:
        for folder in self.walk.folders.values():
            folder.recover()
        self._write_options()
        decisions: list[Decision] = []
        for stage in chosen:
            decision = self.walk.decide(stage)
            decisions.append(decision)
            if decision.action == "keep":
                self._say_kept(decision)
            else:
                self._execute(stage, decision)
        self.walk.digests.save()
        asset, report = None, None
        written = self._write_manifest()
        if chosen[-1] is self.table[-1]:
            asset, report = self._publish(written, any(d.action != "keep" for d in decisions))
        summary = Summary(self.request.run_dir, tuple(decisions), time.monotonic() - start, asset, report)
        self.log.info(self._closing_line(summary))
        return summary

    def _say_kept(self, decision: Decision) -> None:
        if not decision.edited:
            return
        names = decision.edited[0] + (f" and {len(decision.edited) - 1} more" if len(decision.edited) > 1 else "")
        self.log.info(f"{decision.stage}: kept (edited: {names})")
        if decision.stale:
            self.log.warning(
                f"{decision.stage}: its options or inputs have changed since, but it holds your edits; "
                f"--force {decision.stage} makes it anew and drops them"
            )

    def _closing_line(self, summary: Summary) -> str:
        kept = len(summary.decisions) - len(summary.ran)
        result = summary.asset or self.request.run_dir
        if not summary.ran:
            return f"nothing to do: {kept} stage{'s' * (kept != 1)} kept, {result} is up to date"
        also = f", {kept} kept" if kept else ""
        look = f", look at {summary.report}" if summary.report else ""
        return f"done: {result}{look} ({', '.join(summary.ran)} run{also}; {summary.seconds:.1f} s){self._outdated()}"

    def _outdated(self) -> str:
        """After a single stage: which later stages still show its old result, and how to go on."""
        only = self.request.only
        later = [s.name for s in self.table if only in s.needs and self.walk.folders[s.name].current is not None]
        late = [name for name in later if self.walk.decide(self.walk.stages[name]).action != "keep"]
        if not late:
            return ""
        hold = "hold" if len(late) > 1 else "holds"
        command = f"v2m4 stage {late[0]} {self.request.run_dir}"
        return f"; {' and '.join(late)} still {hold} the old result, go on with: {command}"

    def _execute(self, stage: Stage, decision: Decision) -> None:
        folder, name = self.walk.folders[stage.name], stage.name
        self.log.info(f"{name}: {'goes on' if decision.action == 'resume' else 'runs'}: {decision.why}")
        ingredients = self.walk.ingredients(stage)
        if decision.action == "resume" and (folder.partial / "stage.json").is_file():
            folder.complete_swap(decision.edited)  # it was complete, only not yet in place
            self.walk.forget(name)
            return
        warnings = self._guard(name, lambda: folder.begin(decision.key, name in self.request.force))
        log = StageLog(name, self.log, warnings, folder.note_warnings)
        device = self.walk.options["run"].device
        context = Context(folder.partial, name, ingredients["seed"], log, lambda: choose_device(device))
        inputs = [self.walk.folders[need].path for need in stage.needs]
        with measured() as usage:
            self._guard(name, lambda: stage.run(context, self.walk.options[name], *inputs), context)
        record = self._record(context, decision.key, ingredients, usage)
        self._guard(name, lambda: folder.finish(record, decision.edited))
        self.walk.forget(name)
        self.walk.digests.save()
        memory = f", {usage.peak_memory_mb:.0f} MB" if usage.peak_memory_mb else ""
        self.log.info(f"{name}: done ({usage.seconds:.1f} s{memory})")
        self._write_manifest()

    def _fail(self, name: str, state: str, text: str) -> None:
        """Leave word of a failure in the log and the manifest."""
        self.failed[name] = state
        self.log.debug(f"{name}: {text}")
        with contextlib.suppress(V2M4Error, OSError):  # a full disk must not hide what went wrong
            self.walk.digests.save()
            self._write_manifest()

    def _guard(self, name: str, work: Callable[[], Any], context: Context | None = None) -> Any:
        """Do ``work``; whatever goes wrong is logged and becomes an error that names the stage and the item."""
        try:
            return work()
        except KeyboardInterrupt:
            self._fail(name, "interrupted", "interrupted")
            raise
        except (Exception, SystemExit) as error:  # a generator of the user's may call sys.exit
            self._fail(name, "failed", f"failed\n{traceback.format_exc()}")
            item = context.item if context else ""
            if isinstance(error, V2M4Error) and not item:
                raise
            failure = StageError(name, item, error)
            edited = "" if isinstance(error, V2M4Error) else self._edited_input(name)
            if edited:
                failure.hint = f"{edited} was edited by hand: put it right, or delete it and run again to make it anew"
            raise failure from error

    def _edited_input(self, name: str) -> str:
        """The first file the stage ``name`` reads that somebody has changed."""
        for need in self.walk.stages[name].needs:
            record = self.walk.folders[need].record()
            edited = differences(record, self.walk.tree(need))[1] if record else []
            if edited:
                return str(self.walk.folders[need].path / edited[0])
        return ""

    def _record(self, context: Context, key: str, ingredients: dict[str, Any], usage: Usage) -> dict[str, Any]:
        files = self.walk.digests.tree(context.out, self.walk.folders[context.stage].path)
        return {
            "stage": context.stage,
            "key": key,
            "ingredients": ingredients,
            "seconds": usage.seconds,
            "peak_memory_mb": usage.peak_memory_mb,
            "memory_measured_by": usage.measured_by,
            "device": context.device_used,
            "warnings": context.log.warnings,
            "licences": manifest.licences(context.out),
            "files": files,
        }

    def _write_options(self) -> None:
        """run.toml: every option as resolved."""
        text = config.to_toml(self.request.options, comments=True)
        path = self.request.run_dir / "run.toml"
        if not path.is_file() or path.read_bytes() != text.encode("utf-8"):
            write_text(path, text)

    def _write_manifest(self) -> dict[str, Any]:
        """manifest.json, rewritten only when something in it has changed."""
        path = self.request.run_dir / "manifest.json"
        before = read_json(path)
        before = before if isinstance(before, dict) else {}
        stages = {}
        for name, folder in self.walk.folders.items():
            record = folder.record() or {}
            edited = differences(record, self.walk.tree(name))[1] if record else []
            state = self.failed.get(name) or ("edited" if edited else "finished" if record else "not run")
            kept = {k: v for k, v in record.items() if k not in ("stage", "ingredients", "files")}
            stages[name] = {"state": state, **({"edited": edited} if edited else {}), **kept}
        sources = {
            f"{name}.{option}": {"name": path.name, "sha256": self.walk.digests.content(path)}
            for name in self.walk.stages
            for option, path in _content_fields(self.walk.options[name]).items()
            if path.exists()
        }
        now = manifest.build(sources, config.plain(self.walk.options["run"]), stages, before.get("published") or {})
        if now != before:
            write_json(path, now)
        return now

    def _publish(self, written: dict[str, Any], ran: bool) -> tuple[Path | None, Path | None]:
        """Put the asset and the report of the finished run on top of the run directory."""
        run_dir, last = self.request.run_dir, self.table[-1].name
        folder, before = self.walk.folders[last].path, written["published"]
        published = manifest.publish(folder, run_dir, before, last in self.request.force, self.log)
        if published != before:
            written = {**written, "published": published}
            write_json(run_dir / "manifest.json", written)
        report: Path | None = run_dir / "report.html"
        if ran or published != before or not (run_dir / "report.html").is_file():
            report = self._write_report(written)
        return next((run_dir / name for name in published), None), report

    def _write_report(self, written: dict[str, Any]) -> Path | None:
        """A report that cannot be made is a pity, not a reason to call a finished asset a failure."""
        try:
            return self.report(self.request.run_dir, written)
        except Exception as error:
            self.log.debug(traceback.format_exc())
            self.log.warning(f"report.html could not be written ({type(error).__name__}: {error})")
            return None
