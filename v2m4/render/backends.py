"""The rasterisers by name. An outside package is imported only when its name is asked for."""

from __future__ import annotations

import difflib
import importlib

from v2m4.errors import InputError
from v2m4.protocols import Rasterizer

RASTERIZERS = {
    "zbuffer": "v2m4.render.zbuffer:ZBuffer",
    "pytorch3d": "v2m4.render.pytorch3d:PyTorch3D",
    "nvdiffrast": "v2m4.render.nvdiffrast:NvDiffRast",
}


def load_rasterizer(name: str) -> Rasterizer:
    """The rasteriser called ``name``, ready to use. InputError when there is no such name, MissingBackend when its
    package is not installed."""
    if name not in RASTERIZERS:
        close = difflib.get_close_matches(name, RASTERIZERS, 1)
        hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(RASTERIZERS)}"
        raise InputError(f"there is no rasterizer {name}", hint)
    module, _, attribute = RASTERIZERS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)()
