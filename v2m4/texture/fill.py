"""Fill: colours for what the video never shows, and for the empty texels between the charts.

Unseen surface takes the generated mesh's own colours, matched in tone to the video, with the difference at the border
spread smoothly over the *surface* (a screened Poisson problem on the mesh graph, so UV seams do not matter). Without
such colours the seen ones spread alone.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spsolve

from v2m4 import transforms
from v2m4.texture.bake import Baked
from v2m4.texture.texels import Texels

#: The tone correction at the border fades over about this share of the object's extent.
FADE_SHARE = 0.25
#: Texels at least this sure teach the fill.
TEACHING_CONFIDENCE = 0.5
#: Linear colour of a surface about which nothing is known.
MID_GREY = transforms.srgb_to_linear(np.full(3, 0.5))


def fill_texels(
    baked: Baked, texels: Texels, vertices: np.ndarray, faces: np.ndarray, colors: np.ndarray | None
) -> np.ndarray:
    """(N,3) float32 linear colour of every texel. ``vertices`` (V,3) at the pose of ``colors`` (V,3) uint8 or None."""
    vertex = fill_vertices(baked, texels, vertices, faces, colors)
    out = np.empty((len(texels), 3), np.float32)
    for part in texels.parts():
        sure = baked.confidence[part, None]
        sure = sure * sure * (3 - 2 * sure)
        out[part] = sure * baked.colour[part] + (1 - sure) * texels.points(part, vertex, faces)
    return out


def fill_vertices(
    baked: Baked, texels: Texels, vertices: np.ndarray, faces: np.ndarray, colors: np.ndarray | None
) -> np.ndarray:
    """(V,3) linear colour per vertex: near the video's where it was seen, continued smoothly where not."""
    point = _welded(vertices)
    count = int(point.max()) + 1
    seen, weight = _seen_at_points(baked, texels, point[faces], count)
    if not (weight > 0).any():
        if colors is not None:
            return transforms.srgb_to_linear(colors / 255).astype(np.float32)
        return np.tile(MID_GREY, (len(vertices), 1)).astype(np.float32)
    prior, screen = np.tile(_mean(seen, weight), (count, 1)), 1e-6
    if colors is not None:
        prior = _per_point(transforms.srgb_to_linear(colors / 255), point, count)
        prior = matched_tone(prior, seen, weight)
        extent = float(np.ptp(vertices, axis=0).max())
        screen = _mean_edge(vertices, faces) ** 2 / max(FADE_SHARE * extent, 1e-12) ** 2
    rest = _diffused(seen - prior, weight, point[faces], count, screen)
    return np.clip(prior + rest, 0, 1)[point].astype(np.float32)


def matched_tone(prior: np.ndarray, seen: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """``prior`` (P,3) with one gain and offset per channel, fitted to ``seen`` (P,3) where ``weight`` (P,) > 0.

    A gain within [0.6, 1.6] towards 1, robust (iteratively reweighted least squares).
    """
    out = np.empty_like(prior)
    total = max(float(weight.sum()), 1e-12)
    for channel in range(3):
        x, y, w = prior[:, channel], seen[:, channel], weight / total
        gain, offset, robust = 1.0, 0.0, np.ones(len(w))
        for _ in range(6):
            v = w * robust
            v = v / max(v.sum(), 1e-12)
            mean_x, mean_y = (v * x).sum(), (v * y).sum()
            variance = (v * (x - mean_x) ** 2).sum()
            covariance = (v * (x - mean_x) * (y - mean_y)).sum()
            gain = float(np.clip((covariance + 1e-3) / (variance + 1e-3), 0.6, 1.6))  # 1e-3: towards 1 if all is flat
            offset = mean_y - gain * mean_x
            robust = 1 / (1 + ((gain * x + offset - y) / 0.1) ** 2)
        out[:, channel] = gain * x + offset
    return np.clip(out, 0, 1)


def fill_gutters(picture: np.ndarray, covered: np.ndarray) -> np.ndarray:
    """``picture`` (H,W,3) with every texel outside ``covered`` (H,W) bool set to its nearest covered texel.

    Nothing black is left for mip levels and bilinear filtering to bleed in.
    """
    from scipy.ndimage import distance_transform_edt

    if not covered.any():
        return picture
    row, column = distance_transform_edt(~covered, return_distances=False, return_indices=True)
    return picture[row, column]


def _welded(vertices: np.ndarray) -> np.ndarray:
    """(V,) number of the distinct point each vertex lies on."""
    return np.unique(vertices, axis=0, return_inverse=True)[1].reshape(-1)


def _seen_at_points(baked: Baked, texels: Texels, faces: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean seen colour (P,3) and share of seen texels (P,) in [0,1] around each point."""
    weight, total, colour = np.zeros(count), np.zeros(count), np.zeros((count, 3))
    for part in texels.parts():
        sure = np.where(baked.confidence[part] >= TEACHING_CONFIDENCE, baked.confidence[part], 0)
        corner = faces[texels.face[part]]
        for k in range(3):
            share = texels.barycentric[part, k].astype(np.float64)
            weight += np.bincount(corner[:, k], share * sure, count)
            total += np.bincount(corner[:, k], share, count)
            for channel in range(3):
                value = share * sure * baked.colour[part, channel]
                colour[:, channel] += np.bincount(corner[:, k], value, count)
    return colour / np.maximum(weight, 1e-12)[:, None], weight / np.maximum(total, 1e-12)


def _diffused(value: np.ndarray, weight: np.ndarray, faces: np.ndarray, count: int, screen: float) -> np.ndarray:
    """(P,3) minimiser of |graph gradient|² + ``screen`` |x|² + weight |x - value|²."""
    edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    edges = np.unique(np.sort(edges[edges[:, 0] != edges[:, 1]], 1), axis=0)
    ones = np.ones(len(edges))
    graph = sparse.coo_matrix((ones, (edges[:, 0], edges[:, 1])), (count, count)).tocsr()
    graph = graph + graph.T
    degree = np.asarray(graph.sum(1)).reshape(-1)
    mean_degree = max(float(degree.mean()), 1.0)
    hold = 10 * weight * (weight > 1e-3)
    system = sparse.diags(degree / mean_degree + hold + max(screen, 1e-6)) - graph / mean_degree
    solution = spsolve(system.tocsc(), hold[:, None] * value)
    return np.asarray(solution).reshape(count, -1)


def _per_point(values: np.ndarray, point: np.ndarray, count: int) -> np.ndarray:
    number = np.bincount(point, minlength=count)
    sums = np.stack([np.bincount(point, values[:, c], count) for c in range(values.shape[1])], 1)
    return sums / np.maximum(number, 1)[:, None]


def _mean(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return (values * weight[:, None]).sum(0) / weight.sum()


def _mean_edge(vertices: np.ndarray, faces: np.ndarray) -> float:
    a, b = vertices[faces[:, 0]].astype(np.float64), vertices[faces[:, 1]].astype(np.float64)
    return float(np.linalg.norm(a - b, axis=1).mean())
