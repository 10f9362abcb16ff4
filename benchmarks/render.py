"""How fast and how exact the renderer is: `python benchmarks/render.py [--quick] [--json -]`.

Times are medians of a warm process in milliseconds a view, on `V2M4_THREADS` threads (default: all cores): one view at
a time, 32 views together, and the mean of both. `forward` is visibility; `forward + backward` is colour and mask with
the gradients of points and colours, and includes a squared error that torch computes. References in the same run: the
same picture in plain torch (v2m4/render/reference.py, visibility from our own z-buffer); a z-buffer in numpy, one
triangle after the other, run once; PyTorch3D and nvdiffrast where they are installed. Quality is measured against 8x8
samples a pixel.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "0")

import numpy as np
import torch

from v2m4 import transforms
from v2m4.render import Edges, _jit, antialias, interpolate, load_rasterizer, masks, rasterize, render, sample_texture
from v2m4.render import reference as plain
from v2m4.render.batch import make_batch
from v2m4.render.zbuffer import project, visibility

POSE = transforms.look_at([0.5, 0.6, 3.0])
#: Cells along an edge of the cube that becomes the ball: 12 n² triangles.
CELLS = {"5k": 20, "20k": 41, "100k": 91, "200k": 129}
BATCH = 32


def blob(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A bumpy ball that hides parts of itself; vertices (V,3), faces (F,3), colours (V,3) float32."""
    n = CELLS[name]
    y, x = np.indices((n + 1, n + 1)).reshape(2, -1)
    side = np.stack([x, y, np.full_like(x, n)], -1) * 2 - n
    turns = [np.eye(3), [[0, 0, 1], [0, 1, 0], [-1, 0, 0]], [[-1, 0, 0], [0, 1, 0], [0, 0, -1]]]
    turns += [
        [[0, 0, -1], [0, 1, 0], [1, 0, 0]],
        [[1, 0, 0], [0, 0, 1], [0, -1, 0]],
        [[1, 0, 0], [0, 0, -1], [0, 1, 0]],
    ]
    grid = np.concatenate([side @ np.array(turn, int).T for turn in turns])
    corner = np.array([r * (n + 1) + c for r in range(n) for c in range(n)])
    quads = np.concatenate([corner[:, None] + [0, 1, n + 2], corner[:, None] + [0, n + 2, n + 1]])
    faces = np.concatenate([quads + k * (n + 1) ** 2 for k in range(6)])
    cube, index = np.unique(grid, axis=0, return_inverse=True)
    ball = np.tan(cube / n * np.pi / 4)
    ball /= np.linalg.norm(ball, axis=1, keepdims=True)
    x, y, z = ball.T
    radius = 0.8 + 0.2 * np.sin(4 * x) * np.cos(5 * y) + 0.12 * np.sin(7 * z + 2 * x)
    colors = 0.5 + 0.5 * np.sin(6 * ball + [0, 2, 4])
    faces = index.reshape(-1)[faces].astype(np.int32)
    return (ball * radius[:, None]).astype(np.float32), faces, colors.astype(np.float32)


def milliseconds(function: Callable[[], Any], seconds: float) -> float:
    """Median time of ``function`` over about ``seconds``, at least five calls, after one that warms up."""
    function()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return float(np.median(times)) * 1e3


def once(function: Callable[[], Any]) -> float:
    """Time of a single call, for what is slow."""
    start = time.perf_counter()
    function()
    return (time.perf_counter() - start) * 1e3


def numpy_visibility(points: np.ndarray, faces: np.ndarray, K: np.ndarray, size: int) -> np.ndarray:
    """A z-buffer in plain numpy, one triangle after the other: (H,W) face numbers."""
    screen = transforms.project(points.astype(np.float64), K)
    inverse = 1 / points[:, 2].astype(np.float64)
    nearest, face = np.zeros((size, size)), np.full((size, size), -1, np.int32)
    corners, weights = screen[faces], inverse[faces]
    first = np.clip(np.ceil(corners.min(1) - 0.5), 0, size).astype(int)
    last = np.clip(np.floor(corners.max(1) - 0.5) + 1, 0, size).astype(int)
    for f in np.flatnonzero((first < last).all(1)):
        (ax, ay), (bx, by), (cx, cy) = corners[f]
        y, x = np.mgrid[first[f, 1] : last[f, 1], first[f, 0] : last[f, 0]] + 0.5
        a = (bx - x) * (cy - y) - (by - y) * (cx - x)
        b = (cx - x) * (ay - y) - (cy - y) * (ax - x)
        c = (ax - x) * (by - y) - (ay - y) * (bx - x)
        area = a + b + c
        depth = (a * weights[f, 0] + b * weights[f, 1] + c * weights[f, 2]) / area
        box = np.s_[first[f, 1] : last[f, 1], first[f, 0] : last[f, 0]]
        win = (a * area >= 0) & (b * area >= 0) & (c * area >= 0) & (depth > nearest[box])
        nearest[box][win], face[box][win] = depth[win], f
    return face


class Case:
    """One mesh at one picture size, seen ``views`` times."""

    def __init__(self, name: str, size: int, views: int = 1) -> None:
        vertices, self.faces, colors = blob(name)
        self.size, self.K, self.edges = size, transforms.fov_to_K(40, size, size), Edges(self.faces)
        points = np.repeat(transforms.apply(POSE, vertices).astype(np.float32)[None], views, 0)
        self.points = torch.from_numpy(points).requires_grad_()
        self.colors = torch.from_numpy(colors).requires_grad_()
        self.target = torch.rand((views, size, size, 4), generator=torch.Generator().manual_seed(0))

    def forward(self) -> Any:
        batch = make_batch(self.points, self.faces, self.K, self.size, self.size)
        return visibility(batch, project(batch), cull=False)

    def ours(self) -> torch.Tensor:
        return render(self.points, self.faces, self.K, self.size, self.size, self.colors, edges=self.edges)

    def plain(self) -> torch.Tensor:
        face, inverse = (torch.from_numpy(x) for x in self.forward())
        color = plain.interpolate(self.points, self.faces, self.K, face, self.colors)
        return plain.antialias(self.points, self.faces, self.K, face, 1 / inverse, color, self.edges)

    def by(self, rasterizer: Any) -> torch.Tensor:
        return render(
            self.points, self.faces, self.K, self.size, self.size, self.colors, edges=self.edges, rasterizer=rasterizer
        )

    def both_ways(self, make: Callable[[], torch.Tensor]) -> None:
        self.points.grad = self.colors.grad = None
        ((make() - self.target) ** 2).mean().backward()


def speed(name: str, size: int, seconds: float) -> dict[str, float]:
    """Milliseconds a view for one mesh and picture size."""
    out: dict[str, float] = {}
    for views in (1, BATCH):
        case = Case(name, size, views)
        out[f"forward_batch_{views}"] = milliseconds(case.forward, seconds) / views
        out[f"forward_backward_batch_{views}"] = milliseconds(lambda c=case: c.both_ways(c.ours), seconds) / views
    for key in ("forward", "forward_backward"):
        out[key] = (out[f"{key}_batch_1"] + out[f"{key}_batch_{BATCH}"]) / 2
    case = Case(name, size)
    out["forward_backward_plain_torch"] = milliseconds(lambda: case.both_ways(case.plain), seconds)
    return out


def outside(name: str, package: str) -> dict[str, float]:
    """What another renderer takes at 5k faces and 256², or nothing where it is not installed."""
    if importlib.util.find_spec(package) is None:
        return {}
    case = Case("5k", 256)
    if name == "nvdiffrast":
        if not torch.cuda.is_available():
            return {}
        points = case.points.detach().cuda()
        rasterizer = load_rasterizer(name)
        call = lambda: (rasterizer.rasterize(points, case.faces, case.K, 256, 256), torch.cuda.synchronize())  # noqa: E731
        return {f"forward_{name}_5k_256_ms": milliseconds(call, 0)}
    return _pytorch3d(case)


def _pytorch3d(case: Case) -> dict[str, float]:
    """PyTorch3D's own way: one face a pixel, its own interpolation, the gradient through its barycentrics."""
    from pytorch3d.ops import interpolate_face_attributes
    from pytorch3d.renderer.mesh import rasterize_meshes
    from pytorch3d.structures import Meshes

    faces = torch.from_numpy(case.faces).long()
    K = torch.from_numpy(case.K).float()

    def make() -> torch.Tensor:
        pixel = case.points[0] @ K.T
        screen = 1 - 2 * pixel[:, :2] / pixel[:, 2:] / case.size
        mesh = Meshes([torch.cat([screen, pixel[:, 2:]], 1)], [faces])
        found, _, weights, _ = rasterize_meshes(
            mesh, case.size, blur_radius=0.0, faces_per_pixel=1, perspective_correct=True
        )
        colors = interpolate_face_attributes(found, weights, case.colors[faces])[..., 0, :]
        return torch.cat([colors, (found >= 0).float()], -1)

    with torch.no_grad():
        make()
        forward = np.median([once(make) for _ in range(3)])
    both = np.median([once(lambda: case.both_ways(make)) for _ in range(3)])
    return {"forward_pytorch3d_5k_256_ms": float(forward), "forward_backward_pytorch3d_5k_256_ms": float(both)}


def textured(seconds: float) -> dict[str, float]:
    """Forward + backward of a textured picture at 512², 20k faces, texture of 1k; next to torch's grid_sample."""
    case = Case("20k", 512)
    rng = torch.Generator().manual_seed(0)
    texture = torch.rand((1024, 1024, 3), generator=rng).requires_grad_()
    raster = rasterize(case.points.detach(), case.faces, case.K, 512, 512)
    uv = interpolate(raster, 0.5 + 0.4 * torch.from_numpy(blob("20k")[0])[:, :2]).requires_grad_()

    def ours() -> torch.Tensor:
        return sample_texture(texture, uv)

    def torch_s() -> torch.Tensor:
        source = texture.permute(2, 0, 1)[None]
        found = torch.nn.functional.grid_sample(source, uv * 2 - 1, padding_mode="border", align_corners=False)
        return found.permute(0, 2, 3, 1)

    def both(make: Callable[[], torch.Tensor]) -> None:
        texture.grad = uv.grad = None
        antialias(raster, make()).square().mean().backward()

    return {
        "textured_forward_backward_512_ms": milliseconds(lambda: both(ours), seconds),
        "textured_forward_backward_grid_sample_512_ms": milliseconds(lambda: both(torch_s), seconds),
    }


def search(views: int = 2000, size: int = 64) -> float:
    """Seconds to move 5k faces into ``views`` cameras, draw their masks and score them against one by IoU."""
    vertices, faces, _ = blob("5k")
    rng = np.random.default_rng(0)
    eyes = rng.normal(size=(views, 3))
    eyes *= rng.uniform(2.5, 4, (views, 1)) / np.linalg.norm(eyes, axis=1, keepdims=True)
    poses = np.stack([transforms.look_at(eye) for eye in eyes]).astype(np.float32)
    K = transforms.fov_to_K(40, size, size)
    target = masks(transforms.apply(POSE, vertices)[None], faces, K, size, size)[0]

    def all_views() -> float:
        best = 0.0
        for some in np.array_split(poses, max(1, views // 100)):  # what one block needs stays in the cache
            found = masks(transforms.apply(some, vertices), faces, K, size, size)
            union = (found | target).sum((1, 2))
            best = max(best, float(((found & target).sum((1, 2)) / np.maximum(union, 1)).max()))
        return best

    return milliseconds(all_views, 0) / 1e3


def quality(name: str, size: int = 256, samples: int = 8) -> tuple[float, float]:
    """(mean error of the mask in edge pixels, share of d(area)/d(scale) that the gradient keeps)."""
    vertices, faces, _ = blob(name)
    K = transforms.fov_to_K(40, size, size)

    def coverage(scale: float) -> np.ndarray:
        points = transforms.apply(POSE, vertices.astype(np.float64) * scale)[None]
        fine = masks(points, faces, transforms.scale_K(K, samples), size * samples, size * samples)[0]
        return fine.reshape(size, samples, size, samples).mean((1, 3))

    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    rotation, move = (torch.from_numpy(x) for x in (POSE[:3, :3], POSE[:3, 3]))
    points = (scale * torch.from_numpy(vertices).double()) @ rotation.T + move
    shown = render(points[None], faces, K, size, size)[0, ..., 0]
    shown.sum().backward()
    true = coverage(1.0)
    partly = (true > 0) & (true < 1)
    area = (coverage(1.004).sum() - coverage(0.996).sum()) / 0.008
    return float(np.abs(shown.detach().numpy() - true)[partly].mean()), float(scale.grad) / area


def pose(seeds: int = 5, size: int = 128, steps: int = 90) -> tuple[float, float]:
    """Median seconds and worst error in degrees of finding the pose of 5k faces from colours and silhouette, from 15
    degrees and 5 % of the distance off in random directions."""
    vertices, faces, colors = (torch.from_numpy(x) for x in blob("5k"))
    K, edges = transforms.fov_to_K(40, size, size), Edges(faces)
    R, t = (torch.from_numpy(x).float() for x in (POSE[:3, :3], POSE[:3, 3]))
    target = render((vertices @ R.T + t)[None], faces, K, size, size, colors, edges=edges)
    times, errors = [], []
    for seed in range(seeds):
        axis, shift = (x / np.linalg.norm(x) for x in np.random.default_rng(seed).normal(size=(2, 3)))
        first = torch.from_numpy(transforms.rotation_from_vector(axis * np.radians(15))).float() @ R
        turn = torch.zeros(3, requires_grad=True)
        move = (t + torch.from_numpy(shift * 0.05 * float(t.norm())).float()).requires_grad_()
        groups = [{"params": [turn], "lr": 0.02}, {"params": [move], "lr": 0.01}]
        optimizer = torch.optim.Adam(groups, betas=(0.9, 0.95))
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        start = time.perf_counter()
        for _ in range(steps):
            optimizer.zero_grad()
            skew = torch.linalg.cross(torch.eye(3), turn.expand(3, 3))
            rotation = torch.linalg.matrix_exp(skew) @ first
            image = render((vertices @ rotation.T + move)[None], faces, K, size, size, colors, edges=edges)
            ((image - target) ** 2).mean().backward()
            optimizer.step()
            schedule.step()
        times.append(time.perf_counter() - start)
        errors.append(transforms.rotation_angle_deg(rotation.detach().double().numpy(), R.double().numpy()))
    return float(np.median(times)), float(max(errors))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="20k faces at 256² and 512² only, short")
    parser.add_argument("--json", metavar="-", help="print one JSON object as the last line")
    arguments = parser.parse_args()
    seconds = 0.3 if arguments.quick else 1.0
    cases = [(name, size) for name in ("5k", "20k", "100k") for size in (64, 128, 256, 512)]
    results: dict[str, float] = {}
    out = sys.stdout
    out.write(f"{_jit.thread_count()} threads, torch {torch.__version__}; milliseconds a view: one, of {BATCH}, mean\n")
    out.write(f"{'faces':>6} {'size':>5} {'forward':>22} {'forward + backward':>24} {'plain torch':>12} {'ratio':>7}\n")
    for name, size in [("20k", 256), ("20k", 512)] if arguments.quick else cases:
        got = speed(name, size, seconds)
        times = [got[f"{key}{way}"] for key in ("forward", "forward_backward") for way in ("_batch_1", "_batch_32", "")]
        out.write(f"{name:>6} {size:>5} {times[0]:>8.2f}{times[1]:>7.2f}{times[2]:>7.2f}")
        out.write(f" {times[3]:>9.2f}{times[4]:>7.2f}{times[5]:>8.2f} {got['forward_backward_plain_torch']:>12.1f}")
        out.write(f" {got['forward_backward_plain_torch'] / got['forward_backward_batch_1']:>6.1f}x\n")
        out.flush()
        results |= {f"{key}_{name}_{size}_ms": round(value, 3) for key, value in got.items()}
    if not arguments.quick:
        case = Case("20k", 256)
        points = case.points.detach().numpy()[0]
        results["forward_numpy_loop_20k_256_ms"] = once(lambda: numpy_visibility(points, case.faces, case.K, 256))
        for name, package in (("pytorch3d", "pytorch3d"), ("nvdiffrast", "nvdiffrast")):
            found = outside(name, package)
            results |= found
            for key, value in found.items():
                ours = results[key.replace(f"{name}_", "batch_1_")]
                out.write(f"{key}: {value:.1f} ms, {value / ours:.0f} times ours\n")
            if not found:
                out.write(f"{name}: not run (not installed, or no GPU)\n")
        results |= textured(seconds)
        ours, torch_s = (results[f"textured_forward_backward{x}_512_ms"] for x in ("", "_grid_sample"))
        out.write(f"textured, 20k faces at 512, texture 1k: {ours:.1f} ms; torch's grid_sample {torch_s:.1f} ms\n")
    results["search_2000_5k_64_s"] = round(search(), 3)
    results["pose_5k_128_s"], results["pose_5k_128_worst_deg"] = pose()
    for name in ("5k", "20k", "200k"):
        error, kept = quality(name)
        results[f"edge_mask_error_{name}"], results[f"area_gradient_{name}"] = error, kept
    results["edge_mask_error"] = max(results[f"edge_mask_error_{name}"] for name in ("5k", "20k", "200k"))
    out.write(f"2000 views of 5k faces at 64 with IoU: {results['search_2000_5k_64_s']:.2f} s\n")
    out.write(f"pose from 15 degrees and 5 % off: {results['pose_5k_128_s']:.2f} s,")
    out.write(f" worst of five {results['pose_5k_128_worst_deg']:.2f} degrees\n")
    for what in ("edge_mask_error", "area_gradient"):
        each = ", ".join(f"{results[f'{what}_{name}']:.4f} ({name})" for name in ("5k", "20k", "200k"))
        out.write(f"{what.replace('_', ' ')}: {each}\n")
    if arguments.json:
        out.write(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
