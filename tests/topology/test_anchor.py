"""The anchor is the keyframe that shows the limbs apart."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh

from v2m4.errors import InputError
from v2m4.topology.anchor import choose_anchor, cues
from v2m4.topology.surface import Surface


def legs(gap: float) -> Surface:
    """A body on two legs, ``gap`` between them."""
    boxes = [
        trimesh.creation.box((1.0, 0.3, 0.3)).apply_translation((0, 0.5, 0)),
        trimesh.creation.box((0.15, 0.6, 0.2)).apply_translation((-0.075 - gap / 2, 0, 0)),
        trimesh.creation.box((0.15, 0.6, 0.2)).apply_translation((0.075 + gap / 2, 0, 0)),
    ]
    body = trimesh.util.concatenate([b.subdivide().subdivide().subdivide() for b in boxes])
    return Surface(np.asarray(body.vertices, float), np.asarray(body.faces))


KEYS = [3, 7, 11]
OPEN = np.ones(3, bool)


def test_legs_apart_win_over_legs_that_touch() -> None:
    surfaces = [legs(0.02), legs(0.3), legs(0.03)]
    assert cues(surfaces[0]).contact > cues(surfaces[1]).contact + 0.02
    assert choose_anchor("auto", KEYS, surfaces, OPEN) == 1


def test_the_largest_surface_wins() -> None:
    ball = trimesh.creation.icosphere(3, radius=0.4)
    surfaces = [Surface(np.asarray(ball.vertices) * s, np.asarray(ball.faces)) for s in (1.0, 1.0, 1.15)]
    assert choose_anchor("auto", KEYS, surfaces, OPEN) == 2
    assert choose_anchor("auto", KEYS, surfaces, np.array([True, True, False])) == 1  # the middle of equals


def test_handles_and_parts_are_counted() -> None:
    ring = trimesh.creation.torus(0.4, 0.1)
    two = trimesh.util.concatenate([ring, ring.copy().apply_translation((2, 0, 0))])
    assert cues(Surface(np.asarray(ring.vertices), np.asarray(ring.faces))).handles == 1
    measured = cues(Surface(np.asarray(two.vertices), np.asarray(two.faces)))
    assert (measured.parts, measured.handles) == (2, 2)


def test_wishes() -> None:
    surfaces = [legs(0.3)] * 3
    assert choose_anchor("first", KEYS, surfaces, OPEN) == 0
    assert choose_anchor("11", KEYS, surfaces, OPEN) == 2
    for wrong in ("4", "best", "-1"):
        with pytest.raises(InputError, match=f"topology.anchor = {wrong}"):
            choose_anchor(wrong, KEYS, surfaces, OPEN)
