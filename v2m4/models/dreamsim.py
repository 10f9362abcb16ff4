"""DreamSim (Fu et al. 2023) by the package ``dreamsim``, where installed: its single network of CLIP's build.

The paper uses the package's ensemble, whose DINO part loads code from a repository when it runs; this one does not.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from v2m4.errors import InputError, MissingBackend
from v2m4.models.torchvision import import_torchvision
from v2m4.protocols import Progress
from v2m4.weights import said

if TYPE_CHECKING:
    from torch import Tensor

INSTALL = "pip install -c constraints.txt 'v2m4[dreamsim]'"
LICENCE = "MIT (code; of the OpenCLIP weights see their own page)"
#: The network, and what its weights are made of in the package's folder: it fetches all where one of them is missing.
KIND, PARTS = "open_clip_vitb32", ("open_clip_vitb32_pretrain.pth.tar", "open_clip_vitb32_single_lora")
_URL = f"https://github.com/ssundaram21/dreamsim/releases/download/v0.2.0-checkpoints/dreamsim_{KIND}_checkpoint.zip"
_MB, _SIZE = 340, 224


class DreamSim:
    """0 for equal pictures, 2 at most. MissingBackend without the package, InputError without weights."""

    name = "dreamsim"
    licence = LICENCE

    def __init__(self, weights_dir: Path | None = None, device: str = "cpu", log: Progress | None = None) -> None:
        import_torchvision()
        try:
            from dreamsim import dreamsim
        except ImportError:
            raise MissingBackend("dreamsim (how different two pictures look)", INSTALL, LICENCE) from None
        folder = (weights_dir or Path.home() / ".cache" / "v2m4") / "dreamsim"
        by_hand = f"unpack it into {folder}, or into DIR/dreamsim with --weights-dir DIR"
        if not all((folder / part).exists() for part in PARTS):
            if log is None:  # nothing is fetched without saying so
                raise InputError("the weights of DreamSim are not on disk", f"get {_URL} and {by_hand}")
            log.info(said("DreamSim", _URL, _MB, LICENCE, by_hand))
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # the package prints
                network, _ = dreamsim(device=device, cache_dir=str(folder), dreamsim_type=KIND)
        except Exception as error:  # the network's, zip's, torch's and peft's
            raise InputError(f"the weights of DreamSim cannot be had ({error})", f"get {_URL} and {by_hand}") from None
        self._network: Any = network.eval()
        self._device = device

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """``a`` (N,H,W,4), ``b`` (N,H,W,4) or (1,H,W,4), premultiplied colour and coverage -> (N,)."""
        import torch

        x, y = (self._prepared(p) for p in (a, b))
        y = y.expand(len(x), -1, -1, -1)
        return torch.as_tensor(self._network(x, y)).reshape(-1)

    def _prepared(self, x: Tensor) -> Tensor:
        """(N,3,224,224) in [0, 1] on black, as in the paper."""
        from torch.nn.functional import interpolate

        x = x.to(self._device).permute(0, 3, 1, 2)[:, :3]
        return interpolate(x, (_SIZE, _SIZE), mode="bicubic", antialias=True, align_corners=False)
