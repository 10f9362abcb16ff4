"""``render``: a picture that can be differentiated. The only file of the renderer that needs torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from v2m4.protocols import Rasterizer
from v2m4.render import _jit, antialias, inputs, interpolate
from v2m4.render.edges import Edges
from v2m4.render.zbuffer import NEAR, Vertices, project, visibility

#: A single view is cut into this many bands. Fixed: the order in which gradients are summed must not depend on threads.
BANDS = 2


def render(
    points: torch.Tensor,
    faces: Any,
    K: Any,
    height: int,
    width: int,
    attributes: torch.Tensor | None = None,
    *,
    edges: Edges | None = None,
    rasterizer: Rasterizer | None = None,
) -> torch.Tensor:
    """Antialiased vertex attributes and coverage, (N,H,W,C+1) float32.

    ``points`` (N,V,3) or (V,3) in OpenCV camera coordinates; ``faces`` (F,3); ``K`` (3,3) or (N,3,3) in pixels;
    ``attributes`` (V,C) or (N,V,C), for instance colours. The last channel is coverage in [0, 1]; the others are
    already multiplied by it (0 outside). Differentiable in ``points``, ``attributes`` and, where it is a tensor that
    asks for it, ``K``; silhouettes move with the points. ``edges = Edges(faces)`` saves time when many pictures of one
    topology are made. InputError when points are not finite or shapes do not fit.
    """
    points = points[None] if points.ndim == 2 else points
    if attributes is None:
        attributes = points.new_zeros((points.shape[-2], 0))
    if attributes.ndim not in (2, 3) or attributes.shape[-2] != points.shape[-2]:
        raise inputs.InputError(f"attributes {tuple(attributes.shape)} do not fit {points.shape[-2]} vertices")
    if attributes.ndim == 3 and len(attributes) not in (1, len(points)):
        raise inputs.InputError(f"attributes for {len(attributes)} views, points for {len(points)}")
    faces = inputs.check_faces(faces, points.shape[-2])
    edges = Edges(faces) if edges is None else edges
    if edges.face_count != len(faces):
        raise inputs.InputError(f"the edge table was built for {edges.face_count} faces, there are {len(faces)}")
    K = torch.as_tensor(K, dtype=torch.float64)
    return _Render.apply(points, attributes, K, _Scene(faces, edges, height, width, rasterizer))


@dataclass(frozen=True)
class _Scene:
    """What is not differentiated."""

    faces: np.ndarray
    edges: Edges
    height: int
    width: int
    rasterizer: Rasterizer | None


class _Render(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, points: torch.Tensor, attributes: torch.Tensor, K: torch.Tensor, scene: _Scene) -> Any:
        arrays = inputs.check_points(points), inputs.as_numpy(attributes, np.float32)
        ctx.picture = _Picture(*arrays, inputs.check_intrinsics(K, len(points)), scene)
        # The arrays above share memory with the tensors: saving them makes torch notice when they are changed in place.
        ctx.save_for_backward(points, attributes, K)
        return torch.from_numpy(ctx.picture.forward()).to(points.device)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        points, attributes, K = ctx.saved_tensors
        picture: _Picture = ctx.picture
        grad_pixel, grad_attributes = picture.backward(inputs.as_numpy(grad, np.float32))
        # pixel = K p: the gradient of p is K^T g, that of K the sum of g p^T.
        grad_points = torch.from_numpy(grad_pixel @ picture.K).to(points)
        grad_K = None
        if ctx.needs_input_grad[2]:
            each = np.einsum("nvi,nvj->nij", grad_pixel, picture.points)
            grad_K = torch.from_numpy(_sum_to(each, K.shape)).to(K)
        return grad_points, torch.from_numpy(_sum_to(grad_attributes, attributes.shape)).to(attributes), grad_K, None


def _sum_to(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Gradients of each view (N,...) -> of what the views shared, (...) or (1,...)."""
    return array if tuple(shape) == array.shape else array.sum(0).reshape(shape)


class _Picture:
    """One call: the arrays the backward pass needs, and both passes."""

    def __init__(self, points: np.ndarray, attributes: np.ndarray, K: np.ndarray, scene: _Scene) -> None:
        self.points, self.K, self.scene = points, K, scene
        self.attributes = attributes[None] if attributes.ndim == 2 else attributes
        self.views = len(points)
        self.face = np.empty(0, np.int32)
        self.vertices: Vertices
        self.crossings: list[antialias.Crossings] = []
        self.differences: list[np.ndarray] = []

    def forward(self) -> np.ndarray:
        scene = self.scene
        self.face, inverse, self.vertices = self._visibility()
        image = np.empty((*self.face.shape, self.attributes.shape[-1] + 1), np.float32)

        def fill(n: int, top: int, bottom: int) -> None:
            interpolate.forward(*self._view(n), self.face[n], image[n], top, bottom)

        _jit.run_all(fill, [(n, *band) for n in range(self.views) for band in self._bands()])
        self.crossings = [None] * self.views  # type: ignore[list-item]
        self.differences = [None] * self.views  # type: ignore[list-item]

        def smooth(n: int) -> None:
            found = antialias.find_crossings(
                self.vertices.pixel[n], self.vertices.screen[n], scene.faces, NEAR, scene.edges, inverse[n]
            )
            difference = np.empty((len(found.inner), image.shape[-1]), np.float32)
            flat = image[n].reshape(-1, image.shape[-1])
            antialias.blend(flat, found.inner, found.outer, found.weight, found.share, difference)
            self.crossings[n], self.differences[n] = found, difference

        _jit.run_all(smooth, [(n,) for n in range(self.views)])
        return image

    def backward(self, grad: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``grad`` (N,H,W,C+1) -> gradients (N,V,3) with respect to K @ point and (N,V,C), float64."""
        scene, bands = self.scene, self._bands()
        grad_image = grad.copy()
        grad_pixel = np.zeros((len(bands), *self.points.shape))
        grad_attributes = np.zeros((len(bands), self.views, *self.attributes.shape[1:]))

        def smooth(n: int) -> None:
            flat, flat_before = (g[n].reshape(-1, g.shape[-1]) for g in (grad, grad_image))
            antialias.blend_backward(
                self.vertices.pixel[n], scene.edges.ends, self.crossings[n].arrays(), self.crossings[n].share,
                self.differences[n], flat, flat_before, grad_pixel[0, n],
            )  # fmt: skip

        def spread(n: int, b: int) -> None:
            interpolate.backward(
                *self._view(n), self.face[n], grad_image[n], *bands[b], grad_pixel[b, n], grad_attributes[b, n]
            )

        _jit.run_all(smooth, [(n,) for n in range(self.views)])
        if self.attributes.shape[-1]:
            _jit.run_all(spread, [(n, b) for n in range(self.views) for b in range(len(bands))])
        return grad_pixel.sum(0), grad_attributes.sum(0)

    def _visibility(self) -> tuple[np.ndarray, np.ndarray, Vertices]:
        scene = self.scene
        if scene.rasterizer is None:
            return visibility(self.points, scene.faces, self.K, scene.height, scene.width, cull=False, near=NEAR)
        found = scene.rasterizer.rasterize(self.points, scene.faces, self.K, scene.height, scene.width)
        vertices = project(self.points, self.K, scene.height, scene.width, NEAR)
        return inputs.as_numpy(found.face, np.int32), 1 / inputs.as_numpy(found.depth, np.float32), vertices

    def _view(self, n: int) -> tuple[np.ndarray, ...]:
        attributes = self.attributes[n if len(self.attributes) > 1 else 0]
        return self.vertices.pixel[n], self.scene.faces, attributes

    def _bands(self) -> list[tuple[int, int]]:
        return _jit.ranges(self.scene.height, BANDS if self.views == 1 else 1)
