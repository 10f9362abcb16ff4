"""Batches of meshes as plain torch tensors, on any device: one list of vertices, one of faces.

Several views of one mesh and several meshes are then the same to everything that follows. Geometry is in double
precision whatever the points are: which edge crosses where must not depend on the dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packed:
    """N meshes one after the other.

    ``pixel`` (V,3) float64: K @ point, homogeneous pixel coordinates; ``faces`` (F,3) int64 into it; V and F count all
    meshes. ``first_vertex``, ``first_face`` (N,) int64: where each mesh begins.
    """

    pixel: Tensor
    faces: Tensor
    first_vertex: Tensor
    first_face: Tensor

    def facing(self, cull: bool) -> Tensor:
        """(F,) float64, only the sign counts: - for a face seen from the front, + from behind, 0 edge-on; with
        ``cull``, 0 from behind as well."""
        p, q, r = self.pixel[self.faces].unbind(1)
        # The triple product of p, q, r, written so that a face with two equal corners gives exactly 0.
        turn = (p * torch.linalg.cross(q - p, r - p)).sum(-1)
        return turn.clamp(max=0) if cull else turn

    def ids(self, face: Tensor) -> tuple[Tensor, Tensor]:
        """``face`` (N,H,W) -> (P,) the pixels that see a face, counted through, and (P,) its number in ``faces``."""
        covered = (face.flatten() >= 0).nonzero().squeeze(1)
        view = covered // max(face[0].numel() if len(face) else 1, 1)
        return covered, face.flatten()[covered].long() + self.first_face[view]


def pack(points: Tensor | Sequence[Tensor], faces: Any, K: Any) -> Packed:
    """``points`` (N,V,3) with one face list (F,3), or N times (V,3) with N face lists; ``K`` (3,3) or (N,3,3)."""
    if not len(points):
        points, faces = torch.zeros(0, 0, 3), torch.zeros(0, 3)
    device = points[0].device if len(points) else torch.device("cpu")
    K = torch.as_tensor(K, dtype=torch.float64, device=device).expand(len(points), 3, 3)
    if isinstance(points, Tensor):
        pixel = _seen(points.double(), K).reshape(-1, 3)
        face_list: Tensor | list[Tensor] = indices(faces, device)
        first_vertex = torch.arange(len(points), device=device) * points.shape[1]
        first_face = torch.arange(len(points), device=device) * len(face_list)
    else:
        pixel = torch.cat([_seen(p.double(), k) for p, k in zip(points, K, strict=True)])
        face_list = [indices(f, device) for f in faces]
        first_vertex, first_face = starts(points, device), starts(face_list, device)
    return Packed(pixel, shifted(face_list, first_vertex), first_vertex, first_face)


def planes(scene: Packed, covered: Tensor, ids: Tensor, height: int, width: int) -> Tensor:
    """(P,3,3) float64: for each corner of the faces ``ids``, seen from the pixels ``covered``, how its weight changes a
    pixel to the right, a pixel down, and the weight itself. Perspective-correct, not yet divided by their sum."""
    centre = torch.stack([covered % width, covered // width % height], -1) + 0.5
    corner = scene.pixel[scene.faces[ids]]
    # In homogeneous coordinates a corner's weight at (x, y, 1) is the scalar product with the cross product of the
    # other two: no division by a corner's depth, corners behind the camera do no harm. Moving the origin to the pixel
    # first keeps what is small from being the difference of what is large.
    a, b, c = torch.cat([corner[..., :2] - centre[:, None] * corner[..., 2:], corner[..., 2:]], -1).unbind(1)
    return torch.linalg.cross(torch.stack([b, c, a], 1), torch.stack([c, a, b], 1))


def barycentric(scene: Packed, covered: Tensor, ids: Tensor, height: int, width: int) -> Tensor:
    """(P,3) float64 perspective-correct weights of the corners of the faces ``ids`` in the pixels ``covered``."""
    weight = planes(scene, covered, ids, height, width)[..., 2]
    return weight / weight.sum(-1, keepdim=True)


def shifted(parts: Tensor | list[Tensor], first: Tensor) -> Tensor:
    """Index lists, one for all N meshes or one for each, moved to where each mesh begins, as one list."""
    if isinstance(parts, Tensor):
        return (parts[None] + first.reshape(-1, *[1] * parts.ndim)).flatten(0, 1)
    return torch.cat([part + start for part, start in zip(parts, first, strict=True)])


def starts(parts: Sequence[Tensor], device: torch.device) -> Tensor:
    """(N,) int64: where each part begins in all of them one after the other."""
    lengths = torch.tensor([len(part) for part in parts], device=device)
    return lengths.cumsum(0) - lengths


def indices(faces: Any, device: torch.device) -> Tensor:
    """A face list as (F,3) int64 on a device."""
    return torch.as_tensor(faces, device=device).long().reshape(-1, 3)


def _seen(points: Tensor, K: Tensor) -> Tensor:
    """K @ point, without a gradient to K's last row: it is (0, 0, 1), whatever an optimiser does."""
    return torch.cat([points @ K[..., :2, :].mT, points[..., 2:]], -1)
