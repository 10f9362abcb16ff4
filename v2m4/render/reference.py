"""The differentiable half of the renderer once more, in plain torch: what the compiled kernels are tested against, and
what runs where they cannot, on a GPU.

Arguments are not checked here; differentiable.py does that. Geometry is in double precision throughout. Results are
float32, or double where the points are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from v2m4.render.edges import Edges
from v2m4.render.packed import Packed, barycentric, indices, pack, planes, shifted, starts
from v2m4.render.silhouette import INNER_MARGIN, OUTER_MARGIN
from v2m4.render.zbuffer import NEAR

Points = Tensor | Sequence[Tensor]


def interpolate(
    points: Points, faces: Any, K: Any, face: Tensor, attributes: Points, attribute_faces: Any = None
) -> Tensor:
    """(N,H,W,C): the attributes where a face is seen, 0 elsewhere.

    ``points``, ``faces``, ``K`` as in ``pack``; ``face`` (N,H,W) the face each pixel sees, -1 for none; ``attributes``
    (U,C), (N,U,C) or N times (U,C), indexed by ``attribute_faces`` (by ``faces`` where that is None). Differentiable
    in points, K and attributes.
    """
    scene = pack(points, faces, K)
    covered, ids = scene.ids(face)
    weight = barycentric(scene, covered, ids, *face.shape[1:])
    corner = _corners(attributes, faces if attribute_faces is None else attribute_faces, face, ids).to(_dtype(points))
    return _picture((weight.to(corner.dtype)[..., None] * corner).sum(1), covered, face)


@torch.no_grad()
def derivatives(
    points: Points, faces: Any, K: Any, face: Tensor, attributes: Points, attribute_faces: Any = None
) -> Tensor:
    """(N,H,W,C,2): how the attributes change from a pixel to the one on its right and to the one below, on the face it
    sees; 0 elsewhere. Arguments as for ``interpolate``; no gradient."""
    scene = pack(points, faces, K)
    covered, ids = scene.ids(face)
    plane = planes(scene, covered, ids, *face.shape[1:])
    corner = _corners(attributes, faces if attribute_faces is None else attribute_faces, face, ids).double()
    # The attribute is a quotient, of the weighted sum of the corners and the sum of the weights.
    above, below = plane.mT @ corner, plane.sum(1)[..., None]  # (P,3,C) and (P,3,1): right, down, here
    slope = (above[:, :2] - above[:, 2:] / below[:, 2:] * below[:, :2]) / below[:, 2:]
    return _picture(slope.mT.to(_dtype(points)), covered, face)


def _corners(attributes: Points, faces: Any, face: Tensor, ids: Tensor) -> Tensor:
    """(P,3,C) the attributes at the corners of the faces ``ids``."""
    if isinstance(attributes, Tensor):
        index: Any = indices(faces, face.device)
        each = attributes.shape[-2] if attributes.ndim == 3 and len(attributes) > 1 else 0  # 0: all views share them
        first, values = torch.arange(len(face), device=face.device) * each, attributes.flatten(0, -2)
    else:
        index = [indices(f, face.device) for f in faces]
        first, values = starts(attributes, face.device), torch.cat(list(attributes))
    return values.index_select(0, shifted(index, first)[ids].flatten()).unflatten(0, (-1, 3))


def _dtype(points: Points) -> torch.dtype:
    return torch.float64 if len(points) and points[0].dtype == torch.float64 else torch.float32


def _picture(found: Tensor, covered: Tensor, face: Tensor) -> Tensor:
    """(P,...) what the covered pixels hold -> (N,H,W,...), 0 elsewhere."""
    out = found.new_zeros((face.numel(), *found.shape[1:]))
    return out.index_copy(0, covered, found).unflatten(0, tuple(face.shape))


def antialias(
    points: Points,
    faces: Any,
    K: Any,
    face: Tensor,
    depth: Tensor,
    color: Tensor,
    edges: Edges | Sequence[Edges],
    cull: bool = False,
) -> Tensor:
    """(N,H,W,C+1): ``color`` (N,H,W,C) with smooth silhouettes, multiplied by coverage, and coverage itself.

    ``face``, ``depth`` (N,H,W) are what each pixel sees (-1 and infinity for nothing); ``edges`` belong to ``faces``;
    ``cull``: faces seen from behind were not drawn, and an edge between one of them and another is a border.
    Differentiable in points, K and colour. See silhouette.py for the idea.
    """
    scene = pack(points, faces, K)
    seen = (face >= 0)[..., None]
    image = torch.cat([torch.where(seen, color, 0), seen.to(color.dtype)], -1).flatten(0, 2)
    found = _outermost(_crossings(scene, edges, cull, 1 / depth.detach().double()))
    weight = found.weight(scene.pixel)
    difference = image.index_select(0, found.inner) - image.index_select(0, found.outer)
    to = torch.where(weight.detach() > 0, found.outer, found.inner)
    # Where the crossings around one pixel ask for more than all of it they share it. A constant to the gradient: the
    # area still changes with every edge around that pixel.
    asked = weight.new_zeros(len(image)).index_add(0, to, weight.detach().abs())
    share = 1 / asked[to].clamp(min=1)
    image = image.index_add(0, to, (weight * share).to(image.dtype)[:, None] * difference)
    return image.unflatten(0, tuple(face.shape))


@dataclass(frozen=True)
class _Crossings:
    """Where silhouette edges pass between two pixel centres; tensors of length M.

    ``inner``, ``outer``: pixel numbers counted through all views; ``ends`` (M,2) vertices of the edge in the packed
    list; ``steep`` bool: the two pixels are beside each other; ``line``: the centre of the row (of the column where
    not steep) that is followed; ``border``: where on it one pixel ends and the other begins; ``at``: where the edge
    crosses it; ``sign``: +1 when the outer pixel is to the right or below.
    """

    inner: Tensor
    outer: Tensor
    ends: Tensor
    steep: Tensor
    line: Tensor
    border: Tensor
    at: Tensor
    sign: Tensor

    def __getitem__(self, chosen: Tensor) -> _Crossings:
        return _Crossings(*(value[chosen] for value in vars(self).values()))

    def weight(self, pixel: Tensor) -> Tensor:
        """(M,) float64, differentiable: how far the surface reaches over the border, -1/2 to 1/2."""
        # The edge lies on the line p x q through its ends in homogeneous pixel coordinates: (p x q) . (x, y, 1) = 0.
        line = torch.linalg.cross(pixel.index_select(0, self.ends[:, 0]), pixel.index_select(0, self.ends[:, 1]))
        across, along = (torch.where(self.steep, line[:, i], line[:, 1 - i]) for i in (0, 1))
        at = -(along * self.line + line[:, 2]) / across
        return self.sign * (at - self.border)


@torch.no_grad()
def _crossings(scene: Packed, edges: Edges | Sequence[Edges], cull: bool, inverse: Tensor) -> _Crossings:
    """All crossings that can be seen; ``inverse`` (N,H,W) the inverse depth at each pixel, 0 for nothing."""
    _, height, width = inverse.shape
    view, ends, left = _silhouettes(scene, edges, cull)
    a, b, chosen = _segments(scene.pixel[ends[:, 0]], scene.pixel[ends[:, 1]])
    view, ends, left = view[chosen], ends[chosen], left[chosen]

    # Follow each along its steeper axis: ``s`` is the coordinate along it, ``t`` the one across.
    steep = (b[:, 1] - a[:, 1]).abs() >= (b[:, 0] - a[:, 0]).abs()
    (sa, ta), (sb, tb) = ((torch.where(steep, p[:, 1], p[:, 0]), torch.where(steep, p[:, 0], p[:, 1])) for p in (a, b))
    size_s, size_t = torch.where(steep, height, width), torch.where(steep, width, height)
    # The lines through pixel centres that lie in [low, high).
    first = (torch.minimum(sa, sb) - 0.5).ceil().clamp(min=0)
    count = (torch.minimum((torch.maximum(sa, sb) - 0.5).ceil(), size_s) - first).clamp(min=0).long()
    # Is the surface on the side of the larger t?
    plus = left * torch.where(steep, sa - sb, sb - sa) > 0

    edge = torch.repeat_interleave(count)  # from here on one entry a crossing
    line = first[edge] + (torch.arange(len(edge), device=edge.device) - (count.cumsum(0) - count)[edge]) + 0.5
    along = (line - sa[edge]) / (sb - sa)[edge]
    at = ta[edge] + along * (tb - ta)[edge]
    nearness = a[edge, 2] + along * (b - a)[edge, 2]  # 1/z
    low = (at - 0.5).floor()
    inside = (low >= 0) & (low < size_t[edge] - 1)
    edge, line, at, nearness, low = (value[inside] for value in (edge, line, at, nearness, low))

    steep, plus = steep[edge], plus[edge]
    row, column = torch.where(steep, line - 0.5, low).long(), torch.where(steep, low, line - 0.5).long()
    pixel = (view[edge] * height + row) * width + column
    other = pixel + torch.where(steep, 1, width)
    inner, outer = torch.where(plus, other, pixel), torch.where(plus, pixel, other)
    # The outer pixel shows nothing in front of this edge, nor this very surface; the inner one nothing well in front.
    seen = inverse.flatten()
    visible = seen[outer] * (1 + OUTER_MARGIN) < nearness
    visible &= seen[inner] * (1 - INNER_MARGIN) <= nearness
    sign = torch.where(plus, -1.0, 1.0).to(at)
    return _Crossings(inner, outer, ends[edge], steep, line, low + 1, at, sign)[visible]


def _outermost(found: _Crossings) -> _Crossings:
    """Of several crossings from one pixel to the same other one, the one that reaches furthest."""
    reach = found.sign * (found.at - found.border)
    order = reach.argsort(descending=True, stable=True)
    for key in (found.outer, found.inner):
        order = order[key[order].argsort(stable=True)]
    inner, outer = found.inner[order], found.outer[order]
    first = torch.ones_like(inner, dtype=torch.bool)
    first[1:] = (inner[1:] != inner[:-1]) | (outer[1:] != outer[:-1])
    return found[order[first]]


def _silhouettes(scene: Packed, edges: Edges | Sequence[Edges], cull: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Edges whose faces all lie on one side of them on screen: view (M,), ends (M,2), and on which side (M,): +1 when
    the surface lies to the left of low -> high vertex in a system with x right and y up."""
    device = scene.pixel.device
    tables = [_table(e, device) for e in ([edges] if isinstance(edges, Edges) else edges)]
    one, views = len(tables) == 1, len(scene.first_face)  # one table for all views
    lengths = torch.tensor([len(table[0]) for table in tables] * (views if one else 1), device=device)
    starts = scene.first_vertex, scene.first_face, lengths.cumsum(0) - lengths
    all_ends, all_faces, all_edges = (
        shifted(tables[0][i] if one else [table[i] for table in tables], first) for i, first in enumerate(starts)
    )
    turn = tables[0][3].repeat(views) if one else torch.cat([table[3] for table in tables])
    facing = scene.facing(cull)[all_faces] * turn
    positive, negative = (torch.zeros(len(all_ends), dtype=torch.bool, device=device) for _ in range(2))
    positive[all_edges[facing > 0]] = True
    negative[all_edges[facing < 0]] = True
    chosen = positive != negative
    view = torch.repeat_interleave(lengths)
    return view[chosen], all_ends[chosen], torch.where(positive[chosen], 1, -1)


def _segments(p: Tensor, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Edges p -> q (M,3) cut at the near plane: both ends as pixel x, y, 1/z, and (M,) bool which have such a part.
    The ends are those of the chosen edges only."""
    chosen = (p[:, 2] > NEAR) | (q[:, 2] > NEAR)
    p, q = p[chosen], q[chosen]

    def cut(end: Tensor, other: Tensor) -> Tensor:
        behind = end[:, 2:] <= NEAR
        t = (other[:, 2:] - NEAR) / torch.where(behind, other[:, 2:] - end[:, 2:], 1)
        end = torch.where(behind, other + t * (end - other), end)
        inverse = 1 / torch.where(behind, NEAR, end[:, 2:])
        return torch.cat([end[:, :2] * inverse, inverse], 1)

    return cut(p, q), cut(q, p), chosen


_tables: WeakKeyDictionary[Edges, dict[torch.device, tuple[Tensor, ...]]] = WeakKeyDictionary()


def _table(edges: Edges, device: torch.device) -> tuple[Tensor, ...]:
    """An edge table on a device, moved there once: ends (E,2); for each side of an edge the face there, the edge, and
    -1 where the face runs through the edge backwards, else 1."""
    known = _tables.setdefault(edges, {})
    if device not in known:
        sides, start = torch.from_numpy(edges.sides).long(), torch.from_numpy(edges.start).long()
        edge = torch.repeat_interleave(start.diff())
        table = torch.from_numpy(edges.ends).long(), sides >> 1, edge, 1 - 2 * (sides & 1)
        known[device] = tuple(value.to(device) for value in table)
    return known[device]
