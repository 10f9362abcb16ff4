"""The snippets of the documentation run, in their order."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.mark.slow
def test_the_page_on_rendering_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "rendering.md").read_text("utf-8"), re.S)
    assert len(blocks) == 6
    for block in blocks:
        exec(compile(block, "rendering.md", "exec"), names)
    p, texture, raster = names["p"], names["texture"], names["raster"]
    assert names["image"].shape == (1, 64, 96, 4) and raster.face.shape == (1, 64, 96)
    assert p.grad.abs().sum() > 0
    names["image"].sum().backward()
    assert texture.grad.abs().sum() > 0
    area = names["same"][..., 3].sum().item() / (64 * 96)
    np.testing.assert_allclose(names["covered"].mean((1, 2)), area, rtol=0.03)
    assert names["found"].face.max() == 1 and names["different"].face[1].max() == 0
    assert np.unique(names["lit"][names["lit"][..., 3] == 255][:, 0]).max() < 200
    assert sorted(path.name for path in tmp_path.iterdir()) == ["both.mp4", "turntable.mp4"]
