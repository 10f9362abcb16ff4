"""What the rest of a run will cost, told before it begins.

The numbers were measured with the built-in generator on clips of 16 to 32 frames and two cores, and are scaled by how
fast this machine is at the moment. They are good to a factor of two; a generator of the user's own is not in them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from v2m4 import formats

#: Seconds for each keyframe with the defaults, of the stages that cost most.
PER_KEYFRAME_S = {"generate": 0.8, "camera": 1.7, "topology": 3.3, "texture": 1.1}
#: A mesh that is brought is only read and cleaned.
BROUGHT_S = 0.3
#: Seconds for each keyframe of a swarm of 24 particles that move ten times.
SWARM_S = 1.8
#: Seconds for the unwrapping and the rest of the texture at 1024, and for each frame of the export.
TEXTURE_S, EXPORT_S = 5.0, 0.25
#: Compiling what a fresh process needs.
COMPILE_S = 6.0
#: Memory of the code itself and of each keyframe, and of a texture of 1024, in MB.
BASE_MB, PER_KEYFRAME_MB, TEXTURE_MB = 460, 9.5, 70
#: The trial below takes so long on the machine on which all this was measured.
TRIAL_S = 0.016


@dataclass(frozen=True)
class Expected:
    """``seconds`` and peak ``memory_mb`` of the stages after ingest; ``without`` says what they leave out."""

    seconds: float
    memory_mb: float
    without: str = ""

    def sentence(self) -> str:
        """One line for the log and the report."""
        return (
            f"expected from here on, on a machine with nothing else to do: about {_minutes(self.seconds)} "
            f"and {self.memory_mb / 1000:.1f} GB of memory"
            f"{f', {self.without}' if self.without else ''}"
        )


def expected(options: Mapping[str, Any], ingest: Path, speed: float | None = None) -> Expected | None:
    """For these options of all stages and the folder of the finished stage ingest; None where it holds no clip.
    ``speed``: of this machine against the one of the measurements; measured in a moment where it is not given."""
    if not (ingest / "clip.json").is_file():
        return None
    clip = formats.read_json(ingest / "clip.json")
    generate, camera, topology, texture = (options[name] for name in ("generate", "camera", "topology", "texture"))
    frames, keyframes = len(clip["frames"]), len(clip["keyframes"])
    brought, own = bool(generate.meshes or generate.mesh), generate.generator not in ("inflate", "folder", "reference")
    if generate.meshes:
        keyframes = min(max(keyframes, _count(Path(generate.meshes))), frames)
    faces, texels = generate.max_faces / 8000, (texture.size / 1024) ** 2
    seconds = keyframes * (
        (BROUGHT_S if brought else 0.0 if own else PER_KEYFRAME_S["generate"])
        + PER_KEYFRAME_S["camera"] * (0.5 + 0.5 * camera.hypotheses * camera.directions / 1800)
        + SWARM_S * camera.particles * camera.swarm_iterations / 240
        + PER_KEYFRAME_S["topology"] * (0.4 + 0.6 * topology.passes / 6 * topology.nodes / 250) * faces**0.5
        + PER_KEYFRAME_S["texture"] * (0.5 + 0.5 * texels)
    )
    seconds += COMPILE_S + TEXTURE_S * (0.5 + 0.5 * texels) + EXPORT_S * frames
    memory = BASE_MB + PER_KEYFRAME_MB * keyframes + TEXTURE_MB * texels
    without = f"without what {generate.generator} itself takes" if own else ""
    return Expected(seconds / (_speed() if speed is None else speed), memory, without)


def _count(folder: Path) -> int:
    return sum(p.suffix.lower() in formats.MESH_SUFFIXES for p in folder.iterdir()) if folder.is_dir() else 0


def _speed() -> float:
    """The best of a few tries, so that what else the machine does counts little."""
    matrices = np.random.default_rng(0).normal(size=(3000, 3, 3))
    times = []
    for _ in range(3):
        start = time.perf_counter()
        np.linalg.svd(matrices)
        times.append(time.perf_counter() - start)
    return float(np.clip(TRIAL_S / max(min(times), 1e-6), 0.1, 10))


def _minutes(seconds: float) -> str:
    if seconds < 90:
        return f"{max(10, round(seconds / 10) * 10)} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} minutes"
    return f"{seconds / 3600:.1f} hours"
