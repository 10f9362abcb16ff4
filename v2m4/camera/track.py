"""All keyframes together: which hypothesis of each, and which of them to trust.

One keyframe alone may see the object from the wrong side. Over the clip, the object turns little from one keyframe to
the next, so the shortest path through the hypotheses of all keyframes, with scores as rewards and turns as costs, has
no flips unless the pictures insist on one (a generator that did turn its mesh round).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from v2m4.camera.keyframe import Hypothesis
from v2m4.transforms import nearest_rotation, rotation_angle_deg, rotation_from_vector

#: A turn from one keyframe to the next costs this much score at most, reached at FULL_TURN_DEG.
TURN_COST, FULL_TURN_DEG = 0.06, 60.0
#: A pose is not trusted when it falls this far, or this many robust standard deviations, under the clip's median.
IOU_DROP, COLOR_DROP, DEVIATIONS = 0.10, 0.25, 5.0
#: A silhouette that agrees less than this is never trusted.
IOU_FLOOR = 0.5


def choose(hypotheses: list[list[Hypothesis]]) -> list[int]:
    """The hypothesis of each keyframe on the best path through all of them."""
    total = np.array([h.score for h in hypotheses[0]])
    back: list[np.ndarray] = []
    for before, now in itertools.pairwise(hypotheses):
        a = np.stack([h.rotation for h in before])[:, None]
        b = np.stack([h.rotation for h in now])[None]
        angle = rotation_angle_deg(np.swapaxes(a, -1, -2) @ b)
        reward = total[:, None] - TURN_COST * np.minimum(angle / FULL_TURN_DEG, 1.0)
        back.append(reward.argmax(0))
        total = reward.max(0) + np.array([h.score for h in now])
    path = [int(total.argmax())]
    for step in reversed(back):
        path.append(int(step[path[-1]]))
    return path[::-1]


def warm_starts(chosen: list[Hypothesis], known: list[list[Hypothesis]], new_deg: float = 15.0) -> list[np.ndarray]:
    """For each keyframe, rotations (N,3,3) that none of its own hypotheses is close to: those of the nearest keyframes
    to be trusted before and after it, and for one that is not trusted itself what lies between the two."""
    good = np.flatnonzero([not doubt for doubt in doubts(chosen)])
    out = []
    for k, own in enumerate(known):
        before, after = good[good < k], good[good > k]
        sides = [*before[-1:], *after[:1]] if len(good) else [n for n in (k - 1, k + 1) if 0 <= n < len(chosen)]
        offered = [chosen[n].rotation for n in sides]
        if len(before) and len(after) and k not in good:
            a, b = before[-1], after[0]
            offered.append(between(chosen[a].rotation, chosen[b].rotation, (k - a) / (b - a)))
        starts: list[np.ndarray] = []
        for candidate in offered:
            near = [h.rotation for h in own] + starts
            if all(rotation_angle_deg(candidate, r) > new_deg for r in near):
                starts.append(candidate)
        out.append(np.stack(starts) if starts else np.zeros((0, 3, 3)))
    return out


def merged(own: list[Hypothesis], more: list[Hypothesis], merge_deg: float) -> list[Hypothesis]:
    """Both lists, best first; of two that are close in angle the better one stays."""
    out: list[Hypothesis] = []
    for h in sorted([*own, *more], key=lambda h: -h.score):
        if all(rotation_angle_deg(h.rotation, o.rotation) >= merge_deg for o in out):
            out.append(h)
    return out


def doubts(chosen: list[Hypothesis]) -> list[str]:
    """Why a pose is not to be trusted, empty where it is: it agrees with its frame much worse than those of the rest of
    the clip with theirs, or hardly at all."""
    iou, color = np.array([h.iou for h in chosen]), np.array([h.color for h in chosen])
    usual = {"silhouettes": float(np.median(iou)), "colours": float(np.median(color))}
    out = []
    for k, (outline, paint) in enumerate(zip(_outliers(iou, IOU_DROP), _outliers(color, COLOR_DROP), strict=True)):
        reasons = []
        if outline:
            reasons.append(f"silhouettes agree to {iou[k]:.2f}, in the clip to {usual['silhouettes']:.2f}")
        elif iou[k] < IOU_FLOOR:
            reasons.append(f"silhouettes agree to {iou[k]:.2f} only")
        if paint:
            reasons.append(f"colours agree to {color[k]:.2f}, in the clip to {usual['colours']:.2f}")
        out.append("; ".join(reasons))
    return out


def _outliers(values: np.ndarray, drop: float) -> np.ndarray:
    middle = np.median(values)
    spread = 1.4826 * np.median(np.abs(values - middle))
    return values < middle - max(drop, DEVIATIONS * float(spread))


def confidence(chosen: Hypothesis, known: list[Hypothesis], apart_deg: float = 30.0) -> float:
    """0 to 1: how well the silhouette fits (IoU .5 is 0, .9 is 1), less where a quite different pose fits as well."""
    quality = float(np.clip((chosen.iou - 0.5) / 0.4, 0, 1))
    others = [h.score for h in known if rotation_angle_deg(h.rotation, chosen.rotation) >= apart_deg]
    margin = chosen.score - max(others) if others else np.inf
    return quality * float(np.clip(0.5 + margin / 0.1, 0.2, 1.0))


@dataclass(frozen=True)
class Placement:
    """Object at scale 1 in the camera: ``rotations`` (K,3,3), ``positions`` (K,3) of the mesh's centre."""

    rotations: np.ndarray
    positions: np.ndarray


def bridged(placement: Placement, times_s: np.ndarray, good: np.ndarray) -> Placement:
    """Poses of keyframes that are not ``good`` (K,) bool replaced by what lies between their good neighbours in time.

    Directions in the picture and log distances go linearly, rotations along the shortest arc. Before the first and
    after the last good keyframe the pose stands still. Without any good keyframe nothing is changed.
    """
    anchors = np.flatnonzero(good)
    if len(anchors) == 0 or good.all():
        return placement
    rotations, positions = placement.rotations.copy(), placement.positions.copy()
    for k in np.flatnonzero(~good):
        after = int(np.searchsorted(anchors, k))
        a, b = anchors[max(after - 1, 0)], anchors[min(after, len(anchors) - 1)]
        share = 0.0 if a == b else float((times_s[k] - times_s[a]) / (times_s[b] - times_s[a]))
        rotations[k] = between(rotations[a], rotations[b], share)
        depth = np.exp((1 - share) * np.log(positions[a, 2]) + share * np.log(positions[b, 2]))
        ray = (1 - share) * positions[a] / positions[a, 2] + share * positions[b] / positions[b, 2]
        positions[k] = ray * depth
    return Placement(rotations, positions)


def between(a: np.ndarray, b: np.ndarray, share: float) -> np.ndarray:
    """The rotation (3,3) that lies ``share`` of the way from ``a`` to ``b`` along the shortest arc."""
    relative = b @ a.T
    angle = float(np.radians(rotation_angle_deg(relative)))
    if angle < 1e-9:
        return a
    # the axis is the eigenvector for eigenvalue 1: well defined up to half a turn, where any sign will do
    skew = np.array([relative[2, 1] - relative[1, 2], relative[0, 2] - relative[2, 0], relative[1, 0] - relative[0, 1]])
    if np.linalg.norm(skew) > 1e-6:
        axis = skew / np.linalg.norm(skew)
    else:
        axis = np.linalg.eigh(relative + relative.T)[1][:, -1]
    return nearest_rotation(rotation_from_vector(axis * angle * share) @ a)
