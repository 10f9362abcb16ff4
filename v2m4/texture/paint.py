"""Paint: from views of a moving surface and its UV map to the finished picture."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from v2m4 import transforms
from v2m4.protocols import Rasterizer
from v2m4.texture.bake import Baked, bake
from v2m4.texture.fill import fill_gutters, fill_texels
from v2m4.texture.texels import texels
from v2m4.texture.unwrap import Unwrap
from v2m4.texture.visibility import View

SEEN_COLOR = np.array([40, 170, 70])
FILLED_COLOR = np.array([150, 150, 150])
OUTSIDE_COLOR = np.array([255, 255, 255])
#: From this confidence on a texel counts as seen by the video.
SEEN = 0.5


@dataclass(frozen=True)
class Painting:
    """``base_color`` (S,S,3) uint8 sRGB; ``coverage`` (S,S,3) uint8: green from the video, grey filled in, white
    outside the charts; ``seen_share`` of the texels on the surface."""

    base_color: np.ndarray
    coverage: np.ndarray
    seen_share: float
    baked: Baked


def paint(
    views: Iterable[View],
    unwrapped: Unwrap,
    faces: np.ndarray,
    vertices: np.ndarray,
    colors: np.ndarray | None,
    size: int,
    rasterizer: Rasterizer,
    lead: int | None = None,
) -> Painting:
    """One ``size`` x ``size`` picture for ``faces`` (F,3) that explains all ``views``.

    ``vertices`` (V,3) is the pose the generated mesh's ``colors`` (V,3) uint8 belong to (None: it has no colours).
    ``lead`` is the frame that decides where frames differ (see :func:`bake`).
    """
    surface = texels(unwrapped.uv, unwrapped.uv_faces, size, rasterizer)
    baked = bake(views, surface, faces, rasterizer, lead)
    linear = fill_texels(baked, surface, vertices, faces, colors)
    picture = np.zeros((size * size, 3), np.uint8)
    coverage = np.tile(OUTSIDE_COLOR.astype(np.uint8), (size * size, 1))
    for part in surface.parts():
        encoded = transforms.linear_to_srgb(linear[part])
        picture[surface.index[part]] = np.round(np.clip(encoded, 0, 1) * 255).astype(np.uint8)
        sure = baked.confidence[part, None]
        coverage[surface.index[part]] = np.round(sure * SEEN_COLOR + (1 - sure) * FILLED_COLOR).astype(np.uint8)
    covered = np.zeros(size * size, bool)
    covered[surface.index] = True
    base_color = fill_gutters(picture.reshape(size, size, 3), covered.reshape(size, size))
    return Painting(
        base_color,
        coverage.reshape(size, size, 3),
        float((baked.confidence >= SEEN).mean()) if len(surface) else 0.0,
        baked,
    )
