"""``sample_texture``: colours from a texture, with gradients to the texture and to the UVs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from v2m4.errors import InputError
from v2m4.render import inputs, texel
from v2m4.render.pyramid import Pyramid


def sample_texture(
    texture: torch.Tensor, uv: torch.Tensor, slopes: torch.Tensor | None = None, wrap: str = "clamp"
) -> torch.Tensor:
    """Colours (N,H,W,C) of ``texture`` at ``uv``.

    ``texture`` (h,w,C), shared by all views, or one per view (N,h,w,C). ``uv`` (N,H,W,2), glTF's: (0, 0) is the top
    left corner of the picture. ``slopes`` (N,H,W,2,2): change of (u, v) per pixel to the right and per pixel down (last
    index), as from ``derivatives``; with them, pixels wider than a texel take the mean of what they cover (trilinear in
    a pyramid of halved textures, as wide as the longer of the two steps), all others are bilinear. ``wrap``: beyond the
    edge the outermost texels go on ("clamp"), or the texture starts again ("repeat").

    Differentiable in ``texture`` and ``uv``; slopes count as constants. float32, or double where texture or uv are
    double. Pixels whose gradient is zero are skipped. InputError when UVs are not finite, slopes are NaN or shapes do
    not fit.
    """
    _check(texture, uv, slopes, wrap)
    dtype = torch.promote_types(torch.promote_types(texture.dtype, uv.dtype), torch.float32)
    each = texture[None] if texture.ndim == 3 else texture
    if uv.device.type != "cpu":
        from v2m4.render import reference_texture

        return reference_texture.sample_texture(each.to(dtype), uv.to(dtype), slopes, repeat=wrap == "repeat")
    return _Sample.apply(each.to(dtype), uv.to(dtype), slopes, wrap == "repeat")


def _check(texture: torch.Tensor, uv: torch.Tensor, slopes: torch.Tensor | None, wrap: str) -> None:
    if wrap not in ("clamp", "repeat"):
        raise InputError(f"unknown texture wrap {wrap!r}", "known are clamp and repeat")
    inputs.check_floating("a texture", texture)
    inputs.check_floating("uv", uv)
    if texture.ndim not in (3, 4) or 0 in texture.shape[-3:]:
        raise InputError(
            f"a texture must have the shape (h,w,C) or (N,h,w,C), not {tuple(texture.shape)}", "channels come last"
        )
    if uv.ndim != 4 or uv.shape[-1] != 2:
        raise InputError(f"uv must have the shape (N,H,W,2), not {tuple(uv.shape)}", "make it with interpolate")
    if texture.ndim == 4 and len(texture) not in (1, len(uv)):
        raise InputError(f"textures for {len(texture)} views, uv for {len(uv)}", "one texture for all, or one a view")
    if slopes is not None and slopes.shape != (*uv.shape, 2):
        raise InputError(
            f"slopes must have the shape {(*uv.shape, 2)}, not {tuple(slopes.shape)}", "make them with derivatives"
        )


class _Sample(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, textures: torch.Tensor, uv: torch.Tensor, slopes: torch.Tensor | None, repeat: bool) -> Any:
        ctx.repeat, ctx.dtype = repeat, np.float64 if uv.dtype == torch.float64 else np.float32
        pictures = inputs.as_numpy(textures, ctx.dtype)
        ctx.level, ctx.pyramid = None, Pyramid.flat(pictures)
        if slopes is not None:
            level = texel.levels(_rows(slopes, len(pictures), np.float32), *pictures.shape[1:3])
            coarsest = math.ceil(level.max(initial=0))
            if coarsest > 0:  # else all is bilinear
                ctx.level, ctx.pyramid = level, Pyramid.build(pictures, coarsest + 1)
        # The arrays above may share memory with the tensors: saving them makes torch notice when those change in place.
        ctx.save_for_backward(textures, uv)
        out = texel.sample(ctx.pyramid, _rows(uv, len(pictures), ctx.dtype), ctx.level, repeat=repeat)
        return torch.from_numpy(out).reshape(*uv.shape[:3], out.shape[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        textures, uv = ctx.saved_tensors
        pixels, colors = _rows(uv, len(textures), ctx.dtype), _rows(grad, len(textures), ctx.dtype)
        pyramid: Pyramid = ctx.pyramid
        grad_textures = grad_uv = None
        if ctx.needs_input_grad[0]:
            found = texel.gradient_of_pictures(pyramid.table, pixels, ctx.level, colors, repeat=ctx.repeat)
            grad_textures = torch.from_numpy(found)
        if ctx.needs_input_grad[1]:
            found = texel.gradient_of_uv(pyramid, pixels, ctx.level, colors, repeat=ctx.repeat)
            grad_uv = torch.from_numpy(found).reshape(uv.shape)
        return grad_textures, grad_uv, None, None


def _rows(pixels: torch.Tensor, textures: int, dtype: type) -> np.ndarray:
    """(N,H,W,...) -> (M,R,W,...): the views that share one of M textures, one below the other."""
    rows = pixels.shape[0] * pixels.shape[1] // max(textures, 1)
    return inputs.as_numpy(pixels, dtype).reshape(textures, rows, *pixels.shape[2:])
