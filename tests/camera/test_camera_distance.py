from __future__ import annotations

import numpy as np
import trimesh

from v2m4.camera.distance import split
from v2m4.camera.smooth import smooth
from v2m4.types import Mesh

TIMES = np.arange(16) / 12


def _boxes(extents: np.ndarray) -> list[Mesh]:
    out = []
    for e in extents:
        box = trimesh.creation.box(e)
        out.append(Mesh(box.vertices, box.faces))
    return out


def test_what_jumps_is_the_scale_and_what_is_smooth_the_distance() -> None:
    rng = np.random.default_rng(0)
    distance = 3 * np.exp(0.3 * TIMES)
    scale = 1 + 0.03 * rng.normal(size=16)
    apparent = distance / scale
    out = split(apparent, _boxes(1 + 1e-6 * np.arange(48).reshape(16, 3)), TIMES, np.ones(16, bool), 2.5)
    unit = np.median(out.distance / distance)
    assert np.abs(out.distance / distance / unit - 1).max() < 0.025
    assert np.abs(out.scale / scale / unit - 1).max() < 0.025
    assert np.allclose(out.distance / out.scale, apparent, rtol=1e-12)
    assert np.isclose(np.median(out.scale), 1)


def test_a_volume_that_stays_tells_the_scale_exactly() -> None:
    """An object that stretches and shrinks at constant volume, each mesh normalised to its own largest extent."""
    length = 1 + 0.3 * np.sin(np.arange(16) * 0.9)
    true = np.stack([length, 1 / np.sqrt(length), 1 / np.sqrt(length)], 1)
    scale = true.max(1)
    out = split(3.0 / scale, _boxes(true / scale[:, None]), TIMES, np.ones(16, bool), 2.5)
    assert out.measure == "volume"
    assert np.abs(out.scale / scale / np.median(out.scale / scale) - 1).max() < 1e-6


def test_one_and_the_same_mesh_keeps_its_size_and_may_come_near() -> None:
    distance = 3 - 1.2 * np.sin(TIMES * 2.5)
    noisy = distance * (1 + 0.005 * np.random.default_rng(1).normal(size=16))
    out = split(noisy, _boxes(np.ones((1, 3))) * 16, TIMES, np.ones(16, bool), 2.5)
    assert np.array_equal(out.scale, np.ones(16))
    assert np.abs(out.distance / distance - 1).max() < 0.03
    two = split(np.array([2.0, 2.4]), _boxes(np.ones((1, 3))) * 2, np.array([0, 0.5]), np.ones(2, bool), 2.5)
    assert np.allclose(two.distance, [2.0, 2.4])


def test_a_bad_keyframe_has_no_say() -> None:
    apparent = np.full(16, 2.0)
    apparent[5] = 40.0
    sizes = np.ones((16, 3)) * (1 + 1e-6 * np.arange(16)[:, None])  # not one and the same mesh
    good = np.arange(16) != 5
    out = split(apparent, _boxes(sizes), TIMES, good, 2.5)
    assert np.allclose(out.distance, 2.0)
    assert np.allclose(out.scale[good], 1.0)


def test_smoothing_passes_straight_lines_and_ignores_one_outlier() -> None:
    times = np.sort(np.random.default_rng(2).uniform(0, 3, 20))
    line = 0.4 * times - 1
    assert np.abs(smooth(line, times, np.ones(20), 2.5) - line).max() < 1e-6
    spoiled = line.copy()
    spoiled[7] += 1.0
    assert np.abs(smooth(spoiled, times, np.ones(20), 2.5) - line).max() < 0.02


def test_slow_waves_pass_and_fast_ones_do_not() -> None:
    times = np.arange(200) / 20
    for period, low, high in ((10.0, 0.9, 1.05), (0.5, -0.05, 0.05)):
        wave = np.sin(2 * np.pi * times / period)
        middle = slice(60, 140)
        gain = (smooth(wave, times, np.ones(200), 2.5)[middle] @ wave[middle]) / (wave[middle] @ wave[middle])
        assert low < gain < high


def test_one_keyframe_passes_and_two_are_equally_far() -> None:
    one = split(np.array([2.0]), _boxes(np.ones((1, 3))), np.zeros(1), np.ones(1, bool), 2.5)
    assert np.allclose([one.distance, one.scale], [[2.0], [1.0]])
    meshes = _boxes(np.array([[1, 1, 0.5], [1, 0.9, 0.5]]))
    two = split(np.array([2.0, 2.2]), meshes, np.array([0, 0.1]), np.ones(2, bool), 2.5)
    assert two.distance[0] == two.distance[1]
    assert np.allclose(two.distance / two.scale, [2.0, 2.2])
