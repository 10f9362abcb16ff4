"""Which frames become keyframes: as few as still show the motion, and which of them would make the best anchor.

A mesh is made and registered for every keyframe, and the frames between two are interpolated. So a keyframe is set
before the object has become too different from the last one, and before its path has bent too far away from a straight
line: a ball that bounces looks the same in every frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from v2m4.ingest.motion import Change, Small, compare

#: Longest time between two keyframes: texture and trust want to look now and then, however still the object stands.
GAP_S = 1.0
#: What may change between two keyframes (:class:`Limits`) unless the user says otherwise.
OVERLAP, MOTION = 0.7, 0.08
#: Longest time between two keyframes while the object moves, in proportion for another ``Limits.motion`` than MOTION,
#: and the changes a second, in shares of what is allowed, from which on it does. Legs that pass each other hide their
#: motion.
MOVING_S, MOVING_PER_S = 0.1, 5.0
#: How far the object's centre may leave the straight way between two keyframes, in shares of its length.
STRAIGHT = 0.03


@dataclass(frozen=True)
class Limits:
    """What may change between two neighbouring keyframes, added up from frame to frame: the outlines lose at most what
    ``overlap`` leaves, outline and surface move by at most ``motion`` of the object's length (:class:`motion.Change`).
    Added up, because legs that have changed places look as if nothing had happened. ``most`` keyframes in all, 0 for
    any number. ``step`` above 0 takes every ``step``-th frame instead."""

    overlap: float = OVERLAP
    motion: float = MOTION
    most: int = 0
    step: int = 0

    def share(self, change: Change) -> float:
        """How much of what is allowed between two keyframes this change uses up; above 1 it is too much."""
        moved = max(change.outline, change.bend) / max(self.motion, 1e-6)
        return max((1 - change.overlap) / max(1 - self.overlap, 1e-6), moved)


def every(count: int, step: int) -> list[int]:
    """Every ``step``-th of ``count`` frames, and the last."""
    return sorted({*range(0, count, step), count - 1})


@dataclass
class Chooser:
    """Give it every frame in order; it holds one of them."""

    limits: Limits
    changes: list[Change] = field(default_factory=list)  #: from each frame to the next
    _keys: list[int] = field(default_factory=list)
    _last: Small | None = None
    _times: list[float] = field(default_factory=list)
    _way: list[np.ndarray] = field(default_factory=list)  # centres since the last keyframe, (time, x, y)
    _used: float = 0.0  # share of what is allowed, since the last keyframe

    def add(self, time_s: float, frame: Small) -> None:
        here = np.array([time_s, *frame.centre])
        if self._last is None:
            self._keys = [0]
        else:
            self.changes.append(compare(self._last, frame))
            step = self._share(self.changes[-1], time_s - self._times[-1])
            self._used += step
            # The frame before is the last one that will do; there is none where that is the keyframe itself.
            if len(self._way) > 1 and (self._used > 1 + 1e-6 or self._strays(frame, here)):
                self._keys.append(len(self._times) - 1)
                self._way, self._used = [self._way[-1]], step
        self._way.append(here)
        self._times.append(time_s)
        self._last = frame

    def _share(self, change: Change, seconds: float) -> float:
        """How much of what is allowed a change in so many ``seconds`` uses up, and at least its share of the time."""
        share = self.limits.share(change)
        return (
            max(share, seconds / (MOVING_S * self.limits.motion / MOTION)) if share > MOVING_PER_S * seconds else share
        )

    def _strays(self, frame: Small, here: np.ndarray) -> bool:
        """Whether the way from the keyframe to ``here`` takes too long or leaves the straight line."""
        way = np.array([*self._way, here])
        share = (way[:, 0] - way[0, 0]) / (way[-1, 0] - way[0, 0])
        aside = way[:, 1:] - way[0, 1:] - share[:, None] * (way[-1, 1:] - way[0, 1:])
        return bool(here[0] - way[0, 0] > GAP_S or np.linalg.norm(aside, axis=1).max() > STRAIGHT * frame.length)

    def chosen(self) -> tuple[list[int], str]:
        """(keyframes, the rule in words)."""
        count, limits = len(self._times), self.limits
        if limits.step:
            keys, rule = every(count, limits.step), _every_rule(limits.step)
        else:
            keys = sorted({*self._keys, count - 1})
            rule = (
                f"by motion: what changes from frame to frame adds up to at most {limits.motion:.0%} of the object's "
                f"length and {1 - limits.overlap:.0%} of its outline (ingest.keyframe_motion, ingest.keyframe_overlap)"
            )
        most = max(limits.most, 2)  # the first and the last frame
        if limits.most and len(keys) > most:
            asked, keys = len(keys), self._spread(most)
            rule = f"ingest.max_keyframes allows no more; {asked} were asked for, so these share the motion evenly"
        return keys, rule

    def _spread(self, most: int) -> list[int]:
        """``most`` frames between which there is about the same motion."""
        used = np.cumsum([0.0, *(self.limits.share(c) + 1e-3 for c in self.changes)])
        goals = np.linspace(0, used[-1], most)
        return sorted({int(np.abs(used - goal).argmin()) for goal in goals})


def _every_rule(step: int) -> str:
    what = "all frames" if step == 1 else f"one in {step} frames, and the last"
    return f"{what} (ingest.keyframe_step = {step})"


@dataclass(frozen=True)
class Look:
    """What makes a frame a good anchor. ``area`` and ``sharpness`` in any unit that is the same for all frames;
    ``spread``: outline over that of a disc of the same area, large where limbs are apart; ``cut``: at the border."""

    area: float
    spread: float
    sharpness: float
    cut: bool


def anchor_scores(looks: Sequence[Look]) -> list[float]:
    """0 to 1 for each keyframe: wide, limbs apart (so that the mesh does not join what only touches), sharp, whole."""
    if not looks:
        return []
    parts = [np.sqrt([k.area for k in looks]), np.array([k.spread for k in looks]) ** 2]
    parts.append(np.sqrt(np.maximum([k.sharpness for k in looks], 1e-6)))
    scores = np.prod([p / max(float(p.max()), 1e-9) for p in parts], axis=0)
    return [float(s) * (0.5 if k.cut else 1.0) for s, k in zip(scores, looks, strict=True)]
