"""The kernels as functions of tensors with a gradient: the same as reference.py, compiled, for tensors on the CPU.

The order in which gradients are summed up follows from the input alone, never from the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from v2m4.render import _jit, barycentric, inputs, silhouette
from v2m4.render.batch import Batch, Slices
from v2m4.render.edges import Edges
from v2m4.render.zbuffer import Vertices, bands


@dataclass(frozen=True)
class Drawn:
    """What N views see, as arrays: ``face`` (N,H,W) int32, ``inverse`` (N,H,W) inverse depth, 0 for nothing; and from
    what. ``cull``: faces seen from behind were left out. ``double``: the points are float64, so is what is made."""

    batch: Batch
    vertices: Vertices
    face: np.ndarray
    inverse: np.ndarray
    cull: bool
    double: bool

    @property
    def dtype(self) -> Any:
        return np.float64 if self.double else np.float32

    def parts(self) -> list[tuple[int, int, int]]:
        """(view, top, bottom) of all bands of all views."""
        return [(n, *band) for n in range(len(self.batch)) for band in bands(self.batch, self.vertices)]


def project(points: torch.Tensor, K: torch.Tensor, batch: Batch, vertices: Vertices) -> torch.Tensor:
    """``points`` (P,3) and ``K`` of ``batch`` -> K @ point (P,3) float64, computed before as ``vertices.pixel``."""
    return _Project.apply(points, K, batch, vertices)


def interpolate(
    drawn: Drawn, pixel: torch.Tensor, attributes: torch.Tensor, slices: Slices, corners: Sequence[np.ndarray]
) -> torch.Tensor:
    """``attributes`` (A,C), of which ``slices`` tells each view's, indexed by its ``corners`` (F,3) -> (N,H,W,C)."""
    return _Interpolate.apply(pixel, attributes, _Corners(drawn, slices, corners))


def derivatives(drawn: Drawn, attributes: torch.Tensor, slices: Slices, corners: Sequence[np.ndarray]) -> torch.Tensor:
    """As ``interpolate`` -> (N,H,W,C,2): change a pixel to the right and a pixel down. Not differentiable."""
    at = _Corners(drawn, slices, corners)
    values = at.values(attributes)
    out = np.empty((*drawn.batch.shape, values.shape[-1], 2), values.dtype)
    at.run(lambda n, top, bottom, *view: barycentric.slopes(*view, out[n], top, bottom), values)
    return torch.from_numpy(out)


def antialias(drawn: Drawn, pixel: torch.Tensor, color: torch.Tensor, edges: Sequence[Edges]) -> torch.Tensor:
    """``color`` (N,H,W,C) and one edge table a view -> (N,H,W,C+1)."""
    return _Antialias.apply(pixel, color, drawn, edges)


class _Project(torch.autograd.Function):
    """Points (P,3), K -> K @ point (P,3) float64, computed before as ``vertices.pixel``."""

    @staticmethod
    def forward(ctx: Any, points: torch.Tensor, K: torch.Tensor, batch: Batch, vertices: Vertices) -> Any:
        ctx.batch = batch
        # The batch may share memory with the tensor: saving it makes torch notice when it is changed in place.
        ctx.save_for_backward(points, K)
        return torch.from_numpy(vertices.pixel)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        points, K = ctx.saved_tensors
        batch: Batch = ctx.batch
        given, at, views = grad.numpy(), batch.vertices, range(len(batch))
        # pixel = K p: the gradient of p is K^T g, that of K the sum of g p^T.
        grad_points = np.empty((len(given), 3), batch.points.dtype)
        for n in views:
            at.of(grad_points, n)[:] = at.of(given, n) @ batch.K[n]
        grad_K = None
        if ctx.needs_input_grad[1]:
            each = [at.of(given, n).T @ at.of(batch.points, n).astype(np.float64) for n in views]
            total = np.reshape(each, (-1, 3, 3))
            total[:, 2] = 0.0  # the last row is (0, 0, 1), whatever an optimiser does
            grad_K = torch.from_numpy(total if len(K) == len(total) and K.ndim == 3 else total.sum(0).reshape(K.shape))
        return torch.from_numpy(grad_points).to(points.dtype), grad_K, None, None


class _Corners:
    """Where each view's attributes are, and how its pixels are shared out."""

    def __init__(self, drawn: Drawn, slices: Slices, corners: Sequence[np.ndarray]) -> None:
        self.drawn, self.slices, self.corners = drawn, slices, corners
        self.parts = drawn.parts()

    def values(self, attributes: torch.Tensor) -> np.ndarray:
        """(P,C) in the dtype of the picture."""
        return inputs.as_numpy(attributes, self.drawn.dtype)

    def run(self, work: Any, values: np.ndarray) -> None:
        """Call ``work(n, top, bottom, pixel, faces, values, corners, face)`` for every band of every view."""

        def one(n: int, top: int, bottom: int) -> None:
            batch, face = self.drawn.batch, self.drawn.face[n]
            pixel = batch.vertices.of(self.drawn.vertices.pixel, n)
            work(n, top, bottom, pixel, batch.faces[n], self.slices.of(values, n), self.corners[n], face)

        _jit.run_all(one, self.parts)


class _Interpolate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pixel: torch.Tensor, attributes: torch.Tensor, corners: _Corners) -> Any:
        ctx.corners = corners
        ctx.save_for_backward(attributes)
        values = corners.values(attributes)
        image = np.empty((*corners.drawn.batch.shape, values.shape[-1]), values.dtype)
        corners.run(lambda n, top, bottom, *view: barycentric.forward(*view, image[n], top, bottom), values)
        return torch.from_numpy(image)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        corners: _Corners = ctx.corners
        (attributes,) = ctx.saved_tensors
        values = corners.values(attributes)
        given = inputs.as_numpy(grad, values.dtype)
        # One sum a band, and a view where views share the attributes: the order of adding never depends on threads.
        first = {top: b for b, top in enumerate(sorted({top for _, top, _ in corners.parts} | {0}))}
        batch, shared = corners.drawn.batch, corners.slices.shared
        grad_pixel = np.zeros((len(first), len(batch.points), 3))
        grad_values = np.zeros((len(first), len(batch) if shared else 1, *values.shape))

        def work(n: int, top: int, bottom: int, *view: Any) -> None:
            b = first[top]
            into = grad_values[b, n] if shared else corners.slices.of(grad_values[b, 0], n)
            barycentric.backward(*view, given[n], top, bottom, batch.vertices.of(grad_pixel[b], n), into)

        corners.run(work, values)
        grad_attributes = torch.from_numpy(grad_values.sum((0, 1))).to(attributes.dtype)
        return torch.from_numpy(grad_pixel.sum(0)), grad_attributes, None


class _Antialias(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pixel: torch.Tensor, color: torch.Tensor, drawn: Drawn, edges: Sequence[Edges]) -> Any:
        batch, vertices, face, channels = drawn.batch, drawn.vertices, drawn.face, color.shape[-1]
        ctx.drawn, ctx.edges, ctx.dtype = drawn, edges, color.dtype
        given = inputs.as_numpy(color, np.float64 if color.dtype == torch.float64 else np.float32)
        image = np.empty((*batch.shape, channels + 1), given.dtype)
        ctx.crossings = [None] * len(batch)
        ctx.differences = [None] * len(batch)

        def compose(n: int, top: int, bottom: int) -> None:
            silhouette.compose(given[n], face[n], image[n], top, bottom)

        def find(n: int) -> None:
            pixel, screen = (batch.vertices.of(x, n) for x in (vertices.pixel, vertices.screen))
            inverse = drawn.inverse[n]
            ctx.crossings[n] = silhouette.find_crossings(pixel, screen, batch.faces[n], edges[n], inverse, drawn.cull)

        def whole(n: int) -> None:
            compose(n, 0, batch.height)
            find(n)
            ctx.differences[n] = silhouette.blend_all(image[n], ctx.crossings[n])

        if len(batch) == 1:
            _jit.run_all(lambda work, *a: work(*a), [(find, 0), *((compose, *part) for part in drawn.parts())])
            ctx.differences[0] = silhouette.blend_all(image[0], ctx.crossings[0])
        else:
            _jit.run_all(whole, [(n,) for n in range(len(batch))])
        return torch.from_numpy(image)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        drawn: Drawn = ctx.drawn
        batch, vertices, face = drawn.batch, drawn.vertices, drawn.face
        given = inputs.as_numpy(grad, np.float64 if ctx.dtype == torch.float64 else np.float32)
        grad_color = np.empty((*batch.shape, given.shape[-1] - 1), given.dtype)
        grad_pixel = np.zeros(vertices.pixel.shape)
        _jit.run_all(lambda n, *rows: silhouette.decompose(given[n], face[n], grad_color[n], *rows), drawn.parts())

        def smooth(n: int) -> None:
            flat = (x[n].reshape(batch.height * batch.width, *x.shape[3:]) for x in (face, given, grad_color))
            found: silhouette.Crossings = ctx.crossings[n]
            silhouette.blend_backward(
                batch.vertices.of(vertices.pixel, n), ctx.edges[n].ends, found.arrays(), found.share,
                ctx.differences[n], *flat, batch.vertices.of(grad_pixel, n),
            )  # fmt: skip

        _jit.run_all(smooth, [(n,) for n in range(len(batch))])
        return torch.from_numpy(grad_pixel), torch.from_numpy(grad_color).to(ctx.dtype), None, None
