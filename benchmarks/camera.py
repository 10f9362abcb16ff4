"""What a keyframe's camera costs and how exact it is: ours against the schedule of the paper's official code.

    python benchmarks/camera.py cost [--clip DIR] [--frame 0] [--metric structure] [--share 1.0]
    python benchmarks/camera.py ablation DIR [DIR ...] [--step 1]

DIR is a clip with known poses: frames/, generated/, camera.json (world_to_camera) and meta.json (canonical_to_world).
Without one, ``cost`` makes a creature and photographs it.

``cost`` runs the official schedule (baseline: 2,000 cameras drawn at 518 x 518 and scored by a picture metric and the
silhouette; a swarm of 200 particles for 25 iterations; 300 steps of Adam on the silhouette) and ours with the same
metric on one keyframe, and counts renders and metric calls. ``--share 0.1`` does a tenth of the official schedule and
says so.

``ablation`` solves every keyframe of the clips with a part of the method left out or added, each alone (the best
hypothesis of the keyframe), then the whole clip. One thread: set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import trimesh

import v2m4  # noqa: F401 - sets up threads before torch
from v2m4 import formats, models
from v2m4.camera import clip, keyframe, track
from v2m4.camera.keyframe import Hypothesis, KeyframeOptions
from v2m4.camera.refine import Level
from v2m4.camera.subject import Subject
from v2m4.camera.swarm import SwarmOptions
from v2m4.render import Edges, masks, render
from v2m4.render.shade import render_mesh
from v2m4.transforms import apply, fov_to_K, look_at, rotation_angle_deg, scale_K, split_similarity
from v2m4.types import Camera, Mesh

SIZE = 518


@dataclass
class Counter:
    """How many pictures were drawn, and how many times the metric was asked (per picture)."""

    renders: int = 0
    metric_calls: int = 0


@dataclass
class Case:
    """One keyframe with its true pose (4,4) mesh to camera."""

    image: np.ndarray
    mesh: Mesh
    K: np.ndarray
    truth: np.ndarray | None
    name: str = ""


@dataclass
class Counted:
    """A metric that counts the pictures it is given."""

    metric: Any
    counter: Counter
    name: str = field(init=False, default="counted")
    licence: str = field(init=False, default="")

    def __call__(self, a: Any, b: Any) -> Any:
        self.counter.metric_calls += len(a)
        return self.metric(a, b)


def made_case() -> Case:
    """A body with a head, legs of different lengths and spots, seen from half right and above."""
    rng = np.random.default_rng(0)
    vertices, faces, colors, count = [], [], [], 0
    for centre, radii, color in [
        ((0, 0, 0), (0.14, 0.15, 0.3), (200, 120, 40)),
        ((0.02, 0.16, 0.32), (0.1, 0.1, 0.12), (240, 220, 200)),
        ((0.1, -0.2, 0.2), (0.04, 0.15, 0.04), (40, 60, 160)),
        ((-0.1, -0.2, 0.2), (0.04, 0.14, 0.04), (60, 150, 60)),
        ((0.1, -0.2, -0.2), (0.05, 0.13, 0.04), (150, 30, 30)),
        ((-0.1, -0.22, -0.16), (0.04, 0.17, 0.05), (90, 90, 90)),
    ]:
        ball = trimesh.creation.icosphere(subdivisions=3)
        vertices.append(ball.vertices * radii + centre)
        faces.append(ball.faces + count)
        colors.append(np.clip(np.array(color) + 30 * np.sin(ball.vertices @ rng.normal(size=(3, 3)) * 4), 0, 255))
        count += len(ball.vertices)
    mesh = Mesh(np.concatenate(vertices), np.concatenate(faces), np.concatenate(colors).astype(np.uint8))
    pose, K = look_at((1.4, 0.7, 1.5), (0.05, 0, 0)), fov_to_K(40, 512, 512)
    return Case(render_mesh(mesh, Camera(K, pose, 512, 512), supersample=3), mesh, K, pose, "made creature")


def read_cases(folder: Path, frames: list[int] | None = None) -> list[Case]:
    """Keyframes of a clip with known poses."""
    camera = json.loads((folder / "camera.json").read_text())
    canonical = json.loads((folder / "meta.json").read_text())["canonical_to_world"]["generated"]
    out = []
    for k in range(len(canonical)) if frames is None else frames:
        truth = np.array(camera["world_to_camera"][k]) @ np.array(canonical[k])
        mesh = formats.read_mesh(folder / "generated" / f"{k:03d}.glb")
        image = formats.read_rgba(folder / "frames" / f"{k:03d}.png")
        out.append(Case(image, mesh, np.array(camera["K"]), truth, f"{folder.name} frame {k}"))
    return out


def errors(case: Case, pose: np.ndarray) -> tuple[float, float]:
    """Rotation error in degrees and silhouette overlap of a pose (4,4) mesh to camera."""
    alpha = case.image[..., 3] >= 128
    placed = apply(pose, case.mesh.vertices.astype(np.float64)).astype(np.float32)
    drawn = masks(placed[None], case.mesh.faces, case.K, *alpha.shape)[0]
    overlap = float((drawn & alpha).sum() / max((drawn | alpha).sum(), 1))
    if case.truth is None:
        return float("nan"), overlap
    return float(rotation_angle_deg(split_similarity(pose)[1], split_similarity(case.truth)[1])), overlap


def as_matrix(h: Hypothesis) -> np.ndarray:
    out = np.eye(4)
    out[:3, :3], out[:3, 3] = h.rotation, h.position - h.rotation @ h.centre
    return out


# --- the official schedule --------------------------------------------------------------------------------------------


@dataclass
class Official:
    """The official code's search on our renderer. A camera is (yaw, pitch, distance, look-at): 6 numbers, roll 0."""

    case: Case
    metric: Any
    counter: Counter
    share: float = 1.0

    def __post_init__(self) -> None:
        import cv2
        import torch

        image = cv2.resize(self.case.image, (SIZE, SIZE), interpolation=cv2.INTER_AREA).astype(np.float32) / 255
        self.mask = torch.from_numpy(image[..., 3].copy())
        self.goal = torch.from_numpy(np.concatenate([image[..., :3] * image[..., 3:], image[..., 3:]], -1))[None]
        self.K = scale_K(self.case.K, SIZE / self.case.image.shape[1], SIZE / self.case.image.shape[0])
        self.subject = Subject.of(self.case.mesh)
        self.penalty = 0.1 * SIZE * SIZE / float(self.mask.sum())

    def run(self) -> np.ndarray:
        """Sampling, swarm, gradient; the pose (4,4) mesh to camera."""
        rng = np.random.default_rng(0)
        count = max(200, round(2000 * self.share))
        samples = np.stack([
            rng.uniform(0, 2 * np.pi, count), np.arcsin(2 * rng.random(count) - 1),
            np.sqrt(24 * rng.random(count) + 1), *rng.uniform(-1, 1, (3, count)),
        ], 1)  # fmt: skip
        scores = self.scores(samples)
        best = samples[np.argsort(scores)[:200]]
        best = self.swarm(best, np.sort(scores)[:200], max(1, round(25 * self.share)), rng)
        return self.descend(best, max(1, round(300 * self.share)))

    def poses(self, cameras: np.ndarray) -> np.ndarray:
        yaw, pitch, distance, at = cameras[:, 0], cameras[:, 1], cameras[:, 2:3], cameras[:, 3:]
        away = np.stack([np.sin(yaw) * np.cos(pitch), np.sin(pitch), np.cos(yaw) * np.cos(pitch)], -1)
        return np.stack([look_at(a + d * r, a) for a, d, r in zip(at, away, distance, strict=True)])

    def scores(self, cameras: np.ndarray, batch: int = 10) -> np.ndarray:
        import torch

        out = []
        poses = self.poses(cameras)
        for start in range(0, len(poses), batch):
            part = poses[start : start + batch]
            positions = part[:, :3, :3] @ self.subject.centre + part[:, :3, 3]
            drawn = torch.from_numpy(self.subject.draw(part[:, :3, :3], positions, self.K, SIZE))
            self.counter.renders += len(part)
            with torch.no_grad():
                far = self.metric(drawn * self.mask[None, ..., None], self.goal)
            missed = ((drawn[..., 3] - self.mask) ** 2).mean((1, 2))
            out.append((far + self.penalty * missed).numpy())
        return np.concatenate(out)

    def swarm(self, best: np.ndarray, scores: np.ndarray, rounds: int, rng: np.random.Generator) -> np.ndarray:
        """The velocity is drawn anew in every round, and nothing is bounded, as in the official code."""
        x, own, own_scores = best.copy(), best.copy(), scores.copy()
        for _ in range(rounds):
            leader = own[int(own_scores.argmin())]
            pull, push = rng.random((2, *x.shape))
            x = x + 0.5 * rng.uniform(-1, 1, x.shape) + pull * (own - x) + push * (leader - x)
            now = self.scores(x)
            better = now < own_scores
            own[better], own_scores[better] = x[better], now[better]
        return own[int(own_scores.argmin())]

    def descend(self, camera: np.ndarray, steps: int) -> np.ndarray:
        """Adam on the silhouette alone."""
        import torch

        x = torch.tensor(camera, dtype=torch.float32, requires_grad=True)
        vertices = torch.from_numpy(self.case.mesh.vertices)
        edges, optimizer = Edges(self.case.mesh.faces), torch.optim.Adam([x], lr=0.01)
        for _ in range(steps):
            optimizer.zero_grad()
            rotation, shift = _look(x)
            drawn = render((vertices @ rotation.T + shift)[None], self.case.mesh.faces, self.K, SIZE, SIZE, edges=edges)
            self.counter.renders += 1
            missed = ((drawn[0, ..., -1] - self.mask) ** 2).mean()
            (10 * self.penalty * missed).backward()
            optimizer.step()
        rotation, shift = _look(x.detach())
        out = np.eye(4)
        out[:3, :3], out[:3, 3] = rotation.numpy(), shift.numpy()
        return out


def _look(x: Any) -> tuple[Any, Any]:
    """A level camera (rotation, shift) from its six numbers, differentiable."""
    import torch

    yaw, pitch, distance, at = x[0], x[1], x[2], x[3:]
    away = torch.stack([torch.sin(yaw) * torch.cos(pitch), torch.sin(pitch), torch.cos(yaw) * torch.cos(pitch)])
    right = torch.stack([torch.cos(yaw), torch.zeros_like(yaw), -torch.sin(yaw)])
    down = -torch.linalg.cross(away, right)
    rotation = torch.stack([right, down, -away])
    return rotation, -rotation @ (at + distance * away)


# --- ours -------------------------------------------------------------------------------------------------------------


@contextmanager
def counted_renders(counter: Counter) -> Iterator[None]:
    """Count what the camera search draws."""
    draw, cover, points = Subject.draw, Subject.masks, Subject.points

    def counting(method: Callable[..., Any]) -> Callable[..., Any]:
        def drawn(self: Subject, rotations: np.ndarray, *rest: Any, **how: Any) -> Any:
            counter.renders += len(rotations)
            return method(self, rotations, *rest, **how)

        return drawn

    Subject.draw, Subject.masks, Subject.points = counting(draw), counting(cover), counting(points)  # type: ignore
    try:
        yield
    finally:
        Subject.draw, Subject.masks, Subject.points = draw, cover, points  # type: ignore[method-assign]


def cost(arguments: argparse.Namespace) -> None:
    case = read_cases(arguments.clip, [arguments.frame])[0] if arguments.clip else made_case()
    metric = models.load(models.METRICS, arguments.metric)()
    rows = []
    for name in ("ours", f"ours, {arguments.metric}", "official schedule"):
        counter = Counter()
        asked = Counted(metric, counter)
        if name == "ours":  # what is compiled is compiled
            keyframe.solve(case.image, case.mesh, case.K, KeyframeOptions())
        start = time.process_time()
        if name.startswith("ours"):
            with counted_renders(counter):
                options = KeyframeOptions(metric=asked if name != "ours" else None)
                pose = as_matrix(keyframe.solve(case.image, case.mesh, case.K, options)[0])
        else:
            pose = Official(case, asked, counter, arguments.share).run()
        rows.append((name, time.process_time() - start, counter, *errors(case, pose)))
        name, seconds, _, turn, overlap = rows[-1]
        _say(
            f"{name:22} {seconds:8.2f} s  {counter.renders:6} renders {counter.metric_calls:6} metric calls  "
            f"turned wrong by {turn:6.2f} degrees, silhouettes agree to {overlap:.3f}"
        )
    part = "" if arguments.share == 1 else f" (of which {arguments.share:g} was run)"
    _say(f"{case.name}: the official schedule{part} takes {rows[2][1] / rows[0][1]:.0f} times as long as ours")


def ablation(arguments: argparse.Namespace) -> None:
    ours = KeyframeOptions(levels=(Level(128, 2.0, 8), Level(256, 2.0, 8)))
    still = tuple(dataclasses.replace(level, iterations=0) for level in ours.levels)
    coarse = dataclasses.replace(ours.coarse, iterations=0)
    plain = dataclasses.replace(ours, guess_rounds=0, coarse=coarse, levels=still)
    methods = {
        "sampling only": plain,
        "sampling, swarm": dataclasses.replace(plain, swarm=SwarmOptions()),
        "sampling, guess": dataclasses.replace(plain, guess_rounds=1),
        "sampling, guess twice": dataclasses.replace(plain, guess_rounds=2),
        "sampling, gradient": dataclasses.replace(ours, guess_rounds=0),
        "sampling, guess, gradient (ours)": ours,
        "ours, swarm": dataclasses.replace(ours, swarm=SwarmOptions()),
        "ours, metric structure": dataclasses.replace(ours, metric=models.load(models.METRICS, "structure")()),
        "ours, metric features": dataclasses.replace(ours, metric=models.load(models.METRICS, "features")()),
    }
    clips = [read_cases(folder)[:: arguments.step] for folder in arguments.clips]
    found: list[list[list[Hypothesis]]] = []
    for name, options in methods.items():
        start, turned, overlaps, found_here = time.process_time(), [], [], []
        for cases in clips:
            known = [keyframe.solve(c.image, c.mesh, c.K, options, seed=n) for n, c in enumerate(cases)]
            found_here.append(known)
            for case, hypotheses in zip(cases, known, strict=True):
                turn, overlap = errors(case, as_matrix(hypotheses[0]))
                turned.append(turn)
                overlaps.append(overlap)
        _row(name, turned, overlaps, time.process_time() - start)
        found = found_here if options is ours else found
    start, turned, overlaps = time.process_time(), [], []
    for cases, known in zip(clips, found, strict=True):
        times = np.arange(len(cases)) / 12 * arguments.step
        for _ in range(2):
            chosen = [h[c] for h, c in zip(known, track.choose(known), strict=True)]
            for n, starts in enumerate(track.warm_starts(chosen, known)):
                if len(starts):
                    more = keyframe.solve_from(cases[n].image, cases[n].mesh, cases[n].K, ours, starts, seed=n)
                    known[n] = track.merged(known[n], more, ours.merge_deg)
        poses, _ = clip.assemble(known, [c.mesh for c in cases], times, 2.0)
        for case, pose in zip(cases, poses, strict=True):
            turn, overlap = errors(case, pose.matrix)
            turned.append(turn)
            overlaps.append(overlap)
    _row("ours, whole clip (added to ours)", turned, overlaps, time.process_time() - start)


def _row(name: str, turned: list[float], overlaps: list[float], seconds: float) -> None:
    far = np.array(turned)
    _say(f"{name:34} mean {far.mean():6.2f}  median {np.median(far):5.2f}  largest {far.max():6.1f}  "
         f"over 15 degrees {int((far > 15).sum()):2} of {len(far)}  overlap {np.mean(overlaps):.3f}  "
         f"{seconds / len(far):5.2f} s a keyframe")  # fmt: skip


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True)
    one = parts.add_parser("cost")
    one.add_argument("--clip", type=Path)
    one.add_argument("--frame", type=int, default=0)
    one.add_argument("--metric", default="structure")
    one.add_argument("--share", type=float, default=1.0)
    one.set_defaults(run=cost)
    many = parts.add_parser("ablation")
    many.add_argument("clips", type=Path, nargs="+")
    many.add_argument("--step", type=int, default=1)
    many.set_defaults(run=ablation)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
