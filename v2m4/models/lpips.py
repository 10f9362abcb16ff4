"""LPIPS (Zhang et al. 2018) by the package ``lpips``, where installed. Its heads come with it, its trunk does not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from v2m4.errors import InputError, MissingBackend
from v2m4.models.torchvision import import_torchvision
from v2m4.protocols import Progress
from v2m4.weights import find, said

if TYPE_CHECKING:
    from torch import Tensor

INSTALL = "pip install -c constraints.txt 'v2m4[lpips]'"
LICENCE = "BSD-2-Clause; the trunk's weights are torchvision's, BSD-3-Clause"
TRUNK = "alexnet-owt-7be5be79.pth"
_URL = f"https://download.pytorch.org/models/{TRUNK}"
_MB, _HASH = 233, "7be5be79"


class Lpips:
    """0 for equal pictures. MissingBackend without the packages, InputError without weights."""

    name = "lpips"
    licence = LICENCE

    def __init__(self, weights_dir: Path | None = None, device: str = "cpu", log: Progress | None = None) -> None:
        vision = import_torchvision()
        try:
            if vision is None:
                raise ImportError
            from lpips import LPIPS
        except ImportError:
            raise MissingBackend("lpips (how different two pictures look)", INSTALL, LICENCE) from None
        network: Any = LPIPS(net="alex", pnet_rand=True, verbose=False)
        path = _trunk(weights_dir, log)
        try:
            _load(network, path)
        except Exception as error:  # whatever torch's unpickler raises
            raise InputError(f"{path}: not the weights of AlexNet ({error})", f"get {_URL} again") from None
        self._network = network.to(device).eval().requires_grad_(False)
        self._device = device

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """``a`` (N,H,W,4), ``b`` (N,H,W,4) or (1,H,W,4), premultiplied colour and coverage -> (N,)."""
        import torch

        x, y = (self._prepared(p) for p in torch.broadcast_tensors(a, b))
        return self._network(x, y).reshape(-1)

    def _prepared(self, x: Tensor) -> Tensor:
        """(N,3,H,W) in [-1, 1], on middle grey; AlexNet needs 64 pixels a side."""
        from torch.nn.functional import interpolate

        x = x.to(self._device).permute(0, 3, 1, 2)
        if min(x.shape[-2:]) < 64:
            x = interpolate(x, (64, 64), mode="bilinear", antialias=True, align_corners=False)
        return 2 * (x[:, :3] + (1 - x[:, 3:]) * 0.5) - 1


def _load(network: Any, path: Path) -> None:
    """Put the trunk's convolutions from torchvision's file into LPIPS's slices of it."""
    import torch

    state = torch.load(path, map_location="cpu", weights_only=True)
    for name, parameter in network.net.named_parameters():
        layer, kind = name.split(".")[1:]  # "slice2.3.weight" is torchvision's "features.3.weight"
        parameter.data.copy_(state[f"features.{layer}.{kind}"])


def _trunk(weights_dir: Path | None, log: Progress | None) -> Path:
    import torch

    cache = Path(torch.hub.get_dir()) / "checkpoints"
    found = find(TRUNK, [weights_dir, cache] if weights_dir is not None else [cache])
    if found is not None:
        return found
    by_hand = f"save it in a folder given with --weights-dir as {TRUNK}"
    if log is None:  # nothing is fetched without saying so
        raise InputError("the weights of AlexNet, the trunk of LPIPS, are not on disk", f"get {_URL} and {by_hand}")
    log.info(said("AlexNet, the trunk of LPIPS,", _URL, _MB, "BSD-3-Clause", by_hand))
    cache.mkdir(parents=True, exist_ok=True)
    try:
        torch.hub.download_url_to_file(_URL, str(cache / TRUNK), hash_prefix=_HASH, progress=False)
    except Exception as error:  # the network's, the system's, and torch's own
        raise InputError(
            f"the weights of AlexNet could not be fetched ({error})", f"get {_URL} and {by_hand}"
        ) from None
    return cache / TRUNK
