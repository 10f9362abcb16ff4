"""One keyframe: sampling, the guess from matches, then refinement of what is worth it, from coarse pictures to fine."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import partial

import numpy as np

from v2m4.camera import correspond, stereo, swarm
from v2m4.camera.objective import COLOR_WEIGHT, METRIC_WEIGHT, Agreement, agreement
from v2m4.camera.refine import Level, Poses, refine
from v2m4.camera.search import SearchOptions, fit_positions, search
from v2m4.camera.subject import Subject
from v2m4.camera.swarm import SwarmOptions
from v2m4.camera.view import View, make_view
from v2m4.protocols import ImageMetric, StereoModel
from v2m4.transforms import rotation_angle_deg
from v2m4.types import Mesh


@dataclass(frozen=True)
class KeyframeOptions:
    """How one keyframe is solved.

    A pose from elsewhere goes through the gradient round ``coarse`` first, and so does a sample where there are no
    ``guess_rounds`` of matching at ``guess_size`` pixels. These, and with ``swarm`` a particle swarm, come before the
    ``levels`` from coarse to fine. Before each level only hypotheses within ``drop`` of the best score go on, at most
    ``keep`` of them, and of two that came closer than ``merge_deg`` the better one. A ``metric`` has a say in the final
    score; a ``stereo`` network adds its own guesses.
    """

    search: SearchOptions = field(default_factory=SearchOptions)
    coarse: Level = field(default_factory=partial(Level, 64, 2.5, 8, 6.0))
    guess_rounds: int = 1
    guess_size: int = 128
    swarm: SwarmOptions | None = None
    levels: tuple[Level, ...] = (Level(128, 2.0, 8), Level(256, 2.0, 6))
    stereo: StereoModel | None = None
    metric: ImageMetric | None = None
    drop: float = 0.15
    keep: int = 3
    merge_deg: float = 12.0

    @property
    def size(self) -> int:
        """Side of the finest picture."""
        return max(level.size for level in self.levels)


@dataclass(frozen=True)
class Hypothesis:
    """A pose of the mesh in the camera of its frame, at scale 1: ``x_camera = rotation (x_mesh - centre) + position``
    with the ``centre`` (3,) of the mesh's surface, and how well it agrees with the frame.

    ``metric`` is the distance a picture metric sees (0 without one); ``found`` says what brought the pose up: "search",
    "stereo" or "neighbours".
    """

    rotation: np.ndarray
    position: np.ndarray
    centre: np.ndarray
    iou: float
    color: float
    prior: float
    metric: float = 0.0
    found: str = "search"

    @property
    def score(self) -> float:
        return self.iou + COLOR_WEIGHT * self.color + self.prior - METRIC_WEIGHT * self.metric

    def to_json(self) -> dict[str, object]:
        """Numbers that come back exactly."""
        return {
            f.name: value.tolist() if isinstance(value := getattr(self, f.name), np.ndarray) else value
            for f in fields(self)
        }

    @classmethod
    def from_json(cls, value: dict) -> Hypothesis:
        """Undo :meth:`to_json`."""
        arrays = {key: np.array(value[key], float) for key in ("rotation", "position", "centre")}
        return cls(**{**value, **arrays})


@dataclass(frozen=True)
class _Candidates:
    """Poses on their way, and what brought each of them up."""

    poses: Poses
    found: list[str]

    def __getitem__(self, keep: list[int]) -> _Candidates:
        return _Candidates(self.poses[np.array(keep, int)], [self.found[k] for k in keep])


def solve(image: np.ndarray, mesh: Mesh, K: np.ndarray, options: KeyframeOptions, seed: int = 0) -> list[Hypothesis]:
    """Hypotheses for ``mesh`` in ``image`` (H,W,4) uint8 taken through ``K`` (3,3), best first, at least one."""
    view, subject = make_view(image, K, options.size), Subject.of(mesh)
    samples = search(view, subject, options.search)
    rotations = np.stack([s.rotation for s in samples])
    positions = np.stack([s.position for s in samples])
    found = ["search"] * len(samples)
    if options.stereo is not None:
        more = stereo.guess(view, subject, rotations, positions, options.stereo)
        rotations, positions = np.concatenate([rotations, more[0]]), np.concatenate([positions, more[1]])
        found += ["stereo"] * len(more[0])
    poses = as_poses(rotations, positions)
    if not options.guess_rounds:
        poses = _nearer(view, subject, poses, options.coarse)
    return _refined(view, subject, _Candidates(poses, found), options, seed)


def solve_from(
    image: np.ndarray, mesh: Mesh, K: np.ndarray, options: KeyframeOptions, rotations: np.ndarray, seed: int = 0
) -> list[Hypothesis]:
    """The same from given ``rotations`` (N,3,3) in the frame's camera, without sampling."""
    view, subject = make_view(image, K, options.size), Subject.of(mesh)
    rotations = view.rotation @ rotations
    poses = as_poses(rotations, fit_positions(view.resized(options.search.size), subject, rotations))
    poses = _nearer(view, subject, poses, options.coarse)
    return _refined(view, subject, _Candidates(poses, ["neighbours"] * len(rotations)), options, seed)


def _nearer(view: View, subject: Subject, poses: Poses, level: Level) -> Poses:
    """One gradient round for poses that may be far off; none is dropped."""
    if not level.iterations:
        return poses
    small, lighter = _at(view, subject, level.size)
    return _better(small, lighter, poses, refine(small, lighter, poses, level))[0]


def _refined(view: View, subject: Subject, start: _Candidates, options: KeyframeOptions, seed: int) -> list[Hypothesis]:
    now, agreed = start, list[Agreement]()
    if options.guess_rounds:
        small, lighter = _at(view, subject, options.guess_size)
        poses = now.poses
        matched = correspond.guess(small, lighter, poses.rotations, poses.positions, options.guess_rounds)
        now, agreed = _step(small, lighter, now, as_poses(*matched), options)
    if options.swarm is not None:
        small, lighter = _at(view, subject, options.swarm.size)
        moved = swarm.improve(small, lighter, now.poses.rotations, now.poses.positions, options.swarm, seed)
        now, agreed = _step(small, lighter, now, as_poses(*moved), options)
    for level in options.levels:
        small, lighter = _at(view, subject, level.size)
        now, agreed = _step(small, lighter, now, refine(small, lighter, now.poses, level), options)
    metric = _metric_distances(small, lighter, now.poses, options.metric)
    back = view.rotation.T
    out = [
        Hypothesis(back @ rotation, back @ position, subject.centre, a.iou, a.color, a.prior, float(m), how)
        for rotation, position, a, m, how in zip(
            now.poses.rotations, now.poses.positions, agreed, metric, now.found, strict=True
        )
    ]
    return sorted(out, key=lambda h: -h.score)


def as_poses(rotations: np.ndarray, positions: np.ndarray) -> Poses:
    """Poses (N,3,3), (N,3) whose cost is not known yet."""
    return Poses(rotations, positions, np.zeros(len(rotations)))


def _at(view: View, subject: Subject, size: int) -> tuple[View, Subject]:
    """View and subject for pictures of ``size`` pixels."""
    return view.resized(size), subject.simplified(size**2 // 2)


def _step(
    view: View, subject: Subject, before: _Candidates, after: Poses, options: KeyframeOptions
) -> tuple[_Candidates, list[Agreement]]:
    """What a step made better is taken; then what is not worth going on with is left behind."""
    poses, agreed = _better(view, subject, before.poses, after)
    keep = _worth_it(poses, agreed, options)
    return _Candidates(poses, before.found)[keep], [agreed[k] for k in keep]


def _metric_distances(view: View, subject: Subject, poses: Poses, metric: ImageMetric | None) -> np.ndarray:
    """(N,) of each drawing from the view, by a picture metric; zeros without one."""
    if metric is None:
        return np.zeros(len(poses.rotations))
    import torch

    drawings = subject.draw(poses.rotations, poses.positions, view.K, view.size, supersample=2)
    drawings = drawings * view.inside[None, :, :, None]  # nothing is known past the edge of the frame
    with torch.no_grad():
        return metric(torch.from_numpy(drawings), torch.from_numpy(view.pixels[None])).numpy().astype(np.float64)


def _better(view: View, subject: Subject, before: Poses, after: Poses) -> tuple[Poses, list[Agreement]]:
    """Of each pose the better one: the start is measured with the same yardstick as the result, so a step that does
    harm is not taken."""
    old, new = _agreements(view, subject, before), _agreements(view, subject, after)
    take = np.array([b.score <= a.score for b, a in zip(old, new, strict=True)])
    poses = Poses(
        np.where(take[:, None, None], after.rotations, before.rotations),
        np.where(take[:, None], after.positions, before.positions),
        after.costs,
    )
    return poses, [a if t else b for b, a, t in zip(old, new, take, strict=True)]


def _agreements(view: View, subject: Subject, poses: Poses) -> list[Agreement]:
    drawings = subject.draw(poses.rotations, poses.positions, view.K, view.size, supersample=2)
    return [agreement(view, d, r) for d, r in zip(drawings, poses.rotations, strict=True)]


def _worth_it(poses: Poses, agreed: list[Agreement], options: KeyframeOptions) -> list[int]:
    """Indices to go on with, best first."""
    order = sorted(range(len(agreed)), key=lambda k: -agreed[k].score)
    chosen: list[int] = []
    for k in order:
        near = any(rotation_angle_deg(poses.rotations[k], poses.rotations[c]) < options.merge_deg for c in chosen)
        if not near and agreed[k].score >= agreed[order[0]].score - options.drop:
            chosen.append(k)
    return chosen[: options.keep]
