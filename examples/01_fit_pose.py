"""Recover the pose of a known mesh from one picture, by gradient descent through the differentiable renderer.

    python examples/01_fit_pose.py                       # prints the error before and after
    python examples/01_fit_pose.py --picture fit.png     # and draws target, start and end beside each other

The mesh is the walker of make_walker.py. It starts 15 degrees and 5 % off; rotation, position and scale are found from
colours and silhouette alone, in a few seconds on a CPU.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from make_walker import rest_mesh, skeleton

from v2m4 import formats
from v2m4.render import Edges, render
from v2m4.render.preview import BACKDROP, contact_sheet, on_color
from v2m4.transforms import fov_to_K, look_at, rotation_angle_deg, rotation_from_vector

SIZE, STEPS = 192, 60


def rotation(vector: torch.Tensor) -> torch.Tensor:
    """Rotation vector (3,) -> matrix (3,3)."""
    zero = vector.new_zeros(())
    x, y, z = vector
    return torch.linalg.matrix_exp(torch.stack([zero, -z, y, z, zero, -x, -y, x, zero]).reshape(3, 3))


def rgba(image: torch.Tensor) -> np.ndarray:
    """A premultiplied picture (1,H,W,4) -> (H,W,4) uint8, straight alpha."""
    picture = image[0].detach().numpy()
    straight = picture[..., :3] / np.maximum(picture[..., 3:], 1e-6)
    return (np.concatenate([straight, picture[..., 3:]], -1).clip(0, 1) * 255).round().astype(np.uint8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path, help="write target, start and end into this PNG")
    arguments = parser.parse_args()

    mesh = rest_mesh(skeleton(), cells=45)
    centre = mesh.vertices.mean(0)
    vertices = torch.from_numpy(mesh.vertices - centre)
    colors = torch.from_numpy(mesh.colors / 255).float()
    K, edges = fov_to_K(35, SIZE, SIZE), Edges(mesh.faces)  # the edges once: the topology stays
    true_rotation = look_at([1.6, 0.6, 1.4])[:3, :3]
    true_position = np.array([0.05, -0.02, 2.2])

    def picture(turn: torch.Tensor, position: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        points = scale * vertices @ turn.T + position
        return render(points, mesh.faces, K, SIZE, SIZE, colors, edges=edges)

    target = picture(torch.from_numpy(true_rotation).float(), torch.from_numpy(true_position).float(), torch.ones(()))

    axis = np.array([0.48, 0.8, -0.36])
    first = torch.from_numpy(rotation_from_vector(np.radians(15) * axis) @ true_rotation).float()
    turn = torch.zeros(3, requires_grad=True)
    position = torch.tensor([0.0, 0.0, 2.2], requires_grad=True)
    log_scale = torch.tensor(np.log(1.05), dtype=torch.float32, requires_grad=True)

    def errors() -> tuple[float, float]:
        """Rotation in degrees, and size in the picture (scale over distance) in percent."""
        found = (rotation(turn) @ first).detach().numpy().astype(float)
        size = np.exp(log_scale.item()) * true_position[2] / position[2].item()
        return float(rotation_angle_deg(found, true_rotation)), 100 * abs(size - 1)

    def say(what: str) -> None:
        print("{}: {:.2f} degrees and {:.2f} % off".format(what, *errors()))

    say("start")
    shown = [target, picture(rotation(turn) @ first, position, log_scale.exp())]
    optimizer = torch.optim.Adam([turn, position, log_scale], lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS, eta_min=2e-4)
    began = time.perf_counter()
    for _ in range(STEPS):
        image = picture(rotation(turn) @ first, position, log_scale.exp())
        # Blurred as well, so that parts that do not overlap yet feel each other.
        apart = (image - target).permute(0, 3, 1, 2)
        loss = apart.abs().mean() + torch.nn.functional.avg_pool2d(apart, 16).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    say(f"after {STEPS} steps, {time.perf_counter() - began:.1f} s")
    if arguments.picture:
        shown.append(picture(rotation(turn) @ first, position, log_scale.exp()))
        panes = [on_color(rgba(image), BACKDROP) for image in shown]
        formats.write_image(arguments.picture, contact_sheet(panes, 3, ["target", "start", "end"]))


if __name__ == "__main__":
    main()
