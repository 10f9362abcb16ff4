"""Inflate: closed, outward, of the picture's silhouette, in world conventions."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from v2m4.errors import InputError
from v2m4.models.clean import is_closed, volume
from v2m4.models.inflate import Inflate, _poisson, inflate
from v2m4.types import Mesh


def picture(mask: np.ndarray) -> np.ndarray:
    """RGBA whose red says the column and whose green says the row; the background is blue."""
    h, w = mask.shape
    rgba = np.zeros((h, w, 4), np.uint8)
    rows, columns = np.mgrid[:h, :w]
    rgba[..., 0] = np.where(mask, columns * 255 // w, 0)
    rgba[..., 1] = np.where(mask, rows * 255 // h, 0)
    rgba[..., 2] = np.where(mask, 0, 255)
    rgba[..., 3] = mask * 255
    return rgba


def disc(size: int = 200, radius: float = 80.0, at: tuple[float, float] = (100, 100)) -> np.ndarray:
    y, x = np.mgrid[:size, :size] + 0.5
    return (x - at[0]) ** 2 + (y - at[1]) ** 2 < radius**2


def beast(size: int = 300) -> np.ndarray:
    """Body, head to the right, four legs, a two-pixel tail and a three-pixel feeler."""
    y, x = np.mgrid[:size, :size] + 0.5
    mask = ((x - 140) / 80) ** 2 + ((y - 150) / 45) ** 2 < 1
    mask |= (x - 230) ** 2 + (y - 120) ** 2 < 35**2
    for left in (75, 105, 160, 190):
        mask |= (np.abs(x - left) < 9) & (y > 150) & (y < 240)
    mask |= (np.abs(y - 140 + 0.3 * (80 - x)) < 1) & (x > 20) & (x < 80)
    mask |= (np.abs(x - 240) < 1.5) & (y > 40) & (y < 110)
    return mask


SHEET = 800  # pixels of the pictures that are compared


def silhouette(mesh: Mesh) -> np.ndarray:
    """(SHEET,SHEET) bool: the mesh from the front, orthographic, its box fitted to the sheet; rows go upwards."""
    from PIL import Image, ImageDraw

    points = mesh.vertices[:, :2].astype(float)
    low, high = points.min(0), points.max(0)
    pixels = (points - low) / (high - low).max() * SHEET
    sheet = Image.new("1", (SHEET, SHEET))
    draw = ImageDraw.Draw(sheet)
    for face in mesh.faces:
        draw.polygon([tuple(p) for p in pixels[face]], fill=1)
    return np.asarray(sheet)


@cache
def beast_mesh() -> Mesh:
    return inflate(picture(beast()))[0]


@cache
def disc_mesh() -> Mesh:
    return inflate(picture(disc()))[0]


def silhouette_iou(mesh: Mesh, mask: np.ndarray) -> float:
    """Overlap of the mesh seen from the front with the mask, both cut to their boxes."""
    from PIL import Image

    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    cut = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1][::-1]  # rows upwards, as the mesh has it
    size = max(cut.shape)
    seen = silhouette(mesh)
    truth = np.zeros((size, size), bool)
    truth[: cut.shape[0], : cut.shape[1]] = cut
    big = np.asarray(Image.fromarray(truth).resize((SHEET, SHEET), Image.Resampling.NEAREST))
    return float((seen & big).sum() / (seen | big).sum())


def assert_world_mesh(mesh: Mesh) -> None:
    assert is_closed(mesh.faces)
    assert volume(mesh) > 0
    low, high = mesh.vertices.min(0), mesh.vertices.max(0)
    assert (high - low).max() == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(low + high, 0, atol=1e-5)


def test_the_silhouette_is_kept_thin_parts_too() -> None:
    mask = beast()
    mesh = beast_mesh()
    assert_world_mesh(mesh)
    assert len(mesh.faces) <= 5100
    assert silhouette_iou(mesh, mask) >= 0.97
    # The tail reaches furthest left, the feeler furthest up: both would be cut off if thin parts were lost.
    columns, rows = np.flatnonzero(mask.any(0)), np.flatnonzero(mask.any(1))
    wide = (columns[-1] - columns[0] + 1) / (rows[-1] - rows[0] + 1)
    size = mesh.vertices.max(0) - mesh.vertices.min(0)
    assert size[0] / size[1] == pytest.approx(wide, rel=0.02)


def test_poisson_gives_a_hemisphere_over_a_disc() -> None:
    y, x = np.mgrid[:61, :61]
    square = (x - 30.2) ** 2 + (y - 29.7) ** 2
    u = _poisson(25.4 - np.sqrt(square))
    inside = u > 0
    assert inside.sum() == pytest.approx(np.pi * 25.4**2, rel=0.01)
    assert np.abs(u - (25.4**2 - square))[inside].max() < 0.005 * 25.4**2


def test_a_disc_becomes_a_round_body() -> None:
    mesh = disc_mesh()
    assert_world_mesh(mesh)
    square = (mesh.vertices[:, :2].astype(float) ** 2).sum(1)
    ellipsoid = np.sqrt(np.maximum(0.25 - square, 0) / 2)
    expected = ellipsoid / (1 + (ellipsoid / 0.3) ** 4) ** 0.25
    # Compared along the surface's normal, roughly: at the rim, depth changes without bound.
    error = (np.abs(mesh.vertices[:, 2]) - expected) * expected / 0.3
    assert np.abs(error).max() < 0.01


def test_limbs_are_round_and_bodies_thicker_but_no_balloons() -> None:
    limb = np.zeros((300, 300), bool)
    limb[20:280, 140:160] = True
    size = np.ptp(inflate(picture(limb), cells=96)[0].vertices, axis=0)
    assert size[2] / size[0] == pytest.approx(1, abs=0.12)
    block = np.zeros((300, 300), bool)
    block[20:280, 20:280] = True
    size = np.ptp(inflate(picture(block), cells=96)[0].vertices, axis=0)
    assert 0.45 < size[2] / size[0] < 0.62
    thin = np.ptp(inflate(picture(limb), depth=0.5, cells=96)[0].vertices, axis=0)
    assert thin[2] / thin[0] == pytest.approx(0.5, abs=0.08)


def test_right_up_and_front_are_those_of_the_picture() -> None:
    mesh = beast_mesh()
    x, y, z = mesh.vertices.T
    red, green, blue = mesh.colors.astype(float).T
    assert np.corrcoef(x, red)[0, 1] > 0.999  # red grows to the right of the picture
    assert np.corrcoef(y, -green)[0, 1] > 0.999  # green grows downwards
    assert z.max() == pytest.approx(-z.min(), abs=0.01)
    assert blue.max() < 1  # no background on the rim, nor on thin parts


def test_front_faces_look_at_the_viewer() -> None:
    mesh = disc_mesh()
    a, b, c = (mesh.vertices[mesh.faces[:, k]] for k in range(3))
    normal = np.cross(b - a, c - a)
    middle = (a + b + c) / 3
    assert ((normal * middle).sum(1) > 0).mean() > 0.999


def test_a_hole_stays_a_hole_and_pinholes_are_filled() -> None:
    mask = disc() & ~disc(radius=30)
    mesh, _ = inflate(picture(mask), cells=96)
    assert is_closed(mesh.faces)
    assert len(mesh.vertices) - len(mesh.faces) // 2 == 0  # Euler number of a torus
    mask = disc()
    mask[100, 100] = mask[60, 90] = False
    mesh, notes = inflate(picture(mask), cells=96)
    assert len(mesh.vertices) - len(mesh.faces) // 2 == 2  # a sphere
    assert notes == ["filled 2 pinholes of the silhouette (2 pixels)"]


def test_parts_above_a_hundredth_stay_and_the_rest_is_told() -> None:
    mask = disc(400, 100, (120, 200)) | disc(400, 15, (300, 200))
    crumb = disc(400, 5, (380, 20))
    mesh, notes = inflate(picture(mask | crumb), cells=96)
    assert_world_mesh(mesh)
    assert len(mesh.vertices) - len(mesh.faces) // 2 == 4  # two spheres
    assert silhouette_iou(mesh, mask) >= 0.97
    area = int(crumb.sum())
    assert notes == [
        "left out 1 part of the silhouette below 1% of its area "
        f"(together {area} of {int((mask | crumb).sum())} pixels)"
    ]


@pytest.mark.parametrize("size", [24, 600])
def test_any_picture_size_works(size: int) -> None:
    mask = disc(size, size * 0.45, (size / 2, size / 2))
    mesh, _ = inflate(picture(mask))
    assert_world_mesh(mesh)
    assert silhouette_iou(mesh, mask) >= 0.97


def test_an_object_cut_by_the_border_is_closed_there() -> None:
    mask = disc(200, 80, (0, 100))
    mesh, _ = inflate(picture(mask), cells=96)
    assert_world_mesh(mesh)
    assert silhouette_iou(mesh, mask) >= 0.97


def test_a_ragged_silhouette_stays_closed() -> None:
    rng = np.random.default_rng(3)
    from scipy.ndimage import gaussian_filter

    for _ in range(2):
        mask = (gaussian_filter(rng.normal(size=(160, 160)), 4) > 0.02) & disc(160, 75, (80, 80))
        mesh, _ = inflate(picture(mask), faces=3000, cells=128)
        assert is_closed(mesh.faces)
        assert volume(mesh) > 0


def test_same_picture_same_mesh() -> None:
    first, second = beast_mesh(), Inflate().generate(picture(beast()), 3, 1).mesh
    assert first.vertices.tobytes() == second.vertices.tobytes()
    assert first.faces.tobytes() == second.faces.tobytes()
    assert first.colors.tobytes() == second.colors.tobytes()


def test_no_silhouette_is_an_error_that_names_the_frame() -> None:
    with pytest.raises(InputError, match="frame 7: no object to inflate"):
        Inflate().generate(picture(np.zeros((50, 50), bool)), 7, 0)
    with pytest.raises(InputError, match="frame 8: no silhouette to inflate"):
        Inflate().generate(picture(np.ones((50, 50), bool)), 8, 0)


def test_it_says_what_it_is() -> None:
    assert Inflate.description == "a 2.5D stand-in inflated from the silhouette; sides and back are guesses"


def test_triceratops(shared: Path) -> None:
    from PIL import Image

    image = np.asarray(Image.open(shared / "data" / "triceratops" / "0.png").convert("RGBA"))
    mesh, _ = inflate(image)
    assert_world_mesh(mesh)
    assert silhouette_iou(mesh, image[..., 3] >= 128) >= 0.97
