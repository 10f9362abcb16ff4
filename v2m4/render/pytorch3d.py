"""PyTorch3D's rasteriser behind our interface, for comparison and for those who have it. CPU and CUDA."""

from __future__ import annotations

from typing import Any

import torch

from v2m4.errors import MissingBackend
from v2m4.protocols import Fragments
from v2m4.render.outside import checked, fragments, has_tensors, visible_faces
from v2m4.render.zbuffer import NEAR

INSTALL = "pip install --no-build-isolation git+https://github.com/facebookresearch/pytorch3d.git"
#: PyTorch3D divides by z before it clips: a vertex nearer to the camera's own plane than this is moved there.
NEVER_ZERO = 1e-6


class PyTorch3D:
    """protocols.Rasterizer. MissingBackend when PyTorch3D is not installed.

    Arrays give numpy Fragments, tensors give tensors on their device. Not what is fast: on a CPU it takes a thousand
    times as long as ``zbuffer``. A triangle of less than about 0.0003 square pixels (at 512 pixels a side) is not
    drawn.
    """

    name = "pytorch3d"

    def __init__(self) -> None:
        try:
            from pytorch3d.renderer.mesh.rasterize_meshes import rasterize_meshes
            from pytorch3d.structures import Meshes
        except ImportError as error:
            raise MissingBackend("PyTorch3D", INSTALL, "BSD-3-Clause") from error
        self._rasterize, self._meshes = rasterize_meshes, Meshes

    @torch.no_grad()
    def rasterize(self, points: Any, faces: Any, K: Any, height: int, width: int, cull: bool = False) -> Fragments:
        """See protocols.Rasterizer. InputError when points are not finite or shapes do not fit."""
        scene = checked(points, faces, K, height, width, None)
        device = scene.pixel.device
        face = torch.full((len(scene.first_face), height, width), -1, dtype=torch.int32, device=device)
        # Screen coordinates as PyTorch3D has them: x to the left, y up, 0 in the middle, the shorter side from -1 to 1.
        z = scene.pixel[:, 2:]
        z = torch.where(z.abs() < NEVER_ZERO, NEVER_ZERO, z)
        middle = z.new_tensor([width / 2, height / 2])
        screen = torch.cat([(middle - scene.pixel[:, :2] / z) * (2 / min(height, width)), z], 1).float()
        # Its clipping fails where the last mesh of a batch is empty: such meshes are left out.
        ends = [*scene.first_face.tolist(), len(scene.faces)]
        some = [n for n in range(len(face)) if ends[n] < ends[n + 1]]
        if some:
            shown = visible_faces(scene, cull)
            vertex_ends = [*scene.first_vertex.tolist(), len(screen)]
            meshes = self._meshes(
                [screen[vertex_ends[n] : vertex_ends[n + 1]] for n in some],
                [shown[ends[n] : ends[n + 1]] - scene.first_vertex[n] for n in some],
            )
            found = self._rasterize(
                meshes,
                (height, width),
                blur_radius=0.0,
                faces_per_pixel=1,
                perspective_correct=True,
                z_clip_value=NEAR,
            )[0][..., 0]
            first = meshes.mesh_to_faces_packed_first_idx().reshape(-1, 1, 1)
            face[some] = torch.where(found >= 0, found - first, -1).int()
        return fragments(scene, face, as_numpy=not has_tensors(points))
