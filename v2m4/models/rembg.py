"""Object masks for any background: the ``rembg`` package, where it is installed. Nothing is ever downloaded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from v2m4.errors import InputError, MissingBackend

#: Models of rembg that may be used commercially: file size and licence.
REMBG_MODELS = {
    "u2net": ("176 MB", "Apache-2.0"),
    "u2netp": ("4.7 MB", "Apache-2.0"),
    "isnet-general-use": ("179 MB", "Apache-2.0"),
    "birefnet-general": ("973 MB", "MIT"),
    "birefnet-general-lite": ("224 MB", "MIT"),
}
_REMBG_FILES = "https://github.com/danielgatis/rembg/releases/tag/v0.0.0"


def rembg_model_path(model: str) -> Path:
    """Where rembg looks for a model's weights."""
    home = os.environ.get("U2NET_HOME") or os.path.join(os.environ.get("XDG_DATA_HOME") or "~", ".u2net")
    return Path(home).expanduser() / f"{model}.onnx"


def _newer_model_path(model: str) -> Path:
    """Where rembg from 2.0.80 or so on looks first; an older one would not look there, and download."""
    try:
        from rembg.sessions.base import BaseSession

        return Path(BaseSession.rembg_home()) / "models" / model / f"{model}.onnx"
    except (ImportError, AttributeError):
        return rembg_model_path(model)


class Rembg:
    """Object masks for any background by the ``rembg`` package; weights are read from disk, never downloaded."""

    name = "rembg"

    def __init__(self, model: str = "u2net") -> None:
        """MissingBackend without the package; InputError without the model's weights."""
        size, self.licence = REMBG_MODELS.get(model, ("unknown size", "see the model's page"))
        try:
            import rembg
        except ImportError:
            raise MissingBackend(
                "rembg (finds the object where there is neither alpha nor a plain background)",
                "pip install 'v2m4[matte]', or give pictures with alpha or with a plain background",
                "MIT",
            ) from None
        path = rembg_model_path(model)
        if not path.is_file() and not _newer_model_path(model).is_file():
            raise InputError(
                f"the weights of the mask model {model} are missing: {path} ({size}, licence {self.licence})",
                f"put {path.name} there, from {_REMBG_FILES}; nothing is downloaded unasked. "
                "Or give pictures with alpha or with a plain background",
            )
        with _no_download():
            self._remove, self._session = rembg.remove, rembg.new_session(model)

    def alpha(self, image: np.ndarray) -> np.ndarray:
        """``image`` (H,W,3) uint8 sRGB -> (H,W) uint8."""
        return np.asarray(self._remove(image, session=self._session, only_mask=True), np.uint8)


@contextmanager
def _no_download() -> Iterator[None]:
    """rembg fetches a file again whose checksum it does not know; what the user put there is to be used."""
    held = os.environ.get("MODEL_CHECKSUM_DISABLED")
    os.environ["MODEL_CHECKSUM_DISABLED"] = "1"
    try:
        yield
    finally:
        if held is None:
            del os.environ["MODEL_CHECKSUM_DISABLED"]
        else:
            os.environ["MODEL_CHECKSUM_DISABLED"] = held
