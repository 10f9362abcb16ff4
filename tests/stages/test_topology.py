"""The topology stage on a small clip the test makes: contract of its files, resume, refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import trimesh

from v2m4 import formats, transforms
from v2m4.errors import InputError
from v2m4.render.shade import render_mesh
from v2m4.stages.topology import TopologyOptions, run
from v2m4.types import Camera, Mesh

SIZE = 96
CAMERA = Camera(transforms.fov_to_K(40, SIZE, SIZE), transforms.look_at([0.6, 0.9, 2.6], [0.2, 0.5, 0.0]), SIZE, SIZE)
#: Only these frames of the clip have meshes, at uneven times.
KEYFRAMES = [0, 2, 5]
QUICK = TopologyOptions(nodes=30, passes=2)


def worm(k: int, count: int) -> Mesh:
    """A coloured rod that bends up and walks sideways, with another tessellation each time."""
    body = trimesh.creation.cylinder(0.15, 1.0, sections=count).subdivide_to_size(0.16)
    x, y, z = np.asarray(body.vertices).T  # along z
    along, bend = z + 0.5, 0.12 * k + 0.05
    angle = bend * along
    vertices = np.stack([np.sin(angle) / bend - np.sin(angle) * x, 0.5 + (1 - np.cos(angle)) / bend + x, 0.7 * y], 1)
    vertices[:, 0] += 0.03 * k
    colors = np.stack([60 + 180 * np.clip(along, 0, 1), 200 - 150 * np.clip(along, 0, 1), 90 + 0 * along], 1)
    faces = np.asarray(body.faces)
    if trimesh.Trimesh(vertices, faces, process=False).volume < 0:
        faces = faces[:, ::-1]
    return Mesh(vertices, faces, colors.astype(np.uint8))


def write_inputs(root: Path, meshes: dict[int, Mesh]) -> tuple[Path, Path]:
    ingest, repose = root / "ingest", root / "repose"
    frames = []
    for k in range(6):
        picture = render_mesh(worm(k, 16), CAMERA)
        formats.write_image(ingest / "frames" / f"{formats.frame_name(k)}.png", picture)
        frames.append({"index": k, "time_s": k / 10, "name": f"{k}.png", "source_index": k})
    clip = {"width": SIZE, "height": SIZE, "frames": frames, "keyframes": sorted(meshes), "alpha": "given"}
    formats.write_json(ingest / "clip.json", clip)
    for k, mesh in meshes.items():
        formats.write_mesh(formats.mesh_path(repose, k), mesh)
    world = {
        "width": SIZE,
        "height": SIZE,
        "K": CAMERA.K.tolist(),
        "world_to_camera": CAMERA.world_to_camera.tolist(),
        "keyframes": [{"index": k, "time_s": k / 10, "mesh_to_world": np.eye(4).tolist()} for k in meshes],
    }
    formats.write_json(repose / "world.json", world)
    return ingest, repose


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    meshes = {k: worm(k, 14 + 2 * i) for i, k in enumerate(KEYFRAMES)}
    return write_inputs(tmp_path_factory.mktemp("clip"), meshes)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_contract_and_resume(context, inputs) -> None:
    run(context, QUICK, *inputs)
    data = formats.read_npz(context.out / "animation.npz")
    anchor = worm(int(data["anchor"]), 14 + 2 * KEYFRAMES.index(int(data["anchor"])))
    assert list(data["keyframes"]) == KEYFRAMES
    assert np.allclose(data["times_s"], np.array(KEYFRAMES) / 10)
    assert np.array_equal(data["faces"], anchor.faces)
    assert data["positions"].shape == (3, len(anchor.vertices), 3) and data["positions"].dtype == np.float32
    assert np.abs(data["colors"].astype(int) - anchor.colors).max() <= 1
    material = 14 + 2 * KEYFRAMES.index(int(data["anchor"]))
    for k, got in zip(KEYFRAMES, data["positions"], strict=True):
        assert np.linalg.norm(got - worm(k, material).vertices, axis=1).mean() < 0.02
    quality = formats.read_json(context.out / "quality.json")
    assert quality["anchor"] == int(data["anchor"])
    assert [row["index"] for row in quality["keyframes"]] == KEYFRAMES
    wanted = {"iou", "flips", "stretch_mean", "stretch_p95", "volume", "trusted", "jitter", "residual"}
    assert all(wanted <= set(row) and row["trusted"] and row["iou"] > 0.9 for row in quality["keyframes"])
    assert quality["summary"]["flips"] == 0 and quality["summary"]["not_trusted"] == []
    preview = formats.read_rgba(context.out / "preview.png")
    assert preview.shape[0] > 3 * 100 and preview.shape[1] > 3 * 100 and preview.std() > 5

    undisturbed = tree(context.out)
    parts = sorted((context.out / "parts").iterdir())
    assert len(parts) == 2
    for path in context.out.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (context.out / "parts").mkdir()
    part = str(parts[0].relative_to(context.out))
    (context.out / part).write_bytes(undisturbed[part])  # as if killed after the first keyframe
    run(context, QUICK, *inputs)
    assert tree(context.out) == undisturbed


def test_one_keyframe(context, tmp_path: Path) -> None:
    mesh = worm(2, 16)
    run(context, QUICK, *write_inputs(tmp_path, {2: mesh}))
    got = formats.read_animation(context.out / "animation.npz")
    assert np.allclose(got.positions, mesh.vertices[None], atol=1e-6)
    assert json.loads((context.out / "quality.json").read_text())["summary"]["keyframes"] == 1


def test_one_reference_mesh_moves_exactly_as_it_was_placed(context, tmp_path: Path) -> None:
    still = worm(1, 16)
    place = {k: transforms.rigid(transforms.rotation_from_vector([0, 0.1 * k, 0]), [0.05 * k, 0, 0]) for k in KEYFRAMES}
    meshes = {k: still.moved(transforms.apply(m, still.vertices)) for k, m in place.items()}
    run(context, TopologyOptions(nodes=40, passes=3, trust=False), *write_inputs(tmp_path, meshes))
    got = formats.read_animation(context.out / "animation.npz")
    for position, k in zip(got.positions, KEYFRAMES, strict=True):
        assert np.allclose(position, meshes[k].vertices, atol=1e-6)


@pytest.mark.slow
def test_a_mesh_that_is_no_object_is_bridged_and_named(context, tmp_path: Path) -> None:
    meshes = {k: worm(k, 14) for k in range(6)}
    ball = trimesh.creation.icosphere(2, radius=0.45)
    noise = ball.vertices * (1 + 0.2 * np.random.default_rng(0).normal(size=(len(ball.vertices), 1))) + [0.4, 0.5, 0]
    meshes[3] = Mesh(noise, ball.faces, np.full((len(noise), 3), 120, np.uint8))
    run(context, TopologyOptions(nodes=40, passes=3, anchor="1"), *write_inputs(tmp_path, meshes))
    quality = formats.read_json(context.out / "quality.json")
    assert [row["index"] for row in quality["keyframes"] if not row["trusted"]] == [3]
    assert any("frame 3 is bridged" in m for m in context.messages)
    got = formats.read_animation(context.out / "animation.npz")
    assert np.linalg.norm(got.positions[3] - worm(3, 14).vertices, axis=1).mean() < 0.03


def test_refusals(context, inputs, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"topology\.anchor = 1 is not a keyframe"):
        run(context, TopologyOptions(anchor="1"), *inputs)
    with pytest.raises(InputError, match="no meshes"):
        run(context, QUICK, inputs[0], tmp_path)


@pytest.mark.slow
def test_bench_fox_with_true_poses(context, shared: Path, tmp_path: Path) -> None:
    """The registration alone on a running fox: better than its own noisy input meshes (0.0365)."""
    import sys

    clip = shared / "bench" / "dev" / "fox_run"
    sys.path[:0] = [str(shared / "bench"), str(shared / "bench" / "tests")]
    try:
        import evaluate
        import refglb
    finally:
        del sys.path[:2]
    places = json.loads((clip / "meta.json").read_text())["canonical_to_world"]["generated"]
    camera = json.loads((clip / "camera.json").read_text())
    ingest, repose = tmp_path / "ingest", tmp_path / "repose"
    (ingest / "frames").mkdir(parents=True)
    for k, place in enumerate(places):
        shutil.copy(clip / "frames" / f"{k:03d}.png", ingest / "frames" / f"{formats.frame_name(k)}.png")
        mesh = formats.read_mesh(clip / "generated" / f"{k:03d}.glb")
        formats.write_mesh(formats.mesh_path(repose, k), mesh.moved(transforms.apply(np.array(place), mesh.vertices)))
    frames = [{"index": k, "time_s": k / 12, "name": "", "source_index": k} for k in range(16)]
    formats.write_json(ingest / "clip.json", {"width": 512, "height": 512, "frames": frames, "keyframes": []})
    pose = camera["world_to_camera"][0]
    formats.write_json(repose / "world.json", {"width": 512, "height": 512, "K": camera["K"], "world_to_camera": pose})
    run(context, TopologyOptions(), ingest, repose)
    result = formats.read_animation(context.out / "animation.npz")
    refglb.write_animated(str(tmp_path / "fox.glb"), result.positions, result.faces, result.times_s)
    metrics = evaluate.evaluate(str(clip), str(tmp_path / "fox.glb"))["metrics"]
    assert metrics["cd4d"] < 0.033
    assert metrics["cdm"] < 0.10
    assert formats.read_json(context.out / "quality.json")["summary"]["not_trusted"] == []
