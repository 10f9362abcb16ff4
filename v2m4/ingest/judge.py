"""Go or no-go: what a clip promises, said before any heavy work, with advice an artist can act on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from v2m4.ingest.keyframes import Look
from v2m4.ingest.motion import Change

#: Length of the object in pixels below which there is little to see, and below which there is nothing.
SMALL_PX, TINY_PX = 128, 32
#: Blur (:func:`quality.blur`) that is seen, and that hides the surface; and how far one frame may be above the others.
SOFT, SMEARED, ODD = 0.70, 0.82, 0.12
#: Motion from frame to frame, in shares of the object's length, that is hard to follow, and that cannot be.
FAST, TOO_FAST = 0.10, 0.20
#: Outlines of two frames in a row that overlap less than this, and motion above this, look like a cut.
CUT_OVERLAP, CUT_MOTION = 0.45, 0.15
#: Motion below which nothing moves.
STILL = 0.004
#: Share of the frames in which the object may be cut off by the picture's border.
OFTEN_CUT = 0.5
#: Turn in degrees below which the clip shows one side only.
ONE_SIDE_DEG = 25
SHOWN = 8


@dataclass(frozen=True)
class FrameFacts:
    """One frame. ``length_px``: longer side of the object's box in pixels of the picture; ``border``: the sides of the
    picture that it touches ("left", "top", "right", "bottom"); ``opaque``: the alpha cuts nothing out; ``faint``: no
    pixel of it is fully opaque; ``blur`` and ``spread``: :mod:`quality`; ``area`` in pixels."""

    length_px: int
    area: int
    border: tuple[str, ...] = ()
    opaque: bool = False
    faint: bool = False
    blur: float = 0.0
    spread: float = 1.0

    def look(self) -> Look:
        return Look(self.area, self.spread, 1 - self.blur, bool(self.border))


@dataclass(frozen=True)
class Reason:
    """Something that speaks against the clip: ``level`` "look" or "no-go", and a sentence with advice."""

    level: str
    text: str


@dataclass
class Verdict:
    """``level``: "go", "look" or "no-go", the worst of the ``reasons``; ``numbers`` for the report."""

    numbers: dict[str, Any]
    reasons: list[Reason] = field(default_factory=list)

    @property
    def level(self) -> str:
        levels = {reason.level for reason in self.reasons}
        return "no-go" if "no-go" in levels else "look" if "look" in levels else "go"

    def notes(self) -> list[str]:
        """What there is to know, and nothing to be done about."""
        if self.numbers.get("turn_deg", ONE_SIDE_DEG) >= ONE_SIDE_DEG:
            return []
        return ["the clip shows the object from about one side: what it never shows will be guessed"]

    def sentence(self) -> str:
        """One line for the log."""
        n = self.numbers
        told = f"the object is {n['object_px']} px long"
        if "motion" in n:
            told += f", moves by {n['shift']:.1%} and changes by {n['motion']:.1%} of that from frame to frame"
            told += f" and turns by about {n['turn_deg']}° in all"
        head = {"go": "go", "look": "go, but look first", "no-go": "no-go"}[self.level]
        return f"{head}: {told}, blur {n['blur']:.2f}"


def judge(frames: Sequence[FrameFacts], changes: Sequence[Change], masked: str, doubts: Sequence[str] = ()) -> Verdict:
    """``changes``: from each frame to the next. ``masked``: where the masks come from, "given" if the clip has alpha.
    ``doubts``: sentences about masks and background that are reasons to look."""
    moved = np.array([max(c.outline, c.bend) for c in changes])
    verdict = Verdict(_numbers(frames, changes, moved))
    add = verdict.reasons.append
    for reason in (_size(frames), _blurred(frames), *_border(frames, masked), *_motion(changes, moved)):
        if reason is not None:
            add(reason)
    faint = [i for i, f in enumerate(frames) if f.faint]
    if faint:
        add(Reason("look", f"{named(faint, len(frames))} faint as a whole; the alpha was stretched to reach 255"))
    verdict.reasons += [Reason("look", doubt) for doubt in doubts]
    return verdict


def _numbers(frames: Sequence[FrameFacts], changes: Sequence[Change], moved: np.ndarray) -> dict[str, Any]:
    lengths = [f.length_px for f in frames]
    out: dict[str, Any] = {
        "object_px": int(np.median(lengths)),
        "object_px_least": min(lengths),
        "blur": round(float(np.median([f.blur for f in frames])), 3),
        "frames_at_border": sum(bool(f.border) for f in frames),
    }
    if changes:
        turned = np.degrees(np.cumsum([[0.0, 0.0], *(c.turn for c in changes)], axis=0))
        out["motion"] = round(float(np.median(moved)), 4)
        out["shift"] = round(float(np.median([np.hypot(*c.shift) for c in changes])), 4)
        out["motion_most"] = round(float(moved.max()), 4)
        out["turn_deg"] = round(float(np.ptp(turned, axis=0).max()))
    return out


def _size(frames: Sequence[FrameFacts]) -> Reason | None:
    typical, least = int(np.median([f.length_px for f in frames])), min(f.length_px for f in frames)
    if typical < TINY_PX:
        return Reason("no-go", f"the object is only {typical} pixels long: film closer, or give a larger picture")
    if typical < SMALL_PX:
        return Reason("look", f"the object is only {typical} pixels long: expect little detail")
    if least < typical / 3:
        return Reason("look", f"the object shrinks to {least} pixels ({typical} in most frames): cut the clip there")
    return None


def _blurred(frames: Sequence[FrameFacts]) -> Reason | None:
    blur = np.array([f.blur for f in frames])
    typical = float(np.median(blur))
    if typical > SMEARED:
        return Reason("no-go", f"the clip is blurred (blur {typical:.2f}; above {SMEARED:g} no surface is left to see)")
    if typical > SOFT:
        return Reason("look", f"the clip is soft (blur {typical:.2f}): the texture will be, too")
    odd = np.flatnonzero((blur > typical + ODD) & (blur > SOFT)).tolist()
    if odd:
        return Reason("look", f"{named(odd, len(frames))} blurred: a shorter exposure, or leave them out")
    return None


def _border(frames: Sequence[FrameFacts], masked: str) -> list[Reason]:
    opaque = [i for i, f in enumerate(frames) if f.opaque]
    if opaque and masked == "given":
        level = "no-go" if len(opaque) == len(frames) else "look"
        return [Reason(level, f"{named(opaque, len(frames))} fully opaque: the whole picture is taken as the object")]
    cut = [i for i, f in enumerate(frames) if f.border]
    if not cut:
        return []
    sides = [side for side in ("left", "top", "right", "bottom") if any(side in f.border for f in frames)]
    where = f" ({', '.join(sides)})"
    text = f"the object touches the picture's border in {named(cut, len(frames), '')}{where}"
    often = len(cut) > OFTEN_CUT * len(frames)
    advice = (
        ": what lies beyond it is missing from the asset" if often else ": cut these frames off the clip if they can go"
    )
    return [Reason("no-go" if often and len(sides) > 1 else "look", text + advice)]


def _motion(changes: Sequence[Change], moved: np.ndarray) -> list[Reason]:
    if not len(moved):
        return []
    typical, out = float(np.median(moved)), []
    if typical > TOO_FAST:
        text = f"the object changes by {typical:.0%} of its length from frame to frame: film it at a higher frame rate"
        return [Reason("no-go", text)]
    cuts = [i + 1 for i, c in enumerate(changes) if c.overlap < CUT_OVERLAP and moved[i] > max(CUT_MOTION, 3 * typical)]
    if cuts:
        shown = ", ".join(f"{i - 1} and {i}" for i in cuts[:SHOWN])
        out.append(Reason("look", f"frames {shown} have little in common: if there is a cut, make two clips of it"))
    elif typical > FAST:
        text = f"the object changes by {typical:.0%} of its length from frame to frame: a higher frame rate would help"
        out.append(Reason("look", text))
    if max(float(moved.max()), *(float(np.hypot(*c.shift)) for c in changes)) < STILL:
        out.append(Reason("look", "nothing moves: one mesh would do"))
    return out


def named(indices: Sequence[int], count: int, verb: str = " are") -> str:
    """ "2 of 9 frames (3, 4) are" or "all 9 frames are"."""
    if len(indices) == count:
        return f"all {count} frames{verb}" if count > 1 else f"the only frame{' is' if verb else ''}"
    return f"{len(indices)} of {count} frames ({listed(indices)}){verb}"


def listed(indices: Sequence[int]) -> str:
    """The first few, and "..." where there are more."""
    return ", ".join(map(str, indices[:SHOWN])) + (" ..." if len(indices) > SHOWN else "")
