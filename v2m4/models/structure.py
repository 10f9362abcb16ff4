"""A picture metric without weights: structural similarity of silhouette and colour, at several scales.

Colours are taken about their mean over the object, and the contrast of ``a`` is brought to that of ``b`` within limits,
so a tint or an exposure, which generators get wrong, costs little. Structural similarity after Wang et al. 2004.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from v2m4.protocols import Progress

if TYPE_CHECKING:
    from torch import Tensor

#: Scales, each half as fine as the one before; side of the window at each. Larger pictures are made this small first.
_SCALES, _WINDOW, _LARGEST = 4, 7, 128
#: Keeps the ratios calm where a window holds nothing: square of what counts as a small difference.
_CALM = 0.03**2
#: Share of the silhouette beside the three colours.
_SILHOUETTE = 0.5
#: How far the contrast of a picture is changed at most to meet the other's.
_GAIN = 2.0


class Structure:
    """0 for equal pictures, 2 at most. Symmetric but for the contrast, which is brought to that of ``b``."""

    name = "structure"
    licence = "MIT"

    def __init__(self, weights_dir: Path | None = None, device: str = "cpu", log: Progress | None = None) -> None:
        self._device = device

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """``a`` (N,H,W,4), ``b`` (N,H,W,4) or (1,H,W,4), premultiplied colour and coverage -> (N,)."""
        import torch

        a, b = (_small(x.to(self._device).permute(0, 3, 1, 2)) for x in (a, b))
        a, b = torch.broadcast_tensors(a, b)
        a_colour, a_spread = _centred(a)
        b_colour, b_spread = _centred(b)
        gain = torch.clamp(b_spread / a_spread, 1 / _GAIN, _GAIN)
        a, b = torch.cat([a[:, 3:], gain * a_colour], 1), torch.cat([b[:, 3:], b_colour], 1)
        total = a.new_zeros(len(a))
        scales = 0
        for scale in range(_SCALES):
            if scale:
                a, b = (torch.nn.functional.avg_pool2d(x, 2) for x in (a, b))
            if min(a.shape[-2:]) < _WINDOW:
                break
            total = total + _distance(a, b)
            scales += 1
        if not scales:
            raise ValueError(f"pictures need {_WINDOW} pixels a side at least")
        return total / scales


def _small(x: Tensor) -> Tensor:
    """(N,4,h,w), contiguous, about ``_LARGEST`` pixels a side at most."""
    import torch

    factor = -(-max(x.shape[-2:]) // _LARGEST)
    x = x.contiguous()
    return x if factor == 1 else torch.nn.functional.avg_pool2d(x, factor, ceil_mode=True, count_include_pad=False)


def _centred(x: Tensor) -> tuple[Tensor, Tensor]:
    """Colours about their mean over the object (N,3,H,W), and their spread (N,1,1,1)."""
    import torch

    coverage = x[:, 3:]
    total = coverage.sum((2, 3), keepdim=True).clamp_min(1e-6)
    colour = x[:, :3] - coverage * (x[:, :3].sum((2, 3), keepdim=True) / total)
    spread = torch.sqrt((colour**2).sum((1, 2, 3), keepdim=True) / (3 * total) + 1e-6)
    return colour, spread


def _window_mean(x: Tensor) -> Tensor:
    """Means (N,C,H-6,W-6) over all windows, from running sums: a third of the time of pooling."""
    from torch.nn.functional import pad

    sums = pad(x.cumsum(-1), (1, 0))
    sums = pad((sums[..., _WINDOW:] - sums[..., :-_WINDOW]).cumsum(-2), (0, 0, 1, 0))
    return (sums[..., _WINDOW:, :] - sums[..., :-_WINDOW, :]) / _WINDOW**2


def _distance(a: Tensor, b: Tensor) -> Tensor:
    """1 minus the structural similarity (N,) of (N,4,H,W) where either of the two is."""
    mean = _window_mean
    mean_a, mean_b = mean(a), mean(b)
    var_a, var_b = mean(a * a) - mean_a**2, mean(b * b) - mean_b**2
    both = mean(a * b) - mean_a * mean_b
    level = (2 * mean_a * mean_b + _CALM) / (mean_a**2 + mean_b**2 + _CALM)
    shape = (2 * both + _CALM) / (var_a.clamp_min(0) + var_b.clamp_min(0) + _CALM)
    away = 1 - level * shape
    where = (mean_a[:, :1] + mean_b[:, :1]).clamp(0, 1)  # windows that hold none of the object say nothing
    weight = a.new_tensor([_SILHOUETTE] + [(1 - _SILHOUETTE) / 3] * 3).view(1, 4, 1, 1)
    return (where * weight * away).sum((1, 2, 3)) / where.sum((1, 2, 3)).clamp_min(1e-6)
