import numpy as np
import pytest
import torch

from v2m4.errors import InputError
from v2m4.render.pyramid import Pyramid
from v2m4.render.sampling import sample_texture
from v2m4.render.texel import bilinear


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).uniform(size=shape))


def grid(height: int, width: int) -> torch.Tensor:
    """UVs (1,H,W,2) of a picture seen from straight above, filling the view."""
    v, u = torch.meshgrid((torch.arange(height) + 0.5) / height, (torch.arange(width) + 0.5) / width, indexing="ij")
    return torch.stack([u, v], -1)[None].double()


def slopes_like(uv: torch.Tensor, du: float, dv: float) -> torch.Tensor:
    """Steps of ``du`` to the right and ``dv`` down, on every pixel."""
    return torch.diag(torch.tensor([du, dv], dtype=torch.float64)).expand(*uv.shape, 2)


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(7, 12), (1, 1), (1, 5), (64, 3)])
def test_bilinear_values_and_gradients_are_those_of_grid_sample(size):
    texture, uv = noise(*size, 4), noise(2, 9, 8, 2, seed=1) * 1.6 - 0.3
    grad = noise(2, 9, 8, 4, seed=2) - 0.5

    def reference(t: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        pictures = t.permute(2, 0, 1).expand(2, -1, -1, -1)
        sampled = torch.nn.functional.grid_sample(pictures, at * 2 - 1, padding_mode="border", align_corners=False)
        return sampled.permute(0, 2, 3, 1)

    results = []
    for function in (sample_texture, reference):
        t, at = texture.clone().requires_grad_(), uv.clone().requires_grad_()
        out = function(t, at)
        results.append([out.detach(), *torch.autograd.grad(out, (t, at), grad)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    single = sample_texture(texture.float(), uv.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), results[1][0], rtol=0, atol=1e-5)


def test_repeat_is_a_texture_that_goes_on_for_ever():
    texture, uv = noise(5, 3, 2), noise(1, 20, 20, 2, seed=1)
    tiled = texture.repeat(5, 5, 1)
    expected = sample_texture(tiled, (uv + 2) / 5)
    for shift in (0, 1, -3, 1000):
        torch.testing.assert_close(sample_texture(texture, uv + shift, wrap="repeat"), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("size", [(64, 64), (63, 41), (5, 3), (1, 1), (1, 37)])
@pytest.mark.parametrize("wrap", ["clamp", "repeat"])
def test_a_constant_texture_is_constant_at_every_level(size, wrap):
    uv = noise(1, 6, 7, 2) * 3 - 1
    texture = torch.full((*size, 2), 0.7, dtype=torch.float64)
    for width in (0.001, 0.02, 0.1, 0.3, 1.0, 50.0, float("inf")):
        out = sample_texture(texture, uv, slopes_like(uv, width, 0), wrap)
        torch.testing.assert_close(out, torch.full_like(out, 0.7), rtol=1e-12, atol=0)


@pytest.mark.parametrize("size", [(64, 64), (63, 41), (100, 7), (1, 9)])
def test_each_level_keeps_the_mean_and_the_last_is_the_mean(size):
    picture = noise(*size, 3).numpy()
    count = max(size).bit_length()
    pyramid = Pyramid.build(picture[None], count)
    assert pyramid.level(0, count - 1).shape == (1, 1, 3)
    for k in range(count):
        assert np.allclose(pyramid.level(0, k).mean((0, 1)), picture.mean((0, 1)), rtol=1e-12)


def test_a_level_holds_the_means_of_areas():
    picture = noise(5, 4, 1).numpy()
    half = Pyramid.build(picture[None], 2).level(0, 1)
    fine = picture.repeat(2, 0)  # half texels: two of five rows are 2.5 texels high
    expected = np.stack([fine[:5], fine[5:]]).reshape(2, 5, 2, 2).mean((1, 3))
    assert np.allclose(half[..., 0], expected, rtol=1e-12)


@pytest.mark.parametrize("size", [64, 85])
@pytest.mark.parametrize("pattern", ["checkerboard", "noise"])
def test_minified_pixels_show_the_mean_of_what_they_cover(size, pattern):
    texture = noise(size, size, 1)
    if pattern == "checkerboard":
        texture = (torch.arange(size)[:, None] // 2 + torch.arange(size) // 2).remainder(2)[..., None].double()
    pixels = 12
    uv = grid(pixels, pixels)
    supersampled = sample_texture(texture, grid(pixels * 8, pixels * 8))
    truth = supersampled.reshape(1, pixels, 8, pixels, 8, 1).mean((2, 4))
    smooth = sample_texture(texture, uv, slopes_like(uv, 1 / pixels, 1 / pixels))
    inner = (slice(None), slice(1, -1), slice(1, -1))
    plain = sample_texture(texture, uv)
    error, error_plain = (float((x - truth)[inner].square().mean().sqrt()) for x in (smooth, plain))
    assert error < 0.05 and error < error_plain / 4


def test_the_longer_step_chooses_the_level_and_wholes_are_single_levels():
    texture, uv = noise(32, 16, 2), noise(1, 5, 5, 2, seed=1)
    halves = torch.from_numpy(Pyramid.build(texture[None].numpy(), 3).level(0, 2).copy())
    turned = torch.tensor([[0.0, 4 / 16], [1 / 32, 0.0]], dtype=torch.float64).expand(1, 5, 5, 2, 2)
    expected = sample_texture(halves, uv)
    torch.testing.assert_close(sample_texture(texture, uv, slopes_like(uv, 1 / 16, 4 / 32)), expected)
    torch.testing.assert_close(sample_texture(texture, uv, turned), expected)
    torch.testing.assert_close(
        sample_texture(texture, uv, slopes_like(uv, 1 / 16, 1 / 32)), sample_texture(texture, uv), rtol=0, atol=0
    )


def test_one_texture_for_each_view():
    textures, uv = noise(3, 8, 9, 2), noise(3, 5, 6, 2, seed=1)
    slopes = slopes_like(uv, 0.4, 0.2)
    together, alone = textures.clone().requires_grad_(), textures.clone().requires_grad_()
    out = sample_texture(together, uv, slopes)
    single = torch.cat([sample_texture(alone[n], uv[n : n + 1], slopes[n : n + 1]) for n in range(3)])
    torch.testing.assert_close(out, single, rtol=0, atol=0)
    (out.square().sum() + single.square().sum()).backward()
    torch.testing.assert_close(together.grad, alone.grad, rtol=0, atol=0)


def test_the_same_lookup_without_torch():
    texture, uv = noise(9, 8, 3).float(), noise(50, 2).float()
    expected = sample_texture(texture, uv[None, None])
    assert np.array_equal(bilinear(texture.numpy(), uv.numpy()), expected[0, 0].numpy())


# --- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", ["clamp", "repeat"])
@pytest.mark.parametrize("width", [0.0, 0.28, 0.55])
@pytest.mark.parametrize("each", [False, True])
def test_gradients_agree_with_finite_differences(wrap, width, each):
    """Texture and UV, bilinear and between levels 0-1 and 1-2, sizes that are no powers of two."""
    texture = noise(*([2] if each else []), 5, 6, 1).requires_grad_()
    uv = (noise(2, 1, 3, 2, seed=3) * 1.4 - 0.2).requires_grad_()
    slopes = slopes_like(uv, width, 0.0)
    assert torch.autograd.gradcheck(lambda t, at: sample_texture(t, at, slopes, wrap), (texture, uv), atol=1e-7)


@pytest.mark.parametrize("wrap", ["clamp", "repeat"])
@pytest.mark.parametrize("width", [0.0, 0.07, 9.0])
def test_the_texture_receives_all_of_the_gradient(wrap, width):
    texture = noise(33, 20, 3).float().requires_grad_()
    uv, grad = noise(2, 40, 30, 2).float() * 2 - 0.5, noise(2, 40, 30, 3, seed=1).float()
    sample_texture(texture, uv, slopes_like(uv, width, width / 2), wrap).backward(grad)
    torch.testing.assert_close(texture.grad.double().sum((0, 1)), grad.double().sum((0, 1, 2)), rtol=1e-5, atol=0)


def test_pixels_without_gradient_take_no_part():
    texture, uv = noise(8, 8, 2).requires_grad_(), (0.3 + 0.4 * noise(1, 6, 6, 2, seed=1)).requires_grad_()
    out = sample_texture(texture, uv, slopes_like(uv, 0.4, 0.4))
    part = torch.zeros_like(out)
    part[0, 2, 3, 1] = 1.0
    grad_texture, grad_uv = torch.autograd.grad(out, (texture, uv), part)
    assert grad_uv[0, 2, 3].all() and torch.count_nonzero(grad_uv) == 2
    assert not grad_texture[..., 0].any() and float(grad_texture.sum()) == pytest.approx(1)


@pytest.mark.parametrize("each", [False, True])
def test_threads_do_not_change_a_bit(monkeypatch, each):
    texture, uv = noise(*([3] if each else []), 150, 130, 3).float(), noise(3, 90, 80, 2, seed=1).float()
    results = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("V2M4_THREADS", threads)
        t, at = texture.clone().requires_grad_(), uv.clone().requires_grad_()
        out = sample_texture(t, at, slopes_like(uv, 0.03, 0.05))
        out.square().sum().backward()
        results.append((out.detach(), t.grad, at.grad))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


# --- edges of what can be asked ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", ["clamp", "repeat"])
def test_uvs_far_away_and_empty_batches(wrap):
    texture = noise(6, 5, 2).float().requires_grad_()
    for far in (1e30, -1e30, 3e38):
        uv = torch.full((1, 1, 1, 2), far, requires_grad=True)
        out = sample_texture(texture, uv, torch.full((1, 1, 1, 2, 2), 1e38), wrap)
        out.sum().backward()
        assert out.min() >= 0 and out.max() <= 1 and torch.isfinite(uv.grad).all()
    uv = torch.tensor([1e30, -1e30]).expand(1, 1, 1, 2)
    if wrap == "clamp":
        assert torch.equal(sample_texture(texture, uv)[0, 0, 0], texture[0, -1])
    for shape in ((0, 4, 4, 2), (2, 0, 4, 2)):
        empty = torch.zeros(shape, requires_grad=True)
        texture.grad = None
        out = sample_texture(texture, empty, torch.zeros(*shape, 2), wrap)
        out.sum().backward()
        assert out.shape == (*shape[:3], 2) and empty.grad.shape == shape and not texture.grad.any()
    none = sample_texture(torch.zeros(0, 4, 4, 3), torch.zeros(0, 2, 2, 2))
    assert none.shape == (0, 2, 2, 3)


def test_double_wins_and_bytes_are_refused():
    texture, uv = noise(4, 4, 3).float().requires_grad_(), noise(1, 2, 2, 2)
    out = sample_texture(texture, uv)
    out.sum().backward()
    assert out.dtype == torch.float64 and texture.grad.dtype == torch.float32
    with pytest.raises(InputError, match="a texture must be floating-point, not uint8"):
        sample_texture(torch.zeros(4, 4, 3, dtype=torch.uint8), uv)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("wrap", ["clamp", "repeat"])
def test_uvs_that_are_not_finite_are_refused(bad, wrap):
    uv = torch.zeros(1, 40, 40, 2)
    uv[0, 33, 39, 1] = bad
    with pytest.raises(InputError, match="NaN or infinite"):
        sample_texture(torch.ones(4, 4, 3), uv, wrap=wrap)


def test_what_does_not_fit_is_refused():
    texture, uv = torch.ones(4, 4, 3), torch.zeros(2, 3, 3, 2)
    for arguments in (
        (texture, uv, None, "mirror"),
        (texture[0], uv),
        (torch.ones(0, 4, 3), uv),
        (torch.ones(3, 4, 4, 3), uv),
        (texture, uv[0]),
        (texture, torch.zeros(2, 3, 3, 3)),
        (texture, uv, torch.zeros(2, 3, 3, 2)),
        (texture, uv, torch.full((2, 3, 3, 2, 2), float("nan"))),
    ):
        with pytest.raises(InputError):
            sample_texture(*arguments)


def test_changing_the_texture_in_place_is_noticed():
    texture = torch.ones(4, 4, 3, requires_grad=True) * 1
    uv = torch.zeros(1, 2, 2, 2, requires_grad=True)
    out = sample_texture(texture, uv)
    texture.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
