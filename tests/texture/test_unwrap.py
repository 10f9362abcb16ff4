"""One UV map per mesh: inside the picture, without overlap, with gutters, the same every time."""

from __future__ import annotations

import numpy as np
import pytest
import texture_cases as cases

from v2m4.errors import InputError
from v2m4.render import ZBuffer
from v2m4.texture.texels import texels
from v2m4.texture.unwrap import gutter_px, unwrap

SIZE = 256


@pytest.fixture(scope="module")
def ball():
    vertices, faces = cases.ball()
    return vertices, faces, unwrap(vertices, faces, SIZE)


def chart_of(uv_faces: np.ndarray) -> np.ndarray:
    """(F,) number of the island each face lies on."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    rows, columns = uv_faces[:, [0, 1, 2]].reshape(-1), uv_faces[:, [1, 2, 0]].reshape(-1)
    count = int(uv_faces.max()) + 1
    return connected_components(coo_matrix((np.ones(len(rows)), (rows, columns)), (count, count)))[1][uv_faces[:, 0]]


def test_the_same_mesh_gives_the_same_bits(ball):
    vertices, faces, made = ball
    again = unwrap(vertices.copy(), faces.copy(), SIZE)
    assert made.uv.tobytes() == again.uv.tobytes() and made.uv_faces.tobytes() == again.uv_faces.tobytes()


def test_size_and_place_of_the_mesh_do_not_matter(ball):
    vertices, faces, made = ball
    # powers of two: exact in floating point
    np.testing.assert_array_equal(unwrap(vertices * 4, faces, SIZE).uv, made.uv)


def test_every_face_has_its_own_place_in_the_picture(ball):
    _, faces, made = ball
    assert made.uv_faces.shape == faces.shape
    assert made.uv.min() >= 0 and made.uv.max() <= 1
    a, b, c = (made.uv[made.uv_faces[:, k]].astype(float) for k in range(3))
    area = np.abs((b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]) / 2
    assert area.min() > 0
    points = np.concatenate([made.uv * 1024, np.ones((len(made.uv), 1))], 1)[None].astype(np.float32)
    covered = (ZBuffer().rasterize(points, made.uv_faces, np.eye(3), 1024, 1024).face >= 0).mean()
    assert covered == pytest.approx(area.sum(), rel=0.02)  # overlaps would cover less than the sum of the areas
    assert made.utilisation == pytest.approx(area.sum(), rel=1e-4)
    assert made.utilisation > 0.4 and 1 <= made.stretch < 1.1


@pytest.mark.parametrize("size", [256, 1024])
def test_islands_keep_the_gutter(size):
    from scipy.ndimage import distance_transform_edt

    vertices, faces = cases.box()
    made = unwrap(vertices, faces, size)
    points = np.concatenate([made.uv * size, np.ones((len(made.uv), 1))], 1)[None].astype(np.float32)
    face = ZBuffer().rasterize(points, made.uv_faces, np.eye(3), size, size).face[0]
    chart = np.where(face >= 0, chart_of(made.uv_faces)[face], -1)
    assert len(np.unique(chart)) - 1 == made.charts == 6
    for island in range(6):
        nearest_other = distance_transform_edt(~((chart >= 0) & (chart != island)))[chart == island].min()
        assert nearest_other >= gutter_px(size)
    assert gutter_px(1024) == 8 and gutter_px(4096) == 32


def test_the_border_of_the_picture_is_free(ball):
    margin = gutter_px(SIZE) / 2 / SIZE
    assert ball[2].uv.min() >= margin * 0.99 and ball[2].uv.max() <= 1 - margin * 0.99


def test_texels_show_the_points_their_uvs_say(ball):
    _, faces, made = ball
    surface = texels(made.uv, made.uv_faces, SIZE, ZBuffer())
    place = np.einsum("nk,nkc->nc", surface.barycentric, made.uv[made.uv_faces[surface.face]]) * SIZE
    centre = np.stack([surface.index % SIZE, surface.index // SIZE], 1) + 0.5
    distance = np.linalg.norm(place - centre, axis=1)
    assert (distance < 1e-2).mean() > 0.75  # inside a chart: exactly; beside it: the nearest point, a texel away
    assert distance.max() < 2.5
    assert len(np.unique(surface.face)) > 0.98 * len(faces)  # slivers at the poles may share their texel


def test_more_time_than_allowed_is_an_error(ball):
    with pytest.raises(InputError, match="took longer than"):
        unwrap(ball[0], ball[1], SIZE, time_limit_s=0.01)


def test_a_mesh_without_extent_is_an_error():
    with pytest.raises(InputError, match="no surface to unwrap"):
        unwrap(np.zeros((3, 3)), np.array([[0, 1, 2]]), SIZE)
    with pytest.raises(InputError, match="no surface to unwrap"):
        unwrap(np.eye(3), np.zeros((0, 3), np.int32), SIZE)
