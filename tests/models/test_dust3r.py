"""DUSt3R through the real loading code, on tiny random weights that the test makes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from fakecontext import FakeContext

from v2m4.errors import InputError, MissingBackend
from v2m4.models import dust3r, hub


def _tiny(folder: Path) -> Path:
    """A network of the same build, 64 pixels and a few channels wide."""
    package = pytest.importorskip("mini_dust3r.model", reason="mini-dust3r is not installed")
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    network = package.AsymmetricCroCo3DStereo(
        output_mode="pts3d", head_type="linear", patch_size=16, img_size=(64, 64), pos_embed="RoPE100",
        landscape_only=False, enc_embed_dim=32, enc_depth=1, enc_num_heads=2, dec_embed_dim=32, dec_depth=1,
        dec_num_heads=2,
    )  # fmt: skip
    network.save_pretrained(folder / dust3r.MODEL.name)
    return folder


def test_every_pixel_of_every_picture_gets_a_point(tmp_path: Path) -> None:
    model = dust3r.Dust3r(weights_dir=_tiny(tmp_path))
    images = np.random.default_rng(0).integers(0, 256, (4, 48, 48, 3), dtype=np.uint8)
    maps = model.point_maps(images)
    assert maps.points.shape == (4, 48, 48, 3) and maps.confidence.shape == (4, 48, 48)
    assert np.isfinite(maps.points).all() and (maps.confidence > 0).all()
    again = dust3r.Dust3r(weights_dir=tmp_path).point_maps(images)
    np.testing.assert_array_equal(maps.points, again.points)
    assert "not commercial" in model.licence


def test_pairs_of_other_scales_are_brought_to_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a pair says is up to a scale of its own: the answer must not depend on it."""
    model = dust3r.Dust3r(weights_dir=_tiny(tmp_path))
    images = np.random.default_rng(1).integers(0, 256, (3, 64, 64, 3), dtype=np.uint8)
    plain = model.point_maps(images)
    real, calls = model._pair, []

    def scaled(first: object, other: object) -> tuple:
        calls.append(1)
        factor = 1.0 if len(calls) == 1 else 2.5
        return tuple((points * factor, confidence) for points, confidence in real(first, other))

    monkeypatch.setattr(model, "_pair", scaled)
    np.testing.assert_allclose(model.point_maps(images).points, plain.points, rtol=1e-4, atol=1e-6)


def test_damaged_weights_are_an_error_that_names_the_folder(tmp_path: Path) -> None:
    (_tiny(tmp_path) / dust3r.MODEL.name / "model.safetensors").write_bytes(b"no")
    with pytest.raises(InputError, match="not the weights of DUSt3R"):
        dust3r.Dust3r(weights_dir=tmp_path)


def test_a_download_is_announced_and_its_failure_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: FakeContext
) -> None:
    client = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")

    def unreachable(*_: object, local_files_only: bool = False, **__: object) -> str:
        if local_files_only:
            raise client.errors.LocalEntryNotFoundError("not here")
        raise OSError("no network")

    monkeypatch.setattr(client, "snapshot_download", unreachable)
    with pytest.raises(InputError, match="could not be fetched") as caught:
        hub.folder_of(dust3r.MODEL, tmp_path, context)
    with pytest.raises(InputError, match="not on disk"):
        hub.folder_of(dust3r.MODEL, tmp_path, None)  # nobody to say it to
    assert "2285 MB" in context.messages[0] and "not commercial" in context.messages[0]
    assert "--weights-dir" in (caught.value.hint or "")


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mini_dust3r.model", None)
    with pytest.raises(MissingBackend, match="mini-dust3r"):
        dust3r.Dust3r()
