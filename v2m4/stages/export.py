"""Write the asset: one .glb with one mesh, one material, one texture and one animation.

The first pose stands on the ground, its box centre above the origin, with all weights at zero. Every other keyframe is
a morph target; the weights are keyed at the time of every frame of the clip, at most two targets are active at once. A
clip with more keyframes than export.max_targets keeps those from which the others follow best, and export.json says how
far off they are. The file is read back and checked before it gets its name.

Writes: NAME.glb, export.json, and, when the clip moves, side_by_side.mp4: the clip beside the asset.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from v2m4.config import opt
from v2m4.protocols import StageContext

_DOUBLE_SIDED = {"auto": None, "yes": True, "no": False}


@dataclass(frozen=True)
class ExportOptions:
    """Options of the export stage."""

    name: str = opt("", "name of the asset; empty: the name of the run directory")
    target: str = opt(
        "any",
        "where the asset will be used: decides which import advice is given, the file opens everywhere",
        choices=("any", "blender", "unity", "unreal", "godot", "three"),
    )
    max_targets: int = opt(64, "most morph targets; 64 is safe in every current engine", minimum=1, maximum=256)
    normals: bool = opt(False, "also morph the normals: right shading while moving, twice the size of the motion")
    double_sided: str = opt(
        "auto", "show faces from behind; auto: only if the mesh is open or inside out", choices=("auto", "yes", "no")
    )


def run(ctx: StageContext, options: ExportOptions, ingest: Path, repose: Path, topology: Path, texture: Path) -> None:
    """Read the clip, its camera, the animation and the texture; write the checked .glb, export.json and the film."""
    from v2m4.export import pictures
    from v2m4.export.asset import AssetSettings, make_asset
    from v2m4.export.notes import SAFE_TARGETS, facts, frame_rate
    from v2m4.export.validate import write_checked
    from v2m4.formats import read_animation, read_clip, read_json, read_npz, read_texture, write_json

    clip, source = read_clip(ingest, only=()), read_json(ingest / "clip.json").get("source", {})
    animation = read_animation(topology / "animation.npz")
    source_name = str(source.get("name", ""))
    settings = AssetSettings(
        name=options.name or Path(source_name).stem or "asset",
        max_targets=options.max_targets,
        morph_normals=options.normals,
        double_sided=_DOUBLE_SIDED[options.double_sided],
        extras={"fps": frame_rate(clip.times_s)[0], "frames": len(clip.times_s), "source": source_name},
    )
    pose_frames = read_npz(topology / "animation.npz").get("keyframes")
    asset = make_asset(animation, read_texture(texture), clip.times_s, settings, pose_frames)
    size = write_checked(ctx.out / f"{asset.file_name}.glb", asset)
    told = facts(asset, size, options.target)
    write_json(ctx.out / "export.json", told)
    if len(clip.times_s) > 1:
        shown = pictures.read_run(ingest, repose, topology, texture)
        pictures.write_film(ctx.out / "side_by_side.mp4", shown, pictures.silhouettes(shown).box)
    dropped = told["reduction"]
    ctx.log.info(f"{told['file']}: {told['faces']} faces, {told['targets']} targets, {size / 1e6:.1f} MB")
    if dropped["dropped_poses"]:
        ctx.log.info(
            f"{dropped['dropped_poses']} keyframes left to interpolation: mean error "
            f"{dropped['mean_error_percent']:.3f} %, largest {dropped['max_error_percent']:.2f} % of the size"
        )
    if told["targets"] > SAFE_TARGETS:
        ctx.log.warning(
            f"{told['targets']} morph targets: some engines play no more than {SAFE_TARGETS} (export.max_targets)"
        )
    ctx.log.info(told["hints"][0])
    if len(told["hints"]) > 1:
        ctx.log.info("advice for other engines is in export.json and in the report")
