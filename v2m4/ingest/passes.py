"""The passes over a clip: survey, mend, finish. Each decodes it anew and goes through it frame by frame, so that memory
does not grow with the clip. Decoding twice is cheaper than writing full pictures in between; what is dear, the masks of
a network, waits on disk, and a run that was killed goes on where it was."""

from __future__ import annotations

import dataclasses
import shutil
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from v2m4 import formats
from v2m4.errors import InputError
from v2m4.flow import one_thread
from v2m4.ingest.background import BackgroundTracks
from v2m4.ingest.crop import Bounds, bounds
from v2m4.ingest.cuts import Alphas, CutOut
from v2m4.ingest.cutter import Cutter
from v2m4.ingest.edges import HAZE, SOLID, NoObject, fill_transparent, foreground
from v2m4.ingest.judge import FrameFacts
from v2m4.ingest.keyframes import Chooser
from v2m4.ingest.mend import Masked, mend
from v2m4.ingest.motion import OBJECT_PX, Small, small
from v2m4.ingest.objects import ObjectTracker
from v2m4.ingest.quality import blur, spread
from v2m4.ingest.watch import MaskWatch, SmallMask, Suspect, small_mask
from v2m4.protocols import StageContext
from v2m4.types import Crop
from v2m4.usage import give_back
from v2m4.video import FrameReader, Picture, resize

#: Frames in work at a time: one is read while others are cut out and written.
WORKERS = 2
#: Frames after which memory that is only kept is handed back.
GIVE_BACK_EVERY = 16

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Shot:
    """One frame of the clip to be: the picture ``number`` of the source, and the number of the picture ``shows`` (an
    earlier one where an empty frame holds it). ``picture`` is its (width, height); ``solid`` bounds the object in it,
    ``shown`` all of its alpha."""

    number: int
    shows: int
    time_s: float
    name: str
    source_index: int
    picture: tuple[int, int]
    solid: Bounds
    shown: Bounds
    about: dict[str, Any]


@dataclass
class Survey:
    """What the first pass leaves: ``shots``, ``suspects`` by picture, and the pictures without an object."""

    shots: list[Shot] = field(default_factory=list)
    suspects: dict[int, Suspect] = field(default_factory=dict)
    empty: list[int] = field(default_factory=list)


@dataclass
class Passes:
    """One clip on its way. ``empty`` says what becomes of a picture without an object: "fail" raises InputError, "skip"
    leaves it out, "hold" shows the one before."""

    ctx: StageContext
    reader: FrameReader
    cutter: Cutter
    tracker: ObjectTracker
    empty: str = "fail"

    def __post_init__(self) -> None:
        self.found = Alphas(self.ctx.out / "found")  # masks of a network, and of one object of several
        self.mended = Alphas(self.ctx.out / "mended")

    @property
    def one_of_several(self) -> bool:
        return self.tracker.which != "all"

    def _pictures(self, label: str) -> Iterator[Picture]:
        """Every picture, with progress. Whoever works on one names it: reading is ahead of the work."""
        return self.ctx.track(self.reader, label, self.reader.length, named=False)

    def clean_up(self) -> None:
        for alphas in (self.found, self.mended):
            shutil.rmtree(alphas.folder, ignore_errors=True)

    # --- the first: what is there? ------------------------------------------------------------------------------------

    def survey(self) -> Survey:
        """Find the object in every picture, and the masks that do not fit those around them."""
        out, watch, watched = Survey(), MaskWatch(), []
        workers = 1 if self.one_of_several or self.cutter.in_order else WORKERS
        pictures = self._pictures("find the object")
        for picture, found in ahead(pictures, self._find, workers):
            if found is not None:
                out.shots.append(self._shot(picture, found[0]))
                watch.add(found[1])
                watched.append(picture.index)
                continue
            out.empty.append(picture.index)
            if self.empty == "hold" and out.shots:
                out.shots.append(dataclasses.replace(out.shots[-1], number=picture.index, time_s=picture.time_s))
        if not out.shots:
            raise InputError(
                f"{self.reader.path}: there is no object in any frame", "look at the clip, or bring masks (--masks)"
            )
        start = out.shots[0].time_s
        out.shots = [dataclasses.replace(shot, time_s=shot.time_s - start) for shot in out.shots]
        out.suspects = {watched[s.index]: s for s in watch.suspects()}
        return out

    def _find(self, picture: Picture) -> tuple[CutOut, SmallMask] | None:
        label = f"{self.reader.path.name}: frame {picture.index} ({picture.name})"
        if self.found.has(picture.index) and not self.cutter.follows:  # an interrupted run left it
            alpha = self.found.read(picture.index)
            self.tracker.follow(alpha)
            cut = self._with(picture, alpha)
            return cut, small_mask(alpha)
        try:
            cut = self.cutter.cut(picture, label)
            alpha = cut.alpha()
            if self.one_of_several:
                alpha = self.tracker.keep(alpha, label)
                cut = cut.only(alpha)
        except NoObject:
            if self.empty == "fail":
                raise
            return None
        if self.one_of_several or self.cutter.in_order:
            self.found.write(picture.index, alpha)
        return cut, small_mask(alpha)

    def _with(self, picture: Picture, alpha: np.ndarray) -> CutOut:
        """The object cut out with a mask that was found before: with the pictures' own colours where they have any."""
        if self.cutter.in_order:
            return self.cutter.cut_with(picture.image, alpha)
        return self.cutter.cut(picture, picture.name).only(alpha)

    def _shot(self, picture: Picture, cut: CutOut) -> Shot:
        alpha = cut.image[..., 3]
        return Shot(
            number=picture.index,
            shows=picture.index,
            time_s=picture.time_s,
            name=picture.name,
            source_index=picture.source_index,
            picture=(cut.width, cut.height),
            solid=cut.bounds_of(foreground(alpha)),
            shown=cut.bounds_of(self._shown_of(alpha)),
            about=cut.about,
        )

    def _shown_of(self, alpha: np.ndarray) -> np.ndarray:
        """(H,W) bool: what the crop has to hold."""
        return alpha > 0 if self.cutter.method == "masks" else alpha >= HAZE

    # --- the second: masks over time ----------------------------------------------------------------------------------

    def mend(self, survey: Survey, steady: bool) -> set[int]:
        """Rebuild suspect masks and, with ``steady``, take flicker out; the shots follow. Gives the numbers of the
        pictures whose masks were rebuilt."""
        if not survey.suspects and not steady:
            return set()
        rebuilt: set[int] = set()
        shots: dict[int, list[int]] = {}  # a picture that is held is shown more than once
        for index, shot in enumerate(survey.shots):
            shots.setdefault(shot.shows, []).append(index)
        for frame in mend(self._masked(shots), survey.suspects, steady):
            self.mended.write(frame.number, frame.alpha)
            solid, shown = bounds(foreground(frame.alpha)), bounds(self._shown_of(frame.alpha))
            for index in shots[frame.number]:
                survey.shots[index] = dataclasses.replace(survey.shots[index], solid=solid, shown=shown)
            if frame.rebuilt:
                rebuilt.add(frame.number)
        return rebuilt

    def _masked(self, wanted: Container[int]) -> Iterator[Masked]:
        for picture in self._pictures("mend masks"):
            if picture.index in wanted:
                yield Masked(picture.index, picture.image[..., :3], self._unmended(picture).alpha())

    def _cut(self, picture: Picture) -> CutOut:
        """The picture's object with the best mask there is."""
        if self.mended.has(picture.index):
            return self.cutter.cut_with(picture.image, self.mended.read(picture.index))
        return self._unmended(picture)

    def _unmended(self, picture: Picture) -> CutOut:
        """With the mask it had at first, whatever an interrupted run has mended since."""
        if self.found.has(picture.index):
            return self._with(picture, self.found.read(picture.index))
        return self.cutter.cut(picture, picture.name)

    # --- the last: frames ---------------------------------------------------------------------------------------------

    def finish(self, shots: list[Shot], crop: Crop, max_size: int, chooser: Chooser) -> Finished:
        """Write the frames, at most ``max_size`` long, and look at each; ``chooser`` sees them all."""
        scale = min(1.0, max_size / max(crop.width, crop.height))
        size = max(1, round(crop.width * scale)), max(1, round(crop.height * scale))
        zoom = min(1.0, OBJECT_PX / max(float(np.median([length_px(s) * scale for s in shots])), 1.0))

        around = BackgroundTracks(*shots[0].picture) if self.cutter.has_background else None

        def store(item: tuple[int, Picture]) -> tuple[FrameFacts, Small, tuple[np.ndarray, np.ndarray] | None]:
            index, path = item[0], self.ctx.out / "frames" / f"{formats.frame_name(item[0])}.png"
            if path.is_file():
                frame = formats.read_rgba(path)
            else:
                frame = fill_transparent(resize(self._cut(item[1]).placed(crop), *size))
                if int(frame[..., 3].max()) < SOLID:
                    raise InputError(
                        f"{self.reader.path.name}: frame {item[1].index} ({item[1].name}): nothing is left of the "
                        f"object, {length_px(shots[index])} pixels long, where {crop.width}x{crop.height} pixels are "
                        f"scaled down to {size[0]}x{size[1]}",
                        "raise ingest.max_size, leave ingest.crop on, or cut the clip",
                    )
                formats.write_image(path, frame)
            outside = around.small(item[1].image, frame[..., 3], crop) if around else None
            return _facts(shots[index], crop, frame, scale), small(frame, zoom), outside

        facts = []
        for (index, _), (about, tiny, outside) in ahead(self._shown(shots), store, WORKERS):
            facts.append(about)
            chooser.add(shots[index].time_s, tiny)
            if around is not None and outside is not None:
                around.add(index, *outside)
        return Finished(facts, *size, around.arrays() if around else None)

    def _shown(self, shots: list[Shot]) -> Iterator[tuple[int, Picture]]:
        """Every shot's index with the picture it shows."""
        index, held = 0, None
        for picture in self._pictures("frames"):
            if index < len(shots) and shots[index].number == picture.index:
                held = picture if shots[index].shows == picture.index else held
                assert held is not None
                yield index, held
                index += 1


@dataclass(frozen=True)
class Finished:
    """``facts`` of every frame; all are ``width`` x ``height``. ``background`` holds the points followed outside the
    object, None where there is no background to look at."""

    facts: list[FrameFacts]
    width: int
    height: int
    background: dict[str, np.ndarray] | None


def length_px(shot: Shot) -> int:
    """Longer side of the object's box in pixels of the picture."""
    left, top, right, bottom = shot.solid
    return max(right - left, bottom - top)


def _facts(shot: Shot, crop: Crop, frame: np.ndarray, scale: float) -> FrameFacts:
    mask = foreground(frame[..., 3])
    left, top, right, bottom = shot.solid
    sides = (left <= 0, top <= 0, right >= crop.picture_width, bottom >= crop.picture_height)
    return FrameFacts(
        length_px=length_px(shot),
        area=round(int(mask.sum()) / scale**2),
        border=tuple(name for name, at in zip(("left", "top", "right", "bottom"), sides, strict=True) if at),
        opaque=bool(shot.about.get("opaque")),
        faint=bool(shot.about.get("faint")),
        blur=round(blur(frame), 4),
        spread=round(spread(mask), 4),
    )


def ahead(items: Iterable[Item], work: Callable[[Item], Result], workers: int) -> Iterator[tuple[Item, Result]]:
    """Every item with what ``work`` makes of it, in order, a few of them in work at a time."""
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    # Two frames at a time keep the cores busy; OpenCV's own threads would only get into their way.
    with one_thread(), ThreadPoolExecutor(workers, thread_name_prefix="v2m4-ingest") as pool:
        try:
            for number, item in enumerate(items, start=1):
                if number % GIVE_BACK_EVERY == 0:
                    give_back()
                waiting.append((item, pool.submit(work, item)))
                if len(waiting) > workers:
                    first, future = waiting.popleft()
                    yield first, future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
        finally:
            for _, future in waiting:
                future.cancel()
