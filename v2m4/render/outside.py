"""What the adapters to outside rasterisers share.

Such a rasteriser only says which face a pixel sees. Depth and barycentrics are then worked out here in double
precision, the same for all of them: no two libraries agree on their order, precision and clamping.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from v2m4.protocols import Fragments
from v2m4.render import inputs
from v2m4.render.batch import is_sequence
from v2m4.render.packed import Packed, barycentric, pack


def has_tensors(points: Any) -> bool:
    """Are these tensors (then the answer has to be tensors too), or arrays."""
    return isinstance(points[0] if is_sequence(points) and points else points, Tensor)


@torch.no_grad()
def checked(points: Any, faces: Any, K: Any, height: int, width: int, device: torch.device | None) -> Packed:
    """What ``Rasterizer.rasterize`` takes, packed; on ``device``, or where the points are. InputError where points are
    not finite or shapes do not fit."""
    inputs.check_size(height, width)
    if is_sequence(points):
        if not is_sequence(faces) or len(faces) != len(points):
            raise inputs.InputError(f"{len(points)} meshes need as many face lists", inputs.ONE_EACH)
        meshes: Tensor | Sequence[Tensor] = [_points(p, 2, device) for p in points]
        lists: Any = [inputs.check_faces(f, len(p)) for f, p in zip(faces, meshes, strict=True)]
    else:
        meshes = _points(points, 3, device)
        lists = inputs.check_faces(faces, meshes.shape[1])
    scene = pack(meshes, lists, np.array(inputs.check_intrinsics(K, len(meshes))))
    if not torch.isfinite(scene.pixel).all():
        inputs.refuse_not_finite()
    return scene


def visible_faces(scene: Packed, cull: bool) -> Tensor:
    """``scene.faces``, but those without area and, with ``cull``, those seen from behind made into a single point: what
    a rasteriser that rounds coordinates must not see. Nobody's number changes."""
    return torch.where((scene.facing(cull) == 0)[:, None], scene.faces[:, :1], scene.faces)


@torch.no_grad()
def fragments(scene: Packed, face: Tensor, as_numpy: bool) -> Fragments:
    """``face`` (N,H,W) int32, numbered inside each mesh, -1 for nothing -> Fragments."""
    covered, ids = scene.ids(face)
    # Where coordinates were rounded, a pixel's centre may lie just outside the face it is said to see.
    weight = barycentric(scene, covered, ids, *face.shape[1:]).clamp(min=0)
    weight = weight / weight.sum(-1, keepdim=True)
    z = (weight * scene.pixel[scene.faces[ids], 2]).sum(1)
    depth = torch.full((face.numel(),), torch.inf, device=face.device).index_copy(0, covered, z.float())
    weights = torch.zeros((face.numel(), 3), device=face.device).index_copy(0, covered, weight.float())
    found = face, depth.reshape(face.shape), weights.reshape(*face.shape, 3)
    return Fragments(*((value.cpu().numpy() for value in found) if as_numpy else found))


def _points(points: Any, ndim: int, device: torch.device | None) -> Tensor:
    tensor = torch.as_tensor(points if isinstance(points, Tensor) else np.asarray(points), device=device)
    tensor = tensor[None] if ndim == 3 and tensor.ndim == 2 else tensor
    if tensor.ndim != ndim or tensor.shape[-1] != 3:
        shape = "(N,V,3)" if ndim == 3 else "(V,3) for each mesh"
        raise inputs.InputError(
            f"points must have the shape {shape}, not {tuple(tensor.shape)}", "give camera coordinates x, y, z"
        )
    return tensor if tensor.is_floating_point() else tensor.float()
