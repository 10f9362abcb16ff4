"""Outside models, one file each. The dicts say what a name stands for; nothing registers itself."""

from __future__ import annotations

import difflib
import importlib
from typing import Any

from v2m4.errors import ConfigError, MissingBackend

_HOW = "write it as package.module:Class of an importable module"

GENERATORS = {
    "inflate": "v2m4.models.inflate:Inflate",
    "folder": "v2m4.models.folder:Folder",
    "reference": "v2m4.models.reference:Reference",
}
MATTES = {
    "key": "v2m4.ingest.key:KeyMatte",
    "rembg": "v2m4.models.rembg:Rembg",
    "sam2": "v2m4.models.sam2:Sam2",
}
METRICS = {
    "structure": "v2m4.models.structure:Structure",
    "features": "v2m4.models.features:Features",
    "lpips": "v2m4.models.lpips:Lpips",
    "dreamsim": "v2m4.models.dreamsim:DreamSim",
}
STEREO = {
    "dust3r": "v2m4.models.dust3r:Dust3r",
    "vggt": "v2m4.models.vggt:Vggt",
}


def load(kind: dict[str, str], name: str) -> Any:
    """The class behind a name of one of the dicts above, or behind your own ``"module:Class"``.

    ConfigError when there is no such name, module or class. What the class itself needs it imports when it is called.
    """
    module, colon, attribute = kind.get(name, name).partition(":")
    if not colon:
        close = difflib.get_close_matches(name, kind, 1)
        raise ConfigError(f"there is no {name}", f"did you mean {close[0]}?" if close else f"known: {', '.join(kind)}")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name and not f"{module}.".startswith(f"{error.name}."):  # it is there, but what it imports is not
            raise MissingBackend(f"{error.name}, which {name} imports,", f"pip install {error.name}") from error
        raise ConfigError(f"cannot load {name}: {error}", _HOW) from error
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ConfigError(f"cannot load {name}: {error}", _HOW) from error
    if not callable(found):
        raise ConfigError(f"cannot load {name}: it is not a class", _HOW)
    return found
