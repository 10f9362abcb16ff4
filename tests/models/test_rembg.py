"""The matting network: what is missing is said, and nothing is fetched."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from v2m4.errors import InputError, MissingBackend
from v2m4.models.rembg import Rembg


def test_rembg_says_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "rembg", None)
    with pytest.raises(MissingBackend) as missing:
        Rembg()
    assert "v2m4[matte]" in missing.value.hint and "alpha" in missing.value.hint
    monkeypatch.setitem(sys.modules, "rembg", types.ModuleType("rembg"))
    monkeypatch.setenv("U2NET_HOME", str(tmp_path))
    with pytest.raises(InputError, match=r"u2net\.onnx \(176 MB, licence Apache-2\.0\)"):
        Rembg()


def test_rembg_is_used_without_download(monkeypatch, tmp_path):
    fake = types.ModuleType("rembg")
    seen = {}

    def new_session(name):
        import os

        seen["checksum"] = os.environ.get("MODEL_CHECKSUM_DISABLED")
        return name

    fake.new_session = new_session
    fake.remove = lambda image, session, only_mask: (image[..., 0] > 100).astype(np.uint8) * 255
    monkeypatch.setitem(sys.modules, "rembg", fake)
    monkeypatch.setenv("U2NET_HOME", str(tmp_path))
    monkeypatch.delenv("MODEL_CHECKSUM_DISABLED", raising=False)
    (tmp_path / "u2netp.onnx").write_bytes(b"weights")
    model = Rembg("u2netp")
    assert seen["checksum"] == "1"  # else rembg would fetch a file it does not know again
    image = np.zeros((8, 8, 3), np.uint8)
    image[2:6, 2:6] = 200
    assert model.alpha(image).sum() == 16 * 255 and model.licence == "Apache-2.0"
