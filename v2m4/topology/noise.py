"""What a keyframe's mesh gets wrong as a whole: its pose, and a smooth field of errors that is not motion.

A generator's errors are not white: a whole flank is too far out, a whole mesh a little turned or too near. Fitted with
independent residuals, such errors look like motion. So the mesh of a keyframe is taken to be the motion's shape *plus*
a similarity (small turns and shifts, and a scale about the camera's centre, which no picture can see) *plus* a smooth
random field over the nodes. The coefficients of both have a Gaussian prior, are solved with the motion and eliminated
from its equations (a Schur complement): what errors explain cheaply is left to time, to the shape and to the pictures.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from v2m4.transforms import rotation_from_vector

#: Coefficients of the pose: three turns, three shifts, one scale.
POSE = 7


@dataclass(frozen=True)
class NoiseOptions:
    """How wrong a mesh may be: one standard deviation of each, lengths in working units, angles in radians.

    ``prior`` is the weight of a coefficient that is one standard deviation off, in the units of the mesh's own rows
    (a mesh that is ``r`` away everywhere costs the number of nodes times r^2); 0 leaves the model out.
    """

    prior: float = 0.003
    field: float = 0.015  #: smooth displacement of the surface
    hidden: float = 2.0  #: that many times as much where the camera does not see it
    length: float = 0.2  #: over which the field changes
    rank: int = 40  #: modes of the field
    turn: float = 0.03
    shift: float = 0.005
    scale: float = 0.03  #: about the camera: a mesh that is so much too near and too small looks the same


def field_modes(nodes: np.ndarray, length: float, rank: int) -> np.ndarray:
    """(N,r): the strongest modes of a Gaussian process of unit variance over the nodes (N,3)."""
    square = ((nodes[:, None] - nodes[None]) ** 2).sum(2)
    values, vectors = np.linalg.eigh(np.exp(-square / (2 * length**2)))
    rank = min(rank, len(nodes))
    return vectors[:, -rank:] * np.sqrt(np.maximum(values[-rank:], 0.0))


def error_basis(
    nodes: np.ndarray, eye: np.ndarray | None, modes: np.ndarray, hidden: np.ndarray, options: NoiseOptions
) -> np.ndarray:
    """(N,3,m): how nodes (N,3) of one keyframe move under one standard deviation of each coefficient.

    ``eye`` (3,) is where the camera is (None: the scale is about the middle); ``modes`` (N,r) of the field; ``hidden``
    (N,) bool.
    """
    middle = nodes.mean(0)
    arm = nodes - middle
    out = np.zeros((len(nodes), 3, POSE + 3 * modes.shape[1]))
    for axis in range(3):
        direction = np.zeros(3)
        direction[axis] = 1.0
        out[:, :, axis] = options.turn * np.cross(direction, arm)
        out[:, axis, 3 + axis] = options.shift
    if eye is None:
        out[:, :, 6] = options.scale * arm
    else:
        out[:, :, 6] = options.scale * (nodes - eye) / max(float(np.linalg.norm(middle - eye)), 1e-9)
    field = options.field * modes * np.where(hidden, options.hidden, 1.0)[:, None]
    for axis in range(3):
        out[:, axis, POSE + axis :: 3] = field
    return out


def pose_correction(
    coefficients: np.ndarray, nodes: np.ndarray, eye: np.ndarray | None, options: NoiseOptions
) -> np.ndarray:
    """(4,4) similarity, working units, that takes the mesh of a keyframe out of its pose error: the inverse of the
    first ``POSE`` coefficients' motion of ``nodes`` (N,3), to first order what :func:`error_basis` adds."""
    middle = nodes.mean(0)
    turn = rotation_from_vector(-options.turn * coefficients[:3])
    about = middle if eye is None else eye
    reach = 1.0 if eye is None else max(float(np.linalg.norm(middle - eye)), 1e-9)
    size = np.exp(-options.scale * coefficients[6] / reach)
    out = np.eye(4)
    out[:3, :3] = size * turn
    shifted = turn @ (-middle) + middle - options.shift * coefficients[3:6]
    out[:3, 3] = size * (shifted - about) + about
    return out
