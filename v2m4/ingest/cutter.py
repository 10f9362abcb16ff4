"""The object, cut out of one picture, wherever its mask comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from v2m4.ingest import edges
from v2m4.ingest.cuts import CutOut
from v2m4.ingest.key import Background
from v2m4.masks import Masks
from v2m4.protocols import Matte
from v2m4.video import Picture

#: Alpha above this everywhere is no cut-out: lossy alpha planes stray by a few levels.
OPAQUE = 250
#: A frame whose most opaque pixel is below this is faint as a whole; its alpha is stretched.
FAINT = 192


@dataclass(frozen=True)
class Cutter:
    """How the object is cut out of every frame of one clip.

    ``method`` is "masks", "given" (the pictures' own alpha), "key", "rembg" or "sam2"; ``matte`` finds the mask of the
    latter three. ``in_order``: a network, which takes all cores by itself; ``follows``: what it finds depends on the
    frames before.
    """

    method: str
    masks: Masks | None = None
    matte: Matte | None = None
    background: Background | None = None
    premultiplied: bool = False
    in_order: bool = False
    follows: bool = False

    @property
    def made(self) -> bool:
        """Whether the masks are made here, not brought by the user."""
        return self.matte is not None

    @property
    def has_background(self) -> bool:
        """Whether the pictures show anything but the object: what is cut out already or stands before one colour does
        not."""
        return self.method not in ("given", "key")

    def cut(self, picture: Picture, label: str) -> CutOut:
        """Straight alpha, clean colours. InputError, with ``label``, when there is no object in the picture."""
        image = picture.image
        if self.matte is None and self.masks is None:
            return self._given(image, label)
        alpha = self._mask(picture)
        edges.require_object(alpha, label, self.method)
        return self.cut_with(image, alpha)

    def cut_with(self, image: np.ndarray, alpha: np.ndarray) -> CutOut:
        """``image`` (H,W,3|4) uint8 cut out with this ``alpha`` (H,W), whatever its own."""
        part = edges.box(alpha > 0, 4)
        colour = self.background.colour if self.background else None
        cut = edges.cut_out(image[part][..., :3], alpha[part], colour)
        return CutOut(cut, part[1].start, part[0].start, image.shape[1], image.shape[0], {})

    def _mask(self, picture: Picture) -> np.ndarray:
        rgb = picture.image[..., :3]
        if self.masks is not None:
            return self.masks.alpha(picture.source_index, rgb.shape[:2])
        assert self.matte is not None
        alpha = self.matte.alpha(rgb)
        return edges.without_crumbs(alpha) if self.in_order else alpha

    def _given(self, image: np.ndarray, label: str) -> CutOut:
        image = with_alpha(image)
        alpha = image[..., 3]
        edges.require_object(alpha, label, self.method)
        about = {"opaque": bool(alpha.min() >= OPAQUE), "faint": bool(alpha.max() < FAINT)}
        cut = CutOut.of(image, about)
        part = edges.unmultiply(cut.image) if self.premultiplied else cut.image
        return CutOut(_stretched(part), cut.left, cut.top, cut.width, cut.height, about)


def with_alpha(image: np.ndarray) -> np.ndarray:
    """(H,W,3|4) uint8 -> (H,W,4); a picture without alpha is opaque."""
    return image if image.shape[2] == 4 else np.dstack([image, np.full(image.shape[:2], 255, np.uint8)])


def has_cut_out(image: np.ndarray) -> bool:
    """Whether the alpha of ``image`` (H,W,3|4) leaves anything out."""
    return image.shape[2] == 4 and int(image[..., 3].min()) < OPAQUE


def is_premultiplied(images: Sequence[np.ndarray], rule: str) -> bool:
    """``rule``: "straight" or "premultiplied", or "auto" to judge by the ``images``."""
    return edges.is_premultiplied(map(with_alpha, images)) if rule == "auto" else rule == "premultiplied"


def _stretched(image: np.ndarray) -> np.ndarray:
    """A frame that is faint as a whole, with its alpha stretched to 255; any other as it is."""
    top = int(image[..., 3].max())
    if top >= FAINT:
        return image
    alpha = np.round(image[..., 3:] * (255 / top)).astype(np.uint8)
    return np.concatenate([image[..., :3], alpha], -1)
