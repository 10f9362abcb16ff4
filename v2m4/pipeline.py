"""Run the stages over a run directory, and only those that have something to do (see :mod:`v2m4.planning`)."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from v2m4 import config, manifest
from v2m4.errors import InputError, MissingBackend, StageError, V2M4Error
from v2m4.files import write_json, write_text
from v2m4.log import FileSink, Log
from v2m4.planning import Decision, Request, RunState, check_paths, content_fields, plan, selected
from v2m4.stages import STAGES, Stage
from v2m4.stages.expect import Expected, expected
from v2m4.store import Context, StageLog, differences, locked, read_json
from v2m4.usage import Usage, measured

Report = Callable[[Path, Mapping[str, Any]], Path]
Expect = Callable[[Mapping[str, Any], Path], Expected | None]


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
    request: Request, stages: Sequence[Stage] = STAGES, log: Log | None = None, report: Report = write_report,
    expect: Expect = expected,
) -> Summary:  # fmt: skip
    """Bring a run directory up to date.

    Raises InputError or ConfigError before anything is written when the request cannot work, RunLocked when another
    process is at it, StageError when a stage fails; what was finished is kept and the same call resumes.
    """
    start, log = time.monotonic(), log or Log()
    chosen = selected(request, stages)
    check_paths(request, chosen, stages)
    if request.only:
        _check_inputs(request, chosen[0], stages)
    if request.options["run"].device == "cuda":
        choose_device("cuda")
    if request.dry_run:
        return Summary(request.run_dir, tuple(plan(request, stages)), time.monotonic() - start)
    _make_directory(request.run_dir)
    with locked(request.run_dir), log.attached(FileSink(request.run_dir / "log.txt")):
        return _Runner(request, stages, log, report, expect).run(chosen, start)


def _check_inputs(request: Request, stage: Stage, stages: Sequence[Stage]) -> None:
    walk = RunState(request, stages)
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

    def __init__(
        self, request: Request, stages: Sequence[Stage], log: Log, report: Report, expect: Expect
    ) -> None:  # fmt: skip
        self.request, self.table, self.log, self.report, self.expect = request, stages, log, report, expect
        self.walk = RunState(request, stages)
        self.failed: dict[str, str] = {}  # stage -> "failed" or "interrupted"
        self.expected: dict[str, Any] | None = None

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
        ran = any(d.action != "keep" for d in decisions)
        if chosen[-1] is self.table[-1]:
            asset, report = self._publish(written, ran)
        elif ran and self.walk.folders[self.table[-1].name].current is None:
            report = self._write_report(written)  # of what there is so far; it would replace that of an asset
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
        options = self.walk.options["run"]
        choose = functools.partial(choose_device, options.device)
        context = Context(folder.partial, name, ingredients["seed"], log, choose, options.weights_dir)
        inputs = [self.walk.folders[need].path for need in stage.needs]
        with measured() as usage:
            self._guard(name, lambda: stage.run(context, self.walk.options[name], *inputs), context)
        record = self._record(context, decision.key, ingredients, usage)
        self._guard(name, lambda: folder.finish(record, decision.edited))
        self.walk.forget(name)
        self.walk.digests.save()
        memory = f", {usage.peak_memory_mb:.0f} MB" if usage.peak_memory_mb else ""
        self.log.info(f"{name}: done ({usage.seconds:.1f} s{memory})")
        if stage is self.table[0]:
            self._say_expected(folder.path)
        self._write_manifest()

    def _say_expected(self, first: Path) -> None:
        """What the stages after the first will cost: a guess, which must not stop anything."""
        try:
            found = self.expect(self.request.options, first)
        except Exception:
            self.log.debug(traceback.format_exc())
            return
        if found is not None:
            self.expected = {**dataclasses.asdict(found), "sentence": found.sentence()}
            self.log.info(found.sentence())

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
            for option, path in content_fields(self.walk.options[name]).items()
            if path.exists()
        }
        now = manifest.build(sources, config.plain(self.walk.options["run"]), stages, before.get("published") or {})
        if guess := self.expected or before.get("expected"):
            now["expected"] = guess
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
