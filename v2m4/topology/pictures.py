"""What the video shows of each keyframe, at a size that is cheap to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from v2m4.protocols import Rasterizer
from v2m4.topology.surface import Normalisation
from v2m4.transforms import scale_K
from v2m4.types import Camera, Frame, Mesh

LONGEST = 384


@dataclass(frozen=True)
class View:
    """One keyframe's picture and camera.

    ``mask`` (H,W) bool, ``rgb`` (H,W,3) float32 sRGB in [0, 1], ``K`` (3,3) for that size, ``world_to_camera`` (4,4).
    """

    mask: np.ndarray
    rgb: np.ndarray
    K: np.ndarray
    world_to_camera: np.ndarray

    @property
    def size(self) -> tuple[int, int]:
        """(height, width)"""
        return self.mask.shape[0], self.mask.shape[1]

    def to_camera(self, world: np.ndarray) -> np.ndarray:
        """World points (n,3) -> camera coordinates."""
        return world @ self.world_to_camera[:3, :3].T + self.world_to_camera[:3, 3]


def make_view(frame: Frame, camera: Camera, longest: int = LONGEST) -> View:
    """The frame scaled down so that its longer side is at most ``longest`` pixels."""
    from PIL import Image

    height, width = frame.image.shape[:2]
    shrink = min(1.0, longest / max(height, width))
    new = max(1, round(width * shrink)), max(1, round(height * shrink))
    alpha = frame.image[..., 3:].astype(np.float32) / 255
    layers = np.concatenate([frame.image[..., :3] / np.float32(255) * alpha, alpha], 2)
    small = np.stack(
        [np.asarray(Image.fromarray(layers[..., c]).resize(new, Image.Resampling.BOX)) for c in range(4)], 2
    )
    rgb = small[..., :3] / np.maximum(small[..., 3:], 1e-3)
    K = scale_K(camera.K, new[0] / width, new[1] / height)
    return View(small[..., 3] > 0.5, np.clip(rgb, 0, 1), K, camera.world_to_camera)


def silhouette(rasterizer: Rasterizer, world: np.ndarray, faces: np.ndarray, view: View) -> np.ndarray:
    """(H,W) bool of a mesh with world vertices (V,3)."""
    points = view.to_camera(world).astype(np.float32)[None]
    return np.asarray(rasterizer.rasterize(points, faces.astype(np.int32), view.K, *view.size).face[0]) >= 0


def iou(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union of two masks; 1 when both are empty."""
    union = int((a | b).sum())
    return float((a & b).sum() / union) if union else 1.0


def agreement(rasterizer: Rasterizer, mesh: Mesh, view: View) -> tuple[float, float]:
    """How well a mesh in the world explains a picture: silhouette IoU, and colour correlation (1 without colours)."""
    points = view.to_camera(mesh.vertices.astype(np.float64)).astype(np.float32)[None]
    seen = rasterizer.rasterize(points, mesh.faces, view.K, *view.size)
    face, weights = np.asarray(seen.face[0]), np.asarray(seen.barycentric[0])
    overlap = iou(face >= 0, view.mask)
    both = (face >= 0) & view.mask
    if mesh.colors is None or both.sum() < 50:
        return overlap, 1.0
    corners = mesh.colors[mesh.faces[face[both]]].astype(np.float64) / 255
    mine, theirs = (corners * weights[both][..., None]).sum(1), view.rgb[both]
    mine, theirs = mine - mine.mean(0), theirs - theirs.mean(0)  # an overall tint is no evidence
    norm = np.sqrt((mine**2).sum() * (theirs**2).sum())
    return overlap, float((mine * theirs).sum() / norm) if norm > 1e-6 else 1.0


def silhouette_scores(
    rasterizer: Rasterizer, units: Normalisation, vertices: np.ndarray, faces: np.ndarray, views: Sequence[View]
) -> list[float]:
    """IoU of each registered pose (K,V,3, working units) with its picture."""
    return [
        iou(silhouette(rasterizer, units.to_world(v), faces, view), view.mask)
        for v, view in zip(vertices, views, strict=True)
    ]
