"""The part of the unwrap that runs in a process of its own: xatlas can neither be interrupted nor trusted not to crash.

``python -m v2m4.texture.xatlas_child < job.npz > atlas.npz``
"""

from __future__ import annotations

import io
import sys
from typing import Any

import numpy as np

#: Below this share of the atlas used by charts, gutters are halved: many small charts drown in their own gutters.
LOW_UTILISATION = 0.35
SMALLEST_GUTTER_PX = 2


def parametrise(vertices: np.ndarray, faces: np.ndarray, size: int, gutter_px: int) -> dict[str, np.ndarray]:
    """xatlas with ``gutter_px`` texels of a ``size`` x ``size`` picture between charts, as far as they can be afforded.

    Returns uv (U,2) float32 in [0,1] with square texels, uv_faces (F,3) int32, charts (), gutter_px ().
    """
    gutter, padding = gutter_px, gutter_px
    content = size - gutter_px  # half a gutter stays free along the border: a repeating texture meets itself there
    atlas, extent = _generate(vertices, faces, size, padding)
    for _ in range(4):
        used = _used_share(atlas, extent)
        if used < LOW_UTILISATION and gutter > SMALLEST_GUTTER_PX:
            gutter = max(gutter // 2, SMALLEST_GUTTER_PX)
        # xatlas rarely meets the resolution it is asked for; the gutter must be right in texels of *our* picture.
        wanted = int(np.ceil(gutter * extent / content))
        if wanted == padding or (wanted < padding and gutter == gutter_px):
            break
        padding = wanted
        atlas, extent = _generate(vertices, faces, size, padding)
    _, uv_faces, uv = atlas[0]
    pixels = uv.astype(np.float64) * [atlas.width, atlas.height]
    border = (size - content) / 2
    return dict(
        uv=((pixels / extent * content + border) / size).astype(np.float32),
        uv_faces=uv_faces.astype(np.int32),
        charts=np.int32(atlas.chart_count),
        gutter_px=np.float32(padding * content / extent),
    )


def _generate(vertices: np.ndarray, faces: np.ndarray, size: int, padding: int) -> tuple[Any, int]:
    import xatlas

    atlas = xatlas.Atlas()
    atlas.add_mesh(vertices.astype(np.float32), faces.astype(np.uint32))
    pack = xatlas.PackOptions()
    pack.resolution = size
    pack.padding = padding
    pack.bilinear = True
    atlas.generate(xatlas.ChartOptions(), pack)
    if atlas.atlas_count != 1:
        raise ValueError(f"xatlas made {atlas.atlas_count} atlases")
    return atlas, max(atlas.width, atlas.height)


def _used_share(atlas: Any, extent: int) -> float:
    _, faces, uv = atlas[0]
    a, b, c = ((uv * [atlas.width, atlas.height] / extent)[faces[:, k]] for k in range(3))
    cross = (b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]
    return float(np.abs(cross).sum() / 2)


def main() -> None:
    """Read the job from stdin, write the atlas to stdout."""
    with np.load(io.BytesIO(sys.stdin.buffer.read()), allow_pickle=False) as job:
        result = parametrise(job["vertices"], job["faces"], int(job["size"]), int(job["gutter_px"]))
    buffer = io.BytesIO()
    np.savez(buffer, **result)  # type: ignore[arg-type]
    sys.stdout.buffer.write(buffer.getvalue())


if __name__ == "__main__":
    main()
