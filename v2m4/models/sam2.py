"""The object at a point or in a box, followed through the clip: SAM 2 by the ``transformers`` package, where installed.

Frames are given one by one. What the network remembers of earlier ones is dropped as soon as it no longer reads it, so
memory does not grow with the clip. Picture preparation is done here, because the package's own needs torchvision.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from v2m4.errors import ConfigError, InputError, MissingBackend
from v2m4.models import hub
from v2m4.models.hub import FILES, HubModel
from v2m4.models.torchvision import import_torchvision
from v2m4.protocols import Progress

#: Models of the hub by their short names, the best first, with about their size in MB.
MODELS = {
    "sam2.1-hiera-large": 898,
    "sam2.1-hiera-base-plus": 324,
    "sam2.1-hiera-small": 184,
    "sam2.1-hiera-tiny": 156,
}
LICENCE = "Apache-2.0"
_OWNER = "facebook"
#: Mean and standard deviation of the colours the network was trained with.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_OBJECT = 1


@dataclass(frozen=True)
class Prompt:
    """``points`` (1,2) a point on the object, or (2,2) two corners of a box around it, in pixels of the first frame."""

    points: np.ndarray

    @classmethod
    def parse(cls, text: str) -> Prompt:
        """ "x,y" or "x0,y0,x1,y1". ConfigError for anything else."""
        try:
            numbers = [float(part) for part in text.split(",")]
        except ValueError:
            numbers = []
        if len(numbers) not in (2, 4) or not np.isfinite(numbers).all():
            raise ConfigError(
                f"ingest.prompt = {text!r} is neither a point nor a box",
                "write x,y for a point on the object or x0,y0,x1,y1 for a box around it, in pixels of the first frame",
            )
        points = np.array(numbers).reshape(-1, 2)
        if len(points) == 2 and (points[1] <= points[0]).any():
            raise ConfigError(f"the box {text} of ingest.prompt is empty", "give left,top,right,bottom")
        return cls(points)

    def scaled(self, width: int, height: int, size: int) -> np.ndarray:
        """The points in a picture of ``size`` x ``size``. InputError when they lie outside ``width`` x ``height``."""
        if (self.points < 0).any() or (self.points > (width, height)).any():
            raise InputError(
                f"the prompt {self.points.ravel().tolist()} lies outside the first frame, {width}x{height}",
                "give it in pixels of the picture as it is shown upright",
            )
        return self.points * (size / width, size / height)


class Sam2:
    """Masks of the one object that a prompt names in the first frame. Give it the frames in order.

    ``model`` is a name of ``MODELS`` (fetched from the hub if it is not there, after saying so) or a folder with
    ``config.json`` and ``model.safetensors``; None takes the best that is on disk. MissingBackend without the package,
    ConfigError for a model or prompt that is none, InputError without weights.
    """

    name = "sam2"
    licence = LICENCE

    def __init__(
        self, prompt: str, model: str | None = None, weights_dir: Path | None = None, device: str = "cpu",
        log: Progress | None = None,
    ) -> None:  # fmt: skip
        self.prompt = Prompt.parse(prompt)
        import_torchvision()  # transformers looks whether it is there, and stumbles where it cannot be imported
        try:
            from transformers import Sam2VideoModel
            from transformers.utils import logging
        except ImportError:
            raise MissingBackend(
                "transformers (SAM 2 finds the object at a prompt)",
                "pip install -c constraints.txt 'v2m4[sam2]', or bring masks with --masks",
                LICENCE,
            ) from None
        folder = _local(model, weights_dir)
        if folder is None:
            folder = _hub(model, log)
        logging.disable_progress_bar()
        try:
            loaded: Any = _loaded(Sam2VideoModel, folder)
        except Exception as error:  # whatever the readers of its two files raise
            raise InputError(
                f"{folder}: not the weights of SAM 2 ({error})", f"put {' and '.join(FILES)} of one model there"
            ) from None
        self._model = loaded.to(device).eval()
        self._device, self._size = device, int(loaded.config.image_size)
        self._session: Any = None
        self._count = 0

    def alpha(self, image: np.ndarray) -> np.ndarray:
        """``image`` (H,W,3) uint8 sRGB of the next frame -> (H,W) uint8."""
        import cv2
        import torch

        height, width = image.shape[:2]
        if self._session is None:
            self._session = self._start(width, height)
        with torch.inference_mode():
            found = self._model(self._session, frame_idx=self._count, frame=self._pixels(image))
        self._forget()
        self._count += 1
        logits = found.pred_masks[0, 0].float().cpu().numpy()
        smooth = cv2.resize(logits, (width, height), interpolation=cv2.INTER_LINEAR)
        return np.round(255 / (1 + np.exp(-np.clip(smooth, -30, 30)))).astype(np.uint8)

    def _pixels(self, image: np.ndarray) -> Any:
        """(1,3,S,S) as the network wants it: the whole picture, squeezed to a square."""
        import torch
        from PIL import Image

        # Pillow smooths what it shrinks, as in the network's training; OpenCV's bilinear would not.
        square = Image.fromarray(np.ascontiguousarray(image)).resize((self._size,) * 2, Image.Resampling.BILINEAR)
        colours = (np.asarray(square, np.float32) / 255 - np.array(_MEAN, np.float32)) / np.array(_STD, np.float32)
        return torch.from_numpy(np.ascontiguousarray(colours.transpose(2, 0, 1)))[None].to(self._device)

    def _start(self, width: int, height: int) -> Any:
        import torch
        from transformers.models.sam2_video.modeling_sam2_video import Sam2VideoInferenceSession

        session = Sam2VideoInferenceSession(
            video_height=height, video_width=width, inference_device=self._device, inference_state_device=self._device,
            video_storage_device=self._device, dtype=torch.float32,
        )  # fmt: skip
        points = self.prompt.scaled(width, height, self._size)
        # The corners of a box are points with labels of their own.
        labels = [1] if len(points) == 1 else [2, 3]
        inputs = {
            "point_coords": torch.tensor(points, dtype=torch.float32)[None, None],
            "point_labels": torch.tensor(labels, dtype=torch.int32)[None, None],
        }
        session.add_point_inputs(session.obj_id_to_idx(_OBJECT), 0, inputs)
        session.obj_with_new_inputs = [_OBJECT]
        return session

    def _forget(self) -> None:
        """Drop what no later frame reads: the frame itself, and outputs beyond the reach of the memory."""
        self._session.processed_frames.pop(self._count, None)
        config = self._model.config
        reach = max(int(config.num_maskmem), int(config.max_object_pointers_in_encoder))
        for outputs in self._session.output_dict_per_obj.values():
            outputs["non_cond_frame_outputs"].pop(self._count - reach, None)
        for tracked in self._session.frames_tracked_per_obj.values():
            tracked.pop(self._count - reach, None)


def _loaded(kind: Any, folder: Path) -> Any:
    """The model in ``folder``. ValueError when weights are missing, which would be random numbers otherwise."""
    model, report = kind.from_pretrained(folder, output_loading_info=True, local_files_only=True, use_safetensors=True)
    missing = sorted(report["missing_keys"]) + [str(key) for key in report["mismatched_keys"]]
    if missing:
        raise ValueError(f"{len(missing)} arrays are missing or of another shape, {missing[0]} among them")
    return model


def on_disk(weights_dir: Path | None = None) -> list[str]:
    """Names of the models whose weights are in ``weights_dir`` or in the hub's cache, the best first."""
    return [name for name in MODELS if _local(name, weights_dir) or hub.cached(_of(name))]


def _local(model: str | None, weights_dir: Path | None) -> Path | None:
    """A folder with weights: the one that is named, or of that name, or the best, in ``weights_dir``."""
    if model is not None and model not in MODELS:
        folder = Path(model).expanduser()
        if hub.whole(folder):
            return folder
        close = difflib.get_close_matches(model, MODELS, 1)
        raise ConfigError(
            f"there is no SAM 2 model {model}, nor a folder with {' and '.join(FILES)}",
            f"did you mean {close[0]}?" if close else f"known: {', '.join(MODELS)}",
        )
    names = MODELS if model is None else (model,)
    folders = [weights_dir / name for name in names] if weights_dir is not None else []
    return next((folder for folder in folders if hub.whole(folder)), None)


def _of(name: str) -> HubModel:
    return HubModel(_OWNER, name, MODELS[name], LICENCE)


def _hub(model: str | None, log: Progress | None) -> Path:
    """The folder in the hub's cache; a model that is named is fetched into it if need be."""
    for name in MODELS if model is None else (model,):
        if (folder := hub.cached(_of(name))) is not None:
            return folder
    if model is None:
        by_hand = _of(next(iter(MODELS))).by_hand.replace(next(iter(MODELS)), "NAME")
        raise InputError(
            f"there are no weights of SAM 2 on disk (looked for {', '.join(MODELS)})",
            f"name one to have it fetched, say --set ingest.matte_model=sam2.1-hiera-tiny, or put {by_hand}",
        )
    return hub.fetch(_of(model), log)
