"""Turn one mesh per keyframe into one mesh that moves.

The anchor keyframe gives the topology. Outward from it, a graph of a few hundred nodes carries the surface to each
next keyframe's mesh; then all keyframes are solved together with smooth paths. Keyframes that do not agree with their
picture or with their neighbours are bridged instead of followed, and ``quality.json`` says which and why. Keyframes
that share one face list already are passed through.

Writes ``animation.npz`` (faces, positions in the world, times, keyframes, anchor, colours), ``quality.json`` (with the
``correction`` of each keyframe: the similarity that takes its mesh to where all keyframes together put it),
``preview.png``, and ``parts/`` with the state of each finished keyframe.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from v2m4 import formats
from v2m4.config import opt
from v2m4.errors import InputError
from v2m4.protocols import StageContext
from v2m4.types import AnimatedMesh, Camera, Clip, ClipCamera, Mesh

if TYPE_CHECKING:
    from v2m4.topology.graph import Graph
    from v2m4.topology.pictures import View

PREVIEWS = 5
PREVIEW_SIZE = 256


@dataclass(frozen=True)
class TopologyOptions:
    """How the keyframes are joined into one topology."""

    anchor: str = opt("auto", "keyframe whose topology is used: auto, first, or a frame index")
    nodes: int = opt(250, "nodes of the deformation graph", minimum=20, maximum=2000)
    smoothness: float = opt(0.3, "weight of smooth paths over time; more for slow motion", minimum=0.0)
    jolt: float = opt(0.1, "change of speed per keyframe, in object sizes, that is believed as it is", minimum=0.001)
    rigidity: float = opt(0.2, "weight of the anchor's shape in the pass over all keyframes", minimum=0.001)
    passes: int = opt(6, "steps of the pass over all keyframes", minimum=0, maximum=50)
    video: float = opt(
        1.0, "weight of the video (flow and silhouettes) in that pass; 0 looks at the meshes only", minimum=0
    )
    trust: bool = opt(True, "bridge keyframes that do not fit their picture or their neighbours")


class _Parts:
    """Finished keyframes of the chain, one file each (sequence.Store)."""

    def __init__(self, folder: Path, keyframes: list[int]) -> None:
        self.folder, self.keyframes = folder, keyframes

    def _path(self, keyframe: int) -> Path:
        return self.folder / f"{formats.frame_name(self.keyframes[keyframe])}.npz"

    def load(self, keyframe: int) -> dict[str, np.ndarray] | None:
        path = self._path(keyframe)
        return formats.read_npz(path) if path.exists() else None

    def save(self, keyframe: int, arrays: dict[str, np.ndarray]) -> None:
        formats.write_npz(self._path(keyframe), arrays)


def run(ctx: StageContext, options: TopologyOptions, ingest: Path, repose: Path) -> None:
    """Register, measure, write. InputError when there is no mesh or the anchor is not a keyframe."""
    from v2m4.render import ZBuffer
    from v2m4.topology import anchor as anchors
    from v2m4.topology import pictures, quality, trust
    from v2m4.topology.sequence import SequenceOptions, register_sequence
    from v2m4.topology.surface import normalisation, to_surface
    from v2m4.topology.temporal import TemporalOptions
    from v2m4.topology.video import VideoOptions, VideoTerms

    meshes, keyframes, clip, camera = _inputs(ingest, repose)
    times = clip.times_s[keyframes]
    seeds = [ctx.seed_for(k) for k in keyframes]
    rasterizer = ZBuffer()
    views = [pictures.make_view(clip.frame(k), camera.at(k)) for k in keyframes]
    units = normalisation(meshes)
    surfaces = [to_surface(m, units) for m in meshes]
    scores = [pictures.agreement(rasterizer, m, v) for m, v in zip(meshes, views, strict=True)]
    reasons = trust.judge(surfaces, seeds, scores) if options.trust else [""] * len(meshes)
    trusted = np.array([not r for r in reasons])
    anchor = anchors.choose_anchor(options.anchor, keyframes, surfaces, trusted)
    trusted[anchor] = True  # also when the user names a bad one
    reasons[anchor] = ""
    ctx.log.info(f"anchor: frame {keyframes[anchor]}")
    temporal = TemporalOptions(
        smoothness=options.smoothness, jolt=options.jolt, arap=options.rigidity, steps=options.passes
    )

    def track(items: Iterable[Any], label: str) -> Iterator[Any]:
        return ctx.track(items, label)

    def image_terms(graph: Graph) -> VideoTerms:
        weights = VideoOptions(flow=8.0 * options.video, silhouette=2.0 * options.video)
        return VideoTerms(graph, units, views, anchor, rasterizer, weights)

    result = register_sequence(
        surfaces, times, anchor, trusted, seeds, SequenceOptions(nodes=options.nodes, temporal=temporal),
        image_terms=image_terms if options.video > 0 else None,
        store=_Parts(ctx.out / "parts", keyframes), track=track,
    )  # fmt: skip
    for k in np.nonzero(trusted & ~result.trusted)[0]:
        lacks = result.lacking[k]
        reasons[k] = "a part is missing" if lacks else "the mesh of the anchor could not be brought onto it"
    for index, reason in zip(keyframes, reasons, strict=True):
        if reason:
            ctx.log.warning(f"frame {index} is bridged: {reason}")
    animation = AnimatedMesh(result.graph.surface.faces, units.to_world(result.vertices), times)
    rows = quality.report(result, units, times, keyframes, reasons)
    overlaps = pictures.silhouette_scores(rasterizer, units, result.vertices, animation.faces, views)
    for row, overlap, before in zip(rows, overlaps, scores, strict=True):
        row["iou"], row["iou_before"] = round(overlap, 5), round(before[0], 5)
    for row, correction in zip(rows, result.corrections, strict=True):
        row["correction"] = units.similarity_to_world(correction).round(9).tolist()
    extra = {"keyframes": np.array(keyframes, np.int32), "anchor": np.array(keyframes[anchor], np.int32)}
    colors = meshes[anchor].colors
    if colors is not None:
        extra["colors"] = colors
    report = {"anchor": int(keyframes[anchor]), "keyframes": rows, "summary": quality.summary(rows)}
    formats.write_json(ctx.out / "quality.json", report)
    formats.write_image(ctx.out / "preview.png", preview(animation, colors, keyframes, views, camera))
    formats.write_animation(ctx.out / "animation.npz", animation, **extra)


def _inputs(ingest: Path, repose: Path) -> tuple[list[Mesh], list[int], Clip, ClipCamera]:
    """Meshes in the world, their frame indices, the clip with those frames, the clip's camera."""
    found = formats.read_keyframe_meshes(repose)
    if not found:
        raise InputError(f"{repose}: no meshes to register", "run the repose stage again")
    keyframes = list(found)
    return list(found.values()), keyframes, formats.read_clip(ingest, keyframes), formats.read_camera(repose)


def preview(
    animation: AnimatedMesh, colors: np.ndarray | None, keyframes: list[int], views: list[View], camera: ClipCamera
) -> np.ndarray:
    """A few keyframes as a sheet: the picture, the result from the camera, and the result from the side as clay."""
    from v2m4 import transforms
    from v2m4.render.preview import contact_sheet
    from v2m4.render.shade import render_mesh

    shrink = PREVIEW_SIZE / max(camera.width, camera.height)
    width, height = max(1, round(camera.width * shrink)), max(1, round(camera.height * shrink))
    K = transforms.scale_K(camera.K, width / camera.width, height / camera.height)
    own = ClipCamera(K, camera.world_to_camera, width, height)
    picks = np.unique(np.linspace(0, len(keyframes) - 1, min(PREVIEWS, len(keyframes))).round().astype(int))
    rows: list[list[np.ndarray]] = [[], [], []]
    for k in picks:
        mesh = animation.mesh(int(k), colors)
        rows[0].append(_picture(views[k], width, height))
        front = own.at(keyframes[k])
        rows[1].append(render_mesh(mesh, front))
        rows[2].append(render_mesh(mesh, _side(mesh, front, width, height), mode="clay"))
    labels = [f"{what} {keyframes[k]}" for what in ("frame", "result", "side") for k in picks]
    return contact_sheet([image for row in rows for image in row], len(picks), labels)


def _picture(view: View, width: int, height: int) -> np.ndarray:
    from PIL import Image

    rgba = np.concatenate([view.rgb * 255, view.mask[..., None] * 255.0], 2).round().astype(np.uint8)
    return np.asarray(Image.fromarray(rgba).resize((width, height), Image.Resampling.BILINEAR))


def _side(mesh: Mesh, camera: Camera, width: int, height: int) -> Camera:
    """A camera 90 degrees round the vertical from the clip's, that holds the whole mesh."""
    from v2m4 import transforms

    middle = (mesh.vertices.min(0) + mesh.vertices.max(0)) / 2
    radius = max(float(np.linalg.norm(np.ptp(mesh.vertices, axis=0))) / 2, 1e-6)
    position = -camera.world_to_camera[:3, :3].T @ camera.world_to_camera[:3, 3]
    towards = position - middle
    across = np.array([towards[2], 0.0, -towards[0]])
    length = float(np.linalg.norm(across))
    across = across / length if length > 1e-9 else np.array([1.0, 0.0, 0.0])
    pose = transforms.look_at(middle + across * radius * 3.2, middle)
    return Camera(transforms.fov_to_K(40.0, width, height), pose, width, height)
