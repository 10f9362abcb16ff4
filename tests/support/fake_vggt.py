"""A stand-in for the package ``vggt``, which no registry has: the same names, arguments and results, a few weights."""

from __future__ import annotations

import sys
import types

import pytest


def install(monkeypatch: pytest.MonkeyPatch) -> type:
    """Put it where ``from vggt.models.vggt import VGGT`` finds it, and return the class."""
    import huggingface_hub
    import torch

    class VGGT(torch.nn.Module, huggingface_hub.PyTorchModelHubMixin):
        def __init__(self, img_size: int = 518, patch_size: int = 14, embed_dim: int = 1024) -> None:
            super().__init__()
            self.patch_size = patch_size
            self.embed = torch.nn.Conv2d(3, embed_dim, patch_size, patch_size)
            self.head = torch.nn.ConvTranspose2d(embed_dim, 4, patch_size, patch_size)

        def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
            """(S,3,H,W) in [0, 1] -> a batch of one."""
            assert images.ndim == 4 and images.shape[-1] % self.patch_size == 0
            assert images.min() >= 0 and images.max() <= 1
            found = self.head(torch.tanh(self.embed(images))).permute(0, 2, 3, 1)[None]
            return {"world_points": found[..., :3], "world_points_conf": 1 + found[..., 3].exp()}

    inner = types.ModuleType("vggt.models.vggt")
    inner.VGGT = VGGT  # type: ignore[attr-defined]
    for name, module in {
        "vggt": types.ModuleType("vggt"),
        "vggt.models": types.ModuleType("vggt.models"),
        "vggt.models.vggt": inner,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    return VGGT
