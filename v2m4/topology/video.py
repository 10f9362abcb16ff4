"""What the video says about the motion: optical flow from the render to the frame, and silhouettes.

The mesh is painted with the anchor's picture (where that shows it) and rendered in its current state; the flow from
that render to the frame tells each visible point where it should be in the picture. Both kinds of rows only act across
the line of sight. They are for the joint pass, after the alignment in 3D: from far away, flow misleads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import distance_transform_edt
from scipy.spatial import cKDTree

from v2m4.flow import flow
from v2m4.protocols import Rasterizer
from v2m4.topology.graph import Graph, moved_normals
from v2m4.topology.pictures import View
from v2m4.topology.solve import Terms
from v2m4.topology.surface import Normalisation

#: Lengths in pixels are for a picture whose longer side is this, and are scaled to the real one.
REFERENCE = 512.0
LARGEST_FLOW = 60.0
SILHOUETTE_SCALE = 30.0
RIM = 3.5
RIM_REACH = 50.0
DEPTH_SLACK = 0.012  #: working units
COLOR_SCALE = 0.1  #: a residual colour difference that halves a flow vector's say, roughly
UNPAINTED = 0.35  #: weight where the anchor's picture does not show the surface and the mesh's own colours stand in
LUMA = np.array([0.299, 0.587, 0.114], np.float32)


@dataclass(frozen=True)
class VideoOptions:
    """Weights beside the mesh-to-mesh rows."""

    flow: float = 8.0
    silhouette: float = 2.0
    rim_pixels: int = 1500


@dataclass(frozen=True)
class _Drawn:
    """The mesh in one state through one camera."""

    covered: np.ndarray  # (H,W) bool
    depth: np.ndarray  # (H,W) working units x metres: camera z in metres, inf outside
    rgb: np.ndarray  # (H,W,3) float32
    painted: np.ndarray  # (H,W) bool: the colour is from the anchor's picture


class VideoTerms:
    """Adds the rows of one keyframe's picture: call it as ``terms(k, moved, out)``."""

    def __init__(
        self,
        graph: Graph,
        units: Normalisation,
        views: Sequence[View],
        anchor: int,
        rasterizer: Rasterizer,
        options: VideoOptions | None = None,
    ) -> None:
        self.graph, self.units, self.views, self.anchor = graph, units, views, anchor
        self.rasterizer, self.options = rasterizer, options or VideoOptions()
        self.faces = graph.surface.faces.astype(np.int32)
        self._inside = [_nearest_inside(v.mask) for v in views]
        self._background = self._pick_background()
        self._gray = [_gray(self._on_background(v.rgb, v.mask)) for v in views]
        view = views[anchor]
        self._rest = graph.surface.vertices
        points = view.to_camera(units.to_world(self._rest)).astype(np.float32)
        seen = rasterizer.rasterize(points[None], self.faces, view.K, *view.size)
        self._anchor_depth = np.asarray(seen.depth[0], np.float64)
        self._vertex_colors = self._tinted(points)

    def __call__(self, k: int, moved: np.ndarray, terms: Terms) -> None:
        """Rows for keyframe ``k`` at the moved points (M,3)."""
        view = self.views[k]
        if not view.mask.any():
            return
        drawn = self._draw(moved[: self.graph.vertex_count], k)
        pixels, depth, jacobian = self._project(moved, view)
        visible = self._visible(pixels, depth, drawn.depth)
        focal = float(np.sqrt(view.K[0, 0] * view.K[1, 1]))
        per_pixel = np.maximum(depth, 1e-6) / (focal * self.units.size)  # size of a pixel there, working units
        rows = jacobian * per_pixel[:, None, None]
        if self.options.flow > 0:
            self._add_flow(k, drawn, pixels, visible, rows, per_pixel, terms)
        if self.options.silhouette > 0:
            self._add_silhouette(k, drawn, pixels, visible, rows, per_pixel, terms)

    def eye(self, k: int) -> np.ndarray:
        """Where the camera is, working units (3,)."""
        view = self.views[k]
        return self.units.to_unit(-view.world_to_camera[:3, :3].T @ view.world_to_camera[:3, 3])

    def hidden(self, k: int, moved: np.ndarray) -> np.ndarray:
        """(N,) bool: nodes whose surface at the moved points (M,3) looks away from the camera on the whole."""
        graph = self.graph
        toward = (moved_normals(graph, moved) * (self.eye(k) - moved)).sum(1) * graph.areas
        ids, weights = graph.point_nodes, graph.point_weights
        return np.bincount(ids.ravel(), (weights * toward[:, None]).ravel(), len(graph.nodes)) <= 0

    # --- drawing --------------------------------------------------------------------------------------------------

    def _draw(self, vertices: np.ndarray, k: int) -> _Drawn:
        view = self.views[k]
        points = view.to_camera(self.units.to_world(vertices)).astype(np.float32)
        seen = self.rasterizer.rasterize(points[None], self.faces, view.K, *view.size)
        face, weights = np.asarray(seen.face[0]), np.asarray(seen.barycentric[0], np.float64)
        covered = face >= 0
        corners, share = self.faces[face[covered]], weights[covered][..., None]
        rest = (self._rest[corners] * share).sum(1)
        own = (self._vertex_colors[corners] * share).sum(1)
        anchor_view = self.views[self.anchor]
        pixels, depth, _ = self._project(rest, anchor_view)
        there = self._visible(pixels, depth, self._anchor_depth) & _lookup(anchor_view.mask, pixels, False)
        colors = np.where(there[:, None], _sample(anchor_view.rgb, pixels), own)
        rgb = np.tile(self._background, (*view.size, 1))
        rgb[covered] = colors
        painted = np.zeros(view.size, bool)
        painted[covered] = there
        return _Drawn(covered, np.asarray(seen.depth[0], np.float64), rgb.astype(np.float32), painted)

    def _project(self, points: np.ndarray, view: View) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pixels (n,2), camera depth (n,), and d pixel / d point (n,2,3) per working unit."""
        camera = view.to_camera(self.units.to_world(points))
        z = np.maximum(camera[:, 2], 1e-6)
        fx, fy, cx, cy = view.K[0, 0], view.K[1, 1], view.K[0, 2], view.K[1, 2]
        u, v = camera[:, 0] / z, camera[:, 1] / z
        J = np.zeros((len(points), 2, 3))
        J[:, 0, 0], J[:, 0, 2] = fx / z, -fx * u / z
        J[:, 1, 1], J[:, 1, 2] = fy / z, -fy * v / z
        pixels = np.stack([fx * u + cx, fy * v + cy], 1)
        return pixels, camera[:, 2], J @ view.world_to_camera[:3, :3] * self.units.size

    def _visible(self, pixels: np.ndarray, depth: np.ndarray, surface_depth: np.ndarray) -> np.ndarray:
        there = _lookup(surface_depth, pixels, -np.inf)
        return np.isfinite(there) & (depth > 0) & (depth < there + DEPTH_SLACK * self.units.size)

    def _tinted(self, points: np.ndarray) -> np.ndarray:
        """Vertex colours (V,3) brought to the anchor picture's colours by an affine fit; its mean without any."""
        view = self.views[self.anchor]
        mean = view.rgb[view.mask].mean(0) if view.mask.any() else np.full(3, 0.5)
        own = self.graph.surface.colors
        if own is None:
            return np.tile(mean, (len(points), 1)).astype(np.float64)
        pixels, depth, _ = self._project(self._rest, view)
        seen = self._visible(pixels, depth, self._anchor_depth) & _lookup(view.mask, pixels, False)
        if seen.sum() < 50:
            return own
        ones = np.ones((len(own), 1))
        fit = np.linalg.lstsq(np.concatenate([own, ones], 1)[seen], _sample(view.rgb, pixels[seen]), rcond=None)[0]
        return np.clip(np.concatenate([own, ones], 1) @ fit, 0, 1)

    def _pick_background(self) -> np.ndarray:
        """Black behind a light object, white behind a dark one: the outline must be an edge."""
        view = self.views[self.anchor]
        light = float((view.rgb[view.mask] @ LUMA).mean()) if view.mask.any() else 0.5
        return np.full(3, 1.0 if light < 0.55 else 0.0, np.float32)

    def _on_background(self, rgb: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return np.where(mask[..., None], rgb, self._background)

    # --- rows -----------------------------------------------------------------------------------------------------

    def _scale(self, view: View) -> float:
        return max(view.size) / REFERENCE

    def _add_flow(self, k, drawn, pixels, visible, rows, per_pixel, terms) -> None:
        view = self.views[k]
        gray = _gray(drawn.rgb)
        ahead, back = flow(gray, self._gray[k], fine=True), flow(self._gray[k], gray, fine=True)
        ids = np.nonzero(visible)[0]
        at = pixels[ids]
        step = _sample(ahead, at)
        to = at + step
        loop = np.linalg.norm(step + _sample(back, to), axis=1) / self._scale(view)
        length = np.linalg.norm(step, axis=1) / self._scale(view)
        color = np.abs(_sample(drawn.rgb, at) - _sample(view.rgb, to)).mean(1)
        weight = self.graph.areas[ids] * self.options.flow * _lookup(view.mask, to, False) * (length < LARGEST_FLOW)
        weight = weight * np.where(_lookup(drawn.painted, at, False), 1.0, UNPAINTED)
        weight = weight / (1 + (loop / (1 + 0.1 * length)) ** 2) ** 2 / (1 + (color / COLOR_SCALE) ** 2) ** 2
        for axis in range(2):
            terms.add_plane(ids, rows[ids, axis], -step[:, axis] * per_pixel[ids], weight)

    def _add_silhouette(self, k, drawn, pixels, visible, rows, per_pixel, terms) -> None:
        """Points outside the mask go to its nearest pixel; bare mask pixels pull the nearest rim points."""
        view = self.views[k]
        unit = self._scale(view)
        distance, nearest = self._inside[k]
        out = np.nonzero(_lookup(distance, pixels, 0.0) > 0.8)[0]
        if len(out):
            column, row = _cell(pixels[out], distance.shape)
            wish = np.stack([nearest[1][row, column], nearest[0][row, column]], 1) + 0.5
            pull = wish - pixels[out]
            self._pull(out, pull, self.graph.areas[out], unit, rows, per_pixel, terms)
        bare = np.argwhere(view.mask & ~drawn.covered)
        if not len(bare):
            return
        if len(bare) > self.options.rim_pixels:
            chosen = np.random.default_rng(0).choice(len(bare), self.options.rim_pixels, replace=False)
            bare = bare[np.sort(chosen)]
        depth_in = distance_transform_edt(drawn.covered)
        rim = np.nonzero(visible & (_lookup(depth_in, pixels, np.inf) < RIM * unit))[0]
        if not len(rim):
            return
        centres = bare[:, ::-1] + 0.5
        gap, partner = cKDTree(pixels[rim]).query(centres)
        use = (gap > 0.7) & (gap < RIM_REACH * unit)
        ids = rim[partner[use]]
        share = self.graph.areas[ids] / np.bincount(ids, minlength=len(pixels))[ids]
        self._pull(ids, centres[use] - pixels[ids], share, unit, rows, per_pixel, terms)

    def _pull(self, ids, pull, area, unit, rows, per_pixel, terms) -> None:
        far = np.linalg.norm(pull, axis=1) / (SILHOUETTE_SCALE * unit)
        weight = area * self.options.silhouette / (1 + far**2) ** 2
        for axis in range(2):
            terms.add_plane(ids, rows[ids, axis], -pull[:, axis] * per_pixel[ids], weight)


def _nearest_inside(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distance of each pixel to the mask, and the row and column of its nearest mask pixel."""
    distance, index = distance_transform_edt(~mask, return_indices=True)
    return distance, index


def _cell(pixels: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Column and row of the pixels that hold these positions, clipped to the picture."""
    column = np.clip(np.floor(np.nan_to_num(pixels[:, 0])), 0, shape[1] - 1).astype(np.int64)
    row = np.clip(np.floor(np.nan_to_num(pixels[:, 1])), 0, shape[0] - 1).astype(np.int64)
    return column, row


def _lookup(image: np.ndarray, pixels: np.ndarray, outside) -> np.ndarray:
    """Value of the pixel that holds each position; ``outside`` off the picture."""
    column, row = _cell(pixels, image.shape)
    inside = (pixels[:, 0] >= 0) & (pixels[:, 1] >= 0)
    inside &= (pixels[:, 0] < image.shape[1]) & (pixels[:, 1] < image.shape[0])
    return np.where(inside, image[row, column], outside)


def _sample(image: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """Bilinear values (n,C) of (H,W,C) at positions (n,2) whose pixel centres are at +0.5; edges are repeated."""
    x = np.clip(np.nan_to_num(pixels[:, 0]) - 0.5, 0, image.shape[1] - 1)
    y = np.clip(np.nan_to_num(pixels[:, 1]) - 0.5, 0, image.shape[0] - 1)
    left, top = np.floor(x).astype(np.int64), np.floor(y).astype(np.int64)
    right, bottom = np.minimum(left + 1, image.shape[1] - 1), np.minimum(top + 1, image.shape[0] - 1)
    fx, fy = (x - left)[:, None], (y - top)[:, None]
    upper = image[top, left] * (1 - fx) + image[top, right] * fx
    lower = image[bottom, left] * (1 - fx) + image[bottom, right] * fx
    return upper * (1 - fy) + lower * fy


def _gray(rgb: np.ndarray) -> np.ndarray:
    """(H,W) uint8"""
    return np.clip(rgb @ LUMA * 255, 0, 255).round().astype(np.uint8)
