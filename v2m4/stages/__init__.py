"""The whole pipeline on one screen: its stages in order, and which folders each one reads.

A stage is a module with an options dataclass and one function ``run(ctx, options, *input_folders)`` that reads the
folders named in ``needs`` and writes into ``ctx.out``. Nothing registers itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from v2m4.stages import camera, export, generate, ingest, refine, repose, texture, topology


@dataclass(frozen=True)
class Stage:
    """One row of the table.

    ``options`` is the stage's options dataclass, ``needs`` the stages whose folders ``run`` gets, in this order.
    Raise ``version`` by hand when the same inputs and options give other bytes than before.
    """

    name: str
    run: Callable[..., None]
    options: type
    needs: tuple[str, ...] = ()
    version: int = 1


STAGES = (
    Stage("ingest", ingest.run, ingest.IngestOptions, version=4),
    Stage("generate", generate.run, generate.GenerateOptions, needs=("ingest",), version=2),
    Stage("camera", camera.run, camera.CameraOptions, needs=("ingest", "generate"), version=4),
    Stage("refine", refine.run, refine.RefineOptions, needs=("ingest", "generate", "camera")),
    Stage("repose", repose.run, repose.ReposeOptions, needs=("ingest", "camera", "refine"), version=3),
    Stage("topology", topology.run, topology.TopologyOptions, needs=("ingest", "repose"), version=3),
    Stage("texture", texture.run, texture.TextureOptions, needs=("ingest", "repose", "topology"), version=3),
    Stage("export", export.run, export.ExportOptions, needs=("ingest", "repose", "topology", "texture"), version=2),
)
