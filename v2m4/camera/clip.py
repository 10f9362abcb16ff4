"""From the hypotheses of all keyframes to one pose each: choice, trust, distance, scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from v2m4.camera import distance, track
from v2m4.camera.keyframe import Hypothesis
from v2m4.transforms import rigid
from v2m4.types import Mesh


@dataclass(frozen=True)
class KeyframePose:
    """``world_to_camera`` (4,4) rigid, from the mesh's own frame times ``scale``: x_camera = it @ (scale * x_mesh).

    ``found`` says what brought the pose up: "search", "stereo", "neighbours", or "bridged" for one that lies between
    its trusted neighbours because of the ``reason`` (empty when trusted).
    """

    world_to_camera: np.ndarray
    scale: float
    iou: float
    score: float
    confidence: float
    found: str
    reason: str

    @property
    def trusted(self) -> bool:
        return not self.reason

    @property
    def matrix(self) -> np.ndarray:
        """(4,4) similarity from the mesh as given into the camera."""
        return self.world_to_camera @ np.diag([self.scale, self.scale, self.scale, 1.0])


def assemble(
    known: list[list[Hypothesis]], meshes: list[Mesh], times_s: np.ndarray, smooth_s: float
) -> tuple[list[KeyframePose], str]:
    """A pose for each keyframe, and the measure of size that told scale from distance.

    Keyframes that are not trusted get the pose between their trusted neighbours.
    """
    chosen = [options[k] for options, k in zip(known, track.choose(known), strict=True)]
    doubts = track.doubts(chosen)
    good = np.array([not doubt for doubt in doubts])
    centres = np.stack([h.centre for h in chosen])
    apparent = np.array([h.position[2] for h in chosen])
    split = distance.split(apparent, meshes, times_s, good, smooth_s)
    rotations = np.stack([h.rotation for h in chosen])
    positions = np.stack([h.position for h in chosen]) * (split.distance / apparent)[:, None]
    placed = track.bridged(track.Placement(rotations, positions), times_s, good)
    scale = split.scale
    if good.any() and not good.all():
        scale = np.where(good, scale, np.interp(times_s, times_s[good], scale[good]))
    poses = []
    for k, h in enumerate(chosen):
        rotation = placed.rotations[k]
        pose = rigid(rotation, placed.positions[k] - scale[k] * rotation @ centres[k])
        sure = track.confidence(h, known[k]) if good[k] else 0.0
        found = h.found if good[k] or not good.any() else "bridged"
        poses.append(KeyframePose(pose, float(scale[k]), h.iou, h.score, sure, found, doubts[k]))
    return poses, split.measure
