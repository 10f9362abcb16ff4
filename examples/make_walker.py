"""Build examples/data/walker.mp4: a small four-legged creature, modelled, animated and drawn by this script alone.

    python examples/make_walker.py                       # writes examples/data/walker.mp4
    python examples/make_walker.py --meshes walker/      # and one true mesh per frame, to try `v2m4 run --meshes`

The creature is a smooth union of capsules around a skeleton, turned into a mesh once and skinned. It faces +Z,
stands on y = 0 and is about one metre long.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from v2m4.formats import frame_name, write_mesh
from v2m4.transforms import fov_to_K, look_at, rotation_from_vector, vertex_normals
from v2m4.types import Camera, Mesh

FRAMES, FPS, SIZE = 24, 24, 384
BACKGROUND = 128


@dataclass(frozen=True)
class Bone:
    """A capsule from ``head`` to ``tail`` (rest pose) that hangs on bone ``parent``."""

    name: str
    parent: str | None
    head: tuple[float, float, float]
    tail: tuple[float, float, float]
    radius: tuple[float, float]


def skeleton() -> list[Bone]:
    bones = [
        Bone("spine", None, (0, 0.47, -0.22), (0, 0.49, 0.20), (0.15, 0.135)),
        Bone("neck", "spine", (0, 0.52, 0.22), (0, 0.70, 0.37), (0.085, 0.07)),
        Bone("head", "neck", (0, 0.74, 0.38), (0, 0.71, 0.55), (0.105, 0.06)),
        Bone("tail1", "spine", (0, 0.47, -0.30), (0, 0.45, -0.46), (0.09, 0.06)),
        Bone("tail2", "tail1", (0, 0.45, -0.46), (0, 0.50, -0.62), (0.06, 0.028)),
        Bone("ear.l", "head", (0.06, 0.81, 0.36), (0.10, 0.92, 0.33), (0.035, 0.015)),
        Bone("ear.r", "head", (-0.06, 0.81, 0.36), (-0.10, 0.92, 0.33), (0.035, 0.015)),
    ]
    for side, x in (("l", 0.105), ("r", -0.105)):
        for where, z in (("front", 0.19), ("back", -0.21)):
            knee_z = z + (0.01 if where == "front" else -0.03)
            upper, lower, foot = f"{where}.upper.{side}", f"{where}.lower.{side}", f"{where}.foot.{side}"
            bones += [
                Bone(upper, "spine", (x, 0.44, z), (x * 1.05, 0.24, knee_z), (0.085, 0.056)),
                Bone(lower, upper, (x * 1.05, 0.24, knee_z), (x * 1.05, 0.06, z), (0.056, 0.046)),
                Bone(foot, lower, (x * 1.05, 0.045, z), (x * 1.05, 0.042, z + 0.06), (0.05, 0.042)),
            ]
    return bones


def capsule_distance(points: np.ndarray, bone: Bone) -> np.ndarray:
    """Signed distance (N,) of points (N,3) to a capsule whose radius changes linearly."""
    head, tail = np.array(bone.head), np.array(bone.tail)
    axis = tail - head
    t = np.clip((points - head) @ axis / (axis @ axis), 0, 1)
    radius = bone.radius[0] + (bone.radius[1] - bone.radius[0]) * t
    return np.linalg.norm(points - head - t[:, None] * axis, axis=1) - radius


def rest_mesh(bones: list[Bone], cells: int) -> Mesh:
    """Marching cubes of the smooth union, coloured."""
    from skimage.measure import marching_cubes

    low, high = np.array([-0.26, -0.02, -0.74]), np.array([0.26, 1.0, 0.70])
    step = (high - low).max() / cells
    axes = [np.arange(a, b, step) for a, b in zip(low, high, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1)
    sharpness = 45.0  # 1/m: how softly the parts melt together
    total = np.zeros(grid.shape[:3])
    for bone in bones:
        total += np.exp(-sharpness * capsule_distance(grid.reshape(-1, 3), bone)).reshape(total.shape)
    field = -np.log(np.maximum(total, 1e-30)) / sharpness
    vertices, faces, _, _ = marching_cubes(field, 0.0, spacing=(step,) * 3)
    vertices = vertices + low
    centre = vertices[faces].mean(1) - vertices.mean(0)
    normal = np.cross(vertices[faces[:, 1]] - vertices[faces[:, 0]], vertices[faces[:, 2]] - vertices[faces[:, 0]])
    if (centre * normal).sum() < 0:
        faces = faces[:, ::-1]
    return Mesh(vertices, faces, paint(vertices, vertex_normals(vertices, faces)))


def paint(vertices: np.ndarray, normals: np.ndarray) -> np.ndarray:
    """A teal back with stripes, a cream belly, dark feet, a nose and two eyes: something to match by colour."""
    _, y, z = vertices.T
    color = np.tile([52.0, 146.0, 150.0], (len(vertices), 1))

    def blend(weight: np.ndarray, rgb: tuple[int, int, int]) -> None:
        color[:] = color + np.clip(weight, 0, 1)[:, None] * (np.array(rgb, float) - color)

    stripes = np.clip(4 * np.sin(38 * z + 3 * np.sin(9 * y)) - 1.5, 0, 1) * np.clip((y - 0.42) * 12, 0, 1)
    blend(stripes * (z < 0.3), (28, 84, 112))
    blend(np.clip(-normals[:, 1] * 3 - 0.4, 0, 1) * (y > 0.25), (238, 222, 186))
    blend(np.clip((0.115 - y) * 25, 0, 1), (84, 58, 46))
    blend(np.clip((z - 0.555) * 40, 0, 1), (226, 136, 96))
    blend(np.clip((y - 0.85) * 18, 0, 1), (232, 128, 92))
    blend(np.clip((-0.48 - z) * 10, 0, 1), (232, 128, 92))
    for side in (1, -1):
        distance = np.linalg.norm(vertices - [side * 0.083, 0.765, 0.455], axis=1)
        blend((0.040 - distance) * 150, (250, 250, 245))
        distance = np.linalg.norm(vertices - [side * 0.092, 0.765, 0.470], axis=1)
        blend((0.024 - distance) * 200, (20, 20, 28))
    return np.clip(np.round(color), 0, 255).astype(np.uint8)


def skin_weights(vertices: np.ndarray, bones: list[Bone]) -> np.ndarray:
    """(V,B): every vertex follows the capsules it is close to."""
    distance = np.stack([capsule_distance(vertices, bone) for bone in bones], 1)
    weight = np.exp(-(distance - distance.min(1, keepdims=True)) / 0.018)
    return weight / weight.sum(1, keepdims=True)


def joint_rotations(phase: float) -> dict[str, np.ndarray]:
    """Rotation vector of each bone about its own head at ``phase`` (radians) of the walk cycle."""
    out = {
        "spine": np.array([0.02 * np.sin(2 * phase), 0.05 * np.sin(phase), 0.05 * np.sin(phase)]),
        "neck": np.array([0.10 * np.sin(2 * phase + 0.6), -0.05 * np.sin(phase), 0]),
        "head": np.array([0.12 * np.sin(2 * phase + 1.4), 0, 0]),
        "tail1": np.array([0, 0.35 * np.sin(phase + 0.5), 0]),
        "tail2": np.array([0.1 * np.sin(2 * phase), 0.45 * np.sin(phase - 0.4), 0]),
    }
    for where, side, offset in (
        ("front", "l", 0.0),
        ("back", "r", 0.4),
        ("front", "r", np.pi),
        ("back", "l", np.pi + 0.4),
    ):
        swing = 0.50 * np.sin(phase + offset)
        lift = 0.75 * max(0.0, np.cos(phase + offset))
        bend = lift if where == "back" else 0.9 * lift
        out[f"{where}.upper.{side}"] = np.array([-swing - 0.35 * lift, 0, 0])
        out[f"{where}.lower.{side}"] = np.array([bend, 0, 0])
        out[f"{where}.foot.{side}"] = np.array([swing * 0.6 - 0.3 * lift, 0, 0])
    return out


def pose(rest: Mesh, bones: list[Bone], weights: np.ndarray, phase: float) -> Mesh:
    """Linear blend skinning of the rest mesh."""
    rotations, matrices = joint_rotations(phase), {}
    for bone in bones:
        local = np.eye(4)
        head = np.array(bone.head)
        local[:3, :3] = rotation_from_vector(rotations.get(bone.name, np.zeros(3)))
        local[:3, 3] = head - local[:3, :3] @ head
        if bone.parent is None:
            local[1, 3] += 0.018 * np.cos(2 * phase)
            matrices[bone.name] = local
        else:
            matrices[bone.name] = matrices[bone.parent] @ local
    stack = np.stack([matrices[bone.name] for bone in bones])
    blended = np.einsum("vb,bij->vij", weights, stack)
    moved = np.einsum("vij,vj->vi", blended[:, :3, :3], rest.vertices) + blended[:, :3, 3]
    return rest.moved(moved)


def camera(azimuth_deg: float = 62, elevation_deg: float = 9, distance: float = 2.15) -> Camera:
    """The fixed camera of the clip: 40 degrees high, a little above the creature."""
    azimuth, elevation = np.radians([azimuth_deg, elevation_deg])
    target = np.array([0, 0.46, 0.03])
    direction = [np.sin(azimuth) * np.cos(elevation), np.sin(elevation), np.cos(azimuth) * np.cos(elevation)]
    return Camera(fov_to_K(40, SIZE, SIZE), look_at(target + distance * np.array(direction), target), SIZE, SIZE)


def lit(mesh: Mesh) -> Mesh:
    """The mesh with soft light from above and the front painted into its colours."""
    light = np.array([0.45, 0.80, 0.40]) / np.linalg.norm([0.45, 0.80, 0.40])
    shade = 0.68 + 0.34 * np.clip(0.35 + 0.65 * vertex_normals(mesh.vertices, mesh.faces) @ light, 0, 1)
    return Mesh(mesh.vertices, mesh.faces, np.clip(mesh.colors * shade[:, None], 0, 255).astype(np.uint8))


def walk(cells: int = 130) -> list[Mesh]:
    """The true mesh of every frame: one walk cycle."""
    bones = skeleton()
    rest = rest_mesh(bones, cells)
    weights = skin_weights(rest.vertices, bones)
    return [pose(rest, bones, weights, 2 * np.pi * k / FRAMES) for k in range(FRAMES)]


def main() -> None:
    from v2m4.render.preview import write_mp4
    from v2m4.render.shade import render_mesh

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent / "data" / "walker.mp4")
    parser.add_argument("--meshes", type=Path, help="also write one .glb per frame into this folder")
    arguments = parser.parse_args()

    meshes = walk()
    pictures = []
    for mesh in meshes:
        picture = render_mesh(lit(mesh), camera(), supersample=3).astype(float)
        alpha = picture[..., 3:] / 255
        pictures.append(np.round(picture[..., :3] * alpha + BACKGROUND * (1 - alpha)).astype(np.uint8))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    write_mp4(arguments.output, pictures, FPS)
    if arguments.meshes:
        for index, mesh in enumerate(meshes):
            write_mesh(arguments.meshes / f"{frame_name(index)}.glb", mesh)


if __name__ == "__main__":
    main()
