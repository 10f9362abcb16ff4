"""``sample_texture`` once more in plain torch: what its kernels are tested against, and what runs on a GPU."""

from __future__ import annotations

import torch
from torch import Tensor

from v2m4.errors import InputError


def sample_texture(texture: Tensor, uv: Tensor, slopes: Tensor | None, *, repeat: bool) -> Tensor:
    """(N,H,W,C): see sampling.py. ``texture`` (M,h,w,C) with M = 1 or N and ``uv`` (N,H,W,2) of one dtype, ``slopes``
    (N,H,W,2,2) or None. Differentiable in texture and uv. InputError when UVs are not finite or slopes are NaN."""
    if not torch.isfinite(uv).all():
        raise InputError("UV coordinates have values that are NaN or infinite", "look at what computed them")
    pictures, level = [texture], uv.new_zeros(uv.shape[:-1], dtype=torch.float32)
    if slopes is not None:
        level = _level(slopes.detach().float(), *texture.shape[1:3])
        while max(pictures[-1].shape[1:3]) > 1:
            pictures.append(_halved(_halved(pictures[-1], 1), 2))
    sizes = torch.tensor([picture.shape[1:3] for picture in pictures], device=uv.device)
    offsets = sizes.prod(1).cumsum(0) - sizes.prod(1)
    texels = torch.cat([picture.flatten(1, 2) for picture in pictures], 1)
    # A pixel's own texture: all of them stand one after the other.
    own = torch.arange(len(uv), device=uv.device) * (texels.shape[1] if len(texture) > 1 else 0)
    base, texels = own.reshape(-1, 1, 1), texels.flatten(0, 1)

    finest = level.floor().long()
    out = uv.new_zeros((*uv.shape[:-1], texels.shape[-1]))
    for k, share in enumerate((1 - (level - finest), level - finest)):
        at = (finest + k).clamp(max=len(pictures) - 1)
        height, width = sizes[at].unbind(-1)
        columns, rows = _neighbours(uv[..., 0], width, repeat), _neighbours(uv[..., 1], height, repeat)
        for j, y in rows:
            for i, x in columns:
                index = base + offsets[at] + j * width + i
                found = texels.index_select(0, index.flatten()).reshape(out.shape)
                out = out + (share * y * x).to(out.dtype)[..., None] * found
    return out


def _level(slopes: Tensor, height: int, width: int) -> Tensor:
    """(N,H,W): the level at which the longer of a pixel's two steps is one texel."""
    steps = (slopes * slopes.new_tensor([width, height])[:, None]).square().sum(-2).amax(-1)
    if steps.isnan().any():
        raise InputError("texture slopes have values that are NaN", "look at what computed them")
    return (0.5 * steps.clamp(min=1).log2()).clamp(max=max(height, width).bit_length() - 1)


def _neighbours(position: Tensor, size: Tensor, repeat: bool) -> list[tuple[Tensor, Tensor]]:
    """The two texels nearest to a coordinate (0 to 1 along ``size`` texels), each with its weight."""
    position = position.double()
    x = (position - position.detach().floor() if repeat else position) * size - 0.5
    x = torch.minimum(x.clamp(min=-1), size.double())
    low = x.detach().floor()
    share, first = x - low, low.long()
    if repeat:
        return [(first.remainder(size), 1 - share), ((first + 1).remainder(size), share)]
    return [(torch.minimum(n.clamp(min=0), size - 1), w) for n, w in ((first, 1 - share), (first + 1, share))]


def _halved(picture: Tensor, axis: int) -> Tensor:
    """``picture`` with half as many texels along ``axis``, rounded down, each the mean of the length it covers."""
    size = picture.shape[axis]
    half = max(size // 2, 1)
    if half == size:
        return picture
    # In units of 1/half of a texel: a new texel is ``size`` long, an old one ``half``, and it touches at most three.
    start = torch.arange(half, device=picture.device)[:, None] * size
    old = start // half + torch.arange(3, device=picture.device)
    shared = torch.minimum((old + 1) * half, start + size) - torch.maximum(old * half, start)
    weight = (shared.clamp(min=0) / size).to(picture.dtype).reshape(half, 3, *[1] * (picture.ndim - axis - 1))
    found = picture.index_select(axis, old.clamp(max=size - 1).flatten()).unflatten(axis, (half, 3))
    return (found * weight).sum(axis + 1)
