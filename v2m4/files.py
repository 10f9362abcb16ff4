"""Writing files whole or not at all: under a temporary name, flushed, then renamed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from v2m4.errors import InputError


def write_bytes(path: Path | str, data: bytes) -> None:
    """Write a file whole or not at all. InputError when the place cannot be written."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}", "choose another place with -o") from None


def write_text(path: Path | str, text: str) -> None:
    """UTF-8, whole or not at all."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path | str, value: Any) -> None:
    """Deterministic, human-readable JSON; NaN is refused with a ValueError."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
