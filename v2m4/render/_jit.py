"""How kernels are compiled and spread over threads.

Kernels are plain numba functions that release the GIL; the views (or bands of rows) are shared out over an ordinary
thread pool. Against numba's own ``prange`` this never spins while waiting, may be called from several threads at once,
survives a fork, and compiles several times faster.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba

_pool: ThreadPoolExecutor | None = None


def kernel(function: Callable[..., Any]) -> Any:
    """Compile ``function`` on first use, without the GIL; its machine code is kept on disk where a place can be found.

    Division by zero gives inf or NaN, as in numpy.
    """
    try:
        return numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # no folder that can be written: compile in every process instead
        return numba.njit(nogil=True, error_model="numpy")(function)


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


def run_all(task: Callable[..., None], arguments: list[tuple[Any, ...]]) -> None:
    """Call ``task(*a)`` for every ``a``, on the pool where there are several. No two may write to the same place."""
    if len(arguments) < 2 or thread_count() < 2:
        for a in arguments:
            task(*a)
        return
    waiting = [_executor().submit(task, *a) for a in arguments[1:]]
    try:
        task(*arguments[0])  # this thread works too
    finally:
        for future in waiting:
            future.result()


def _executor() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(thread_count(), thread_name_prefix="v2m4-render")
    return _pool


def _forget_pool() -> None:
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)  # threads do not survive a fork
