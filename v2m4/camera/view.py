"""The object in one frame, seen by a virtual camera that looks straight at it.

Turning a camera about its own centre is a homography, so nothing is lost: a pose found in the view is a pose in the
frame after one rotation. In the view, a roll of the camera is a turn of the picture about its middle.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import cv2
import numpy as np

from v2m4.errors import InputError

#: Half-width of the view over the farthest foreground pixel: room for a mesh that is not yet where it belongs.
MARGIN = 1.3


@dataclass(frozen=True)
class View:
    """A square picture of the object.

    ``rotation`` (3,3) takes camera coordinates of the frame to those of the virtual camera, whose lens has ``focal``
    (pixels) and its principal point in the middle. ``pixels`` (S,S,4) float32 in [0, 1]: colour premultiplied by
    coverage, and coverage. ``inside`` (S,S) float32 is 0 where the virtual camera looks past the edge of the frame.
    """

    rotation: np.ndarray
    focal: float
    pixels: np.ndarray
    inside: np.ndarray

    @property
    def size(self) -> int:
        return len(self.pixels)

    @property
    def coverage(self) -> np.ndarray:
        """(S,S) float32."""
        return self.pixels[..., 3]

    @property
    def K(self) -> np.ndarray:
        return np.array([[self.focal, 0, self.size / 2], [0, self.focal, self.size / 2], [0, 0, 1.0]])

    @cached_property
    def contrast(self) -> float:
        """Standard deviation of the object's colour about its mean, over all channels."""
        return color_spread(self.pixels)

    def resized(self, size: int) -> View:
        """The same view in fewer pixels."""
        if size == self.size:
            return self
        shrink = lambda image: cv2.resize(image, (size, size), interpolation=cv2.INTER_AREA)  # noqa: E731
        return View(self.rotation, self.focal * size / self.size, shrink(self.pixels), shrink(self.inside))


def mean_color(pixels: np.ndarray) -> np.ndarray:
    """(3,) mean colour of premultiplied ``pixels`` (S,S,4), weighted by coverage."""
    total = np.ones(pixels.shape[0] * pixels.shape[1], np.float32) @ pixels.reshape(-1, 4)
    return total[:3] / max(float(total[3]), 1e-6)


def color_spread(pixels: np.ndarray) -> float:
    """Standard deviation of premultiplied ``pixels`` (S,S,4) about their mean colour, over all channels."""
    flat = pixels.reshape(-1, 4)
    products = (flat.T @ flat).astype(np.float64)
    total = max(float(flat[:, 3].sum()), 1e-6)
    mean = mean_color(pixels).astype(np.float64)
    square = np.trace(products[:3, :3]) - 2 * mean @ products[:3, 3] + mean @ mean * products[3, 3]
    return float(np.sqrt(max(square, 0.0) / (3 * total)))


def make_view(image: np.ndarray, K: np.ndarray, size: int) -> View:
    """Cut the object out of ``image`` (H,W,4) uint8 straight alpha, taken through the lens ``K`` (3,3) pixels.

    The virtual camera looks at the centroid of the object. InputError when the picture shows no object.
    """
    alpha = image[..., 3]
    threshold = 0.5 * float(alpha.max())
    rows, columns = np.nonzero(alpha > threshold) if threshold > 0 else (np.zeros(0), np.zeros(0))
    if len(rows) == 0:
        raise InputError("the frame shows no object: its alpha is zero everywhere", "leave this frame out")
    rays = np.stack([columns + 0.5, rows + 0.5, np.ones(len(rows))], -1) @ np.linalg.inv(K).T
    centre = rays.mean(0)
    rotation = _turn_to(centre)
    seen = rays @ rotation.T
    reach = np.abs(seen[:, :2] / seen[:, 2:]).max()
    focal = size / 2 / (MARGIN * max(reach, 2.0 / K[0, 0]))
    premultiplied = np.concatenate([image[..., :3] / 255.0 * (alpha / 255.0)[..., None], alpha[..., None] / 255.0], -1)
    pixels, inside = _resample(premultiplied.astype(np.float32), K, rotation, focal, size)
    return View(rotation, float(focal), pixels, inside)


def _turn_to(ray: np.ndarray) -> np.ndarray:
    """The smallest rotation (3,3) that takes ``ray`` (3,) to the optical axis."""
    axis = ray / np.linalg.norm(ray)
    v = np.cross(axis, [0.0, 0.0, 1.0])
    skew = np.array([[0, -v[2], v[1]], [v[2], 0, -v[0]], [-v[1], v[0], 0]])
    return np.eye(3) + skew + skew @ skew / (1 + axis[2])


def _resample(
    image: np.ndarray, K: np.ndarray, rotation: np.ndarray, focal: float, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """The view's pixels (S,S,4) and which of them lie in the frame (S,S), averaged over as many samples as a pixel of
    the view covers pixels of the frame."""
    samples = int(np.clip(np.ceil(K[0, 0] / focal), 1, 8))
    fine = size * samples
    grid = (np.arange(fine) + 0.5 - fine / 2) / (focal * samples)
    rays = np.stack([*np.meshgrid(grid, grid), np.ones((fine, fine))], -1) @ (K @ rotation.T).T
    at = (rays[..., :2] / np.maximum(rays[..., 2:], 1e-9) - 0.5).astype(np.float32)
    height, width = image.shape[:2]
    picture = cv2.remap(image, at[..., 0], at[..., 1], cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT)
    inside = (at >= -0.5).all(-1) & (at[..., 0] <= width - 0.5) & (at[..., 1] <= height - 0.5) & (rays[..., 2] > 0)
    shrink = lambda a: a.reshape(size, samples, size, samples, -1).mean((1, 3), dtype=np.float32)  # noqa: E731
    return shrink(picture * inside[..., None]), shrink(inside.astype(np.float32))[..., 0]
