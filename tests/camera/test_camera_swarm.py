from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from camera_cases import creature, photograph, pose

from v2m4.camera.search import fit_positions
from v2m4.camera.subject import Subject
from v2m4.camera.swarm import SwarmOptions, improve
from v2m4.camera.view import View, make_view
from v2m4.errors import MissingBackend
from v2m4.transforms import rotation_angle_deg, rotation_from_vector


def _seen() -> tuple[View, Subject, np.ndarray, np.ndarray]:
    true = pose(35, 12, 4)
    image, K = photograph(creature(), true, 160, 160)
    view, subject = make_view(image, K, 64), Subject.of(creature())
    off = (rotation_from_vector(np.array([0.15, -0.2, 0.1])) @ view.rotation @ true[:3, :3])[None]
    return view, subject, view.rotation @ true[:3, :3], off


def test_a_swarm_comes_nearer_and_gives_the_same_bits_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("pyswarms") is None:
        pytest.skip("pyswarms (the extra v2m4[swarm]) is not installed")
    monkeypatch.chdir(tmp_path)
    view, subject, true, off = _seen()
    positions = fit_positions(view, subject, off)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = improve(view, subject, off, positions, SwarmOptions(iterations=8), seed=5)
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002 - the caller's generator is left alone
    again = improve(view, subject, off, positions, SwarmOptions(iterations=8), seed=5)
    assert rotation_angle_deg(first[0][0], true) < 0.5 * rotation_angle_deg(off[0], true)
    assert np.array_equal(first[0], again[0]) and np.array_equal(first[1], again[1])
    assert list(tmp_path.iterdir()) == []  # the package would leave its log here


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyswarms", None)
    monkeypatch.setitem(sys.modules, "pyswarms.single", None)
    view, subject, _, off = _seen()
    with pytest.raises(MissingBackend, match="pyswarms"):
        improve(view, subject, off, fit_positions(view, subject, off), SwarmOptions(), seed=0)
