"""Pictures that can be differentiated: ``rasterize``, then ``interpolate``, ``sample_texture`` and ``antialias``.

On the CPU these are the compiled kernels (compiled.py); on other devices the same in plain torch (reference.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from v2m4.protocols import Rasterizer
from v2m4.render import compiled, inputs
from v2m4.render.batch import Batch, Slices, is_sequence, make_batch
from v2m4.render.edges import Edges
from v2m4.render.zbuffer import ZBuffer, project, visibility

Points = torch.Tensor | Sequence[torch.Tensor]


@dataclass(frozen=True)
class _Compiled:
    drawn: compiled.Drawn
    pixel: torch.Tensor  #: (P,3) K @ point: through it gradients reach points and K


@dataclass(frozen=True)
class Raster:
    """What N views see, and from what: the first step of a picture, made by ``rasterize``.

    ``face`` (N,H,W) int32: the face at each pixel's centre, numbered inside the view's mesh, -1 where there is none.
    ``points``, ``faces``, ``K`` as given, K on the device of the points. The rest is for the renderer.
    """

    face: torch.Tensor
    points: Points
    faces: Any
    K: torch.Tensor
    cull: bool
    edges: Edges | Sequence[Edges] | None
    batch: Batch
    seen: _Compiled | torch.Tensor  #: what the kernels need, or on other devices the depth (N,H,W) each pixel sees

    @property
    def barycentric(self) -> torch.Tensor:
        """(N,H,W,3) perspective-correct weights of the face's corners, 0 where there is none; differentiable."""
        lists = self.batch.faces[:1] if self.batch.shared else self.batch.faces
        corners = [np.arange(3 * len(f), dtype=np.int32).reshape(-1, 3) for f in lists]
        each = [torch.eye(3, dtype=self._dtype, device=self.face.device).repeat(len(f), 1) for f in lists]
        if not self.batch.shared:
            return interpolate(self, each, corners)
        if not each:
            return self.face.new_zeros((*self.face.shape, 3), dtype=self._dtype)
        return interpolate(self, each[0], corners[0])

    @property
    def depth(self) -> torch.Tensor:
        """(N,H,W) camera z, infinite where there is no face; differentiable."""
        z = self.points[..., 2:] if isinstance(self.points, torch.Tensor) else [p[:, 2:] for p in self.points]
        found = interpolate(self, z)[..., 0]
        return torch.where(self.face >= 0, found, torch.inf)

    @property
    def _dtype(self) -> torch.dtype:
        points = self.points[0] if is_sequence(self.points) and self.points else self.points
        return torch.float64 if getattr(points, "dtype", None) == torch.float64 else torch.float32


def rasterize(
    points: Points,
    faces: Any,
    K: Any,
    height: int,
    width: int,
    *,
    cull: bool = False,
    edges: Edges | Sequence[Edges] | None = None,
    rasterizer: Rasterizer | None = None,
) -> Raster:
    """Which face does each pixel see: the first step of every picture.

    ``points`` (N,V,3) or (V,3) in OpenCV camera coordinates and ``faces`` (F,3); or, for a batch of different meshes,
    sequences of N points (V_n,3) and N faces. ``K`` (3,3) or (N,3,3) in pixels. ``cull`` leaves out faces seen from
    behind. ``edges``: the ``Edges`` of the faces (one for each mesh), which saves time when many pictures of one
    topology are made. ``rasterizer``: who decides visibility (see ``load_rasterizer``), ``ZBuffer`` unless told
    otherwise. Everything made from the result is differentiable in ``points`` and, where it is a tensor that asks for
    it, ``K``; visibility itself is not. float32, or double throughout where the points are double. InputError when
    points are not finite or shapes do not fit.
    """
    if is_sequence(points):
        points = [torch.as_tensor(p) for p in points]
    else:
        points = torch.as_tensor(points)
        points = points[None] if points.ndim == 2 else points
    device = points[0].device if len(points) else torch.device("cpu")
    batch = make_batch(points, faces, K, height, width, keep_double=True)
    K = torch.as_tensor(K, dtype=torch.float64, device=device)
    _check_edges(edges, batch)
    if device.type != "cpu":
        return _on_device(points, faces, K, batch, cull, edges, rasterizer or ZBuffer())
    packed = points.reshape(-1, 3) if isinstance(points, torch.Tensor) else torch.cat([torch.zeros(0, 3), *points])
    vertices = project(batch)
    if rasterizer is None:
        face, inverse = visibility(batch, vertices, cull=cull)
    else:
        found = rasterizer.rasterize(_arrays(points), faces, batch.K, height, width, cull)
        face = inputs.as_numpy(found.face, np.int32)
        inverse = 1 / inputs.as_numpy(found.depth, np.float32)
    drawn = compiled.Drawn(batch, vertices, face, inverse, cull, packed.dtype == torch.float64)
    seen = _Compiled(drawn, compiled.project(packed, K, batch, vertices))
    return Raster(torch.from_numpy(face), points, faces, K, cull, edges, batch, seen)


def interpolate(raster: Raster, attributes: Any, faces: Any = None) -> torch.Tensor:
    """(N,H,W,C) what ``attributes`` are at each pixel's centre, perspective-correct; 0 where there is no face.

    ``attributes`` (U,C), for all views, (N,U,C), or a sequence of N (U_n,C): one row a vertex. ``faces`` (F,3), or N of
    them for a batch of meshes: another index list, where the attributes are not indexed like the vertices (UVs).
    Differentiable in ``attributes`` and what ``raster`` was made from. InputError when shapes do not fit.
    """
    values = _floats(attributes, raster.face.device)
    if isinstance(raster.seen, _Compiled):
        packed, slices = _packed(values, raster)
        corners = _corner_lists(raster, slices, faces)
        return compiled.interpolate(raster.seen.drawn, raster.seen.pixel, packed, slices, corners)
    from v2m4.render import reference

    return reference.interpolate(raster.points, raster.faces, raster.K, raster.face, values, faces)


def derivatives(raster: Raster, attributes: Any, faces: Any = None) -> torch.Tensor:
    """(N,H,W,C,2) how ``attributes`` change from a pixel to the one on its right, and to the one below, on the face it
    sees; 0 where there is none. Arguments as for ``interpolate``. A constant: nothing is differentiable."""
    values = _floats(attributes, raster.face.device)
    with torch.no_grad():
        if isinstance(raster.seen, _Compiled):
            packed, slices = _packed(values, raster)
            return compiled.derivatives(raster.seen.drawn, packed, slices, _corner_lists(raster, slices, faces))
        from v2m4.render import reference

        return reference.derivatives(raster.points, raster.faces, raster.K, raster.face, values, faces)


def antialias(raster: Raster, color: torch.Tensor | None = None) -> torch.Tensor:
    """(N,H,W,C+1) ``color`` with smooth silhouettes, multiplied by coverage, and coverage itself, in [0, 1], last.

    ``color`` (N,H,W,C): the colour at each pixel's centre; what it holds where there is no face does not count. None:
    coverage alone. Silhouettes move with the points: this is where the gradient of a mask comes from. Differentiable in
    ``color`` and what ``raster`` was made from.
    """
    if color is None:
        color = torch.empty((*raster.face.shape, 0), dtype=raster._dtype, device=raster.face.device)
    if color.ndim != 4 or color.shape[:3] != raster.face.shape:
        raise inputs.InputError(
            f"colour {tuple(color.shape)} does not fit the picture {tuple(raster.face.shape)}",
            "give (N,H,W,C), as from interpolate",
        )
    inputs.check_floating("colour", color)
    edges = raster.edges
    if edges is None:
        lists = raster.batch.faces
        edges = Edges(lists[0] if lists else raster.faces) if raster.batch.shared else [Edges(f) for f in lists]
    if isinstance(raster.seen, _Compiled):
        each = [edges] * len(raster.batch) if isinstance(edges, Edges) else edges
        return compiled.antialias(raster.seen.drawn, raster.seen.pixel, color, each)
    from v2m4.render import reference

    given = raster.points, raster.faces, raster.K, raster.face, raster.seen
    return reference.antialias(*given, color, edges, raster.cull)


def render(
    points: Points,
    faces: Any,
    K: Any,
    height: int,
    width: int,
    attributes: Any = None,
    *,
    cull: bool = False,
    edges: Edges | Sequence[Edges] | None = None,
    rasterizer: Rasterizer | None = None,
) -> torch.Tensor:
    """Antialiased attributes and coverage in one step, (N,H,W,C+1); coverage alone without ``attributes``.

    The last channel is coverage in [0, 1]; the others are already multiplied by it (0 outside). Arguments as for
    ``rasterize`` and ``interpolate``.
    """
    raster = rasterize(points, faces, K, height, width, cull=cull, edges=edges, rasterizer=rasterizer)
    return antialias(raster, None if attributes is None else interpolate(raster, attributes))


# --- how arguments become what kernels take ---------------------------------------------------------------------------


def _arrays(points: Points) -> Any:
    if is_sequence(points):
        return [inputs.check_points(p)[0] for p in points]
    return inputs.check_points(points)


def _check_edges(edges: Edges | Sequence[Edges] | None, batch: Batch) -> None:
    if edges is None:
        return
    each = [edges] * len(batch) if isinstance(edges, Edges) else edges
    if len(each) != len(batch):
        raise inputs.InputError(f"{len(each)} edge tables for {len(batch)} meshes", inputs.ONE_EACH)
    checked: set[tuple[int, int]] = set()
    for table, faces in zip(each, batch.faces, strict=True):
        if (id(table), id(faces)) in checked:
            continue
        checked.add((id(table), id(faces)))
        if not np.array_equal(table.faces, faces):  # the kernels go by it without looking
            raise inputs.InputError("the edge table was built for other faces", "build Edges from the faces drawn")


def _on_device(
    points: Points, faces: Any, K: torch.Tensor, batch: Batch, cull: bool, edges: Any, rasterizer: Rasterizer
) -> Raster:
    """Everything but visibility in plain torch. A rasteriser of the CPU gets arrays, others the tensors themselves."""
    device = points[0].device
    given = _arrays(points) if isinstance(rasterizer, ZBuffer) else points
    found = rasterizer.rasterize(given, faces, batch.K, batch.height, batch.width, cull)
    face, depth = (torch.as_tensor(x, device=device) for x in (found.face, found.depth))
    return Raster(face, points, faces, K, cull, edges, batch, depth)


def _floats(attributes: Any, device: torch.device) -> Points:
    """Attributes as tensors. Bytes are refused as in ``sample_texture``: is 1 white or black?"""
    if is_sequence(attributes):
        values = [torch.as_tensor(a, device=device) for a in attributes]
        inputs.check_floating("attributes", *values)
        return values
    value = torch.as_tensor(attributes, device=device)
    inputs.check_floating("attributes", value)
    return value


def _packed(attributes: Points, raster: Raster) -> tuple[torch.Tensor, Slices]:
    views = len(raster.batch)
    if is_sequence(attributes):
        if len(attributes) != views or any(a.ndim != 2 for a in attributes):
            raise inputs.InputError(
                f"{views} meshes need {views} lists of attributes of the shape (U,C)", inputs.ONE_EACH
            )
        if len({a.shape[1] for a in attributes}) > 1:
            raise inputs.InputError(
                "all meshes of a batch must have the same number of attributes", "the last axis, C, is the same for all"
            )
        packed = torch.cat(list(attributes)) if len(attributes) else torch.zeros((0, 0))
        return packed, Slices.of_lengths([len(a) for a in attributes])
    assert isinstance(attributes, torch.Tensor)
    if attributes.ndim not in (2, 3):
        raise inputs.InputError(
            f"attributes must have the shape (U,C) or (N,U,C), not {tuple(attributes.shape)}",
            "one row for each vertex; a single number a vertex is (U,1)",
        )
    if attributes.ndim == 3 and len(attributes) not in (1, views):
        raise inputs.InputError(
            f"attributes for {len(attributes)} views, points for {views}", "(U,C) is shared by all views"
        )
    rows = attributes.shape[-2]
    if attributes.ndim == 3 and len(attributes) == views:
        return attributes.flatten(0, -2), Slices(tuple(rows * n for n in range(views + 1)))
    return attributes.flatten(0, -2), Slices((0, rows), shared=True)


def _corner_lists(raster: Raster, slices: Slices, faces: Any) -> Sequence[np.ndarray]:
    """The index list of each view into its attributes."""
    batch = raster.batch
    rows = [len(slices.of(range(slices.start[-1]), n)) for n in range(len(batch))]
    if faces is None:
        for n, count in enumerate(rows):
            vertices = batch.vertices.start[n + 1] - batch.vertices.start[n]
            if count != vertices:
                raise inputs.InputError(
                    f"{count} attributes do not fit {vertices} vertices",
                    "give one row for each vertex, or their own faces, as UVs have",
                )
        return batch.faces
    lists = list(faces) if is_sequence(faces) else [faces] * len(batch)
    if len(lists) != len(batch):
        raise inputs.InputError(f"{len(lists)} lists of attribute faces for {len(batch)} meshes", inputs.ONE_EACH)
    same = batch.shared and not is_sequence(faces) and len(set(rows)) == 1
    checked = [inputs.check_faces(lists[0], rows[0])] * len(lists) if same else [
        inputs.check_faces(f, count) for f, count in zip(lists, rows, strict=True)
    ]  # fmt: skip
    for corners, own in zip(checked, batch.faces, strict=True):
        if len(corners) != len(own):
            raise inputs.InputError(
                f"{len(corners)} attribute faces do not fit {len(own)} faces", "each face has one, in the same order"
            )
    return checked
