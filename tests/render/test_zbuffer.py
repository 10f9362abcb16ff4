"""Visibility against a slow rasteriser that is obviously right."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from v2m4 import transforms
from v2m4.errors import InputError
from v2m4.render import ZBuffer, _jit, masks

SIZE = (40, 56)  # height, width
K = np.array([[45.0, 1.5, 27.0], [0, 47.0, 21.0], [0, 0, 1]])


def soup(seed: int, triangles: int = 60, near: float = 1.5) -> tuple[np.ndarray, np.ndarray]:
    """Triangles of all sizes that overlap and cut each other, some outside the picture, seen from both sides."""
    rng = np.random.default_rng(seed)
    centre = rng.uniform([-1.5, -1.2, near + 0.5], [1.5, 1.2, 4.5], (triangles, 1, 3))
    size = rng.choice([0.03, 0.3, 1.0], (triangles, 1, 1))
    corners = centre + rng.normal(size=(triangles, 3, 3)) * size
    corners[..., 2] = np.maximum(corners[..., 2], near)
    return corners.reshape(-1, 3).astype(np.float32), np.arange(triangles * 3, dtype=np.int32).reshape(-1, 3)


def by_ray(points: np.ndarray, faces: np.ndarray, K: np.ndarray, height: int, width: int, near: float = 1e-3):
    """Every pixel's ray against every triangle in double precision: barycentrics (P,F,3), depth (P,F)."""
    y, x = np.indices((height, width)).reshape(2, -1) + 0.5
    rays = np.stack([x, y, np.ones_like(x)], 1) @ np.linalg.inv(K).T
    a, b, c = (points.astype(np.float64)[faces[:, k]] for k in range(3))
    weights = np.stack([rays @ np.cross(b, c).T, rays @ np.cross(c, a).T, rays @ np.cross(a, b).T], -1)
    total = weights.sum(-1)
    with np.errstate(all="ignore"):
        depth = (a * np.cross(b, c)).sum(-1) / total
        weights = weights / total[..., None]
    hit = (weights >= 0).all(-1) & (depth >= near) & np.isfinite(depth)
    return weights, np.where(hit, depth, np.inf)


@pytest.mark.parametrize("seed", range(6))
def test_each_pixel_sees_what_a_ray_hits_first(seed):
    points, faces = soup(seed)
    found = ZBuffer().rasterize(points[None], faces, K, *SIZE)
    weights, depth = by_ray(points, faces, K, *SIZE)
    nearest = depth.argmin(1)
    expected = np.where(np.isfinite(depth.min(1)), nearest, -1)
    assert (expected >= 0).mean() > 0.3  # there is something to see
    np.testing.assert_array_equal(found.face.reshape(-1), expected)
    hit = expected >= 0
    np.testing.assert_allclose(found.depth.reshape(-1)[hit], depth.min(1)[hit], rtol=3e-7)
    assert np.isposinf(found.depth.reshape(-1)[~hit]).all()
    np.testing.assert_allclose(
        found.barycentric.reshape(-1, 3)[hit], weights[np.arange(len(hit)), nearest][hit], atol=1e-5
    )
    assert not found.barycentric.reshape(-1, 3)[~hit].any()


@pytest.mark.parametrize("seed", range(4))
def test_the_near_plane_cuts_instead_of_dropping(seed):
    points, faces = soup(seed, near=-2.0)
    reach = points.reshape(-1, 3, 3)[..., 2]
    assert ((reach.min(1) < 0.2) & (reach.max(1) > 0.2)).sum() >= 4
    found = ZBuffer(near=0.2).rasterize(points[None], faces, K, *SIZE)
    weights, depth = by_ray(points, faces, K, *SIZE, near=0.2)
    best = np.sort(depth, 1)
    clear = ~(best[:, 1] <= best[:, 0] + 1e-6) | np.isinf(best[:, 1])
    clear &= np.abs(best[:, 0] - 0.2) > 1e-4  # on the cut itself either answer is right
    expected = np.where(np.isfinite(depth.min(1)), depth.argmin(1), -1)
    np.testing.assert_array_equal(found.face.reshape(-1)[clear], expected[clear])
    hit = clear & (expected >= 0)
    np.testing.assert_allclose(found.depth.reshape(-1)[hit], depth.min(1)[hit], rtol=1e-5)
    np.testing.assert_allclose(
        found.barycentric.reshape(-1, 3)[hit], weights[np.arange(len(hit)), depth.argmin(1)][hit], atol=1e-4
    )


def test_a_floor_under_the_camera_reaches_to_the_picture_s_edge():
    """Two huge triangles from behind the camera to the horizon: depth is 1 / slope of the ray everywhere below it."""
    corners = np.array([[-50, 1, -50], [50, 1, -50], [50, 1, 1000], [-50, 1, 1000]], np.float32)
    found = ZBuffer().rasterize(corners[None], [[0, 1, 2], [0, 2, 3]], transforms.fov_to_K(90, 64, 64), 64, 64)
    slope = (np.arange(64) + 0.5 - 32) / 32
    below = slope > 0.05
    assert (found.face[0][below] >= 0).all() and (found.face[0][slope < 0] == -1).all()
    np.testing.assert_allclose(found.depth[0][below], np.repeat(1 / slope[below, None], 64, 1), rtol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_triangles_on_a_lattice_around_the_camera(seed):
    """Corners at whole numbers, some in the camera's own planes: edges through pixel centres, triangles seen edge-on
    that cross the near plane. Nothing is infinite, and masks agree."""
    corners = np.random.default_rng(seed).integers(-3, 4, (600, 3)).astype(np.float32)
    faces = np.arange(600).reshape(-1, 3)
    for focal in (1.0, -1.0, 30.0):
        intrinsics = np.array([[focal, 0.5, 8], [0, focal, 8], [0, 0, 1]])
        for part in np.split(faces, 40):
            found = ZBuffer().rasterize(corners[None], part, intrinsics, 16, 17)
            hit = found.face >= 0
            assert np.isfinite(found.depth[hit]).all() and (found.depth[hit] > 0).all()
            np.testing.assert_allclose(found.barycentric[hit].sum(-1), 1, atol=1e-5)
            np.testing.assert_array_equal(masks(corners[None], part, intrinsics, 16, 17), hit)


def test_masks_are_where_faces_are():
    both = [soup(seed, near=-1.0) for seed in range(3)]
    points = np.stack([p for p, _ in both])
    Ks = np.stack([K, transforms.scale_K(K, 0.5), transforms.scale_K(K, 2)])
    found = ZBuffer().rasterize(points, both[0][1], Ks, *SIZE)
    np.testing.assert_array_equal(masks(points, both[0][1], Ks, *SIZE), found.face >= 0)


def test_closed_surfaces_have_no_pinholes():
    """A square cut into a fan of slivers, all meeting in the centre of a pixel: every pixel is covered."""
    rng = np.random.default_rng(0)
    ring = np.array([[x, 0] for x in range(8)] + [[8, y] for y in range(8)] + [[8 - x, 8] for x in range(8)])
    ring = np.concatenate([ring, [[0, 8 - y] for y in range(8)]]) * 4
    for _ in range(20):
        hub = rng.integers(1, 31, 2) + 0.5
        points = np.concatenate([ring, hub[None]]).astype(np.float32)
        points = np.concatenate([points, np.ones((len(points), 1))], 1)
        faces = [[i, (i + 1) % 32, 32] for i in range(32)]
        assert masks(points, faces, np.eye(3), 32, 32).all()
        assert (ZBuffer().rasterize(points, faces, np.eye(3), 32, 32).face >= 0).all()


def test_culling_drops_what_is_seen_from_behind():
    """Counter-clockwise from outside is the front: a tetrahedron seen from anywhere loses nothing but its back."""
    corners = np.array([[0, 1, 0], [-1, -1, 1], [1, -1, 1], [0, -1, -1]], float)
    faces = np.array([[0, 1, 2], [0, 2, 3], [0, 3, 1], [1, 3, 2]], np.int32)
    pose = transforms.look_at([1.5, 0.7, 3.0])
    points = transforms.apply(pose, corners)
    whole = ZBuffer().rasterize(points, faces, transforms.fov_to_K(50, 64, 64), 64, 64)
    culled = ZBuffer().rasterize(points, faces, transforms.fov_to_K(50, 64, 64), 64, 64, cull=True)
    np.testing.assert_array_equal(whole.face, culled.face)
    inside_out = ZBuffer().rasterize(points, faces[:, ::-1], transforms.fov_to_K(50, 64, 64), 64, 64, cull=True)
    assert ((inside_out.face >= 0) == (whole.face >= 0)).mean() > 0.99  # the inner walls cover the same
    assert (inside_out.depth[whole.face >= 0] > whole.depth[whole.face >= 0]).all()


def test_the_result_does_not_depend_on_the_number_of_threads(monkeypatch):
    points, faces = soup(1, triangles=300)
    moves = np.array([[0, 0, 0], [0.1, 0, 0], [0, 0, 1]], np.float32)
    several = points + moves[:, None]
    results = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("V2M4_THREADS", threads)
        one = ZBuffer().rasterize(points[None], faces, K, *SIZE)
        many = ZBuffer().rasterize(several, faces, K, *SIZE)
        results.append([x.tobytes() for f in (one, many) for x in (f.face, f.depth, f.barycentric)])
        np.testing.assert_array_equal(one.face[0], many.face[0])
    assert results[0] == results[1] == results[2]


def test_calls_from_several_threads_do_not_disturb_each_other():
    scenes = [soup(seed) for seed in range(8)]
    alone = [ZBuffer().rasterize(p[None], f, K, *SIZE).face for p, f in scenes]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda s: ZBuffer().rasterize(s[0][None], s[1], K, *SIZE).face, scenes * 5))
    for i, face in enumerate(together):
        np.testing.assert_array_equal(face, alone[i % 8])


def test_an_error_in_a_thread_reaches_the_caller_and_stops_nothing_else(monkeypatch):
    monkeypatch.setenv("V2M4_THREADS", "3")
    finished = []

    def work(i: int) -> None:
        time.sleep(0.002)
        if i % 4 == 1:
            raise KeyError(i)
        finished.append(i)

    for _ in range(5):
        with pytest.raises(KeyError):
            _jit.run_all(work, [(i,) for i in range(9)])
        at_return = len(finished)
        time.sleep(0.01)
        assert len(finished) == at_return  # nobody works on after the call has returned
    finished.clear()
    _jit.run_all(work, [(4 * i,) for i in range(9)])
    assert sorted(finished) == [4 * i for i in range(9)]


def test_the_renderer_works_after_a_fork():
    if not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    code = """
import os, numpy as np
from v2m4.render import masks
def draw(): return masks(np.array([[[0, 0, 1], [9, 0, 1], [0, 9, 1]]] * 4, float), [[0, 1, 2]], np.eye(3), 8, 8).sum()
before = draw()
child = os.fork()
if child == 0:
    os._exit(draw() != before)
raise SystemExit(os.waitpid(child, 0)[1])
"""
    environment = {**os.environ, "V2M4_THREADS": "2"}
    assert subprocess.run([sys.executable, "-c", code], timeout=60, env=environment).returncode == 0


@pytest.mark.parametrize(
    "points",
    [
        pytest.param([[0, 0, -2], [1, 0, -2], [0, 1, -2]], id="behind the camera"),
        pytest.param([[0, 0, 0], [0, 0, 0], [0, 0, 0]], id="on the camera"),
        pytest.param([[0, 0, 2], [0, 0, 2], [0, 0, 2]], id="a point"),
        pytest.param([[0, 0, 2], [0.1, 0.1, 2], [0.2, 0.2, 2]], id="a line"),
        pytest.param([[9, 0, 1], [9, 1, 1], [9, 0, 2]], id="outside the picture"),
        pytest.param([[1e30, 0, 1], [1e30, 1, 1], [1e30, 0, 2]], id="far outside the picture"),
    ],
)
def test_what_cannot_be_seen_leaves_the_picture_empty(points):
    found = ZBuffer().rasterize(np.array([points]), [[0, 1, 2]], K, *SIZE)
    assert (found.face == -1).all() and np.isposinf(found.depth).all()
    assert not masks(np.array([points]), [[0, 1, 2]], K, *SIZE).any()


def test_nothing_in_nothing_out():
    for points, faces in ((np.zeros((2, 0, 3)), np.zeros((0, 3), int)), (np.ones((2, 5, 3)), np.zeros((0, 3), int))):
        assert (ZBuffer().rasterize(points, faces, K, 3, 4).face == -1).all()
        assert masks(points, faces, K, 3, 4).shape == (2, 3, 4)
    assert ZBuffer().rasterize(np.ones((0, 3, 3)), [[0, 1, 2]], K, 3, 4).face.shape == (0, 3, 4)
    huge = np.array([[[-9, -9, 1], [9, -9, 1], [0, 9, 1]]])
    found = ZBuffer().rasterize(huge, [[0, 1, 2]], np.eye(3), 1, 1)
    assert found.face.tolist() == [[[0]]] and found.depth.tolist() == [[[1.0]]]


@pytest.mark.parametrize(
    ("points", "faces", "intrinsics", "size"),
    [
        ([[0, 0, np.nan], [1, 0, 2], [0, 1, 2]], [[0, 1, 2]], K, SIZE),
        ([[0, 0, 1], [np.inf, 0, 2], [0, 1, 2]], [[0, 1, 2]], K, SIZE),
        ([[0, 0, 1], [1, 0, 2], [0, 1, 2]], [[0, 1, 3]], K, SIZE),
        ([[0, 0, 1], [1, 0, 2], [0, 1, 2]], [[0, -1, 2]], K, SIZE),
        ([[0, 0, 1], [1, 0, 2], [0, 1, 2]], [[0, 1, 2**33 + 2]], K, SIZE),
        ([[0, 0, 1], [1, 0, 2], [0, 1, 2]], [[0.0, 1.0, 2.0]], K, SIZE),
        ([[0, 0, 1], [1, 0, 2], [0, 1, 2]], [[0, 1, 2]], K, (40.0, 56)),
        ([[0, 0, 1], [1, 0, 2], [0, 1, 2]], [[0, 1, 2]], np.full((3, 3), np.nan), SIZE),
        ([[0, 0, 1], [1, 0, 2], [0, 1, 2]], [[0, 1, 2]], np.stack([K] * 3), SIZE),
        ([[0, 0, 1], [1, 0, 2], [0, 1, 2]], [[0, 1, 2]], K, (0, 5)),
    ],
)
def test_what_cannot_be_drawn_is_refused(points, faces, intrinsics, size):
    for draw in (ZBuffer().rasterize, masks):
        with pytest.raises(InputError):
            draw(np.array([points, points], np.float32), np.array(faces), intrinsics, *size)


def test_importing_the_renderer_leaves_torch_alone():
    code = "import sys, v2m4.render, v2m4.render.shade, v2m4.render.preview; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
