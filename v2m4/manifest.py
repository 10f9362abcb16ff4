"""``manifest.json``, and the files on top of a run directory."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import v2m4
from v2m4.store import Digests, Reporter, read_json

#: The stage whose .glb files are put on top of the run directory.
PUBLISHED = "export"
PACKAGES = (
    "numpy", "scipy", "numba", "torch", "av", "pillow", "opencv-python-headless", "scikit-image", "fast-simplification",
    "cholespy", "xatlas", "trimesh", "pygltflib", "rembg", "onnxruntime",
)  # fmt: skip


@functools.cache
def versions() -> dict[str, str]:
    """Package -> version, without importing any of them."""
    out = {"v2m4": v2m4.__version__, "python": platform.python_version(), "platform": platform.platform()}
    for name in PACKAGES:
        try:
            out[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return out


def licences(folder: Path) -> dict[str, str]:
    """Model or code -> licence, as the stage wrote it into its JSON files (``"licence"`` beside a name)."""
    out: dict[str, str] = {}
    for path in sorted(folder.glob("*.json")):
        data = read_json(path)
        if not isinstance(data, dict):
            continue
        if isinstance(data.get("licences"), dict):
            out.update({str(k): str(v) for k, v in data["licences"].items()})
        if data.get("licence"):
            name = next((str(data[k]) for k in ("generator", "model", "name", "matte") if data.get(k)), path.stem)
            out[name] = str(data["licence"])
    return out


def build(
    sources: Mapping[str, Any], run: Mapping[str, Any], stages: Mapping[str, Any], published: Mapping[str, str]
) -> dict[str, Any]:
    """The manifest of a run: nothing in it depends on the time of day."""
    together: dict[str, str] = {}
    for stage in stages.values():
        together.update(stage.get("licences", {}))
    return {
        "sources": dict(sources),
        "versions": dict(versions()),
        "run": dict(run),
        "stages": dict(stages),
        "licences": together,
        "published": dict(published),
    }


def publish(folder: Path, run_dir: Path, before: Mapping[str, str], overwrite: bool, log: Reporter) -> dict[str, str]:
    """Copy the .glb files of ``folder`` to the top of the run directory, each whole or not at all.

    ``before`` says what was published last: name -> digest. A file that somebody has changed since is left alone unless
    ``overwrite``; one that is no longer made is removed. Returns what is published now.
    """
    digests, out = Digests(), {}
    for source in sorted(folder.glob("*.glb")):
        target, fresh = run_dir / source.name, digests.file(source)
        present = digests.file(target) if target.is_file() else None
        if present not in (None, fresh, before.get(source.name)) and not overwrite:
            log.warning(f"{target} was changed by hand and is kept; the new one is {source}")
            out[source.name] = before.get(source.name, "")
            continue
        if present != fresh:
            temporary = run_dir / f".{source.name}.tmp"
            shutil.copyfile(source, temporary)
            os.replace(temporary, target)
        out[source.name] = fresh
    for name in set(before) - set(out):
        stale = run_dir / name
        if stale.is_file() and digests.file(stale) == before[name]:
            stale.unlink()
    return out
