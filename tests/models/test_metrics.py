"""One contract for every picture metric: what is here runs, on real weights where a package brings them, else on random
ones that the test makes and that go through the real loading code. DreamSim's package needs more than the tests
install, so a module with the same signatures stands in for it."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from camera_cases import creature, pose

from v2m4 import models
from v2m4.errors import InputError, MissingBackend
from v2m4.models.dreamsim import PARTS, DreamSim
from v2m4.models.lpips import TRUNK, Lpips
from v2m4.models.torchvision import import_torchvision
from v2m4.render.shade import render_mesh
from v2m4.transforms import apply, fov_to_K
from v2m4.types import Camera

torch = pytest.importorskip("torch")
NAMES = ("structure", "features", "lpips", "dreamsim")


def _fake_dreamsim(monkeypatch: pytest.MonkeyPatch, calls: list[dict]) -> None:
    def dreamsim(
        pretrained: bool = True, device: str = "cuda", cache_dir: str = "./models", normalize_embeds: bool = True,
        dreamsim_type: str = "ensemble", use_patch_model: bool = False,
    ) -> tuple[Any, Any]:  # fmt: skip
        calls.append(dict(device=device, cache_dir=cache_dir, dreamsim_type=dreamsim_type))
        torch.manual_seed(0)
        embed = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 16, 16), torch.nn.Tanh(), torch.nn.Flatten())

        class Model(torch.nn.Module):
            def forward(self, x: Any, y: Any) -> Any:
                assert x.shape[1:] == y.shape[1:] == (3, 224, 224)
                return 1 - torch.nn.functional.cosine_similarity(embed(x), embed(y))

        return Model(), None

    module = types.ModuleType("dreamsim")
    module.dreamsim = dreamsim  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dreamsim", module)


def _random_trunk(folder: Path) -> Path:
    """AlexNet's convolutions, random, in the form of torchvision's file."""
    torch.manual_seed(0)
    shapes = {0: (64, 3, 11, 11), 3: (192, 64, 5, 5), 6: (384, 192, 3, 3), 8: (256, 384, 3, 3), 10: (256, 256, 3, 3)}
    state = {}
    for layer, shape in shapes.items():
        state[f"features.{layer}.weight"] = torch.randn(shape) / np.sqrt(np.prod(shape[1:]) / 2)
        state[f"features.{layer}.bias"] = 0.1 * torch.randn(shape[0])
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(state, folder / TRUNK)
    return folder


@pytest.fixture(params=NAMES)
def metric(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    name = request.param
    if name == "features":
        pytest.importorskip("efficientnet_lite_pytorch", reason="the extra v2m4[features] is not installed")
    if name == "lpips":
        if import_torchvision() is None:
            pytest.skip("torchvision is not installed, or not one that goes with this torch")
        pytest.importorskip("lpips", reason="the extra v2m4[lpips] is not installed")
        _random_trunk(tmp_path)
    if name == "dreamsim":
        _fake_dreamsim(monkeypatch, [])
        for part in PARTS:
            (tmp_path / "dreamsim" / part).mkdir(parents=True)
    return models.load(models.METRICS, name)(weights_dir=tmp_path)


def _drawings(*yaws: float) -> Any:
    K = fov_to_K(40, 96, 96)
    pictures = []
    for yaw in yaws:
        placed = creature().moved(apply(pose(yaw, at=(0, 0, 2.0)), creature().vertices.astype(float)))
        image = render_mesh(placed, Camera(K, np.eye(4), 96, 96)).astype(np.float32) / 255
        pictures.append(np.concatenate([image[..., :3] * image[..., 3:], image[..., 3:]], -1))
    return torch.from_numpy(np.stack(pictures))


def test_equal_pictures_are_at_no_distance_and_a_turn_is_seen(metric: Any) -> None:
    pictures = _drawings(30, 34, 60)
    found = metric(pictures, pictures[:1])
    assert found.shape == (3,)
    assert abs(float(found[0].detach())) < 1e-5
    assert 1e-5 < found[1] < found[2]


def test_one_by_one_is_the_same_as_together(metric: Any) -> None:
    a, b = _drawings(0, 40, 90), _drawings(10, 45, 70)
    together = metric(a, b)
    alone = torch.cat([metric(a[k : k + 1], b[k : k + 1]) for k in range(3)])
    assert torch.allclose(together, alone, atol=1e-5)


def test_the_gradient_is_that_of_finite_differences(metric: Any) -> None:
    a, b = _drawings(30), _drawings(50)
    a = (a + 0.05 * torch.rand(a.shape, generator=torch.Generator().manual_seed(0))).requires_grad_(True)  # no ties
    value = metric(a, b).sum()
    (gradient,) = torch.autograd.grad(value, a)
    assert torch.isfinite(gradient).all()
    direction = gradient / gradient.norm()
    step = 0.004
    with torch.no_grad():
        up, down = (float(metric(a + sign * step * direction, b)) for sign in (1, -1))
    assert (up - down) / (2 * step) == pytest.approx(float(gradient.norm()), rel=0.15)


def test_name_and_licence_are_told_and_nothing_is_printed(metric: Any, capsys: pytest.CaptureFixture) -> None:
    assert metric.name in NAMES and metric.licence
    assert capsys.readouterr().out == ""


def test_structure_ranks_poses_by_their_error_and_lets_a_tint_pass() -> None:
    metric = models.load(models.METRICS, "structure")()
    errors = [0, 5, 10, 20, 40]
    goal = _drawings(30)
    found = metric(_drawings(*[30 + e for e in errors]), goal)
    assert (torch.diff(found) > 0).all()
    tinted = goal * torch.tensor([0.8, 0.9, 1.0, 1.0])
    assert metric(tinted, goal)[0] < 0.5 * found[1]


def test_lpips_refuses_what_is_not_its_trunk(tmp_path: Path) -> None:
    if import_torchvision() is None:
        pytest.skip("torchvision is not installed, or not one that goes with this torch")
    pytest.importorskip("lpips", reason="the extra v2m4[lpips] is not installed")
    torch.save({"features.0.weight": torch.zeros(2)}, tmp_path / TRUNK)
    with pytest.raises(InputError, match="not the weights of AlexNet"):
        Lpips(weights_dir=tmp_path)


def test_dreamsim_looks_in_the_folder_and_says_what_it_would_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: Any
) -> None:
    calls: list[dict] = []
    _fake_dreamsim(monkeypatch, calls)
    DreamSim(weights_dir=tmp_path, log=context)
    assert calls == [{"device": "cpu", "cache_dir": str(tmp_path / "dreamsim"), "dreamsim_type": "open_clip_vitb32"}]
    assert "340 MB" in context.messages[0] and str(tmp_path / "dreamsim") in context.messages[0]
    (tmp_path / "dreamsim" / PARTS[0]).touch()
    context.messages.clear()
    DreamSim(weights_dir=tmp_path, log=context)
    assert len(context.messages) == 1  # the package fetches all where a part is missing
    (tmp_path / "dreamsim" / PARTS[1]).mkdir()
    context.messages.clear()
    DreamSim(weights_dir=tmp_path, log=context)
    assert context.messages == []


def test_nothing_is_fetched_without_saying_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[object] = []
    monkeypatch.setattr(torch.hub, "download_url_to_file", lambda *a, **k: fetched.append(a))
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "cache"))
    _fake_dreamsim(monkeypatch, fetched)
    with pytest.raises(InputError, match="not on disk"):
        DreamSim(weights_dir=tmp_path)
    if import_torchvision() is not None and importlib.util.find_spec("lpips") is not None:
        with pytest.raises(InputError, match="not on disk") as caught:
            Lpips(weights_dir=tmp_path)
        assert TRUNK in (caught.value.hint or "")
    assert fetched == []


@pytest.mark.parametrize(
    ("name", "module"), [("features", "efficientnet_lite_pytorch"), ("lpips", "lpips"), ("dreamsim", "dreamsim")]
)
def test_without_the_package_it_says_what_to_install(name: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingBackend) as caught:
        models.load(models.METRICS, name)()
    assert f"v2m4[{name}]" in f"{caught.value.message} {caught.value.hint}"
