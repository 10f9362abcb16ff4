"""Read the clip: frames with their real times, the object cut out, which frames become keyframes, and a go or no-go.

``source`` is a video file, an animated GIF, WebP or APNG, a single picture, or a folder of pictures (natural order).
``fps`` is the rate of a folder; a video is resampled to it by taking the nearest frames, else it keeps its own times.

The object is found in this order (``background`` picks one): ``masks`` you bring, or that lie beside the pictures of a
folder as ``NAME_mask.png``, are used bit for bit; alpha the pictures bring is used as it is; a plain background is
keyed out; else ``rembg`` cuts the object out, where it is installed and its weights are on disk. With ``prompt``, a
point on the object or a box around it in the first frame, SAM 2 finds it and follows it. A mask made here that has lost
or gained much of the object is rebuilt from its neighbours, and a network's flicker is taken out (``mend``; not where
one ``object`` of several is followed); your own masks and alpha stay as they are and are only doubted. A frame without
any object is an error that names it, unless ``empty`` says otherwise.

Frames show one square part of the picture, the same for the whole clip, in which the object is large (``crop``); where
it lies in the picture stands in ``clip.json``. Nothing is stretched; frames are scaled down only where they are larger
than ``max_size``.

Where the pictures have a background of their own, points of it are followed through the clip (``background.npz``), by
which a moving camera is told from a moving object.

Writes ``frames/NNNNN.png`` (RGBA, straight alpha; transparent pixels near the object carry its colour, so that no
filter brings in a fringe), ``contact_sheet.png`` and ``clip.json``, which also holds the verdict on the clip.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from v2m4 import formats
from v2m4.config import opt
from v2m4.errors import ConfigError, InputError
from v2m4.ingest import account
from v2m4.ingest.crop import full_picture, square_around, union
from v2m4.ingest.cutter import Cutter, has_cut_out, is_premultiplied
from v2m4.ingest.judge import judge
from v2m4.ingest.keyframes import MOTION, OVERLAP, Chooser, Limits
from v2m4.ingest.objects import ObjectTracker
from v2m4.ingest.passes import Passes, Shot
from v2m4.masks import Masks, by_name, paired
from v2m4.protocols import Matte, StageContext
from v2m4.types import Crop
from v2m4.video import FrameReader, read_frames

#: Pictures with alpha that are looked at to tell straight from premultiplied colours.
_EVIDENCE = 8


@dataclass(frozen=True)
class IngestOptions:
    """Options of the stage."""

    source: Path | None = opt(None, "the clip: a video, an animated picture, or a folder of pictures", content=True)
    fps: float | None = opt(
        None, "rate of a folder of pictures (24 without); a video is resampled to it", minimum=0.01, maximum=1000
    )
    keyframe_motion: float = opt(
        MOTION,
        "motion that may add up from keyframe to keyframe, as a share of the object's length",
        minimum=0.001,
        maximum=10,
    )
    keyframe_overlap: float = opt(
        OVERLAP,
        "overlap of neighbouring keyframes' outlines, the change from frame to frame added up",
        minimum=0,
        maximum=1,
    )
    keyframe_step: int = opt(0, "every n-th frame is a keyframe, and the last one; 0 chooses them by motion", minimum=0)
    max_keyframes: int = opt(
        0,
        "at most so many keyframes, spread evenly over the motion, always the first and the last frame; 0: no limit",
        minimum=0,
    )
    max_size: int = opt(
        1024, "longer side of the frames in pixels; larger ones are scaled down", minimum=16, maximum=8192
    )
    crop: bool = opt(
        True,
        "frames show one square of the picture, the same through the clip, that holds the object; false keeps the full "
        "picture",
    )
    masks: Path | None = opt(
        None, "folder of masks, one a frame: white (or opaque) is the object; used as they are", content=True
    )
    background: str = opt(
        "auto",
        "where the object's mask comes from without masks and prompt: auto tries alpha, then a plain background (key), "
        "then the network rembg",
        choices=("auto", "alpha", "key", "rembg", "sam2"),
    )
    prompt: str = opt(
        "",
        "the object for the network SAM 2, in pixels of the first picture of the clip: a point on it (x,y) or a box "
        "around it (x0,y0,x1,y1)",
    )
    object: str = opt(
        "all",
        "of several objects in the masks: all, largest, nearest to the picture's middle, or its number from the left, "
        "from 0; chosen in the first frame and followed",
    )
    empty: str = opt(
        "fail",
        "frames without any object: fail names the first and stops, skip leaves them out (the motion goes on across "
        "the gap), hold shows the frame before",
        choices=("fail", "skip", "hold"),
    )
    mend: str = opt(
        "auto",
        "rebuild masks that lost or gained much of the object from their neighbours, and take out flicker: auto for "
        "masks made here, always for yours too, never leaves all as they are",
        choices=("auto", "always", "never"),
    )
    alpha_colours: str = opt(
        "auto",
        "colours of pictures with alpha: straight, or premultiplied by it",
        choices=("auto", "straight", "premultiplied"),
    )
    key_holes: str = opt(
        "auto",
        "background colour enclosed by the object: cut it out, keep it, or judge by flatness and size",
        choices=("auto", "cut", "keep"),
    )
    matte_model: str = opt(
        "",
        "model of rembg (u2net, u2netp, isnet-general-use, birefnet-general, ...) or, with prompt, of SAM 2 "
        "(sam2.1-hiera-tiny, ...), downloaded if it is not there; empty: the best on disk, nothing is downloaded",
    )

    def __post_init__(self) -> None:
        ObjectTracker(self.object)  # refuses what is no object before anything is written
        _check_model(self.matte_model)
        if self.background == "sam2" and not self.prompt:
            raise ConfigError("ingest.background = sam2 needs ingest.prompt", "give a point x,y or a box x0,y0,x1,y1")
        if self.prompt and self.background not in ("auto", "sam2"):
            raise ConfigError(
                f"ingest.prompt and ingest.background = {self.background} exclude each other",
                "leave one of the two out",
            )


def _check_model(name: str) -> None:
    """Refuses what no mask model is called, whether or not this clip will need one."""
    if not name or Path(name).expanduser().is_dir():
        return
    from v2m4.models import rembg, sam2

    known = [*rembg.MODELS, *sam2.MODELS]
    if name not in known:
        close = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
        raise ConfigError(f"ingest.matte_model = {name} is no mask model", hint)


def run(ctx: StageContext, options: IngestOptions) -> None:
    """Decode, cut out, mend, crop, store, judge. InputError for a source that cannot be read and for frames without an
    object."""
    if options.source is None:
        raise ConfigError("there is no clip to read", "give a video file or a folder of pictures (ingest.source)")
    reader = read_frames(options.source, options.fps)
    cutter = plan(ctx, reader, options)
    ctx.log.info(account.describe(cutter))
    passes = Passes(ctx, reader, cutter, ObjectTracker(options.object), options.empty)
    survey = passes.survey()
    if cutter.masks is not None:
        cutter.masks.check_count(reader.info["frames_decoded"])
    rebuilt = (
        passes.mend(survey, steady=cutter.in_order or options.mend == "always") if _mends(options, cutter) else set()
    )
    crop, chooser = _crop(survey.shots, options.crop), Chooser(_limits(options))
    done = passes.finish(survey.shots, crop, options.max_size, chooser)
    verdict = judge(
        done.facts,
        chooser.changes,
        cutter.method,
        [*account.doubts(cutter, reader), *account.mask_doubts(survey, rebuilt)],
    )
    clip = account.clip_json(survey, done, crop, chooser, verdict) | {
        "source": reader.info,
        "alpha": cutter.method,
        "premultiplied": cutter.premultiplied,
        "background": list(cutter.background.colour) if cutter.background else None,
        "suspect_masks": [i for i, s in enumerate(survey.shots) if s.number in set(survey.suspects) - rebuilt],
        "rebuilt_masks": [i for i, s in enumerate(survey.shots) if s.number in rebuilt],
        "licences": {f"mask model ({cutter.matte.name})": cutter.matte.licence}
        if cutter.in_order and cutter.matte
        else {},
        "notes": [
            *reader.facts,
            *account.without_object(survey, options.empty),
            *_left_as_it_is(options, cutter),
            *verdict.notes(),
        ],
        "warnings": [*reader.warnings, *(reason.text for reason in verdict.reasons)],
    }
    account.tell(ctx.log, clip, verdict)
    account.contact_sheet(ctx.out, clip["frames"])
    if done.background is not None:
        formats.write_npz(ctx.out / "background.npz", done.background)
    formats.write_json(ctx.out / "clip.json", clip)
    passes.clean_up()


# --- where the masks come from ----------------------------------------------------------------------------------------


def plan(ctx: StageContext, reader: FrameReader, options: IngestOptions) -> Cutter:
    """Look the clip through, as far as it takes, and settle where its masks come from."""
    from v2m4.ingest.key import BorderSurvey, KeyMatte

    wanted = options.background
    masks = _masks(reader, options)
    if masks is not None:
        return Cutter("masks", masks)
    if options.prompt or wanted == "rembg":
        return _network(ctx, options)
    border = BorderSurvey()
    pictures = iter(reader)
    for picture in pictures:
        if wanted != "key" and has_cut_out(picture.image):
            evidence = [picture.image, *(p.image for p in itertools.islice(pictures, _EVIDENCE - 1))]
            return Cutter("given", premultiplied=is_premultiplied(evidence, options.alpha_colours))
        border.add(picture.image[..., :3])
    if wanted == "alpha":
        raise InputError(
            f"{reader.path}: the pictures have no alpha, and ingest.background asks for it",
            "give pictures with alpha, or set ingest.background to auto, key or rembg",
        )
    background = border.background()
    if background is not None:
        return Cutter("key", matte=KeyMatte(background, options.key_holes), background=background)
    if wanted == "key":
        raise InputError(
            f"{reader.path}: the picture's border has no single colour, so there is nothing to key out",
            "give pictures with alpha, or set ingest.background to rembg",
        )
    return _network(ctx, options)


def _network(ctx: StageContext, options: IngestOptions) -> Cutter:
    """A network takes all cores by itself, and SAM 2 follows the object: one frame after the other."""
    matte: Matte
    name = options.matte_model or None
    if options.prompt:
        from v2m4.models.sam2 import Sam2

        matte = Sam2(options.prompt, name, ctx.weights_dir, ctx.device, ctx.log)
        return Cutter("sam2", matte=matte, in_order=True, follows=True)
    from v2m4.models.rembg import Rembg

    return Cutter("rembg", matte=Rembg(name, ctx.weights_dir, ctx.log), in_order=True)


def _masks(reader: FrameReader, options: IngestOptions) -> Masks | None:
    """The masks the user gave, or those that lie beside every picture of a folder."""
    chosen = f"ingest.background = {options.background}" if options.background != "auto" else ""
    chosen = chosen or ("ingest.prompt" if options.prompt else "")
    if options.masks is not None:
        if chosen:
            raise ConfigError(f"ingest.masks and {chosen} exclude each other", f"leave out {chosen} to use the masks")
        return paired(options.masks, reader.files if reader.kind == "folder" else None)
    if chosen or not reader.masks:
        return None
    beside = by_name(reader.masks, reader.files)
    found = tuple(m for m in beside if m)
    return Masks(found, "masks lie beside the pictures") if len(found) == len(beside) else None


# --- what comes of it -------------------------------------------------------------------------------------------------


def _mends(options: IngestOptions, cutter: Cutter) -> bool:
    """One object of several is followed by its own rules, and what premultiplied colours lack no flow can bring."""
    if options.object != "all" or cutter.premultiplied:
        return False
    return {"always": True, "never": False}.get(options.mend, cutter.made)


def _left_as_it_is(options: IngestOptions, cutter: Cutter) -> list[str]:
    if options.mend != "always" or _mends(options, cutter):
        return []
    why = "colours are premultiplied" if cutter.premultiplied else "one object of several is followed"
    return [f"no mask is mended where {why} (ingest.mend = always)"]


def _limits(options: IngestOptions) -> Limits:
    return Limits(options.keyframe_overlap, options.keyframe_motion, options.max_keyframes, options.keyframe_step)


def _crop(shots: Sequence[Shot], wanted: bool) -> Crop:
    width, height = shots[0].picture
    bounds = union(shot.shown for shot in shots)
    return square_around(bounds, width, height) if wanted else full_picture(width, height)
