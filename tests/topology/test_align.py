"""Coarse alignment against a known similarity."""

from __future__ import annotations

import numpy as np
import pytest

from v2m4.topology.align import Similarity, align
from v2m4.topology.surface import Samples, Surface, sample
from v2m4.transforms import rotation_angle_deg, rotation_from_vector


def body(seed: int, motion: Similarity | None = None) -> Samples:
    """A wedge-like box with a fin: no symmetry. Each seed samples it anew."""
    import trimesh

    fin = trimesh.creation.box((0.1, 0.3, 0.05)).apply_translation((0.35, 0.3, 0.05))
    hull = trimesh.util.concatenate([trimesh.creation.box((1.0, 0.4, 0.3)), fin])
    points = np.asarray(hull.vertices) * (1 - 0.3 * np.asarray(hull.vertices)[:, :1])
    points = points if motion is None else motion.apply(points)
    return sample(Surface(points, np.asarray(hull.faces)), 1500, seed)


@pytest.mark.parametrize("scale", [False, True])
def test_a_small_motion_is_found(scale: bool) -> None:
    factor = 1.15 if scale else 1.0
    truth = Similarity(factor, rotation_from_vector(np.array([0.1, 0.35, -0.1])), np.array([0.3, -0.2, 2.0]))
    found = align(body(1), body(2, truth), scale=scale)
    assert rotation_angle_deg(found.rotation, truth.rotation) < 0.7
    assert found.scale == pytest.approx(factor, rel=0.01)
    corners = np.array([[0.5, 0.2, 0.1], [-0.5, -0.2, 0.1]])
    assert np.abs(found.apply(corners) - truth.apply(corners)).max() < 0.01


def test_a_half_turn_needs_the_other_starts() -> None:
    truth = Similarity(1.0, rotation_from_vector(np.array([0.0, 3.0, 0.0])), np.zeros(3))
    near = align(body(1), body(2, truth), starts="near")
    auto = align(body(1), body(2, truth))
    assert rotation_angle_deg(auto.rotation, truth.rotation) < 1.0
    assert auto.residual <= near.residual


def test_no_overlap_is_no_crash() -> None:
    there = body(2)
    flat = Samples(there.points * 0, there.normals * 0, there.colors)
    assert np.isfinite(align(body(1), flat).translation).all()
