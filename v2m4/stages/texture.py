"""Paint one texture for the whole clip from the video's own pixels.

The mesh is unwrapped once, at the anchor keyframe's pose. Every texel then looks at each keyframe's picture through the
clip's camera: hidden, too flat or too close to an edge counts nothing; the best views count most; exposure
differences between frames are taken out. One frame leads: the one the others agree with most decides wherever it sees
well, so that a face that turns and laughs is taken from one picture and not pieced together from several. Painting is
done twice: with a coarse first texture, each frame is bent by a few pixels (optical flow) until it fits the surface,
then painted on; that keeps the result sharp where meshes are not exact. What the video never shows gets the generated
mesh's own colours, matched in tone, or else what lies around it. The texture is a base colour: the light of the clip
stays in it.

Writes ``base_color.png``, ``uv.npz``, ``texture.json`` (facts), ``coverage.png`` (green: from the video, grey: filled
in) and ``preview.png`` (frame, textured mesh from the clip's camera, from its right, from behind).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from v2m4 import formats, transforms
from v2m4.config import opt
from v2m4.errors import ConfigError, InputError
from v2m4.protocols import StageContext
from v2m4.types import AnimatedMesh, Camera, ClipCamera, Texture

if TYPE_CHECKING:
    from v2m4.texture.paint import Painting
    from v2m4.texture.unwrap import Unwrap
    from v2m4.texture.visibility import View

#: How much a keyframe counts whose mesh was bridged (not registered to its picture) in the topology stage.
BRIDGED_TRUST = 0.2


@dataclass(frozen=True)
class TextureOptions:
    """The one texture of the asset."""

    size: int = opt(1024, "width and height of the texture in texels", minimum=256, maximum=4096)
    mesh_colors: bool = opt(True, "fill what the video never shows with the generated mesh's own colours")
    align: bool = opt(True, "bend each frame onto the surface before painting; sharper where meshes are not exact")
    lead: str = opt("auto", "frame that decides where frames differ: auto, none (all count alike), or a frame index")
    unwrap_limit_s: float = opt(600.0, "give up unwrapping after this many seconds", minimum=1.0)


@dataclass(frozen=True)
class _Inputs:
    """``pose`` is the anchor's number among the poses; ``keyframes`` the frame index of each pose."""

    animation: AnimatedMesh
    keyframes: list[int]
    pose: int
    colors: np.ndarray | None
    camera: ClipCamera
    trust: dict[int, float]


def run(ctx: StageContext, options: TextureOptions, ingest: Path, repose: Path, topology: Path) -> None:
    """Unwrap, bake, fill, write. InputError when the mesh cannot be unwrapped or no camera looks at it."""
    from v2m4.render import ZBuffer
    from v2m4.texture.align import DRAFT_SIZE, aligned
    from v2m4.texture.bake import choose_lead
    from v2m4.texture.paint import paint

    given = _inputs(repose, topology)
    vertices, faces = given.animation.positions[given.pose], given.animation.faces
    unwrapped = _unwrap(ctx, options, vertices, faces)
    ctx.log.info(f"unwrapped into {unwrapped.charts} charts, {unwrapped.utilisation:.0%} of the picture used")
    colors = given.colors if options.mesh_colors else None

    def coat(views: Iterable[View], size: int, lead: int | None) -> Painting:
        return paint(views, unwrapped, faces, vertices, colors, size, ZBuffer(), lead)

    draft = min(DRAFT_SIZE, options.size)
    lead = _asked_lead(options, given)
    if options.lead == "auto":
        lead = choose_lead(coat(_views(ctx, given, ingest, "compare keyframes"), draft // 2, None).baked)
    if lead is not None:
        ctx.log.info(f"frame {lead} leads: it decides where frames differ")
    views = _views(ctx, given, ingest, "paint keyframes")
    if options.align:
        first = coat(_views(ctx, given, ingest, "first coat"), draft, lead)
        views = aligned(views, faces, Texture(unwrapped.uv, unwrapped.uv_faces, first.base_color))
    painting = coat(views, options.size, lead)
    if not (painting.baked.ious > 0).any():
        raise InputError(
            "no keyframe shows any of the mesh: its cameras do not look at it",
            "look at the overlays of the camera stage, and at overlaid.png of repose",
        )
    if painting.seen_share == 0:
        ctx.log.warning(
            "the video paints none of the surface surely: the object is too small or too thin in the picture, or its "
            "mesh is seen from inside; the colours are "
            + ("mostly those of the generated mesh" if colors is not None else "a guess")
        )
    ctx.log.info(f"{painting.seen_share:.0%} of the surface is painted by the video, the rest is filled in")
    texture = Texture(unwrapped.uv, unwrapped.uv_faces, painting.base_color)
    formats.write_image(ctx.out / "base_color.png", painting.base_color)
    formats.write_image(ctx.out / "coverage.png", painting.coverage)
    formats.write_image(ctx.out / "preview.png", _preview(given, texture, ingest))
    formats.write_json(ctx.out / "texture.json", _facts(options, unwrapped, painting, colors is not None, lead))


def _asked_lead(options: TextureOptions, given: _Inputs) -> int | None:
    """The frame named by the option. ConfigError when it is not a keyframe."""
    if options.lead in ("auto", "none"):
        return None
    if not options.lead.isdigit() or int(options.lead) not in given.keyframes:
        known = ", ".join(map(str, given.keyframes))
        raise ConfigError(f"texture.lead cannot be {options.lead}", f"auto, none, or one of the keyframes {known}")
    return int(options.lead)


def _inputs(repose: Path, topology: Path) -> _Inputs:
    path = topology / "animation.npz"
    animation, extra = formats.read_animation(path), formats.read_npz(path)
    camera = formats.read_camera(repose)
    keyframes = [int(k) for k in extra["keyframes"]]
    if len(keyframes) != len(animation.times_s):
        raise InputError(f"{path}: {len(keyframes)} keyframes for {len(animation.times_s)} poses", "run topology again")
    pose = keyframes.index(int(extra["anchor"])) if int(extra["anchor"]) in keyframes else 0
    trust: dict[int, float] = {}
    if (topology / "quality.json").is_file():
        rows = formats.read_json(topology / "quality.json").get("keyframes", [])
        trust = {int(row["index"]): 1.0 if row.get("trusted", True) else BRIDGED_TRUST for row in rows}
    return _Inputs(animation, keyframes, pose, extra.get("colors"), camera, trust)


def _unwrap(ctx: StageContext, options: TextureOptions, vertices: np.ndarray, faces: np.ndarray) -> Unwrap:
    """The UV map an interrupted run left, or a new one."""
    from v2m4.texture.unwrap import Unwrap, unwrap, uv_quality

    path = ctx.out / "uv.npz"
    if path.exists():
        data = formats.read_npz(path)
        if data["uv_faces"].shape == faces.shape:
            used, stretch = uv_quality(vertices, faces, data["uv"], data["uv_faces"])
            return Unwrap(data["uv"], data["uv_faces"], int(data["charts"]), float(data["gutter_px"]), used, stretch)
    made = unwrap(vertices, faces, options.size, options.unwrap_limit_s)
    arrays: dict[str, np.ndarray] = {"uv": made.uv, "uv_faces": made.uv_faces}
    arrays["charts"], arrays["gutter_px"] = np.array(made.charts, np.int32), np.array(made.gutter_px)
    formats.write_npz(path, arrays)
    return made


def _views(ctx: StageContext, given: _Inputs, ingest: Path, label: str) -> Iterator[View]:
    """One keyframe at a time, so that memory does not grow with the clip."""
    from v2m4.texture.visibility import View

    for pose, index in ctx.track(list(enumerate(given.keyframes)), label):
        image = formats.read_clip(ingest, only=[index]).frames[0].image
        yield View(index, image, given.animation.positions[pose], given.camera.at(index), given.trust.get(index, 1.0))


def _facts(
    options: TextureOptions, unwrapped: Unwrap, painting: Painting, mesh_colors: bool, lead: int | None
) -> dict[str, Any]:
    baked = painting.baked
    return {
        "size": options.size,
        "charts": unwrapped.charts,
        "gutter_px": round(unwrapped.gutter_px, 3),
        "utilisation": round(unwrapped.utilisation, 5),
        "stretch": round(unwrapped.stretch, 5),
        "seen_share": round(painting.seen_share, 5),
        "unseen_share": round(1 - painting.seen_share, 5),
        "unseen_filled_from": "the generated mesh's colours" if mesh_colors else "the surface around it",
        "lead": lead,
        "lighting": "baked: the base colour is what the camera saw",
        "keyframes": [
            {"index": index, "iou": round(float(iou), 5), "gain": [round(float(g), 5) for g in gain]}
            for index, iou, gain in zip(baked.indices, baked.ious, baked.gains, strict=True)
        ],
    }


def _preview(given: _Inputs, texture: Texture, ingest: Path, height: int = 384) -> np.ndarray:
    """The anchor's frame, then the textured mesh from the clip's camera, from its right and from behind: (H,W,3)."""
    import cv2

    from v2m4.render.preview import contact_sheet, on_white
    from v2m4.render.shade import render_mesh

    frame = formats.read_clip(ingest, only=[given.keyframes[given.pose]]).frames[0].image
    mesh = given.animation.mesh(given.pose)
    own = given.camera.at(given.keyframes[given.pose])
    scale = height / own.height
    width = max(1, round(own.width * scale))
    K = transforms.scale_K(own.K, width / own.width, scale)
    centre = (mesh.vertices.min(0) + mesh.vertices.max(0)) / 2
    pictures, labels = [cv2.resize(on_white(frame), (width, height), interpolation=cv2.INTER_AREA)], ["frame"]
    for degrees, label in ((0, "clip's camera"), (90, "90 degrees round"), (180, "behind")):
        turn = transforms.rotation_from_vector(np.array([0, np.radians(degrees), 0]))
        around = transforms.rigid(turn, centre - turn @ centre)
        camera = Camera(K, own.world_to_camera @ around, width, height)
        pictures.append(on_white(render_mesh(mesh, camera, texture=texture)))
        labels.append(label)
    return contact_sheet(pictures, 4, labels)
