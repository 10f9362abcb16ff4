"""What a run says: to a terminal, to plain lines, to ``log.txt``.

The library only talks to a :class:`Log`; whoever runs it decides where that goes by attaching sinks. A log without
sinks is silent.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

Item = TypeVar("Item")

#: Seconds between two progress lines where there is no terminal to draw a bar on.
PLAIN_INTERVAL_S = 10.0


class Sink(Protocol):
    """Takes finished lines. ``level`` is "info", "warning", "progress", or "debug" (for the file only)."""

    def write(self, level: str, text: str) -> None: ...


class Log:
    """Hands every line to its sinks, and counts through loops."""

    def __init__(self, *sinks: Sink) -> None:
        self.sinks: list[Sink] = list(sinks)

    def info(self, text: str) -> None:
        self._write("info", text)

    def warning(self, text: str) -> None:
        self._write("warning", text)

    def debug(self, text: str) -> None:
        self._write("debug", text)

    def _write(self, level: str, text: str) -> None:
        for sink in self.sinks:
            sink.write(level, text)

    @contextmanager
    def attached(self, sink: Sink) -> Iterator[None]:
        """Also write to ``sink`` for a while."""
        self.sinks.append(sink)
        try:
            yield
        finally:
            self.sinks.remove(sink)

    def track(self, items: Iterable[Item], label: str, total: int | None = None) -> Iterator[Item]:
        """Go through ``items``: a bar on a terminal, a line now and then elsewhere."""
        if total is None and isinstance(items, Sized):
            total = len(items)
        bars = [sink for sink in self.sinks if isinstance(sink, TerminalSink)]
        if bars:
            yield from bars[0].bar(items, label, total)
            return
        last = time.monotonic()
        for done, item in enumerate(items):
            if done and time.monotonic() - last > PLAIN_INTERVAL_S:
                self._write("progress", f"{label}: {done} of {total if total is not None else '?'}")
                last = time.monotonic()
            yield item


class PlainSink:
    """Lines to a stream: for pipes, files and continuous integration. Warnings are marked as such."""

    def __init__(self, out: IO[str], err: IO[str]) -> None:
        self.out, self.err = out, err

    def write(self, level: str, text: str) -> None:
        if level == "debug":
            return
        stream = self.err if level == "warning" else self.out
        line = f"warning: {text}" if level == "warning" else text
        encoding = getattr(stream, "encoding", None) or "utf-8"
        # A console that cannot show a file's name must not end the run.
        stream.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        stream.flush()


class TerminalSink:
    """Lines and progress bars on a terminal, through rich."""

    def __init__(self, console: Any = None) -> None:
        from rich.console import Console

        self.console = console or Console(highlight=False)
        self._busy = False

    def write(self, level: str, text: str) -> None:
        if level == "debug":
            return
        line, style = (f"warning: {text}", "yellow") if level == "warning" else (text, None)
        self.console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)

    def bar(self, items: Iterable[Item], label: str, total: int | None) -> Iterator[Item]:
        """A bar that disappears when the loop ends."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        if self._busy:  # one bar at a time: an inner loop runs silently below the outer one's bar
            yield from items
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self.console, transient=True) as progress:
            task = progress.add_task(label, total=total)
            self._busy = True
            try:
                for item in items:
                    yield item
                    progress.advance(task)
            finally:
                self._busy = False


class FileSink:
    """Appends every line with its time to a text file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, level: str, text: str) -> None:
        stamp = datetime.now().astimezone().isoformat(timespec="seconds")
        with open(self.path, "a", encoding="utf-8") as handle:
            for line in text.splitlines() or [""]:
                handle.write(f"{stamp} {level:8} {line}\n")
