"""DUSt3R by the package ``mini-dust3r``, where installed: points of several pictures in the frame of the first.

Each other picture is paired with the first, so each pair's points are already in the first one's camera, up to a scale
of their own, and the first picture's points, which all pairs share, bring the pairs to one scale. That is N-1 passes in
closed form; the paper's complete graph takes N(N-1) and 300 steps of global alignment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from v2m4.errors import InputError, MissingBackend
from v2m4.models import hub
from v2m4.protocols import PointMaps, Progress

LICENCE = "CC BY-NC-SA 4.0: not commercial"
INSTALL = "pip install --no-deps mini-dust3r && pip install -c constraints.txt 'v2m4[dust3r]'"
MODEL = hub.HubModel("naver", "DUSt3R_ViTLarge_BaseDecoder_512_dpt", 2285, LICENCE)


class Dust3r:
    """Points by DUSt3R. MissingBackend without the package, InputError without weights."""

    name = "dust3r"
    licence = LICENCE

    def __init__(self, weights_dir: Path | None = None, device: str = "cpu", log: Progress | None = None) -> None:
        try:
            from mini_dust3r.model import AsymmetricCroCo3DStereo
        except ImportError:
            raise MissingBackend("mini-dust3r (DUSt3R, a guess for the camera)", INSTALL, LICENCE) from None
        folder = hub.folder_of(MODEL, weights_dir, log)
        try:
            network: Any = AsymmetricCroCo3DStereo.from_pretrained(folder, strict=True)
        except Exception as error:  # whatever the readers of its two files raise
            raise InputError(f"{folder}: not the weights of DUSt3R ({error})", f"put {MODEL.by_hand}") from None
        self._network, self._device = network.to(device).eval(), device
        self._size = int(max(network.croco_args["img_size"]))

    def point_maps(self, images: np.ndarray) -> PointMaps:
        """``images`` (N,S,S,3) uint8 sRGB, N >= 2; the points are in the camera of the first."""
        pixels = self._pixels(images)
        firsts, others = zip(*[self._pair(pixels[0], other) for other in pixels[1:]], strict=True)
        scales = [_ratio(firsts[0], first) for first in firsts]
        first = _mean([(points * s, confidence) for (points, confidence), s in zip(firsts, scales, strict=True)])
        maps = [first, *[(points * s, confidence) for (points, confidence), s in zip(others, scales, strict=True)]]
        at = nearest(images.shape[1], self._size)
        points, confidence = (np.stack([m[k][at][:, at] for m in maps]).astype(np.float32) for k in (0, 1))
        return PointMaps(points, confidence)

    def _pixels(self, images: np.ndarray) -> Any:
        """(N,3,S,S) float tensor in [-1, 1], the whole picture scaled: nothing is cropped, so pixels stay pixels."""
        import cv2
        import torch

        shrink = cv2.INTER_AREA if images.shape[1] > self._size else cv2.INTER_CUBIC
        scaled = np.stack([cv2.resize(image, (self._size, self._size), interpolation=shrink) for image in images])
        return torch.from_numpy(scaled.astype(np.float32).transpose(0, 3, 1, 2) / 127.5 - 1).to(self._device)

    def _pair(self, first: Any, other: Any) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """Points (S,S,3) and confidence (S,S) of both pictures, in the camera of the first."""
        import torch

        shape = torch.tensor([[self._size, self._size]])
        views = [{"img": picture[None], "true_shape": shape, "instance": [str(k)]} for k, picture in
                 enumerate((first, other))]  # fmt: skip
        with torch.inference_mode():
            a, b = self._network(*views)
        return tuple(
            (r[key][0].float().cpu().numpy(), r["conf"][0].float().cpu().numpy())
            for r, key in ((a, "pts3d"), (b, "pts3d_in_other_view"))
        )  # type: ignore[return-value]


def _ratio(to: tuple[np.ndarray, np.ndarray], of: tuple[np.ndarray, np.ndarray]) -> float:
    """What brings the points ``of`` one pair to the scale of another pair's points of the same picture."""
    a, b = np.linalg.norm(to[0], axis=-1), np.linalg.norm(of[0], axis=-1)
    sure = np.minimum(to[1], of[1])
    sure = sure >= np.median(sure)
    return float(np.median(a[sure] / np.maximum(b[sure], 1e-9)))


def _mean(maps: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    weight = np.stack([confidence for _, confidence in maps])
    total = np.maximum(weight.sum(0), 1e-9)
    return np.einsum("nij,nijc->ijc", weight, np.stack([points for points, _ in maps])) / total[..., None], weight.mean(
        0
    )


def nearest(size: int, own: int) -> np.ndarray:
    """(size,) which of the network's ``own`` rows holds the centre of each row of a picture: across a rim, a mean of
    two points lies on neither surface."""
    return np.minimum(((np.arange(size) + 0.5) * own / size).astype(int), own - 1)
