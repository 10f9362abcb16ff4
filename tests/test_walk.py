"""The whole walk, from a clip to a checked .glb, through the command line as a user runs it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import make_walker
import numpy as np
import pytest

from v2m4.formats import frame_name, read_animation, read_clip, read_rgba, write_image, write_mesh
from v2m4.glb import GlbReader
from v2m4.transforms import apply, rotation_angle_deg, split_similarity

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SMALL = [
    "--set", "ingest.keyframe_step=6", "--set", "generate.max_faces=1600", "--set", "topology.nodes=80",
    "--set", "topology.passes=2", "--set", "texture.size=256", "--set", "camera.directions=120",
]  # fmt: skip

#: Files every run may touch: its log, its lock, and what it remembers about files it has hashed.
UNIMPORTANT = ("log.txt", "run.lock", ".digests.json")

pytestmark = pytest.mark.slow


def command(clip: Path, out: Path, *more: str | Path) -> list[str]:
    return [sys.executable, "-m", "v2m4.cli", "run", str(clip), "-o", str(out), *SMALL, *map(str, more)]


def convert(clip: Path, out: Path, *more: str | Path) -> str:
    """Run to the end; what it said."""
    result = subprocess.run(command(clip, out, *more), capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr + result.stdout
    return result.stdout + result.stderr


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped clip, converted."""
    out = tmp_path_factory.mktemp("walk") / "walker"
    convert(EXAMPLES / "data" / "walker.mp4", out)
    return out


def test_asset_and_report_lie_on_top(finished: Path) -> None:
    clip = read_clip(finished / "1_ingest", only=[])
    assert len(clip.times_s) == 24 and clip.keyframes == (0, 6, 12, 18, 23)
    glb = GlbReader(finished / "walker.glb")
    sampler = glb.gltf.animations[0].samplers[0]
    times = glb.accessor(sampler.input)
    weights = glb.accessor(sampler.output).reshape(24, -1)
    assert np.array_equal(times, clip.times_s.astype(np.float32)), "the keys are the clip's own times"
    assert weights.shape == (24, 4) and ((weights > 0).sum(1) <= 2).all()
    assert len(glb.gltf.meshes) == len(glb.gltf.materials) == len(glb.gltf.images) == 1
    page = (finished / "report.html").read_text("utf-8")
    assert "2.5D stand-in" in page and "walker" in page
    assert "http://" not in page.replace("http://www.w3.org", ""), "the page needs nothing from elsewhere"


def test_asset_covers_the_object_in_every_keyframe(finished: Path) -> None:
    quality = json.loads((finished / "6_topology" / "quality.json").read_text())
    overlap = [row["iou"] for row in quality["keyframes"]]
    assert min(overlap) > 0.78 and np.mean(overlap) > 0.86, overlap


def test_second_run_does_nothing_and_says_so(finished: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in finished.rglob("*") if p.is_file() and p.name not in UNIMPORTANT}
    assert "nothing to do" in convert(EXAMPLES / "data" / "walker.mp4", finished)
    assert {p: p.stat().st_mtime_ns for p in before} == before


def test_killed_in_topology_ends_with_the_same_bytes(finished: Path, tmp_path: Path) -> None:
    again = tmp_path / "walker"  # the same name: the asset carries it
    shutil.copytree(finished, again)
    for folder in ("6_topology", "7_texture", "8_export"):
        shutil.rmtree(again / folder)
    (again / "walker.glb").unlink()
    process = subprocess.Popen(
        command(EXAMPLES / "data" / "walker.mp4", again),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 300
    parts = again / "6_topology.partial" / "parts"
    while not list(parts.glob("*.npz")):
        assert process.poll() is None and time.monotonic() < deadline, "it was never seen in the middle of topology"
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert (again / "6_topology.partial").is_dir() and not (again / "6_topology").exists()
    assert "goes on" in convert(EXAMPLES / "data" / "walker.mp4", again)
    assert (again / "walker.glb").read_bytes() == (finished / "walker.glb").read_bytes()


def test_repainted_texture_is_kept_and_exported(finished: Path, tmp_path: Path) -> None:
    again = tmp_path / "walker"
    shutil.copytree(finished, again)
    painted = read_rgba(again / "7_texture" / "base_color.png")[..., :3] // 2
    write_image(again / "7_texture" / "base_color.png", painted)
    said = convert(EXAMPLES / "data" / "walker.mp4", again)
    assert "kept (edited" in said
    assert np.array_equal(read_rgba(again / "7_texture" / "base_color.png")[..., :3], painted)
    assert (again / "walker.glb").read_bytes() != (finished / "walker.glb").read_bytes()
    assert (again / "6_topology" / "stage.json").read_bytes() == (finished / "6_topology" / "stage.json").read_bytes()


def test_own_meshes_come_back_where_they_were(tmp_path: Path) -> None:
    """With the true mesh of every frame the poses are found and the animation follows the true motion."""
    from scipy.spatial import cKDTree

    from v2m4.models.clean import reduce
    from v2m4.render.shade import render_mesh

    meshes, camera = make_walker.walk(cells=70)[::4], make_walker.camera()
    rng = np.random.default_rng(5)
    for k, mesh in enumerate(meshes):
        write_image(
            tmp_path / "frames" / f"{frame_name(k)}.png", render_mesh(make_walker.lit(mesh), camera, supersample=2)
        )
        small = reduce(mesh, 1500 + int(rng.integers(200)))  # another topology in every frame
        write_mesh(tmp_path / "meshes" / f"{frame_name(k)}.glb", small)
    out = tmp_path / "walker"
    convert(tmp_path / "frames", out, "--meshes", tmp_path / "meshes", "--fps", "6")

    poses = json.loads((out / "3_camera" / "poses.json").read_text())
    true_rotation = camera.world_to_camera[:3, :3]
    errors = [float(rotation_angle_deg(split_similarity(np.array(p))[1], true_rotation)) for p in poses]
    assert max(errors) < 4 and np.mean(errors) < 2, errors

    world = json.loads((out / "5_repose" / "world.json").read_text())
    animation = read_animation(out / "6_topology" / "animation.npz")
    assert len(animation.times_s) == len(meshes), "every frame has a mesh, so every frame is a keyframe"
    truth = [apply(camera.world_to_camera, m.vertices.astype(float)) for m in meshes]
    found = [apply(np.array(world["world_to_camera"]), p.astype(float)) for p in animation.positions]
    # One camera cannot tell size from distance: one common factor for the clip is free.
    factor = np.mean([t[:, 2].mean() for t in truth]) / np.mean([f[:, 2].mean() for f in found])
    size = max(float(np.ptp(t, axis=0).max()) for t in truth)
    distances = [cKDTree(t).query(factor * f)[0].mean() / size for t, f in zip(truth, found, strict=True)]
    assert max(distances) < 0.03, distances
