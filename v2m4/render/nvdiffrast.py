"""nvdiffrast's CUDA rasteriser behind our interface. Its licence allows research and evaluation only.

Written from its documentation and tested against a stand-in that follows it; it has not been run on a GPU yet.
nvdiffrast rounds vertices to a sixteenth of a pixel: where triangles are about a pixel large, some pixels see a
neighbour of the face they should see (2.4 % of them on a ball of 20,000 faces at 128 x 128, with that rounding alone).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from v2m4.errors import InputError, MissingBackend
from v2m4.protocols import Fragments
from v2m4.render.outside import checked, fragments, has_tensors, visible_faces
from v2m4.render.packed import Packed
from v2m4.render.zbuffer import NEAR

INSTALL = "pip install --no-build-isolation git+https://github.com/NVlabs/nvdiffrast.git"
#: Sides it takes must be multiples of this (before 0.3.2), and not be longer than that (before 0.3.3).
STEP, LONGEST = 8, 2048
#: Face numbers come back as float32.
MOST_FACES = 2**24


class NvDiffRast:
    """protocols.Rasterizer. MissingBackend when nvdiffrast is not installed.

    Tensors must be on a CUDA device and give tensors; arrays are taken there and give numpy Fragments.
    """

    name = "nvdiffrast"
    device_type = "cuda"

    def __init__(self) -> None:
        try:
            import nvdiffrast.torch as dr
        except ImportError as error:
            raise MissingBackend("nvdiffrast", INSTALL, "NVIDIA Source Code License, non-commercial") from error
        self._library = dr
        self._contexts: dict[torch.device, Any] = {}

    @torch.no_grad()
    def rasterize(self, points: Any, faces: Any, K: Any, height: int, width: int, cull: bool = False) -> Fragments:
        """See protocols.Rasterizer. InputError when points are not finite or shapes do not fit, for tensors on the CPU,
        pictures of over 2048 pixels a side and more than 2^24 faces in all."""
        tensors = has_tensors(points)
        scene = checked(points, faces, K, height, width, None if tensors else torch.device(self.device_type))
        device = scene.pixel.device
        if device.type != self.device_type:
            raise InputError(f"nvdiffrast draws on CUDA devices only, the points are on {device}", "use zbuffer")
        if max(height, width) > LONGEST:
            raise InputError(f"nvdiffrast draws up to {LONGEST} pixels a side, not {width}x{height}", "use zbuffer")
        if len(scene.faces) > MOST_FACES:
            raise InputError(
                f"nvdiffrast draws up to {MOST_FACES} faces at once, not {len(scene.faces)}", "fewer views"
            )
        face = torch.full((len(scene.first_face), height, width), -1, dtype=torch.int32, device=device)
        if len(scene.faces):  # it refuses to draw nothing
            size = tuple(-(-side // STEP) * STEP for side in (height, width))
            found, _ = self._library.rasterize(
                self._context(device),
                _clip_space(scene, *size),
                visible_faces(scene, cull).int(),
                size,
                ranges=_ranges(scene),
                grad_db=False,
            )
            # Its row 0 is y = -1, its bottom: since our y points down as well, that is our row 0. Face 0 means none.
            seen = found[:, :height, :width, 3].long() - 1
            face = torch.where(seen >= 0, seen - scene.first_face.reshape(-1, 1, 1), -1).int()
        return fragments(scene, face, as_numpy=not tensors)

    def _context(self, device: torch.device) -> Any:
        if device not in self._contexts:
            self._contexts[device] = self._library.RasterizeCudaContext(device=device)
        return self._contexts[device]


def _clip_space(scene: Packed, height: int, width: int) -> Tensor:
    """(V,4) float32: x and y from -1 to 1 over the picture, y down; w is camera z, and z/w runs from -1 at the nearest
    vertex of each mesh (or the near plane) to 1 at its farthest, since depth is kept in few bits."""
    view = torch.repeat_interleave(_lengths(scene.first_vertex, len(scene.pixel)))
    u, v, z = scene.pixel.unbind(1)
    bounds = z.new_zeros(len(scene.first_vertex))
    near = bounds.scatter_reduce(0, view, z, "amin", include_self=False).mul(0.99).clamp(min=NEAR)[view]
    far = bounds.scatter_reduce(0, view, z, "amax", include_self=False).mul(1.01)[view]
    far = torch.maximum(far, near * 1.02)
    depth = ((far + near) * z - 2 * far * near) / (far - near)
    return torch.stack([2 * u / width - z, 2 * v / height - z, depth, z], 1).float().contiguous()


def _ranges(scene: Packed) -> Tensor:
    """(N,2) int32 on the CPU: each mesh's first face and number of faces."""
    return torch.stack([scene.first_face, _lengths(scene.first_face, len(scene.faces))], 1).int().cpu().contiguous()


def _lengths(first: Tensor, total: int) -> Tensor:
    return torch.diff(first, append=first.new_tensor([total]))
