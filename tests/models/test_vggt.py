"""VGGT's adapter on a stand-in with the same signatures: no registry has the package."""

from __future__ import annotations

import sys
from pathlib import Path

import fake_vggt
import numpy as np
import pytest

from v2m4.errors import InputError, MissingBackend
from v2m4.models import vggt

pytest.importorskip("huggingface_hub", reason="huggingface_hub (the extra v2m4[dust3r]) is not installed")


def test_points_of_every_pixel_come_from_weights_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    kind = fake_vggt.install(monkeypatch)
    torch.manual_seed(0)
    made = kind(embed_dim=4)
    made.save_pretrained(tmp_path / vggt.MODEL.name)
    model = vggt.Vggt(weights_dir=tmp_path)
    images = np.random.default_rng(0).integers(0, 256, (3, 70, 70, 3), dtype=np.uint8)
    maps = model.point_maps(images)
    assert maps.points.shape == (3, 70, 70, 3) and maps.confidence.shape == (3, 70, 70)
    with torch.inference_mode():
        own = made(torch.from_numpy(images.transpose(0, 3, 1, 2).astype(np.float32) / 255))
    np.testing.assert_allclose(maps.points, own["world_points"][0].numpy(), atol=1e-5)  # 70 is a multiple of 14


def test_other_sizes_are_scaled_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_vggt.install(monkeypatch)(embed_dim=2).save_pretrained(tmp_path / vggt.MODEL.name)
    maps = vggt.Vggt(weights_dir=tmp_path).point_maps(np.zeros((2, 50, 50, 3), np.uint8))
    assert maps.points.shape == (2, 50, 50, 3)


def test_weights_of_something_else_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_vggt.install(monkeypatch)(embed_dim=2).save_pretrained(tmp_path / vggt.MODEL.name)
    (tmp_path / vggt.MODEL.name / "config.json").write_text('{"embed_dim": 3}')
    with pytest.raises(InputError, match="not the weights of VGGT"):
        vggt.Vggt(weights_dir=tmp_path)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vggt.models.vggt", None)
    with pytest.raises(MissingBackend, match="vggt"):
        vggt.Vggt()
