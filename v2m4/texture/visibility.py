"""Visibility: what one frame of the video says about each texel, and how far it can be believed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from v2m4 import transforms
from v2m4.protocols import Rasterizer
from v2m4.texture.texels import Texels
from v2m4.types import Camera

#: Pixels with less alpha than this mix object and background.
OPAQUE = 250
#: Pixels beside the rim of the object still carry some background (mattes, video compression).
RIM_PX = 1.5
#: Full trust begins this many times the silhouette's own error away from the rim and from jumps in depth ...
MARGIN_PER_SLIP = 3.0
#: ... but at most this share of the longer side: something must remain to be read.
LARGEST_MARGIN_SHARE = 0.015
#: Surfaces seen flatter than this are not read at all.
LEAST_COSINE = 0.1
#: A jump in depth, and the slack of the depth test, as shares of the object's extent.
DEPTH_JUMP = 0.015
DEPTH_SLACK = 0.003
#: Trust in pixels of parts too thin to have an inside.
THIN_TRUST = 1e-2


@dataclass(frozen=True)
class View:
    """One frame with the surface and the camera of its moment.

    ``image`` (H,W,4) uint8 straight alpha; ``positions`` (V,3) world; ``trust`` in [0,1] multiplies every weight.
    """

    index: int
    image: np.ndarray
    positions: np.ndarray
    camera: Camera
    trust: float = 1.0


@dataclass(frozen=True)
class Sight:
    """A view made ready for reading.

    ``points`` (V,3) camera coordinates; ``face_normals`` (F,3) towards the outside, in camera axes;
    ``facing`` (F,) bool: some of the face is seen from outside, and not too flat; ``depth`` (H,W) float32;
    ``colour`` (H,W,4) float32: linear light and 1 where quality > 0, else 0; ``quality`` (H,W) float32;
    ``extent`` in metres;
    ``iou`` overlap of the surface's silhouette with the object in the frame.
    """

    view: View
    points: np.ndarray
    face_normals: np.ndarray
    facing: np.ndarray
    depth: np.ndarray
    colour: np.ndarray
    quality: np.ndarray
    extent: float
    iou: float


def look(view: View, faces: np.ndarray, rasterizer: Rasterizer) -> Sight:
    """Rasterise the surface in the view's camera and measure how good each of its pixels is."""
    camera = view.camera
    points = transforms.apply(camera.world_to_camera, view.positions.astype(np.float64))
    height, width = view.image.shape[:2]
    found = rasterizer.rasterize(points[None].astype(np.float32), faces, camera.K, height, width)
    depth = np.asarray(found.depth[0], np.float32)
    hit, inside, opaque = np.asarray(found.face[0]) >= 0, view.image[..., 3] >= 128, view.image[..., 3] >= OPAQUE
    extent = float(np.ptp(points, axis=0).max())
    quality = pixel_quality(opaque, depth, extent, silhouette_slip(hit, inside))
    linear = transforms.srgb_to_linear(np.arange(256) / 255)[view.image[..., :3]]
    # Pixels of no quality must not come in through interpolation either.
    colour = np.concatenate([linear, np.ones((height, width, 1))], 2) * (quality > 0)[..., None]
    corners = points[faces]
    flat = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    flat /= np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-30)
    towards = -corners / np.maximum(np.linalg.norm(corners, axis=2, keepdims=True), 1e-30)
    facing = (np.einsum("fkc,fc->fk", towards, flat) > LEAST_COSINE).any(1)
    return Sight(
        view,
        points,
        flat,
        facing,
        depth,
        colour.astype(np.float32),
        quality,
        extent,
        silhouette_iou(hit, inside),
    )


def silhouette_iou(hit: np.ndarray, inside: np.ndarray) -> float:
    """Overlap of two silhouettes (H,W) bool, 0 to 1."""
    return float((hit & inside).sum() / max((hit | inside).sum(), 1))


def silhouette_slip(hit: np.ndarray, inside: np.ndarray) -> float:
    """Mean distance in pixels between two silhouettes (H,W) bool: the area between them over the outline's length."""
    padded = np.pad(inside, 1)
    outline = sum((np.diff(padded, axis=axis) != 0).sum() for axis in (0, 1)) * np.pi / 4  # of a digital curve
    return float((hit ^ inside).sum() / max(outline, 1))


def pixel_quality(opaque: np.ndarray, depth: np.ndarray, extent: float, slip: float) -> np.ndarray:
    """(H,W) float32 in [0,1]: 0 at the rim of the object and at jumps in depth, 1 well away from both.

    ``slip`` (px) says how far the surface may be off: what lies that close to another part may show that part.
    """
    import cv2

    margin = float(np.clip(MARGIN_PER_SLIP * slip, 1, max(1, LARGEST_MARGIN_SHARE * max(opaque.shape))))
    rim = cv2.distanceTransform(np.pad(opaque.astype(np.uint8), 1), cv2.DIST_L2, 5)[1:-1, 1:-1]
    at_rim = np.clip((rim - RIM_PX) / margin, 0, 1)
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (5, 5))
    thin = opaque & (cv2.morphologyEx(opaque.astype(np.uint8), cv2.MORPH_OPEN, disc) == 0)
    at_rim = np.maximum(at_rim, THIN_TRUST * thin)
    jump = _depth_jumps(depth, DEPTH_JUMP * extent)
    away = cv2.distanceTransform((~jump).astype(np.uint8), cv2.DIST_L2, 5)
    return (at_rim * np.clip((away - 1) / margin, 0, 1)).astype(np.float32)


def _depth_jumps(depth: np.ndarray, threshold: float) -> np.ndarray:
    """(H,W) bool: the surface folds over itself here. Second differences: a steep slope alone does not count."""
    jump = np.zeros(depth.shape, bool)
    filled = np.where(np.isfinite(depth), depth, np.nan)
    for axis in (0, 1):
        first = np.diff(filled, axis=axis)
        second = np.abs(np.diff(first, axis=axis)) > threshold  # False where nan
        inner = [slice(None), slice(None)]
        inner[axis] = slice(1, -1)
        jump[tuple(inner)] |= second
    return jump


def observe(sight: Sight, texels: Texels, part: slice, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What the view says about the texels in ``part``.

    Returns (which (n,) int64 texels are seen, colour (n,3) float32 linear light, weight (n,) float32 > 0).
    Weight = cosine² x distance to rim and depth jumps x trust.
    """
    camera = sight.view.camera
    which = np.flatnonzero(sight.facing[texels.face[part]]) + part.start
    points = texels.points(which, sight.points, faces)
    cosine = _cosine(sight, texels.face[which], points)
    pixel = transforms.project(points, camera.K)
    height, width = sight.depth.shape
    good = (cosine > LEAST_COSINE) & (points[:, 2] > 0)
    good &= (pixel >= 0).all(1) & (pixel[:, 0] < width) & (pixel[:, 1] < height)
    which, points, cosine, pixel = which[good], points[good], cosine[good], pixel[good]
    # Within one pixel a slanted surface changes its depth: that much, and a little more, is no occlusion.
    slope = np.sqrt(1 - np.minimum(cosine, 1) ** 2) / cosine
    slack = points[:, 2] / camera.K[0, 0] * slope + DEPTH_SLACK * sight.extent
    column, row = pixel.astype(np.int64).T
    weight = cosine**2 * _bilinear(sight.quality[..., None], pixel)[:, 0] * sight.view.trust
    weight *= points[:, 2] <= sight.depth[row, column] + slack
    sample = _bilinear(sight.colour, pixel)
    keep = (weight > 0) & (sample[:, 3] > 0.25)
    colour = sample[keep, :3] / sample[keep, 3:]
    return which[keep], colour, weight[keep].astype(np.float32)


def _cosine(sight: Sight, face: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Cosine (n,) between the line of sight to ``points`` (n,3) and the flat normal of their faces.

    Not the smooth normal: on coarse meshes it looks away on faces that are in plain view.
    """
    along = (sight.face_normals[face] * points).sum(1)
    return -along / np.maximum(np.linalg.norm(points, axis=1), 1e-30)


def _bilinear(image: np.ndarray, pixel: np.ndarray) -> np.ndarray:
    """(H,W,C) float32 read at ``pixel`` (n,2), centres at +0.5 -> (n,C); the border repeats."""
    height, width = image.shape[:2]
    x, y = np.clip(pixel[:, 0] - 0.5, 0, width - 1), np.clip(pixel[:, 1] - 0.5, 0, height - 1)
    left, top = np.minimum(x.astype(np.int64), width - 2), np.minimum(y.astype(np.int64), height - 2)
    fx, fy = (x - left).astype(np.float32)[:, None], (y - top).astype(np.float32)[:, None]
    upper = image[top, left] * (1 - fx) + image[top, left + 1] * fx
    lower = image[top + 1, left] * (1 - fx) + image[top + 1, left + 1] * fx
    return upper * (1 - fy) + lower * fy
