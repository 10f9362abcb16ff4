"""One keyframe: sampling, then refinement of what is worth it, from coarse pictures to fine ones."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from v2m4.camera.objective import COLOR_WEIGHT, Agreement, agreement
from v2m4.camera.refine import Level, Poses, refine
from v2m4.camera.search import SearchOptions, fit_positions, search
from v2m4.camera.subject import Subject
from v2m4.camera.view import View, make_view
from v2m4.transforms import rotation_angle_deg
from v2m4.types import Mesh


@dataclass(frozen=True)
class KeyframeOptions:
    """``levels`` from coarse to fine; before each one only hypotheses within ``drop`` of the best score go on, at most
    ``keep`` of them, and of two that came closer than ``merge_deg`` the better one."""

    search: SearchOptions = field(default_factory=SearchOptions)
    levels: tuple[Level, ...] = (Level(64, 2.5, 8), Level(128, 2.0, 8), Level(256, 2.0, 6))
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
    with the ``centre`` (3,) of the mesh's surface, and how well it agrees with the frame."""

    rotation: np.ndarray
    position: np.ndarray
    centre: np.ndarray
    iou: float
    color: float
    prior: float

    @property
    def score(self) -> float:
        return self.iou + COLOR_WEIGHT * self.color + self.prior

    def to_json(self) -> dict[str, object]:
        """Numbers that come back exactly."""
        return dict(
            rotation=self.rotation.tolist(),
            position=self.position.tolist(),
            centre=self.centre.tolist(),
            iou=self.iou,
            color=self.color,
            prior=self.prior,
        )

    @classmethod
    def from_json(cls, value: dict) -> Hypothesis:
        """Undo :meth:`to_json`."""
        rotation, position, centre = (np.array(value[key], float) for key in ("rotation", "position", "centre"))
        return cls(rotation, position, centre, value["iou"], value["color"], value["prior"])


def solve(image: np.ndarray, mesh: Mesh, K: np.ndarray, options: KeyframeOptions) -> list[Hypothesis]:
    """Hypotheses for ``mesh`` in ``image`` (H,W,4) uint8 taken through ``K`` (3,3), best first, at least one."""
    view, subject = make_view(image, K, options.size), Subject.of(mesh)
    samples = search(view, subject, options.search)
    rotations = np.stack([s.rotation for s in samples])
    positions = np.stack([s.position for s in samples])
    return _refined(view, subject, rotations, positions, options)


def solve_from(
    image: np.ndarray, mesh: Mesh, K: np.ndarray, options: KeyframeOptions, rotations: np.ndarray
) -> list[Hypothesis]:
    """The same from given ``rotations`` (N,3,3) in the frame's camera, without sampling."""
    view, subject = make_view(image, K, options.size), Subject.of(mesh)
    rotations = view.rotation @ rotations
    positions = fit_positions(view.resized(options.search.size), subject, rotations)
    return _refined(view, subject, rotations, positions, options)


def _refined(
    view: View, subject: Subject, rotations: np.ndarray, positions: np.ndarray, options: KeyframeOptions
) -> list[Hypothesis]:
    poses = Poses(rotations, positions, np.zeros(len(rotations)))
    ranked: list[tuple[Agreement, int]] = []
    for level in options.levels:
        # the start is measured with the same yardstick as the result: a round that does harm is not taken
        small, lighter = view.resized(level.size), subject.simplified(level.size**2 // 2)
        before = _agreements(small, lighter, poses)
        refined = refine(view, lighter, poses, level)
        after = _agreements(small, lighter, refined)
        better = np.array([b.score <= a.score for b, a in zip(before, after, strict=True)])
        poses = Poses(
            np.where(better[:, None, None], refined.rotations, poses.rotations),
            np.where(better[:, None], refined.positions, poses.positions),
            refined.costs,
        )
        agreed = [a if take else b for b, a, take in zip(before, after, better, strict=True)]
        keep = _worth_it(poses, agreed, options)
        poses = poses[np.array(keep)]
        ranked = [(agreed[k], n) for n, k in enumerate(keep)]
    back = view.rotation.T
    return [
        Hypothesis(back @ poses.rotations[n], back @ poses.positions[n], subject.centre, a.iou, a.color, a.prior)
        for a, n in ranked
    ]


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
