"""How kernels are compiled and spread over threads.

Kernels are plain numba functions that release the GIL; the views (or bands of rows) are shared out over ordinary
threads. Against numba's own ``prange`` this never spins while waiting, may be called from several threads at once,
survives a fork, and compiles several times faster.
"""

from __future__ import annotations

import itertools
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

import numba


def kernel(function: Callable[..., Any]) -> Any:
    """Compile ``function`` on first use, without the GIL; its machine code is kept on disk where a place can be found.

    Division by zero gives inf or NaN, as in numpy.
    """
    try:
        return numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # no folder that can be written: compile in every process instead
        return numba.njit(nogil=True, error_model="numpy")(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Like ``kernel``, for what kernels call in their innermost loops: its code is put in its callers' place, where a
    call that hands on several arrays would take longer than the work."""
    return numba.njit(inline="always", error_model="numpy")(function)


def thread_count() -> int:
    """How many threads to use: ``V2M4_THREADS``, or the cores this process may run on."""
    given = os.environ.get("V2M4_THREADS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this platform
        return os.cpu_count() or 1


def ranges(count: int, parts: int) -> list[tuple[int, int]]:
    """``count`` items cut into at most ``parts`` neighbouring, non-empty ranges of nearly the same length."""
    parts = max(1, min(parts, count))
    return [(count * i // parts, count * (i + 1) // parts) for i in range(parts)]


class _Job:
    """Calls to be shared out: whoever is free takes the next one."""

    def __init__(self, task: Callable[..., None], arguments: list[tuple[Any, ...]]) -> None:
        self.task, self.arguments = task, arguments
        self.next = itertools.count()  # taking a number from it is atomic
        self.done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def work(self) -> None:
        for i in self.next:
            if i >= len(self.arguments):
                return
            self.task(*self.arguments[i])

    def help(self) -> None:
        try:
            self.work()
        except BaseException as error:  # raised again where run_all was called
            self.done.put(error)
        else:
            self.done.put(None)


def run_all(task: Callable[..., None], arguments: list[tuple[Any, ...]]) -> None:
    """Call ``task(*a)`` for every ``a``, on several threads where there are several. No two may write to the same
    place, and no task may call this function again."""
    helpers = min(len(arguments), thread_count()) - 1
    if helpers < 1:
        for a in arguments:
            task(*a)
        return
    job = _Job(task, arguments)
    jobs = _waiting_jobs(helpers)
    for _ in range(helpers):
        jobs.put(job)
    errors: list[BaseException] = []
    try:
        job.work()  # this thread works too
    finally:  # nobody may still write to the caller's arrays when this returns
        errors += [error for error in (job.done.get() for _ in range(helpers)) if error is not None]
    if errors:
        raise errors[0]


_jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
_helpers = 0
_growing = threading.Lock()


def _waiting_jobs(helpers: int) -> queue.SimpleQueue[_Job]:
    """The queue that at least ``helpers`` threads wait at, asleep. A queue of the C library and plain threads: an
    executor's futures and locks take longer than the small kernels themselves."""
    global _helpers
    if _helpers < helpers:
        with _growing:
            while _helpers < helpers:
                threading.Thread(target=_wait, args=(_jobs,), name="v2m4-render", daemon=True).start()
                _helpers += 1
    return _jobs


def _wait(jobs: queue.SimpleQueue[_Job]) -> None:
    while True:
        jobs.get().help()


def _forget_helpers() -> None:
    global _jobs, _helpers, _growing
    _jobs, _helpers, _growing = queue.SimpleQueue(), 0, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_helpers)  # threads do not survive a fork
