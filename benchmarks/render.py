"""How fast and how exact the renderer is: `python benchmarks/render.py [--quick] [--json -]`.

Times are medians of a warm process (the numpy loop runs once), in milliseconds a view, on `V2M4_THREADS` threads
(default: all cores), next to a plain reference timed in the same run: visibility by numpy one triangle after the other
(`numpy loop`), interpolation and its gradient by torch indexing (`torch`). Quality is measured against 8x8 samples a
pixel.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "0")

import numpy as np
import torch
import trimesh

from v2m4 import transforms
from v2m4.render import Edges, ZBuffer, _jit, masks, render
from v2m4.render.zbuffer import visibility

POSE = transforms.look_at([0.5, 0.6, 3.0])


def blob(faces: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A bumpy ball that hides parts of itself; vertices (V,3), faces (F,3), colours (V,3) float32."""
    ball = trimesh.creation.icosphere(subdivisions={5_000: 4, 20_000: 5, 100_000: 6}[faces])
    x, y, z = ball.vertices.T
    radius = 0.8 + 0.2 * np.sin(4 * x) * np.cos(5 * y) + 0.12 * np.sin(7 * z + 2 * x)
    colors = 0.5 + 0.5 * np.sin(6 * ball.vertices + [0, 2, 4])
    vertices = (ball.vertices * radius[:, None]).astype(np.float32)
    return vertices, ball.faces.astype(np.int32), colors.astype(np.float32)


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


# --- references -------------------------------------------------------------------------------------------------------


def reference_visibility(points: np.ndarray, faces: np.ndarray, K: np.ndarray, size: int) -> np.ndarray:
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


def reference_render(
    points: torch.Tensor, faces: torch.Tensor, K: torch.Tensor, face: np.ndarray, colors: torch.Tensor
) -> torch.Tensor:
    """Colour and (hard) mask by torch indexing, given visibility: no gradient from the silhouette at all."""
    size = len(face)
    flat = torch.from_numpy(face.reshape(-1)).long()
    pixel = torch.nonzero(flat >= 0).squeeze(1)
    corners = faces[flat[pixel]]
    homogeneous = (points @ K.T)[corners]
    x, y = (pixel % size).float() + 0.5, torch.div(pixel, size, rounding_mode="floor").float() + 0.5
    dx = homogeneous[..., 0] - x[:, None] * homogeneous[..., 2]
    dy = homogeneous[..., 1] - y[:, None] * homogeneous[..., 2]
    weights = torch.stack([dx[:, i] * dy[:, j] - dy[:, i] * dx[:, j] for i, j in ((1, 2), (2, 0), (0, 1))], 1)
    weights = weights / weights.sum(1, keepdim=True)
    values = (colors[corners] * weights[..., None]).sum(1)
    values = torch.cat([values, torch.ones(len(values), 1)], 1)
    return torch.zeros(size * size, 4).index_copy(0, pixel, values).view(size, size, 4)


# --- measurements -----------------------------------------------------------------------------------------------------


def speed(count: int, size: int, seconds: float) -> dict[str, float]:
    """Milliseconds a view for one mesh and picture size, ours and the references."""
    vertices, faces, colors = blob(count)
    K = transforms.fov_to_K(40, size, size)
    edges = Edges(faces)
    points = transforms.apply(POSE, vertices).astype(np.float32)[None]
    target = torch.rand((1, size, size, 4), generator=torch.Generator().manual_seed(0))
    p, c = torch.from_numpy(points).requires_grad_(), torch.from_numpy(colors).requires_grad_()
    faces_torch, K_torch = torch.from_numpy(faces).long(), torch.from_numpy(K).float()

    def both_ways(make: Callable[[], torch.Tensor]) -> None:
        p.grad = c.grad = None
        ((make() - target) ** 2).mean().backward()

    def plain() -> torch.Tensor:
        face = visibility(points, faces, K[None], size, size, cull=False, near=1e-3)[0][0]
        return reference_render(p[0], faces_torch, K_torch, face, c)[None]

    many = np.repeat(points, 32, 0)
    return {
        "forward": milliseconds(lambda: visibility(points, faces, K[None], size, size, cull=False, near=1e-3), seconds),
        "forward_batch_32": milliseconds(lambda: ZBuffer().rasterize(many, faces, K, size, size), seconds) / 32,
        "forward_numpy_loop": once(lambda: reference_visibility(points[0], faces, K, size)),
        "forward_backward": milliseconds(
            lambda: both_ways(lambda: render(p, faces, K, size, size, c, edges=edges)), seconds
        ),
        "forward_backward_torch": milliseconds(lambda: both_ways(plain), seconds),
    }


def search(views: int = 2000, size: int = 64) -> float:
    """Seconds to move 5k faces into ``views`` cameras, draw their masks and score them against one by IoU."""
    vertices, faces, _ = blob(5_000)
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


def quality(count: int, size: int = 256, samples: int = 8) -> tuple[float, float]:
    """(mean error of the mask in edge pixels, share of d(area)/d(scale) that the gradient keeps)."""
    vertices, faces, _ = blob(count)
    K = transforms.fov_to_K(40, size, size)

    def coverage(scale: float) -> np.ndarray:
        points = transforms.apply(POSE, vertices.astype(np.float64) * scale)[None]
        fine = masks(points, faces, transforms.scale_K(K, samples), size * samples, size * samples)[0]
        return fine.reshape(size, samples, size, samples).mean((1, 3))

    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    rotation, move = (torch.from_numpy(x) for x in (POSE[:3, :3], POSE[:3, 3]))
    points = (scale * torch.from_numpy(vertices).double()) @ rotation.T + move
    shown = render(points[None], faces, K, size, size)[0, ..., 0]
    shown.double().sum().backward()
    true = coverage(1.0)
    partly = (true > 0) & (true < 1)
    area = (coverage(1.004).sum() - coverage(0.996).sum()) / 0.008
    return float(np.abs(shown.detach().numpy() - true)[partly].mean()), float(scale.grad) / area


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only what --json needs, short")
    parser.add_argument("--json", metavar="-", help="print one JSON object as the last line")
    arguments = parser.parse_args()
    seconds = 0.3 if arguments.quick else 1.0
    cases = [(20_000, 256), (20_000, 512)]
    if not arguments.quick:
        cases = [(count, size) for count in (5_000, 20_000) for size in (128, 256, 512)]
    results: dict[str, float] = {}
    out = sys.stdout
    out.write(f"{_jit.thread_count()} threads, torch {torch.__version__}; milliseconds a view\n")
    out.write(f"{'faces':>7} {'size':>5} {'forward':>9} {'of 32':>7} {'numpy loop':>11} {'ratio':>7}")
    out.write(f" {'forward+backward':>17} {'torch, hard mask':>17} {'ratio':>6}\n")
    for count, size in cases:
        got = speed(count, size, seconds)
        out.write(f"{count:>7} {size:>5} {got['forward']:>9.2f} {got['forward_batch_32']:>7.2f}")
        out.write(f" {got['forward_numpy_loop']:>11.1f} {got['forward_numpy_loop'] / got['forward']:>6.0f}x")
        out.write(f" {got['forward_backward']:>17.2f} {got['forward_backward_torch']:>17.2f}")
        out.write(f" {got['forward_backward_torch'] / got['forward_backward']:>5.1f}x\n")
        out.flush()
        for key, value in got.items():
            results[f"{key}_{count // 1000}k_{size}_ms"] = round(value, 3)
    results["search_2000_5k_64_s"] = round(search(), 3)
    for count in (5_000, 20_000):
        error, kept = quality(count)
        results[f"edge_mask_error_{count // 1000}k"], results[f"area_gradient_{count // 1000}k"] = error, kept
    results["edge_mask_error"] = max(results["edge_mask_error_5k"], results["edge_mask_error_20k"])
    out.write(f"2000 views of 5k faces at 64 with IoU: {results['search_2000_5k_64_s']:.2f} s\n")
    out.write(f"mask error in edge pixels {results['edge_mask_error']:.4f}; share of d(area)/d(scale) kept:")
    out.write(f" {results['area_gradient_5k']:.3f} (5k), {results['area_gradient_20k']:.3f} (20k)\n")
    if arguments.json:
        out.write(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
