"""The run directory: content digests, the life of a stage's folder, the lock, and what a stage gets to work with.

A stage's folder ``N_name`` is always whole. Work happens beside it in ``N_name.partial``; ``stage.json`` is written
last and marks it complete; then the folders are swapped. A process may be killed between any two lines of this file:
:func:`recover` brings the directory back to a whole state.
"""

from __future__ import annotations

import hashlib
import json
import numbers
import os
import shutil
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from v2m4.errors import InputError, RunLocked
from v2m4.files import write_json, write_text

Item = TypeVar("Item")

RECORD = "stage.json"
#: Which key a partial folder belongs to. Hidden, so it is not part of what the stage made.
MARK = ".partial.json"
_JUNK = {"thumbs.db", "desktop.ini"}
#: A file changed this shortly before it was hashed may change again without a new time stamp.
_RACY_NS = 100_000_000


def read_json(path: Path) -> Any:
    """The value in a JSON file, or None where there is none that can be read."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None


def clean_name(name: str) -> str:
    """A file name that every file system takes; letters of any script stay. Never empty."""
    kept = "".join("_" if c in '<>:"/\\|?*' or unicodedata.category(c) in ("Cc", "Cs") else c for c in name)
    kept = kept.strip(" .")
    while len(kept.encode("utf-8")) > 120:
        kept = kept[:-1]
    kept = kept.strip(" .")
    reserved = {"con", "prn", "aux", "nul"} | {f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10)}
    if kept.split(".")[0].lower() in reserved:
        kept = f"_{kept}"
    return kept or "asset"


# --- digests ----------------------------------------------------------------------------------------------------------


def _is_content(name: str) -> bool:
    return not name.startswith(".") and name.lower() not in _JUNK


class Digests:
    """sha256 of files and folders, remembered by (path, size, time stamps, inode) so that a file is read once.

    ``cache`` is the file to remember them in (None: only for the life of this object). Files below its folder are kept
    under relative names, so that a run directory can be moved.
    """

    def __init__(self, cache: Path | None = None) -> None:
        self._cache = cache
        known = read_json(cache) if cache else None
        known = known if isinstance(known, dict) else {}  # whatever is damaged in it is worked out anew
        self._known: dict[str, list[Any]] = {k: v for k, v in known.items() if isinstance(v, list) and len(v) == 4}
        self._changed = False

    def file(self, path: Path, known_as: Path | None = None) -> str:
        """Digest of one file. ``known_as`` is the name to remember it under (it is about to be moved there)."""
        stat = path.stat()
        signature = [stat.st_size, stat.st_mtime_ns, stat.st_ino]
        name = self._name(known_as or path)
        entry = self._known.get(name)
        if entry and entry[:3] == signature:
            return str(entry[3])
        digest = hashlib.sha256()
        with open(path, "rb") as handle:
            while block := handle.read(1 << 20):
                digest.update(block)
        if time.time_ns() - stat.st_mtime_ns > _RACY_NS:
            self._known[name] = [*signature, digest.hexdigest()]
            self._changed = True
        return digest.hexdigest()

    def tree(self, folder: Path, known_as: Path | None = None) -> dict[str, str]:
        """Relative name -> digest of every file, in name order; hidden files, junk and ``stage.json`` left out."""
        out = {}
        for root, folders, names in os.walk(folder):
            folders[:] = [f for f in folders if _is_content(f)]
            for name in filter(_is_content, names):
                path = Path(root, name)
                relative = path.relative_to(folder)
                if relative.as_posix() != RECORD:
                    out[relative.as_posix()] = self.file(path, known_as / relative if known_as else None)
        return dict(sorted(out.items()))

    def content(self, path: Path) -> str:
        """Digest of what a file or a folder holds; its own name does not matter."""
        return self.file(path) if path.is_file() else combined(self.tree(path))

    def save(self) -> None:
        """Write the cache if there is something new."""
        if self._cache and self._changed:
            write_text(self._cache, json.dumps(self._known))
            self._changed = False

    def _name(self, path: Path) -> str:
        path = Path(os.path.abspath(path))
        base = self._cache.parent.absolute() if self._cache else None
        return path.relative_to(base).as_posix() if base and path.is_relative_to(base) else path.as_posix()


def combined(parts: Mapping[str, Any]) -> str:
    """One digest of a mapping of JSON values; the order of the keys does not matter."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=False).encode("utf-8")).hexdigest()


# --- a stage's folder -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StageFolder:
    """``N_name`` in a run directory, with the two folders that exist only while it changes."""

    path: Path

    @property
    def partial(self) -> Path:
        """Where the work happens."""
        return self.path.with_name(self.path.name + ".partial")

    @property
    def old(self) -> Path:
        """What is being replaced."""
        return self.path.with_name(self.path.name + ".old")

    @property
    def current(self) -> Path | None:
        """The finished folder, also in the middle of an interrupted swap; None where there is none."""
        if self.path.is_dir():
            return self.path
        return next((p for p in (self.partial, self.old) if _complete(p)), None)

    def record(self) -> dict[str, Any] | None:
        """``stage.json`` of the finished folder."""
        return read_record(self.current) if self.current else None

    def partial_mark(self) -> dict[str, Any]:
        """Whose work lies in the partial folder: {"key", "forced", "warnings"}; empty where there is none."""
        mark = read_json(self.partial / MARK)
        return mark if isinstance(mark, dict) else {}

    def begin(self, key: str, forced: bool) -> list[str]:
        """Make the partial folder ready: what a run of the same key left is kept, anything else is wiped.

        Returns the warnings of the interrupted run.
        """
        mark = self.partial_mark()
        if mark.get("key") != key or (forced and not mark.get("forced")):
            self.discard_partial()
            self.partial.mkdir()
            mark = {"key": key, "forced": forced, "warnings": []}
            write_json(self.partial / MARK, mark)
        (self.partial / RECORD).unlink(missing_ok=True)
        return list(mark.get("warnings", []))

    def note_warnings(self, warnings: list[str]) -> None:
        """Remember warnings in the partial folder: a later run that skips the finished items would not repeat them."""
        write_json(self.partial / MARK, {**self.partial_mark(), "warnings": warnings})

    def finish(self, record: Mapping[str, Any], keep: Iterable[str] = ()) -> None:
        """Mark the partial folder complete and swap it in. ``keep`` names edited files of the old folder that stay."""
        for hidden in self.partial.rglob(".*"):  # what a killed writer left
            if hidden.is_file() and hidden != self.partial / MARK:
                hidden.unlink()
        write_json(self.partial / RECORD, record)
        self.complete_swap(keep)

    def complete_swap(self, keep: Iterable[str] = ()) -> None:
        """Put a complete partial folder in place."""
        for name in keep:
            if (self.path / name).is_file():
                (self.partial / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self.path / name, self.partial / name)
        _remove(self.old)
        if self.path.exists():
            os.rename(self.path, self.old)
        os.rename(self.partial, self.path)
        (self.path / MARK).unlink(missing_ok=True)
        _remove(self.old)

    def discard_partial(self) -> None:
        """Remove unfinished work. The marks go first: half a wiped folder must not pass for somebody's work."""
        for name in (MARK, RECORD):
            (self.partial / name).unlink(missing_ok=True)
        _remove(self.partial)

    def recover(self) -> None:
        """Finish or undo a swap that was killed half-way."""
        current = self.current
        if current is not None and current != self.path:
            os.rename(current, self.path)
        if self.path.is_dir():
            (self.path / MARK).unlink(missing_ok=True)
            _remove(self.old)


def _complete(folder: Path) -> bool:
    return (folder / RECORD).is_file()


def _remove(folder: Path) -> None:
    if folder.is_dir():
        shutil.rmtree(folder)


def read_record(folder: Path) -> dict[str, Any] | None:
    """``stage.json`` of a folder; None where it is missing or damaged."""
    record = read_json(folder / RECORD)
    whole = isinstance(record, dict) and isinstance(record.get("key"), str) and isinstance(record.get("files"), dict)
    return record if whole else None


def differences(record: Mapping[str, Any], tree: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """(missing, edited) names: what the record lists and is not there; what is there and is not as recorded."""
    files = record["files"]
    return sorted(set(files) - set(tree)), sorted(name for name, digest in tree.items() if files.get(name) != digest)


# --- one process per run directory ------------------------------------------------------------------------------------


@contextmanager
def locked(run_dir: Path) -> Iterator[None]:
    """Hold ``run.lock``. RunLocked when another process has it; the system frees it when its holder dies."""
    path = run_dir / "run.lock"
    try:
        handle = open(path, "a+", encoding="utf-8")  # noqa: SIM115  (kept open as long as the lock is held)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}", "choose another place with -o") from None
    with handle:
        try:
            _lock_file(handle.fileno())
        except OSError:
            handle.seek(0)
            holder = handle.read().strip()
            by = f"process {holder}" if holder.isdigit() else "another process"
            raise RunLocked(f"{run_dir} is in use by {by}", "wait until it has ended, or choose another -o") from None
        handle.seek(0)
        handle.truncate()
        handle.write(f"{os.getpid()}\n")
        handle.flush()
        yield


def _lock_file(descriptor: int) -> None:
    """Lock without waiting; OSError when somebody else has it."""
    if os.name == "nt":
        import msvcrt

        # A byte far behind the text, so that others can still read who holds the lock.
        os.lseek(descriptor, 1 << 20, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


# --- what a stage gets ------------------------------------------------------------------------------------------------


class Reporter(Protocol):
    """Where lines and progress go (see ``v2m4.log.Log``)."""

    def info(self, text: str) -> None: ...
    def warning(self, text: str) -> None: ...
    def track(self, items: Iterable[Item], label: str, total: int | None = None) -> Iterator[Item]: ...


@dataclass
class StageLog:
    """Puts the stage's name before its lines and remembers its warnings."""

    stage: str
    reporter: Reporter
    warnings: list[str] = field(default_factory=list)
    on_warning: Callable[[list[str]], None] = lambda warnings: None

    def info(self, text: str) -> None:
        self.reporter.info(_named(self.stage, text))

    def warning(self, text: str) -> None:
        self.reporter.warning(_named(self.stage, text))
        if text not in self.warnings:
            self.warnings.append(text)
            self.on_warning(self.warnings)


class Context:
    """What a stage works with besides its options and inputs (``protocols.StageContext``).

    ``choose_device`` is asked once, when a stage first wants to know the device: a stage that does not need torch does
    not load it. ``item`` names what is in work, for the error message.
    """

    def __init__(
        self, out: Path, stage: str, seed: int, log: StageLog, choose_device: Callable[[], str],
        weights_dir: Path | None = None,
    ) -> None:  # fmt: skip
        self.out = out
        self.stage = stage
        self.seed = seed
        self.log = log
        self.weights_dir = weights_dir
        self.item = ""
        self.device_used = "cpu"
        self._choose_device = choose_device
        self._device: str | None = None

    @property
    def device(self) -> str:
        """ "cpu" or "cuda"."""
        if self._device is None:
            self._device = self.device_used = self._choose_device()
        return self._device

    def seed_for(self, index: int) -> int:
        """A 32-bit seed from (seed, stage, index)."""
        text = json.dumps([self.seed, self.stage, int(index)])
        return int.from_bytes(hashlib.sha256(text.encode("utf-8")).digest()[:4], "big")

    def track(
        self, items: Iterable[Item], label: str, total: int | None = None, named: bool = True
    ) -> Iterator[Item]:  # fmt: skip
        """Go through ``items`` with progress; an error names the item it happened at, unless ``named`` is False."""
        kind = "step" if isinstance(items, range) else "frame"
        self.item = ""
        # The generator is closed before an error of the loop's body arrives anywhere, so the name has to outlive it.
        for item in self.log.reporter.track(items, _named(self.stage, label), total):
            if named:
                what = f"{kind} {item}" if isinstance(item, numbers.Integral) else _short(item)
                self.item = f"{what} ({label})"
            yield item
        self.item = ""


def _named(stage: str, text: str) -> str:
    """``text`` with the stage's name before it, once."""
    return text if text.startswith(f"{stage}:") else f"{stage}: {text}"


def _short(item: Any) -> str:
    index = getattr(item, "index", None)
    if isinstance(index, numbers.Integral):
        return f"frame {index}"
    if isinstance(item, tuple) and item and isinstance(item[0], numbers.Integral):
        numbered = all(isinstance(part, numbers.Integral) for part in item)
        return f"frame {item[-1] if numbered else item[0]}"  # enumerate(keyframes), or the items of a dict
    text = item.name if isinstance(item, Path) else str(item)
    return text if len(text) <= 60 else text[:57] + "..."
