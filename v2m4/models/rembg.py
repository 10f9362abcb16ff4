"""Object masks for any background: the ``rembg`` package, where it is installed.

rembg fetches what it lacks; here it is only ever given weights that are on disk. They are fetched by us, after saying
so, when the user asked for the model by name (:mod:`v2m4.weights`).
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from v2m4.errors import ConfigError, InputError, MissingBackend
from v2m4.protocols import Progress
from v2m4.weights import Weights, fetch, find

_URL = "https://github.com/danielgatis/rembg/releases/download/v0.0.0/"


def _model(name: str, size_mb: float, md5: str, licence: str, file: str = "") -> Weights:
    return Weights(name, f"{name}.onnx", _URL + (file or f"{name}.onnx"), size_mb, md5, licence)


#: Models that may be used commercially, the best first. The checksums are rembg's own.
MODELS = {
    w.name: w
    for w in (
        _model("birefnet-general", 973, "7a35a0141cbbc80de11d9c9a28f52697", "MIT", "BiRefNet-general-epoch_244.onnx"),
        _model("isnet-general-use", 179, "fc16ebd8b0c10d971d3513d564d01e29", "Apache-2.0"),
        _model("u2net", 176, "60024c5c889badc19c04ad937298a77b", "Apache-2.0"),
        _model(
            "birefnet-general-lite", 224, "4fab47adc4ff364be1713e97b7e66334", "MIT",
            "BiRefNet-general-bb_swin_v1_tiny-epoch_232.onnx",
        ),
        _model("u2netp", 4.6, "8e83ca70e441ab06c318d82300c84806", "Apache-2.0"),
    )
}  # fmt: skip
#: How much of the object's surroundings the second look takes in, as a share of its size.
ROOM = 0.15
#: The first look is enough where the object is at least this share of the picture's longer side.
LARGE = 0.75


def homes(weights_dir: Path | None = None) -> list[Path]:
    """Folders in which weights may lie, in the order in which they are looked into: the user's, then rembg's old and
    new ones."""
    data = os.environ.get("XDG_DATA_HOME")
    old = os.environ.get("U2NET_HOME") or os.path.join(data or "~", ".u2net")
    new = os.environ.get("REMBG_HOME") or (os.path.join(data, "rembg") if data else os.path.join("~", ".rembg"))
    named = [Path(p).expanduser() for p in (old, new)]
    return [*([weights_dir] if weights_dir else []), *named]


def on_disk(weights: Weights, weights_dir: Path | None = None) -> Path | None:
    """The file of a model, in a folder or in rembg's ``models/NAME/`` below it."""
    folders = homes(weights_dir)
    return find(weights.file, folders) or find(f"models/{weights.name}/{weights.file}", folders)


class Rembg:
    """Object masks for any background by the ``rembg`` package.

    ``model`` None takes the best of ``MODELS`` that is on disk (birefnet-general, isnet-general-use, u2net,
    birefnet-general-lite, u2netp, in this order) and fetches nothing; a model that is named is fetched if it is not
    there. MissingBackend without the package, ConfigError for a model that is none, InputError without
    weights.
    """

    name = "rembg"

    def __init__(self, model: str | None = None, weights_dir: Path | None = None, log: Progress | None = None) -> None:
        weights = _choose(model, weights_dir)
        try:
            import rembg
        except ImportError:
            raise MissingBackend(
                "rembg (finds the object where there is neither alpha nor a plain background)",
                "pip install -c constraints.txt 'v2m4[matte]', or give pictures with alpha or with a plain background",
                "MIT",
            ) from None
        if weights is None:
            raise InputError(
                f"there are no weights of a mask model on disk (looked for {', '.join(MODELS)})",
                f"name one to have it fetched, say --set ingest.matte_model=u2net, or put u2net.onnx from {_URL} into "
                f"{homes(weights_dir)[0]}. Or give pictures with alpha or with a plain background",
            )
        path = on_disk(weights, weights_dir)
        if path is None:
            assert log is not None, "a model that has to be fetched needs a log to say so"
            path = fetch(weights, homes(weights_dir)[0], log)
        self.model, self.licence = weights.name, weights.licence
        try:
            with _only(path):
                self._remove, self._session = rembg.remove, rembg.new_session(weights.name)
        except InputError:
            raise
        except Exception as error:  # onnxruntime's errors have no common class
            raise InputError(
                f"{path}: not the weights of {weights.name} ({_first_line(error)})",
                f"delete it and get {weights.url} again; whole, its md5 is {weights.md5}",
            ) from None

    def alpha(self, image: np.ndarray) -> np.ndarray:
        """``image`` (H,W,3) uint8 sRGB -> (H,W) uint8.

        The networks see a few hundred pixels of whatever they are given, so a small object is looked at again in the
        part of the picture that holds what was found. What counts is the mean of a look and one in a mirror: where the
        background looks like an object the two disagree.
        """
        first = self._look(image)
        part = _around(first)
        if part is None:
            return _mean(first, self._mirrored(image))
        out = np.zeros_like(first)
        out[part] = _mean(self._look(image[part]), self._mirrored(image[part]))
        return out

    def _mirrored(self, image: np.ndarray) -> np.ndarray:
        return self._look(image[:, ::-1])[:, ::-1]

    def _look(self, image: np.ndarray) -> np.ndarray:
        return np.asarray(self._remove(np.ascontiguousarray(image), session=self._session, only_mask=True), np.uint8)


def _mean(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.round((a.astype(np.float32) + b) / 2).astype(np.uint8)


def _around(alpha: np.ndarray) -> tuple[slice, slice] | None:
    """The part of the picture around the object, or None where that would be most of it or there is none."""
    rows, columns = np.flatnonzero((alpha > 127).any(1)), np.flatnonzero((alpha > 127).any(0))
    if not len(rows):
        return None
    size = max(np.ptp(rows), np.ptp(columns)) + 1
    if size > LARGE * max(alpha.shape):
        return None
    room = int(ROOM * size) + 4
    return (
        slice(max(0, int(rows[0]) - room), int(rows[-1]) + room + 1),
        slice(max(0, int(columns[0]) - room), int(columns[-1]) + room + 1),
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _choose(model: str | None, weights_dir: Path | None) -> Weights | None:
    if model is None:
        return next((w for w in MODELS.values() if on_disk(w, weights_dir)), None)
    if model not in MODELS:
        close = difflib.get_close_matches(model, MODELS, 1)
        raise ConfigError(
            f"there is no mask model {model}", f"did you mean {close[0]}?" if close else f"known: {', '.join(MODELS)}"
        )
    return MODELS[model]


@contextmanager
def _only(path: Path) -> Iterator[None]:
    """Have rembg take the file at ``path``, whatever its checksum, and fetch nothing.

    Every rembg, old or new, looks for a file in ``U2NET_HOME`` itself. It fetches by pooch, which old ones also ask for
    what is there.
    """
    import pooch

    def retrieve_none(*args: Any, fname: str = "", **kwargs: Any) -> str:
        if fname == path.name and path.is_file():
            return str(path)
        raise InputError(
            f"the installed rembg does not take the weights at {path}",
            "pip install -U -c constraints.txt 'v2m4[matte]'",
        )

    wanted = {"U2NET_HOME": str(path.parent), "MODEL_CHECKSUM_DISABLED": "1"}
    held = {name: os.environ.get(name) for name in wanted}
    retrieve, pooch.retrieve = pooch.retrieve, retrieve_none
    os.environ.update(wanted)
    try:
        yield
    finally:
        pooch.retrieve = retrieve
        for name, value in held.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
