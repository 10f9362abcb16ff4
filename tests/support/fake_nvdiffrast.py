"""A stand-in for ``nvdiffrast.torch`` on the CPU: its documented conventions, slowly, and as strict about its input."""

from __future__ import annotations

import torch


class RasterizeCudaContext:
    def __init__(self, device: torch.device) -> None:
        self.device = device


def rasterize(glctx, pos, tri, resolution, ranges=None, grad_db=True):
    """Range mode. ``pos`` (V,4) clip space, ``tri`` (F,3), ``ranges`` (N,2) first face and count -> (N,H,W,4): u and v
    (of the first and second corner), z/w, 1 + number of the face in ``tri``; row 0 is y = -1."""
    assert isinstance(glctx, RasterizeCudaContext) and glctx.device == pos.device == tri.device
    assert pos.dtype == torch.float32 and pos.ndim == 2 and pos.shape[1] == 4 and len(pos) and pos.is_contiguous()
    assert tri.dtype == torch.int32 and tri.ndim == 2 and tri.shape[1] == 3 and len(tri) and tri.is_contiguous()
    assert ranges.dtype == torch.int32 and ranges.shape[1:] == (2,) and len(ranges) and ranges.device.type == "cpu"
    height, width = resolution
    assert height % 8 == width % 8 == 0 and 0 < max(height, width) <= 2048
    views = [_draw(pos.double(), tri[first : first + count].long(), height, width) for first, count in ranges.tolist()]
    out = torch.stack(views)
    for view, (first, _) in zip(out, ranges.tolist(), strict=True):
        view[..., 3] += (view[..., 3] > 0) * first
    return out, torch.zeros_like(out)


def _draw(pos, tri, height, width):
    y = ((2 * torch.arange(height) + 1) / height - 1).double()
    x = ((2 * torch.arange(width) + 1) / width - 1).double()
    pixel = torch.stack([x.expand(height, -1), y[:, None].expand(-1, width)], -1).reshape(-1, 1, 2)
    out = torch.zeros(height * width, 4)
    nearest = torch.full((height * width,), torch.inf, dtype=torch.float64)
    for start in range(0, len(tri), 256):
        corner = pos[tri[start : start + 256]]
        a, b, c = (corner[:, k, :2] - pixel * corner[:, k, 3:] for k in range(3))
        weight = torch.stack([p[..., 0] * q[..., 1] - p[..., 1] * q[..., 0] for p, q in ((b, c), (c, a), (a, b))], -1)
        weight = weight / weight.sum(-1, keepdim=True)
        z, w = ((weight * corner[:, :, k]).sum(-1) for k in (2, 3))
        inside = (weight >= 0).all(-1) & (w > 0) & (z.abs() <= w)
        depth, face = torch.where(inside, z / w, torch.inf).min(1)
        closer = depth < nearest
        nearest[closer] = depth[closer]
        chosen = torch.stack(
            [*weight[closer, face[closer], :2].unbind(1), depth[closer], face[closer] + start + 1.0], 1
        )
        out[closer] = chosen.float()
    return out.reshape(height, width, 4)
