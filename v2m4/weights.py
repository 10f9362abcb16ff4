"""Weights of networks: where they lie, and how they are fetched when the user asked for a model by name.

Nothing here goes to the network unless :func:`fetch` is called, and that says first what it fetches, from where, how
large it is, under which licence, and how to put it there by hand.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from v2m4.errors import InputError
from v2m4.protocols import Progress

_CHUNK = 1 << 20
_TIMEOUT_S = 30


@dataclass(frozen=True)
class Weights:
    """One file of weights. ``size_mb`` is about its size, ``md5`` its checksum, ``licence`` that of the weights."""

    name: str
    file: str
    url: str
    size_mb: float
    md5: str
    licence: str


def find(file: str, folders: Iterable[Path]) -> Path | None:
    """The first of ``folders`` that holds ``file``, which may name sub-folders."""
    return next((folder / file for folder in folders if (folder / file).is_file()), None)


def said(what: str, source: str, size_mb: float, licence: str, by_hand: str) -> str:
    """The line that goes before any download."""
    return f"fetching {what} ({size_mb:.0f} MB, licence {licence}) from {source}; to put it there by hand: {by_hand}"


def fetch(weights: Weights, folder: Path, log: Progress) -> Path:
    """Download to ``folder``, after saying so. InputError, with nothing left behind, when it cannot be had or is not
    what it should be."""
    path = folder / weights.file
    by_hand = f"save it as {path}, or in another folder given with --weights-dir"
    log.info(said(weights.name, weights.url, weights.size_mb, weights.licence, by_hand))
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = _download(weights.url, part)
        if found != weights.md5:
            raise InputError(
                f"what came for {weights.name} is not what it should be (md5 {found} instead of {weights.md5})",
                f"try again, or get {weights.url} and {by_hand}",
            )
        os.replace(part, path)
    except (OSError, http.client.HTTPException) as error:  # urllib's errors are among the first
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        hint = f"get {weights.url} where there is a network, and {by_hand}"
        raise InputError(f"the weights of {weights.name} could not be fetched ({reason})", hint) from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    return path


def _download(url: str, path: Path) -> str:
    """Into ``path``; gives the md5. OSError when it fails or ends early."""
    digest, size = hashlib.md5(usedforsecurity=False), 0
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer, open(path, "wb") as out:
        expected = answer.headers.get("Content-Length")
        while chunk := answer.read(_CHUNK):
            digest.update(chunk)
            out.write(chunk)
            size += len(chunk)
    if expected is not None and size != int(expected):
        raise OSError(f"{size} of {expected} bytes came")
    return digest.hexdigest()
