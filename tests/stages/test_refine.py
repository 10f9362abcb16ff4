"""The refine stage passes meshes through bit for bit and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from v2m4 import formats
from v2m4.errors import InputError
from v2m4.stages import refine
from v2m4.stages.refine import RefineOptions
from v2m4.types import Mesh

BODY = Mesh([(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)], [(0, 2, 1), (0, 1, 3), (1, 2, 3), (0, 3, 2)])


def test_meshes_pass_through_bit_for_bit(context, tmp_path: Path) -> None:
    generate = tmp_path / "generate"
    for k in (0, 7):
        formats.write_mesh(formats.mesh_path(generate, k), BODY.moved(BODY.vertices + k))
    formats.write_json(generate / "generate.json", {"generator": "inflate"})
    refine.run(context, RefineOptions(), tmp_path / "ingest", generate, tmp_path / "camera")
    assert sorted(p.name for p in (context.out / "meshes").iterdir()) == ["00000.glb", "00007.glb"]
    for k in (0, 7):
        assert formats.mesh_path(context.out, k).read_bytes() == formats.mesh_path(generate, k).read_bytes()
    summary = formats.read_json(context.out / "refine.json")
    assert summary["refined"] is False
    assert "inflate has no condition embedding" in summary["reason"]
    assert summary["keyframes"] == [0, 7]


def test_no_meshes_is_an_error(context, tmp_path: Path) -> None:
    formats.write_json(tmp_path / "generate" / "generate.json", {"generator": "inflate"})
    with pytest.raises(InputError, match="no meshes"):
        refine.run(context, RefineOptions(), tmp_path, tmp_path / "generate", tmp_path)
