"""Particle swarm around a hypothesis, bounded and with inertia (paper section 3.2, by pyswarms).

The official search draws each particle's velocity anew in every iteration and bounds nothing. Here a swarm moves in the
three turns about a hypothesis only, within ``reach_deg``; distance and place in the picture follow in closed form from
the silhouette, so no particle is wasted on them.
"""

from __future__ import annotations

import logging.config
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from v2m4.camera.objective import agreement
from v2m4.camera.search import fit_positions
from v2m4.camera.subject import Subject
from v2m4.camera.view import View
from v2m4.errors import MissingBackend
from v2m4.transforms import rotation_from_vector


@dataclass(frozen=True)
class SwarmOptions:
    """``particles`` move ``iterations`` times, within ``reach_deg`` of the hypothesis about each axis, in pictures of
    ``size`` pixels. ``inertia``, ``own`` and ``common`` weigh a particle's last step, the pull of its own best place
    and that of the best place of all."""

    particles: int = 24
    iterations: int = 10
    reach_deg: float = 25.0
    size: int = 64
    inertia: float = 0.6
    own: float = 1.2
    common: float = 1.2


def improve(
    view: View, subject: Subject, rotations: np.ndarray, positions: np.ndarray, options: SwarmOptions, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """The best pose (N,3,3), (N,3) that a swarm around each of the poses finds. MissingBackend without pyswarms."""
    with no_log_file():
        return _improved(view, subject, rotations, positions, options, seed)


@contextmanager
def no_log_file() -> Iterator[None]:
    """pyswarms sets up logging for the whole process, with a file in the current folder, on import and on use: neither
    is its to have."""
    before = logging.config.dictConfig
    logging.config.dictConfig = lambda *_: None
    try:
        yield
    finally:
        logging.config.dictConfig = before


def _improved(
    view: View, subject: Subject, rotations: np.ndarray, positions: np.ndarray, options: SwarmOptions, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    try:
        from pyswarms.single import GlobalBestPSO
    except ImportError:
        raise MissingBackend(
            "pyswarms, which the particle swarm needs,", "pip install -c constraints.txt 'v2m4[swarm]'", "MIT"
        ) from None
    small, light = view.resized(options.size), subject.simplified(options.size**2 // 2)
    reach = np.radians(options.reach_deg)
    weights = {"w": options.inertia, "c1": options.own, "c2": options.common}
    found = rotations.copy(), positions.copy()
    state = np.random.get_state()  # noqa: NPY002 - pyswarms draws from numpy's global generator
    try:
        for k, rotation in enumerate(rotations):
            np.random.seed((seed + k) % 2**32)  # noqa: NPY002
            start = np.random.uniform(-reach, reach, (options.particles, 3))  # noqa: NPY002
            start[0] = 0  # the hypothesis itself takes part

            def cost(turns: np.ndarray, rotation: np.ndarray = rotation) -> np.ndarray:
                return _costs(small, light, rotation_from_vector(turns) @ rotation)

            swarm = GlobalBestPSO(
                options.particles, 3, weights, (np.full(3, -reach), np.full(3, reach)), "nearest", init_pos=start
            )
            _, best = swarm.optimize(cost, options.iterations, verbose=False)
            if np.any(best):
                turned = rotation_from_vector(best) @ rotation
                found[0][k], found[1][k] = turned, fit_positions(small, light, turned[None])[0]
    finally:
        np.random.set_state(state)  # noqa: NPY002
    return found


def _costs(view: View, subject: Subject, rotations: np.ndarray) -> np.ndarray:
    """Minus the score of each pose, where the silhouette puts it."""
    positions = fit_positions(view, subject, rotations)
    drawings = subject.draw(rotations, positions, view.K, view.size)
    return np.array([-agreement(view, d, r).score for d, r in zip(drawings, rotations, strict=True)])
