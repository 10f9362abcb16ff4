"""Models that are a folder of ``config.json`` and ``model.safetensors``: in the user's own folder, in the hub's cache,
or fetched from the hub when the user named the model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from v2m4.errors import InputError
from v2m4.protocols import Progress
from v2m4.weights import said

FILES = ("config.json", "model.safetensors")


@dataclass(frozen=True)
class HubModel:
    """A model of the hub; ``licence`` is that of its weights."""

    owner: str
    name: str
    size_mb: float
    licence: str

    @property
    def source(self) -> str:
        return f"https://huggingface.co/{self.owner}/{self.name}"

    @property
    def by_hand(self) -> str:
        """How to do without the download."""
        return f"{' and '.join(FILES)} of {self.source} into DIR/{self.name}, with --weights-dir DIR"


def whole(folder: Path) -> bool:
    """Whether both files are there."""
    return all((folder / name).is_file() for name in FILES)


def cached(model: HubModel) -> Path | None:
    """The folder in the hub's cache, without asking the network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        found = snapshot_download(f"{model.owner}/{model.name}", allow_patterns=list(FILES), local_files_only=True)
    except LocalEntryNotFoundError:
        return None
    return Path(found) if whole(Path(found)) else None


def fetch(model: HubModel, log: Progress | None) -> Path:
    """The folder in the hub's cache, fetched after saying so. InputError when it cannot be had, or when there is nobody
    to say it to."""
    from huggingface_hub import snapshot_download

    if log is None:
        raise InputError(f"the weights of {model.name} are not on disk", f"put {model.by_hand}")
    log.info(said(model.name, model.source, model.size_mb, model.licence, model.by_hand))
    try:
        return Path(snapshot_download(f"{model.owner}/{model.name}", allow_patterns=list(FILES)))
    except Exception as error:  # the hub's client raises its own, httpx's and the system's
        raise InputError(
            f"the weights of {model.name} could not be fetched ({error})", f"put {model.by_hand}"
        ) from None


def folder_of(model: HubModel, weights_dir: Path | None, log: Progress | None) -> Path:
    """In ``weights_dir``, else in the hub's cache, else fetched."""
    if weights_dir is not None and whole(weights_dir / model.name):
        return weights_dir / model.name
    return cached(model) or fetch(model, log)
