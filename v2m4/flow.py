"""Optical flow between two pictures (OpenCV's DIS), and pictures moved along it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

#: DIS cannot work on less.
_LEAST_PX = 32


@dataclass
class _OneThread:
    """How many are inside :func:`one_thread`, and how many threads OpenCV had before the first."""

    lock: Any = field(default_factory=threading.Lock)
    inside: int = 0
    before: int = 1


_one_thread = _OneThread()


def flow(a: np.ndarray, b: np.ndarray, fine: bool = False) -> np.ndarray:
    """(H,W,2) float32: where each pixel of ``a`` (H,W) uint8 has gone in ``b``, as a step (x, y) in pixels.

    On one thread: what DIS finds depends on how the rows are shared out.
    """
    import cv2

    height, width = a.shape
    pad = ((0, max(0, _LEAST_PX - height)), (0, max(0, _LEAST_PX - width)))
    if any(after for _, after in pad):
        a, b = np.pad(a, pad, mode="edge"), np.pad(b, pad, mode="edge")
    seeker = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM if fine else cv2.DISOPTICAL_FLOW_PRESET_FAST)
    with one_thread():
        steps = seeker.calc(np.ascontiguousarray(a), np.ascontiguousarray(b), np.zeros((*a.shape, 2), np.float32))
    return np.asarray(steps[:height, :width])


@contextmanager
def one_thread() -> Iterator[None]:
    """Have OpenCV work on one thread, without waking and dismissing its others for every call inside.

    The number counts for the whole process: it goes back only when the last one is out.
    """
    import cv2

    with _one_thread.lock:
        if not _one_thread.inside:
            _one_thread.before = cv2.getNumThreads()
            cv2.setNumThreads(1)
        _one_thread.inside += 1
    try:
        yield
    finally:
        with _one_thread.lock:
            _one_thread.inside -= 1
            if not _one_thread.inside:
                cv2.setNumThreads(_one_thread.before)


def fetch(image: np.ndarray, steps: np.ndarray, beyond: int = 0) -> np.ndarray:
    """``image`` (H,W) or (H,W,C) read at each pixel plus its step; ``beyond`` stands for what lies outside."""
    import cv2

    rows, columns = np.indices(steps.shape[:2], np.float32)
    at = columns + steps[..., 0], rows + steps[..., 1]
    return np.asarray(cv2.remap(image, *at, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT, borderValue=[beyond] * 4))
