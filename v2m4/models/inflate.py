"""A mesh from nothing but the silhouette: the body is blown up inside its outline.

Honest about what it is: a 2.5D stand-in. The outline and the front are the picture's, the depth is a guess that makes
limbs round and bodies thick, the back repeats the front. It needs no weights and no GPU, and it gives later stages a
closed, coloured mesh of the right silhouette. Use a real generator, or your own meshes, for a real back side.

The depth solves the Poisson equation ``Δu = -4`` in the silhouette with ``u = 0`` on the rim: for a disc of radius r,
``u = r² - ρ²``, so ``sqrt(u)`` is a hemisphere; the surface is ``z = ± sqrt(u)`` times a factor. It is meshed as two
sheets over a grid that share their rim: the silhouette is met to a fraction of a cell, and a part one pixel wide, which
a volume grid of affordable size would lose, is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import ndimage, sparse
from scipy.sparse.linalg import spsolve

from v2m4.errors import InputError
from v2m4.models.clean import counted, decimate, is_closed
from v2m4.protocols import Generated
from v2m4.types import Mesh

CELLS = 192  #: grid cells along the longer side of the silhouette
MIN_PART = 0.01  #: parts of the silhouette below this share of its area are dropped
MAX_HALF_DEPTH = 0.3  #: of the longer side; smooth limit, so that a big blob does not become a balloon
RIDGE = 0.75  #: coverage given to the middle line of parts thinner than a cell


class Inflate:
    """Generator without weights; see the module's text.

    ``depth``: thickness of a limb compared to what its round cross-section would have; ``faces``: size of the mesh.
    """

    name = "inflate"
    licence = "MIT (part of v2m4, no weights)"
    description = "a 2.5D stand-in inflated from the silhouette; sides and back are guesses"
    stand_in = True  # the report says so where nobody can miss it

    def __init__(self, depth: float = 1.0, faces: int = 5000) -> None:
        self.depth = depth
        self.faces = faces

    def generate(self, image: np.ndarray, index: int, seed: int) -> Generated:
        """``image`` (H,W,4) uint8 straight alpha -> closed mesh, +Y up, front +Z, longest side 1. The seed is not used.

        InputError when there is no silhouette: nothing visible, or no pixel transparent.
        """
        try:
            mesh, notes = inflate(image, self.depth, self.faces)
        except InputError as error:
            raise InputError(f"frame {index}: {error.message}", error.hint) from None
        return Generated(mesh, notes=tuple(notes))


def inflate(image: np.ndarray, depth: float = 1.0, faces: int = 5000, cells: int = CELLS) -> tuple[Mesh, list[str]]:
    """(H,W,4) uint8 straight alpha -> (closed mesh centred on its box with longest side 1, notes).

    ``cells``: grid cells along the longer side of the silhouette.
    """
    alpha, notes = _body(image[..., 3])
    grid = _sample(alpha, cells)
    # sqrt(u) of a long strip is sqrt(2) times its half width: divided out, so that limbs are round.
    height = _limit(depth / np.sqrt(2) * np.sqrt(_poisson(grid.field)), MAX_HALF_DEPTH * cells)
    vertices, triangles = _sheets(grid.field, height)
    vertices, triangles = _reduce(vertices, triangles, faces)
    pixels = grid.origin + vertices[:, :2] * grid.step
    colors = _colors(image, alpha >= 0.5, pixels)
    world = vertices * [1.0, -1.0, 1.0]  # pictures count rows downwards
    low, high = world.min(0), world.max(0)
    return Mesh((world - (low + high) / 2) / (high - low).max(), triangles, colors), notes


# --- silhouette -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Grid:
    """``field`` (h,w): coverage - 0.5 at the nodes, negative all round the border; node (row r, column c) lies at pixel
    ``origin + step * (c, r)``."""

    field: np.ndarray
    origin: np.ndarray
    step: float


def _body(alpha: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Alpha (H,W) uint8 -> coverage (H,W) in [0, 1] of the parts that are kept, and what was left out."""
    mask = alpha >= 128
    area = int(mask.sum())
    if area < 16:
        raise InputError(
            f"no object to inflate: only {area} pixels are visible", "check the alpha in ingest's contact sheet"
        )
    if mask.all():
        raise InputError(
            "no silhouette to inflate: every pixel is opaque", "give pictures with alpha, or let ingest cut them out"
        )
    notes = []
    labels, count = ndimage.label(mask, np.ones((3, 3)))
    sizes = np.bincount(labels.ravel(), minlength=count + 1)[1:]
    small = np.flatnonzero(sizes < min(MIN_PART * area, sizes.max()))  # the largest always stays
    if len(small):
        notes.append(
            f"left out {counted(len(small), 'part')} of the silhouette below {MIN_PART:.0%} of its area "
            f"(together {int(sizes[small].sum())} of {area} pixels)"
        )
        # The soft rim of a dropped part goes with it.
        drop = ndimage.binary_dilation(np.isin(labels, small + 1), iterations=2)
        mask = mask & ~np.isin(labels, small + 1)
        alpha = np.where(drop & ~ndimage.binary_dilation(mask, iterations=2), 0, alpha)
        alpha = np.where(mask, alpha, np.minimum(alpha, 127))
    holes, count = ndimage.label(~mask)
    sizes = np.bincount(holes.ravel(), minlength=count + 1)
    pin = np.flatnonzero(sizes[1:] <= max(4, area // 5000)) + 1
    if len(pin):
        notes.append(
            f"filled {counted(len(pin), 'pinhole')} of the silhouette ({counted(int(sizes[pin].sum()), 'pixel')})"
        )
        alpha = np.where(np.isin(holes, pin), 255, alpha)
    return alpha / 255.0, notes


def _sample(coverage: np.ndarray, cells: int) -> _Grid:
    """Sample the coverage on a grid with ``cells`` cells along the longer side of the object."""
    mask = np.pad(coverage >= 0.5, 1)
    rows, columns = np.flatnonzero(mask.any(1)) - 1, np.flatnonzero(mask.any(0)) - 1
    low = np.array([columns[0], rows[0]], float)
    size = np.array([columns[-1] + 1, rows[-1] + 1]) - low
    step = float(size.max()) / cells
    # A blur of half a cell is the anti-aliasing filter; 0.6 px also rounds the steps of masks without soft edges.
    sigma = max(0.5 * step, 0.6)
    margin = int(np.ceil(4 * sigma + 2 * step))
    blurred = ndimage.gaussian_filter(np.pad(coverage, margin), sigma)
    origin = low - 2 * step
    shape = np.ceil(size[::-1] / step).astype(int) + 5
    r, c = np.mgrid[: shape[0], : shape[1]]
    at = [origin[1] + r * step - 0.5 + margin, origin[0] + c * step - 0.5 + margin]  # pixel centres at +0.5
    field = ndimage.map_coordinates(blurred, at, order=1, mode="constant")
    _keep_thin_parts(field, mask[1:-1, 1:-1], origin, step)
    field -= 0.5
    field[np.abs(field) < 0.01] = -0.01  # the rim passes beside the nodes, never through them
    field[[0, -1]] = field[:, [0, -1]] = -0.5
    return _Grid(field, origin, step)


def _keep_thin_parts(field: np.ndarray, mask: np.ndarray, origin: np.ndarray, step: float) -> None:
    """Raise the nodes next to the middle line of the mask: what is thinner than a cell keeps about a cell's width."""
    from skimage.morphology import skeletonize

    row, column = np.nonzero(skeletonize(mask))
    width = ndimage.distance_transform_edt(np.pad(mask, 1))[row + 1, column + 1]
    thin = width <= max(1.5 * step, 2.0)
    node = np.rint((np.stack([column, row], 1)[thin] + 0.5 - origin) / step).astype(int)
    field[node[:, 1], node[:, 0]] = np.maximum(field[node[:, 1], node[:, 0]], RIDGE)


# --- depth ------------------------------------------------------------------------------------------------------------


def _poisson(field: np.ndarray) -> np.ndarray:
    """``u`` (h,w) in cells² with Δu = -4 where ``field`` > 0 and u = 0 on its zero line.

    Shortley-Weller differences: the rim lies where the field says, between the nodes. With u = 0 on the next outer node
    instead, the square root would show every stair of the grid.
    """
    inside = field > 0
    number = np.full(field.shape, -1)
    number[inside] = np.arange(inside.sum())
    r, c = np.nonzero(inside)
    here, count = field[r, c], len(r)
    diagonal = np.zeros(count)
    rows, columns, values = [], [], []
    for dr, dc in ((0, 1), (1, 0)):
        distances, neighbours = [], []
        for sign in (1, -1):
            other = field[r + sign * dr, c + sign * dc]
            distances.append(np.where(other > 0, 1.0, _crossing(here, other)))
            neighbours.append(number[r + sign * dr, c + sign * dc])
        total = distances[0] + distances[1]
        for distance, neighbour in zip(distances, neighbours, strict=True):
            weight = 2.0 / (total * distance)
            diagonal += weight
            known = neighbour >= 0
            rows.append(np.flatnonzero(known))
            columns.append(neighbour[known])
            values.append(-weight[known])
    rows.append(np.arange(count))
    columns.append(np.arange(count))
    values.append(diagonal)
    matrix = sparse.csc_matrix((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))))
    u = np.zeros(field.shape)
    u[inside] = np.maximum(np.atleast_1d(spsolve(matrix, np.full(count, 4.0))), 1e-6)
    return u


def _crossing(inner: np.ndarray, outer: np.ndarray) -> np.ndarray:
    """Where between an inner node (0) and an outer one (1) the rim lies; kept off both ends against slivers."""
    return np.clip(inner / np.maximum(inner - outer, 1e-9), 0.05, 0.95)


def _limit(height: np.ndarray, most: float) -> np.ndarray:
    """Heights that level off smoothly at ``most``; small ones hardly change."""
    return height / (1 + (height / most) ** 4) ** 0.25


# --- two sheets with one rim ------------------------------------------------------------------------------------------


def _cell_triangles() -> list[list[tuple[int, int, int]]]:
    """For each of 16 corner patterns the triangles of its inside part. Corners 0-3 go round the cell, 4-7 are the rim
    points on the edges 01, 12, 23, 30. Fans start at a corner, so no inner edge joins two rim points: the sheets would
    share it. Opposite corners are joined, which keeps diagonal lines whole."""
    table = []
    for case in range(16):
        ring = []
        for k in range(4):
            if case >> k & 1:
                ring.append(k)
            if (case >> k & 1) != (case >> (k + 1) % 4 & 1):
                ring.append(4 + k)
        if ring:
            first = next(i for i, slot in enumerate(ring) if slot < 4)
            ring = ring[first:] + ring[:first]
        table.append([(ring[0], ring[i], ring[i + 1]) for i in range(1, len(ring) - 1)])
    return table


def _sheets(field: np.ndarray, height: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Closed mesh in grid units (x = column, y = row, z towards the viewer) around the region where ``field`` > 0."""
    inside = field > 0
    r, c = np.nonzero(inside)
    count = len(r)
    node = np.full(field.shape, -1)
    node[inside] = np.arange(count)
    points = [np.stack([c, r, height[r, c]], 1), np.stack([c, r, -height[r, c]], 1)]
    total, edges = 2 * count, []
    for dr, dc in ((0, 1), (1, 0)):  # rim points on horizontal, then on vertical grid edges
        a, b = field[: field.shape[0] - dr, : field.shape[1] - dc], field[dr:, dc:]
        er, ec = np.nonzero((a > 0) != (b > 0))
        first, second = a[er, ec], b[er, ec]
        t = np.where(first > 0, _crossing(first, second), 1 - _crossing(second, first))
        ids = np.full(field.shape, -1)
        ids[er, ec] = total + np.arange(len(er))
        total += len(er)
        edges.append(ids)
        points.append(np.stack([ec + dc * t, er + dr * t, np.zeros(len(er))], 1))
    across, down = edges
    corners = (node[:-1, :-1], node[:-1, 1:], node[1:, 1:], node[1:, :-1])
    rim = (across[:-1, :-1], down[:-1, 1:], across[1:, :-1], down[:-1, :-1])
    slots = np.stack(corners + rim, -1).reshape(-1, 8)
    case = ((slots[:, :4] >= 0) * [1, 2, 4, 8]).sum(1)
    chunks = [slots[case == k][:, triangle] for k, fan in enumerate(_cell_triangles()) for triangle in fan]
    back = np.concatenate(chunks)
    # Rows count downwards, so going round a cell is clockwise for the viewer: the sheet made so faces away from him.
    front = back[:, ::-1]
    back = np.where(back < count, back + count, back)
    return np.concatenate(points), np.concatenate([front, back])


def _reduce(vertices: np.ndarray, triangles: np.ndarray, faces: int) -> tuple[np.ndarray, np.ndarray]:
    """Decimate to about ``faces``; the mesh must stay closed, so a finer one is kept where it would tear."""
    for target in (faces, int(1.25 * faces), int(1.6 * faces)):
        fewer = decimate(vertices, triangles, target)
        if is_closed(fewer[1]):
            return fewer
    return vertices, triangles


# --- colours ----------------------------------------------------------------------------------------------------------


def _colors(image: np.ndarray, mask: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """Colours (V,3) uint8 at ``pixels`` (V,2); rim pixels, which mix with the background, take a colour from inside."""
    rgb = image[..., :3].astype(float)
    inner = ndimage.binary_erosion(mask, np.ones((3, 3)), iterations=2)
    # Parts too thin to have an inside are coloured from where they are most opaque.
    thin = mask & ~ndimage.binary_dilation(inner, np.ones((3, 3)), iterations=4)
    peak = image[..., 3] >= ndimage.maximum_filter(np.where(mask, image[..., 3], 0), 3)
    solid = inner | (thin & peak)
    if not solid.any():
        solid = mask
    nearest = ndimage.distance_transform_edt(~solid, return_distances=False, return_indices=True)
    filled = rgb[tuple(nearest)]
    at = [pixels[:, 1] - 0.5, pixels[:, 0] - 0.5]
    sampled = [ndimage.map_coordinates(filled[..., k], at, order=1, mode="nearest") for k in range(3)]
    return np.clip(np.rint(np.stack(sampled, 1)), 0, 255).astype(np.uint8)
