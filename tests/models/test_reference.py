"""One mesh for the whole clip."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from v2m4.errors import InputError
from v2m4.formats import write_mesh
from v2m4.models.reference import Reference
from v2m4.types import Mesh

BODY = Mesh([(5, 0, 0), (6, 0, 0), (5, 1, 0), (5, 0, 1)], [(0, 2, 1), (0, 1, 3), (1, 2, 3), (0, 3, 2)])


def test_every_frame_gets_the_same_mesh_as_given(tmp_path: Path) -> None:
    write_mesh(tmp_path / "ref.glb", BODY)
    reference = Reference(tmp_path / "ref.glb")
    image = np.zeros((2, 2, 4), np.uint8)
    first, second = reference.generate(image, 0, 1), reference.generate(image, 9, 2)
    assert first.mesh is second.mesh
    np.testing.assert_array_equal(first.mesh.vertices, BODY.vertices)
    assert first.notes == ("from ref.glb, the same for every keyframe",)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.glb: no such file"):
        Reference(tmp_path / "gone.glb")
