"""Where the lines of a run go."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from v2m4 import log as logging
from v2m4.log import FileSink, Log, PlainSink, TerminalSink


def test_a_log_without_sinks_is_silent(capsys: pytest.CaptureFixture) -> None:
    log = Log()
    log.info("a")
    log.warning("b")
    assert list(log.track([1, 2], "x")) == [1, 2]
    assert capsys.readouterr() == ("", "")


def test_plain_lines_go_out_and_warnings_to_the_error_stream() -> None:
    out, err = io.StringIO(), io.StringIO()
    log = Log(PlainSink(out, err))
    log.info("camera: done")
    log.warning("texture: blurred")
    log.debug("Traceback")
    assert out.getvalue() == "camera: done\n" and err.getvalue() == "warning: texture: blurred\n"


def test_a_console_that_cannot_show_a_letter_shows_its_code() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    PlainSink(stream, stream).write("info", "кадр")
    assert raw.getvalue() == rb"\u043a\u0430\u0434\u0440" + b"\n"


def test_progress_in_plain_lines_is_sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    log = Log(PlainSink(out, out))
    assert list(log.track(range(5), "quick")) == list(range(5)) and out.getvalue() == ""
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(logging.time, "monotonic", lambda: float(next(clock)))
    assert list(log.track(iter("abcdefg"), "slow", total=7)) == list("abcdefg")
    lines = out.getvalue().splitlines()
    assert 0 < len(lines) < 5 and all(re.fullmatch(r"slow: \d of 7", line) for line in lines)


def test_a_terminal_gets_a_bar_and_inner_loops_do_not_break_it() -> None:
    from rich.console import Console

    stream = io.StringIO()
    log = Log(TerminalSink(Console(file=stream, force_terminal=True, width=80)))
    seen = []
    for outer in log.track([1, 2], "outer"):
        for inner in log.track("ab", "inner"):
            seen.append((outer, inner))
        log.info("[not markup]")
    log.warning("careful")
    assert seen == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    text = stream.getvalue()
    assert "outer" in text and "inner" not in text and "[not markup]" in text and "warning: careful" in text
    for _ in log.track([1], "again"):  # a loop left early leaves no bar behind
        break
    assert list(log.track([1], "afterwards")) == [1]


def test_the_file_has_times_levels_and_everything(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    log = Log()
    with log.attached(FileSink(path)):
        log.info("один")
        log.debug("two\nlines")
    log.info("after")
    lines = path.read_text("utf-8").splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines] == ["info     один", "debug    two", "debug    lines"]
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d ", line) for line in lines)
