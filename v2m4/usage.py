"""Seconds and peak memory of a piece of work in this process."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


@dataclass
class Usage:
    """``peak_memory_mb`` is the resident peak; ``measured_by`` says how far to trust it:

    "peak" is the peak of this work alone (Linux), "process peak" the highest of the process so far, "" unknown.
    """

    seconds: float = 0.0
    peak_memory_mb: float | None = None
    measured_by: str = ""


@contextmanager
def measured() -> Iterator[Usage]:
    """The usage of the body, filled in when it ends (also by an error)."""
    usage = Usage()
    start = time.monotonic()
    reset = _reset_peak()
    try:
        yield usage
    finally:
        usage.seconds = round(time.monotonic() - start, 2)
        peak = _linux_peak_mb() if reset else None
        usage.measured_by = "peak" if peak is not None else "process peak"
        usage.peak_memory_mb = peak if peak is not None else _process_peak_mb()
        if usage.peak_memory_mb is None:
            usage.measured_by = ""


def _reset_peak() -> bool:
    """Set the kernel's high-water mark back to the present size; needs no right beyond being Linux >= 4.0."""
    try:
        _CLEAR.write_text("5")
        return True
    except OSError:
        return False


def _linux_peak_mb() -> float | None:
    try:
        line = next(x for x in _STATUS.read_text().splitlines() if x.startswith("VmHWM:"))
        return round(int(line.split()[1]) / 1024, 1)
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def _process_peak_mb() -> float | None:
    try:
        import resource
        import sys
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10), 1)


def give_back() -> None:
    """Hand memory that is free but kept by the C library back to the system (glibc only; elsewhere nothing happens).

    Blocks of pictures with small things between them come apart after some hundred frames: ten times what is in use is
    held then, and none of it is large enough for the next picture.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
