"""VGGT by the package ``vggt``, where installed: points of all pictures in one pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from v2m4.errors import InputError, MissingBackend
from v2m4.models import hub
from v2m4.models.dust3r import nearest
from v2m4.protocols import PointMaps, Progress

LICENCE = "CC BY-NC 4.0: not commercial"
INSTALL = "pip install --no-deps git+https://github.com/facebookresearch/vggt.git"
MODEL = hub.HubModel("facebook", "VGGT-1B", 5030, LICENCE)
#: Side of the network's pictures and of its patches.
_SIZE, _PATCH = 518, 14


class Vggt:
    """Points by VGGT's head for world points. MissingBackend without the package, InputError without weights."""

    name = "vggt"
    licence = LICENCE

    def __init__(self, weights_dir: Path | None = None, device: str = "cpu", log: Progress | None = None) -> None:
        try:
            from vggt.models.vggt import VGGT
        except ImportError:
            raise MissingBackend("vggt (VGGT, a guess for the camera)", INSTALL, LICENCE) from None
        folder = hub.folder_of(MODEL, weights_dir, log)
        try:
            network: Any = VGGT.from_pretrained(folder, strict=True)
        except Exception as error:  # whatever the readers of its two files raise
            raise InputError(f"{folder}: not the weights of VGGT ({error})", f"put {MODEL.by_hand}") from None
        self._network, self._device = network.to(device).eval(), device

    def point_maps(self, images: np.ndarray) -> PointMaps:
        """``images`` (N,S,S,3) uint8 sRGB; the points are in the camera of the first."""
        import cv2
        import torch

        own = min(_SIZE, -(-images.shape[1] // _PATCH) * _PATCH)
        shrink = cv2.INTER_AREA if images.shape[1] > own else cv2.INTER_CUBIC
        scaled = np.stack([cv2.resize(image, (own, own), interpolation=shrink) for image in images])
        pixels = torch.from_numpy(scaled.astype(np.float32).transpose(0, 3, 1, 2) / 255).to(self._device)
        with torch.inference_mode():
            found = self._network(pixels)
        at = nearest(images.shape[1], own)
        points, confidence = (found[k][0].float().cpu().numpy() for k in ("world_points", "world_points_conf"))
        return PointMaps(points[:, at][:, :, at], confidence[:, at][:, :, at])
