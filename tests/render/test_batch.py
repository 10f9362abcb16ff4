"""Batches of different meshes are the meshes one by one, in every step and every gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import trimesh

from v2m4 import transforms
from v2m4.errors import InputError
from v2m4.render import Edges, ZBuffer, antialias, derivatives, interpolate, masks, rasterize, render, sample_texture

SIZE = (33, 41)
BODIES = [trimesh.creation.icosphere(2), trimesh.creation.torus(0.7, 0.25), trimesh.creation.box()]
POINTS = [transforms.apply(transforms.look_at([0.4, 0.5, 3.0 + i]), b.vertices) for i, b in enumerate(BODIES)]
FACES = [np.asarray(b.faces, np.int32) for b in BODIES]
KS = np.stack([transforms.fov_to_K(fov, SIZE[1], SIZE[0]) for fov in (45, 50, 38)])


def random(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).uniform(0.1, 0.9, shape))


def picture(points, faces, K, attributes, uv, uv_faces, texture, edges):  # type: ignore[no-untyped-def]
    """Every step there is: vertex colours beside a texture with its own UV faces."""
    raster = rasterize(points, faces, K, *SIZE, edges=edges)
    found = interpolate(raster, uv, uv_faces)
    textured = sample_texture(texture, found, derivatives(raster, uv, uv_faces))
    return antialias(raster, torch.cat([interpolate(raster, attributes), textured, raster.barycentric], -1))


def test_a_batch_of_meshes_is_the_meshes_one_by_one() -> None:
    colors = [random((len(p), 2), i) for i, p in enumerate(POINTS)]
    uv = [random((3 * len(f), 2), 10 + i) for i, f in enumerate(FACES)]  # every corner has its own
    uv_faces = [np.arange(3 * len(f)).reshape(-1, 3) for f in FACES]
    edges = [Edges(f) for f in FACES]
    texture, target = random((16, 16, 2), 20), random((3, *SIZE, 8), 21)
    results = []
    for together in (True, False):
        p = [torch.from_numpy(x).requires_grad_() for x in POINTS]
        c, u = ([x.clone().requires_grad_() for x in each] for each in (colors, uv))
        K, t = torch.from_numpy(KS).requires_grad_(), texture.clone().requires_grad_()
        if together:
            image = picture(p, FACES, K, c, u, uv_faces, t, edges)
        else:
            each = zip(p, FACES, K, c, u, uv_faces, edges, strict=True)
            one = [picture(p, f, k, c, u, uf, t, e) for p, f, k, c, u, uf, e in each]
            image = torch.cat(one)
        (image * target).sum().backward()
        results.append([image.detach(), *(x.grad for x in (*p, *c, *u, K, t))])
    assert (results[0][0][..., -1] > 0.5).float().mean((1, 2)).min() > 0.05  # something to see in every view
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
        assert a.abs().max() > 0


def test_visibility_and_masks_of_a_batch() -> None:
    found = ZBuffer().rasterize(POINTS, FACES, KS, *SIZE)
    for n, (p, f) in enumerate(zip(POINTS, FACES, strict=True)):
        alone = ZBuffer().rasterize(p, f, KS[n], *SIZE)
        for name in ("face", "depth", "barycentric"):
            np.testing.assert_array_equal(getattr(found, name)[n], getattr(alone, name)[0])
    np.testing.assert_array_equal(masks(POINTS, FACES, KS, *SIZE), found.face >= 0)


def test_empty_meshes_stand_among_others() -> None:
    nothing = np.zeros((0, 3))
    points, faces = [nothing, POINTS[0], POINTS[1]], [nothing, FACES[0], nothing]
    image = render([torch.from_numpy(p) for p in points], faces, KS, *SIZE)
    assert not image[0].any() and image[1].any() and not image[2].any()
    assert render([], [], np.zeros((0, 3, 3)), *SIZE).shape == (0, *SIZE, 1)


def test_the_gradient_of_intrinsics_leaves_their_last_row_alone() -> None:
    K = torch.from_numpy(KS[0]).requires_grad_()
    render(torch.from_numpy(POINTS[0]), FACES[0], K, *SIZE, torch.from_numpy(POINTS[0])).square().sum().backward()
    assert K.grad[:2].abs().min() > 0 or K.grad[:2].abs().max() > 0
    assert not K.grad[2].any()
    torch.optim.SGD([K], 1e-3).step()
    render(torch.from_numpy(POINTS[0]), FACES[0], K, *SIZE)  # still intrinsics


@pytest.mark.parametrize(
    ("points", "faces", "attributes"),
    [
        pytest.param(POINTS, FACES[:2], None, id="a face list is missing"),
        pytest.param(POINTS, FACES[0], None, id="one face list for different meshes"),
        pytest.param(POINTS, [FACES[1]] * 3, None, id="the faces of another mesh"),
        pytest.param([POINTS[0][None]] * 3, FACES, None, id="a batch inside a batch"),
        pytest.param(POINTS, FACES, [np.ones((4, 2))] * 3, id="attributes of other meshes"),
        pytest.param(POINTS, FACES, [np.ones((len(p), 1 + i)) for i, p in enumerate(POINTS)], id="unlike attributes"),
        pytest.param(POINTS, FACES, [np.ones((len(p), 2)) for p in POINTS[:2]], id="attributes are missing"),
    ],
)
def test_what_does_not_fit_is_refused(points, faces, attributes) -> None:  # type: ignore[no-untyped-def]
    tensors = [torch.from_numpy(p) for p in points]
    with pytest.raises(InputError):
        given = None if attributes is None else [torch.from_numpy(a) for a in attributes]
        render(tensors, faces, KS, *SIZE, given)
