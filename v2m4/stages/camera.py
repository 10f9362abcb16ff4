"""Where was the camera for every keyframe?

Each keyframe's mesh is drawn from a few hundred directions and every roll, and the best poses, kept apart in angle, go
on. A first guess matches drawing and frame and solves for the pose (``guess_rounds``); a stereo network may guess too
(``stereo``), and a swarm look around (``particles``). Gauss-Newton steps on silhouette and colour make it exact. Then
all keyframes are looked at together: the shortest path through their hypotheses forbids flips, poses that fit much
worse than the rest of the clip are solved again from the trusted ones on both sides, or else lie between them and are
marked, and the object's distance, smooth in time, is told from the scale of each mesh. Where the pictures have a
background, it tells whether the camera moved.

``fov_deg`` is that of the full picture; ``auto`` takes the lens with which a few keyframes fit best.

Writes ``cameras.json`` (per keyframe: a rigid matrix, the mesh's scale, silhouette IoU, score, confidence, trusted, how
it was found, and why it is not trusted; what the camera did in ``camera_motion``), ``poses.json`` (per frame of the
clip: mesh to camera, or null), ``overlays/`` (frame, drawing, difference for each keyframe) and ``search/`` (all
hypotheses; an interrupted run goes on from there).

``poses`` brings the poses along, in the form of poses.json: nothing is searched. Keyframes without an answer there are
bridged and marked. ``world_to_camera`` in the same file, one rigid matrix a frame, says how the camera moved.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from v2m4 import formats, models
from v2m4.config import opt
from v2m4.errors import InputError
from v2m4.protocols import StageContext
from v2m4.transforms import apply, crop_K, fov_to_K, scale_K
from v2m4.types import Clip, Mesh

if TYPE_CHECKING:
    from v2m4.camera.clip import KeyframePose
    from v2m4.camera.egomotion import Egomotion
    from v2m4.camera.given import GivenPoses
    from v2m4.camera.keyframe import Hypothesis, KeyframeOptions


@dataclass(frozen=True)
class CameraOptions:
    """How the camera is searched for."""

    fov_deg: float | str = opt(
        40.0,
        "vertical field of view of the lens in degrees, or auto to estimate it",
        minimum=1.0,
        maximum=160.0,
        choices=("auto",),
    )
    directions: int = opt(300, "directions on the sphere from which each mesh is tried", minimum=20, maximum=20000)
    rolls: int = opt(36, "rolls of the camera tried for each direction", minimum=1, maximum=360)
    search_size: int = opt(64, "side of the pictures compared in the search, in pixels", minimum=24, maximum=256)
    refine_size: int = opt(256, "side of the pictures of the last refinement, in pixels", minimum=64, maximum=1024)
    hypotheses: int = opt(6, "poses of each keyframe that are refined", minimum=1, maximum=64)
    guess_rounds: int = opt(
        1, "how often drawing and frame are matched for a first guess; 0 leaves it out", minimum=0, maximum=10
    )
    stereo: str = opt("none", "a network that guesses too: none, dust3r, vggt, or your own package.module:Class")
    particles: int = opt(0, "particles of a swarm around each hypothesis; 0 leaves it out", minimum=0, maximum=10000)
    swarm_iterations: int = opt(10, "how often the particles move", minimum=1, maximum=1000)
    iterations: int = opt(8, "Gauss-Newton steps in each round of refinement; 0 leaves it out", minimum=0)
    metric: str = opt(
        "none", "a picture metric beside silhouette and colour: none, structure, features, lpips, dreamsim, or your own"
    )
    neighbour_rounds: int = opt(2, "how often trusted keyframes give the others starts", minimum=0, maximum=10)
    smooth_s: float = opt(
        2.0, "changes of distance faster than this many seconds belong to the meshes' scale", minimum=0.0
    )
    poses: Path | None = opt(
        None, "file with the pose of each frame's mesh in the camera, instead of a search", content=True
    )


def run(ctx: StageContext, options: CameraOptions, ingest: Path, generate: Path) -> None:
    """Fill ``ctx.out`` from the folders of the stages ingest and generate."""
    from v2m4.camera import account
    from v2m4.camera.clip import assemble

    meshes = formats.read_keyframe_meshes(generate)
    if not meshes:
        raise InputError(f"{generate}: no meshes to find the camera for", "run the stage generate first")
    unit = _unit(meshes.values())
    if unit != 1:
        meshes = {k: mesh.moved(mesh.vertices * np.float32(unit)) for k, mesh in meshes.items()}
    clip = formats.read_clip(ingest, only=meshes)
    keyframes = list(meshes)
    given = None
    if options.poses is not None:
        fov, measure, licences = _known_lens(options), "given", {}
        given, poses = _given(options.poses, clip, meshes, unit)
        K = lens(fov, clip)
    else:
        how = _settings(ctx, options)
        fov = _field_of_view(ctx, options, clip, meshes, how)
        K = lens(fov, clip)
        known = _hypotheses(ctx, options, clip, meshes, K, how)
        poses, measure = assemble(known, list(meshes.values()), clip.times_s[keyframes], options.smooth_s)
        licences = _licences(how)
    poses = [
        dataclasses.replace(pose, iou=account.overlap(clip.frame(k).alpha, meshes[k], K, pose))
        for k, pose in zip(keyframes, poses, strict=True)
    ]
    for k, pose in zip(ctx.track(keyframes, "overlays"), poses, strict=True):
        path = ctx.out / "overlays" / f"{formats.frame_name(k)}.png"
        account.write_overlay(path, clip.frame(k).image, meshes[k], K, pose, k)
    motion = _told_motion(given) or _camera_motion(ctx, fov, ingest, clip, meshes, poses)
    poses = [dataclasses.replace(p, scale=p.scale * unit) for p in poses]
    solved = account.Solved(clip, keyframes, poses, K, fov, motion, measure, licences)
    account.tell(ctx.log, solved)
    account.write(ctx.out, solved)


def _known_lens(options: CameraOptions) -> float:
    if isinstance(options.fov_deg, str):
        raise InputError(
            "camera.poses needs to know the lens they are for", "give its vertical field of view, for example --fov 40"
        )
    return options.fov_deg


def _given(path: Path, clip: Clip, meshes: dict[int, Mesh], unit: float) -> tuple[GivenPoses, list[KeyframePose]]:
    """What the file says, and the pose of each keyframe, of meshes that are ``unit`` times as large as it takes them
    for."""
    from v2m4.camera import given

    found = given.read_poses(path, len(clip.times_s))
    smaller = np.diag([1 / unit, 1 / unit, 1 / unit, 1.0])
    wanted = [None if (pose := found.mesh_to_camera[k]) is None else pose @ smaller for k in meshes]
    return found, given.assemble(wanted, list(meshes.values()), clip.times_s[list(meshes)])


def _told_motion(given: GivenPoses | None) -> Egomotion | None:
    from v2m4.camera.egomotion import Egomotion

    return None if given is None or given.camera_to_start is None else Egomotion("moving", given.camera_to_start)


def lens(fov_y_deg: float, clip: Clip) -> np.ndarray:
    """(3,3) intrinsics in pixels of the frames, of a lens with this vertical field of view over the full picture."""
    crop = clip.crop
    if crop is None:
        return fov_to_K(fov_y_deg, clip.width, clip.height)
    K = crop_K(fov_to_K(fov_y_deg, crop.picture_width, crop.picture_height), crop.left, crop.top)
    return scale_K(K, clip.width / crop.width, clip.height / crop.height)


def _field_of_view(
    ctx: StageContext, options: CameraOptions, clip: Clip, meshes: dict[int, Mesh], how: KeyframeOptions
) -> float:
    """The angle the user gave, or what the clip tells, written down for an interrupted run."""
    from v2m4.camera import lens as lenses

    if not isinstance(options.fov_deg, str):
        return options.fov_deg
    path = ctx.out / "search" / "lens.json"
    if not path.exists():
        images = [clip.frame(k).image for k in meshes]
        found = lenses.estimate(images, list(meshes.values()), partial(lens, clip=clip), how, ctx.seed)
        formats.write_json(path, dataclasses.asdict(found))
    found = lenses.Lens(**formats.read_json(path))
    if found.reason:
        ctx.log.warning(
            f"the lens cannot be told from the clip ({found.reason}); {found.fov_y_deg:g} degrees are taken"
        )
    else:
        ctx.log.info(f"camera: a vertical field of view of {found.fov_y_deg:.0f} degrees fits best")
    return found.fov_y_deg


def _unit(meshes: Iterable[Mesh]) -> float:
    """1, or the power of two that makes meshes of an unusual size (millimetres, a planet) about 1 large: the renderer
    sees nothing nearer than its near plane."""
    extent = float(np.median([np.ptp(mesh.vertices, axis=0).max() for mesh in meshes]))
    return 1.0 if 0.125 <= extent <= 8 else float(2.0 ** -np.round(np.log2(extent)))


def _hypotheses(
    ctx: StageContext,
    options: CameraOptions,
    clip: Clip,
    meshes: dict[int, Mesh],
    K: np.ndarray,
    how: KeyframeOptions,
) -> list[list[Hypothesis]]:
    """Every keyframe on its own, then with its neighbours' poses as further starts."""
    from v2m4.camera import keyframe, track

    known = []
    for k in ctx.track(meshes, "camera search"):
        solve = partial(keyframe.solve, clip.frame(k).image, meshes[k], K, how, seed=ctx.seed_for(k))
        try:
            known.append(_kept(_saved_path(ctx, k, 0), solve))
        except InputError as error:
            raise InputError(f"frame {k}: {error.message}", error.hint) from None
    for number in range(1, options.neighbour_rounds + 1):
        chosen = [h[c] for h, c in zip(known, track.choose(known), strict=True)]
        starts = track.warm_starts(chosen, known)
        busy = {k: n for n, k in enumerate(meshes) if len(starts[n])}
        for k in ctx.track(busy, f"neighbours, round {number}"):
            n = busy[k]
            solve = partial(
                keyframe.solve_from, clip.frame(k).image, meshes[k], K, how, starts[n], seed=ctx.seed_for(k)
            )
            known[n] = track.merged(known[n], _kept(_saved_path(ctx, k, number), solve), how.merge_deg)
    return known


def _settings(ctx: StageContext, options: CameraOptions) -> KeyframeOptions:
    from v2m4.camera.keyframe import KeyframeOptions
    from v2m4.camera.refine import Level
    from v2m4.camera.search import SearchOptions
    from v2m4.camera.swarm import SwarmOptions

    size, steps = options.refine_size, options.iterations
    return KeyframeOptions(
        search=SearchOptions(options.directions, options.rolls, options.search_size, options.hypotheses),
        coarse=Level(max(size // 4, 48), 2.5, steps, reach=6.0),
        guess_rounds=options.guess_rounds,
        guess_size=max(size // 2, 64),
        swarm=SwarmOptions(options.particles, options.swarm_iterations) if options.particles else None,
        levels=(Level(max(size // 2, 64), 2.0, steps), Level(size, 2.0, steps)),
        stereo=_network(models.STEREO, options.stereo, ctx),
        metric=_network(models.METRICS, options.metric, ctx),
    )


def _licences(how: KeyframeOptions) -> dict[str, str]:
    """Licence of each network that had a say; a result must be judged by another one."""
    used = {"stereo": how.stereo, "metric": how.metric}
    return {f"camera {role} ({net.name})": net.licence for role, net in used.items() if net is not None}


def _network(kind: dict[str, str], name: str, ctx: StageContext) -> Any:
    """The network behind a name, loaded; None for "none"."""
    return (
        None if name == "none" else models.load(kind, name)(weights_dir=ctx.weights_dir, device=ctx.device, log=ctx.log)
    )


def _saved_path(ctx: StageContext, keyframe: int, number: int) -> Path:
    return ctx.out / "search" / f"{formats.frame_name(keyframe)}.{number}.json"


def _kept(path: Path, solve: Callable[[], list[Hypothesis]]) -> list[Hypothesis]:
    """What an interrupted run left, or the answer of ``solve``, written down. JSON keeps every bit of a number."""
    from v2m4.camera.keyframe import Hypothesis

    if not path.exists():
        formats.write_json(path, [h.to_json() for h in solve()])
    return [Hypothesis.from_json(value) for value in formats.read_json(path)]


def _camera_motion(
    ctx: StageContext, fov_y_deg: float, ingest: Path, clip: Clip, meshes: dict[int, Mesh], poses: list[KeyframePose]
) -> Egomotion | None:
    """What the camera did, told by the background; None where the clip shows none."""
    from v2m4.camera import egomotion, sightings

    found = formats.read_background(ingest)
    if found is None:
        return None
    crop = clip.crop
    size = (clip.width, clip.height) if crop is None else (crop.picture_width, crop.picture_height)
    keyframes = list(meshes)
    tracks = sightings.Tracks(found["track"], found["frame"], found["xy"])
    motion = egomotion.solve(tracks, fov_to_K(fov_y_deg, *size), len(clip.times_s))
    if motion.kind == "moving":
        good = [n for n, p in enumerate(poses) if p.trusted]
        middles = [apply(poses[n].matrix, meshes[keyframes[n]].vertices.mean(0, dtype=np.float64)[None]) for n in good]
        positions = np.array(middles).reshape(-1, 3)
        told = [keyframes[n] for n in good]
        factor = egomotion.fit_scale(positions, motion, told, clip.times_s[told])
        if factor is None:
            ctx.log.warning("the camera travels, but how far the clip does not tell: it is taken as fixed")
            return egomotion.Egomotion("unknown", np.tile(np.eye(4), (len(clip.times_s), 1, 1)))
        motion = motion.scaled(factor)
    return motion
