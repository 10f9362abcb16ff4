"""Speed and memory of the stage ingest on a 720p clip that brings its alpha.

    python benchmarks/ingest.py [--frames 100 1000] [--json FILE|-]

The baseline, measured in the same run, is decoding alone: going through the same file once with the same reader. Each
measurement is a process of its own, so that its peak memory is its own. The clip is made first (VP9 with alpha, a
textured figure half the picture high that walks from side to side).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

WIDTH, HEIGHT, RATE = 1280, 720, 30


def make_clip(path: Path, frames: int) -> None:
    """A WebM with alpha."""
    import av
    import cv2
    import numpy as np

    rng = np.random.default_rng(0)
    size = 540
    colours = cv2.resize(
        rng.integers(0, 255, (60, 60, 3)).astype(np.uint8), (size, size), interpolation=cv2.INTER_CUBIC
    )
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libvpx-vp9", rate=RATE)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuva420p"
        stream.metadata["alpha_mode"] = "1"
        stream.options = {"deadline": "realtime", "cpu-used": "8", "crf": "30", "b": "2M", "row-mt": "1"}
        for i in range(frames):
            swing = 60 * np.sin(i / 5)
            alpha = np.zeros((size, size), np.uint8)
            cv2.ellipse(alpha, (270, 200), (170, 110), 0, 0, 360, 255, -1)
            for x, way in ((160, 1), (230, -1), (310, 1), (380, -1)):
                cv2.line(alpha, (x, 270), (int(x + way * swing), 520), 255, 40)
            picture = np.zeros((HEIGHT, WIDTH, 4), np.uint8)
            left = int(370 + 200 * np.sin(i / 40))
            picture[90 : 90 + size, left : left + size] = np.dstack([colours, alpha])
            frame = av.VideoFrame.from_ndarray(picture, "rgba")
            frame.pts, frame.time_base = i, Fraction(1, RATE)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


class _Quiet:
    """A stage context that says nothing."""

    seed, device, weights_dir = 0, "cpu", None

    def __init__(self, out: Path) -> None:
        self.out, self.log = out, self

    def info(self, text: str) -> None: ...
    def warning(self, text: str) -> None: ...
    def seed_for(self, index: int) -> int:
        return index

    def track(self, items, label, total=None, named=True):
        return iter(items)


def measure(what: str, path: Path) -> dict[str, float]:
    """Seconds, frames and peak memory (MB) of one job, in this process."""
    import v2m4  # noqa: F401  (first: it tells the numerical libraries not to spin)
    from v2m4.render import preview  # noqa: F401  (loading code is no part of the job)
    from v2m4.stages import ingest
    from v2m4.video import read_frames

    start = time.perf_counter()
    if what == "decode":
        frames = sum(1 for _ in read_frames(path))
    else:
        with tempfile.TemporaryDirectory(dir=path.parent) as out:
            ingest.run(_Quiet(Path(out)), ingest.IngestOptions(source=path))
            frames = len(list((Path(out) / "frames").iterdir()))
    seconds = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "frames": frames, "memory_mb": memory}


def apart(what: str, path: Path) -> dict[str, float]:
    """:func:`measure` in a process of its own."""
    command = [sys.executable, __file__, "--measure", what, str(path)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--json", metavar="FILE", help="write the numbers there, - for standard output")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure[0], Path(options.measure[1]))))
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for count in options.frames:
            path = Path(folder) / f"{count}.webm"
            make_clip(path, count)
            decode, ingest = apart("decode", path), apart("ingest", path)
            rows.append(
                {
                    "frames": count,
                    "decode_fps": decode["frames"] / decode["seconds"],
                    "ingest_fps": ingest["frames"] / ingest["seconds"],
                    "ingest_over_decode": ingest["seconds"] / decode["seconds"],
                    "memory_mb": ingest["memory_mb"],
                    "memory_over_first": ingest["memory_mb"] / rows[0]["memory_mb"] if rows else 1.0,
                }
            )
    text = json.dumps({"clip": f"{WIDTH}x{HEIGHT}, VP9 with alpha", "rows": rows}, indent=1)
    if options.json and options.json != "-":
        Path(options.json).write_text(text, "utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
