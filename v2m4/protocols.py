"""Plug points. Whatever has these methods can be used; nothing registers itself.

Arrays named ``Tensor`` are torch tensors; this file does not import torch, so that the vocabulary stays light.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from v2m4.types import Mesh

Tensor = Any  # torch.Tensor
Item = TypeVar("Item")


@dataclass(frozen=True)
class Generated:
    """What a generator made of one frame.

    ``mesh`` is in world conventions (+Y up, front +Z), centred on its own box, largest extent about 1.
    ``state`` holds the arrays a refiner needs to go on (may be empty). ``notes`` tell the user what was guessed, left
    out or changed, one sentence each.
    """

    mesh: Mesh
    state: Mapping[str, np.ndarray] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Generator(Protocol):
    """One picture in, one mesh out."""

    name: str
    licence: str
    description: str

    def generate(self, image: np.ndarray, index: int, seed: int) -> Generated:
        """``image`` (H,W,4) uint8 straight alpha of frame ``index`` -> mesh. InputError if it cannot be done."""
        ...


class Matte(Protocol):
    """Finds the object in a picture without alpha."""

    name: str
    licence: str

    def alpha(self, image: np.ndarray) -> np.ndarray:
        """``image`` (H,W,3) uint8 sRGB -> (H,W) uint8, 255 on the object."""
        ...


class ImageMetric(Protocol):
    """How different two pictures look, 0 when they are the same; what is optimised is never what judges the result."""

    name: str
    licence: str

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """``a`` (N,H,W,4) float32, colours in [0, 1] premultiplied by coverage, and coverage, as :func:`render` gives
        them; ``b`` the same, or (1,H,W,4) to compare all with one -> distances (N,), differentiable in both."""
        ...


@dataclass(frozen=True)
class PointMaps:
    """The surface that N pictures of one still scene show, as a network sees it.

    ``points`` (N,H,W,3) float32 of every pixel of the pictures as given, all in one frame of reference that is any
    similarity away from the true one; ``confidence`` (N,H,W) float32, larger is surer, 0 where there is nothing.
    """

    points: np.ndarray
    confidence: np.ndarray


class StereoModel(Protocol):
    """Pictures of one still scene in, their surfaces in one frame of reference out (DUSt3R, VGGT)."""

    name: str
    licence: str

    def point_maps(self, images: np.ndarray) -> PointMaps:
        """``images`` (N,S,S,3) uint8 sRGB, square, N >= 2 -> one point a pixel of each."""
        ...


@dataclass(frozen=True)
class Fragments:
    """What a rasteriser found at each pixel centre of N pictures.

    ``face`` (N,H,W) int32, -1 where nothing is hit; ``depth`` (N,H,W) float32, camera z, +inf where nothing is hit;
    ``barycentric`` (N,H,W,3) float32, perspective-correct, 0 where nothing is hit. Numpy or torch, as the caller asked.
    """

    face: Any
    depth: Any
    barycentric: Any


class Rasterizer(Protocol):
    """Visibility: which triangle does each pixel centre see."""

    name: str

    def rasterize(self, points: Any, faces: Any, K: Any, height: int, width: int, cull: bool = False) -> Fragments:
        """``points`` (N,V,3) float32 in OpenCV camera coordinates and ``faces`` (F,3) int32, or a sequence of N points
        (V_n,3) with one of N face lists (F_n,3); ``K`` (3,3) or (N,3,3) in pixels -> Fragments, faces numbered inside
        each mesh. Arrays give arrays; a rasteriser of another device may take and give its tensors. ``cull`` drops
        triangles seen from behind. Triangles that cross the near plane are clipped, not dropped."""
        ...


class Progress(Protocol):
    """Where a stage says what it is doing."""

    def info(self, text: str) -> None: ...
    def warning(self, text: str) -> None: ...


class StageContext(Protocol):
    """What a stage gets besides its options and its input folders (made by the pipeline)."""

    out: Path  #: the folder to write into; what an interrupted run of the same stage left is still there
    seed: int
    device: str  #: "cpu" or "cuda"
    weights_dir: Path | None  #: where the user keeps the weights of networks; looked into first
    log: Progress

    def seed_for(self, index: int) -> int:
        """A seed for frame ``index`` that does not depend on the order of the work."""
        ...

    def track(
        self, items: Iterable[Item], label: str, total: int | None = None, named: bool = True
    ) -> Iterator[Item]:  # fmt: skip
        """Go through ``items`` with a progress bar; the item in work is named if the stage fails, unless ``named`` is
        False: where items are fetched ahead of the work, the last one fetched is not the one that failed."""
        ...
