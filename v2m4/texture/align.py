"""Align: bend each frame so that it fits the surface, before its pixels are painted on.

Registered meshes miss the picture by a few pixels, each frame in another way; averaging over frames then blurs, and
parts bleed into each other. After a first bake the textured surface is rendered into each frame, optical flow from the
render to the frame says where every surface point really appears, and the frame is read there. The idea is the image
correction of Zhou and Koltun (2014), "Color Map Optimization", with dense flow in place of a control lattice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from v2m4.flow import flow
from v2m4.texture.bake import trust_of_iou
from v2m4.texture.visibility import View, silhouette_iou, silhouette_slip
from v2m4.types import Mesh, Texture

#: The flow is smoothed over this share of the longer side; finer detail in it is noise.
SMOOTH_SHARE = 0.008
#: Flow longer than this many times the silhouette's error (plus two pixels) is a mistake, and cut.
LONGEST_PER_SLIP = 3.0
#: Below this error of the silhouette (px) there is nothing to align.
LEAST_SLIP_PX = 0.4
#: Size of the first, coarse texture that is only there to align with.
DRAFT_SIZE = 512


def aligned(views: Iterable[View], faces: np.ndarray, draft: Texture) -> Iterator[View]:
    """The ``views`` one by one, bent onto the surface ``faces`` (F,3) as it looks with the ``draft`` texture.

    What did not fit before bending stays less trusted.
    """
    from v2m4.render.shade import render_mesh

    for view in views:
        render = render_mesh(Mesh(view.positions, faces), view.camera, texture=draft, supersample=1)
        ours, theirs = render[..., 3] > 127, view.image[..., 3] > 127
        image = align(view.image, render, silhouette_slip(ours, theirs))
        yield replace(view, image=image, trust=view.trust * trust_of_iou(silhouette_iou(ours, theirs)))


def align(image: np.ndarray, render: np.ndarray, slip: float) -> np.ndarray:
    """``image`` (H,W,4) bent onto ``render`` (H,W,4), both uint8 straight alpha; ``slip`` px is the silhouette's error.

    The image comes back as it is where bending it does not bring it nearer to the render.
    """
    import cv2

    where = render[..., 3] > 0
    if slip < LEAST_SLIP_PX or not where.any():
        return image
    background = 255 if _luminance(render) < 128 else 0  # the outline must show
    ours, theirs = _over(render, background), _over(image, background)
    steps = flow(_grey(ours), _grey(theirs), fine=True)
    steps = cv2.GaussianBlur(steps, (0, 0), SMOOTH_SHARE * max(ours.shape))
    length = np.linalg.norm(steps, axis=2, keepdims=True)
    longest = LONGEST_PER_SLIP * slip + 2
    steps = steps * np.minimum(1, longest / np.maximum(length, 1e-6))
    bent = warp(image, steps)
    before = np.abs(ours.astype(int) - theirs)[where].mean()
    after = np.abs(ours.astype(int) - _over(bent, background))[where].mean()
    return bent if after < before else image


def warp(image: np.ndarray, flow: np.ndarray) -> np.ndarray:
    """``image`` (H,W,4) uint8 straight alpha read at pixel + ``flow`` (H,W,2) px; colours are mixed premultiplied."""
    import cv2

    height, width = image.shape[:2]
    x, y = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    alpha = image[..., 3:].astype(np.float32) / 255
    premultiplied = np.concatenate([image[..., :3] * alpha, alpha], 2)
    read = cv2.remap(premultiplied, x + flow[..., 0], y + flow[..., 1], cv2.INTER_CUBIC, borderMode=cv2.BORDER_CONSTANT)
    out_alpha = np.clip(read[..., 3:], 0, 1)
    colour = read[..., :3] / np.maximum(out_alpha, 1e-3)
    return np.round(np.clip(np.concatenate([colour, out_alpha * 255], 2), 0, 255)).astype(np.uint8)


def _luminance(image: np.ndarray) -> float:
    inside = image[..., 3] > 127
    return float(image[inside, :3].mean()) if inside.any() else 0.0


def _over(image: np.ndarray, background: int) -> np.ndarray:
    alpha = image[..., 3:].astype(np.float32) / 255
    return np.round(image[..., :3] * alpha + background * (1 - alpha)).astype(np.uint8)


def _grey(image: np.ndarray) -> np.ndarray:
    import cv2

    return cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
