"""Registration on a body whose true motion is known: a bending, turning rod, meshed anew in every keyframe."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh

from v2m4.topology import trust
from v2m4.topology.register import Matching
from v2m4.topology.sequence import MemoryStore, SequenceOptions, chain_order, register_sequence
from v2m4.topology.surface import Surface, edges_of

QUICK = SequenceOptions(nodes=40, matching=Matching(transport_points=300, icp_points=1500, icp_back_points=1500))
COUNT = 5
TIMES = np.arange(COUNT) / 12


def rod(
    bend: float, yaw: float, shift: np.ndarray, around: int, along: int, phase: float
) -> tuple[Surface, np.ndarray]:
    """An elliptic rod of length 1 bent by ``bend`` radians, and the (s, angle) of each vertex.

    The parameters are material: the same (s, angle) is the same point of the body in every keyframe.
    """
    s = np.concatenate([[0.0], np.repeat((np.arange(along) + 0.5) / along, around), [1.0]])
    angle = np.concatenate([[0.0], np.tile(phase + 2 * np.pi * np.arange(around) / around, along), [0.0]])
    faces = [[0, 1 + (i + 1) % around, 1 + i] for i in range(around)]
    for ring in range(along - 1):
        a, b = 1 + ring * around, 1 + (ring + 1) * around
        for i in range(around):
            j = (i + 1) % around
            faces += [[a + i, a + j, b + j], [a + i, b + j, b + i]]
    last, tip = 1 + (along - 1) * around, 1 + along * around
    faces += [[tip, last + i, last + (i + 1) % around] for i in range(around)]
    material = np.stack([s, angle], 1)
    return Surface(place(material, bend, yaw, shift), np.array(faces)), material


def place(material: np.ndarray, bend: float, yaw: float, shift: np.ndarray) -> np.ndarray:
    """Where material points (n,2) are in a pose."""
    s, angle = material.T
    thick = 0.13 * np.sqrt(np.clip(1 - np.abs(2 * s - 1) ** 4, 0, 1)) * (1.3 - 0.6 * s)  # one end thicker: no symmetry
    theta = bend * s
    curve = (np.sin(theta) / bend, (1 - np.cos(theta)) / bend) if abs(bend) > 1e-6 else (s, 0 * s)
    across, up = thick * np.cos(angle), 0.55 * thick * np.sin(angle)
    x = curve[0] - np.sin(theta) * up - 0.5
    y = curve[1] + np.cos(theta) * up
    c, n = np.cos(yaw), np.sin(yaw)
    return np.stack([c * x + n * across, y, -n * x + c * across], 1) + shift


def pose(k: int) -> tuple[float, float, np.ndarray]:
    return 0.25 * k - 0.4, 0.12 * k, np.array([0.1 * k, 0.02 * k, 0.0])


def clip() -> tuple[list[Surface], list[np.ndarray]]:
    made = [rod(*pose(k), around=14 + k % 3, along=24 + k, phase=0.3 * k) for k in range(COUNT)]
    return [m[0] for m in made], [m[1] for m in made]


ALL = np.ones(COUNT, bool)
SEEDS = list(range(COUNT))


@pytest.fixture(scope="module")
def solved():
    surfaces, materials = clip()
    return register_sequence(surfaces, TIMES, 2, ALL, SEEDS, QUICK), materials[2]


def error(vertices: np.ndarray, material: np.ndarray, k: int) -> float:
    return float(np.linalg.norm(vertices - place(material, *pose(k)), axis=1).mean())


def test_true_motion_is_recovered_to_one_percent(solved) -> None:
    result, material = solved
    errors = [error(result.vertices[k], material, k) for k in range(COUNT)]
    assert max(errors) < 0.01, np.round(errors, 4)
    still = [error(result.vertices[2], material, k) for k in range(COUNT)]
    assert max(still) > 0.2  # the motion is large, so that the test above says something
    assert result.trusted.all()
    assert min(min(f.explained, f.covered) for f in result.fits) > 0.97


def test_the_same_input_gives_the_same_bytes_and_a_broken_run_goes_on_to_them(solved) -> None:
    class Stop(Exception):
        pass

    class Stopping(MemoryStore):
        def save(self, keyframe: int, arrays: dict[str, np.ndarray]) -> None:
            super().save(keyframe, arrays)
            if len(self.kept) == 2:
                raise Stop

    surfaces, _ = clip()
    store = Stopping()
    with pytest.raises(Stop):
        register_sequence(surfaces, TIMES, 2, ALL, SEEDS, QUICK, store=store)
    resumed = MemoryStore()
    resumed.kept = dict(store.kept)
    assert sorted(resumed.kept) == [3, 4]
    again = register_sequence(surfaces, TIMES, 2, ALL, SEEDS, QUICK, store=resumed)
    assert np.array_equal(again.vertices, solved[0].vertices)


@pytest.mark.slow
def test_a_garbage_keyframe_is_found_and_harms_no_other(solved) -> None:
    surfaces, materials = clip()
    rng = np.random.default_rng(7)
    ball = trimesh.creation.icosphere(3, radius=0.4)
    noise = ball.vertices * (1 + 0.3 * rng.normal(size=(len(ball.vertices), 1)))
    surfaces[3] = Surface(noise + pose(3)[2], np.asarray(ball.faces))
    reasons = trust.judge(surfaces, SEEDS, None)
    assert [bool(r) for r in reasons] == [k == 3 for k in range(COUNT)]
    trusted = np.array([not r for r in reasons])
    result = register_sequence(surfaces, TIMES, 2, trusted, SEEDS, QUICK)
    assert list(result.trusted) == list(trusted)
    errors = [error(result.vertices[k], materials[2], k) for k in range(COUNT)]
    assert max(errors[:3] + errors[4:]) < 0.012, np.round(errors, 4)
    assert errors[3] < 0.02  # bridged from its neighbours


@pytest.mark.slow
def test_garbage_that_was_not_foreseen_is_not_followed() -> None:
    surfaces, materials = clip()
    far = trimesh.creation.icosphere(2, radius=0.5)
    surfaces[3] = Surface(far.vertices + np.array([0, 0.5, 0]), np.asarray(far.faces))
    result = register_sequence(surfaces, TIMES, 2, ALL, SEEDS, QUICK)
    assert list(result.trusted) == [True, True, True, False, True]
    errors = [error(result.vertices[k], materials[2], k) for k in range(COUNT)]
    assert max(errors) < 0.02, np.round(errors, 4)


def test_one_keyframe_stands_still() -> None:
    surfaces, _ = clip()
    result = register_sequence(surfaces[:1], TIMES[:1], 0, ALL[:1], SEEDS[:1], QUICK)
    assert np.allclose(result.vertices[0], surfaces[0].vertices, atol=1e-12)


def test_keyframes_that_share_their_faces_are_taken_as_they_are() -> None:
    made = [rod(*pose(k), around=14, along=24, phase=0.0)[0] for k in range(4)]
    trusted = np.array([True, True, False, True])
    result = register_sequence(made, TIMES[:4], 0, trusted, SEEDS[:4], QUICK)
    for k in (0, 1, 3):
        assert np.array_equal(result.vertices[k], made[k].vertices)
    assert np.linalg.norm(result.vertices[2] - made[2].vertices, axis=1).max() < 0.02


def test_a_rigid_body_that_moves_keeps_its_shape_where_it_is_bridged() -> None:
    body, material = rod(0.3, 0.0, np.zeros(3), 12, 20, 0.0)
    made = [Surface(place(material, 0.3, 0.8 * k, np.array([k, 0.0, 0])), body.faces) for k in range(3)]
    result = register_sequence(made, TIMES[:3], 0, np.array([True, False, True]), SEEDS[:3], QUICK)
    a, b = edges_of(body.faces).T
    rest = np.linalg.norm(body.vertices[a] - body.vertices[b], axis=1)
    bridged = np.linalg.norm(result.vertices[1][a] - result.vertices[1][b], axis=1)
    assert np.allclose(bridged, rest, atol=1e-9)
    assert np.linalg.norm(result.vertices[1] - made[1].vertices, axis=1).max() < 0.05


def test_meshes_of_several_parts() -> None:
    surfaces = []
    for k in range(3):
        a, _ = rod(0.2 * k, 0.0, np.zeros(3), 12 + k, 20, 0.1 * k)
        b, _ = rod(0.0, 0.3 * k, np.array([0.0, 0.5, 0.0]), 12, 20 + k, 0.0)
        faces = np.concatenate([a.faces, b.faces + len(a.vertices)])
        surfaces.append(Surface(np.concatenate([a.vertices, b.vertices]), faces))
    result = register_sequence(surfaces, TIMES[:3], 0, ALL[:3], SEEDS[:3], QUICK)
    assert result.trusted.all() and np.isfinite(result.vertices).all()
    assert min(f.covered for f in result.fits) > 0.95


def odd(kind: str, k: int) -> Surface:
    ball = trimesh.creation.icosphere(1, radius=0.4)
    vertices, faces = np.asarray(ball.vertices, float), np.roll(np.asarray(ball.faces), k, 0)
    if kind == "triangle":
        return Surface(np.array([[0, 0, 0], [1, 0, 0], [0, 1 + 0.1 * k, 0]]), np.roll([[0, 1, 2]], k, 1))
    if kind == "faces without area":
        thin = [[5, 5, 7], [42, 43, 42]]
        return Surface(np.concatenate([vertices, [[0, 0, 0]] * 2]), np.concatenate([faces, thin]))
    if kind == "a point":
        return Surface(vertices * (k != 1), faces)
    return Surface(vertices + np.array([50.0 * k, 0, 0]), faces)


@pytest.mark.parametrize("kind", ["triangle", "faces without area", "a point", "a leap"])
def test_odd_meshes_give_numbers(kind: str) -> None:
    options = SequenceOptions(nodes=20, matching=Matching(transport_points=100))
    surfaces = [odd(kind, k) for k in range(3)]
    result = register_sequence(surfaces, TIMES[:3], 0, ALL[:3], SEEDS[:3], options)
    assert np.isfinite(result.vertices).all()
    assert list(result.trusted) == [True, kind != "a point", True]
    if kind == "a leap":
        assert np.allclose(result.vertices.mean(1)[:, 0], [0, 50, 100], atol=0.05)


def test_order_of_the_chain() -> None:
    assert chain_order(4, 1) == [(2, -1), (3, -1), (0, 1)]
