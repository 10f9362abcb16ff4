"""The page of a run that a test makes: a sphere filmed by our own renderer, so that the truth is known."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from v2m4 import formats, transforms
from v2m4.export import doubts, page, pictures, report
from v2m4.export.report import write_report
from v2m4.stages.camera import CameraOptions
from v2m4.types import AnimatedMesh, Camera, Texture

EVIL = '<script>alert("x")</script> & sons'
POSES = 4


@pytest.fixture(autouse=True)
def small_turntable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sphere turns in small pictures: these tests look at other things."""
    monkeypatch.setattr(pictures, "TURNTABLE_SIZE", 48)


@pytest.fixture
def camera() -> Camera:
    """A 96x64 view of the sphere's walk."""
    K = transforms.fov_to_K(40, 96, 64)
    return Camera(K, transforms.look_at([3.2, 5, 6], [3.2, 5, -2]), 96, 64)


@pytest.fixture
def run_dir(
    tmp_path: Path, moving_sphere: Callable[..., AnimatedMesh], sphere_texture: Texture, camera: Camera
) -> Path:
    """All folders the report reads; frame 2 shows the sphere at half its size."""
    from v2m4.render.shade import render_mesh

    animation = moving_sphere(POSES, fps=8)
    frames = [
        {"index": i, "time_s": float(t), "name": str(i), "source_index": i} for i, t in enumerate(animation.times_s)
    ]
    clip = {"source": {"name": EVIL}, "width": 96, "height": 64, "frames": frames, "keyframes": list(range(POSES))}
    formats.write_json(tmp_path / "1_ingest" / "clip.json", {**clip, "warnings": [EVIL]})
    for i in range(POSES):
        mesh = animation.mesh(i)
        if i == 2:
            centre = mesh.vertices.mean(0)
            mesh = mesh.moved(centre + (mesh.vertices - centre) * 0.5)
        drawn = render_mesh(mesh, camera, texture=sphere_texture)
        formats.write_image(tmp_path / "1_ingest" / "frames" / f"{formats.frame_name(i)}.png", drawn)
    formats.write_json(tmp_path / "2_generate" / "generate.json", {"generator": EVIL, "description": "a stand-in"})
    world = {"width": 96, "height": 64, "K": camera.K.tolist(), "world_to_camera": camera.world_to_camera.tolist()}
    formats.write_json(tmp_path / "5_repose" / "world.json", world)
    formats.write_animation(tmp_path / "6_topology" / "animation.npz", animation, keyframes=np.arange(POSES))
    formats.write_json(tmp_path / "6_topology" / "quality.json", {"summary": {"flips": 3}, "keyframes": []})
    uv = {"uv": sphere_texture.uv, "uv_faces": sphere_texture.uv_faces}
    formats.write_npz(tmp_path / "7_texture" / "uv.npz", uv)
    formats.write_image(tmp_path / "7_texture" / "base_color.png", sphere_texture.base_color)
    formats.write_json(tmp_path / "8_export" / "export.json", {"name": EVIL, "faces": 180, "duration_s": 0.375})
    return tmp_path


class Reader(HTMLParser):
    """Collects tags, texts and everything that would be loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text, self.sources = "", []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]

    def handle_data(self, data: str) -> None:
        self.text += data


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text("utf-8"))
    return reader


def test_the_page_needs_nothing_from_outside(run_dir: Path) -> None:
    path = write_report(run_dir, {"stages": {"camera": {"warnings": [EVIL], "seconds": 1.5}}})
    assert path == run_dir / "report.html" and path.stat().st_size < 5_000_000
    reader = read(path)
    assert len(reader.sources) >= 1 + 1 + 3 * POSES
    for source in reader.sources:
        kind, data = source.split(";base64,")
        assert kind == "data:image/webp"
        Image.open(io.BytesIO(base64.b64decode(data))).verify()
    assert not re.search(r"url\(|@import|http", page.STYLE)
    assert {"script", "link", "iframe"}.isdisjoint(reader.tags)


def test_names_are_shown_as_they_are(run_dir: Path) -> None:
    manifest = {"stages": {"camera": {"warnings": [EVIL], "edited": [EVIL]}}, "licences": {EVIL: "MIT"}}
    reader = read(write_report(run_dir, manifest))
    assert "script" not in reader.tags
    assert reader.text.count(EVIL) >= 6  # title, name, source, generator, warnings, edited file, licence


def test_the_numbers_are_in_the_page(run_dir: Path) -> None:
    manifest = {"stages": {"topology": {"state": "finished", "seconds": 12.345, "peak_memory_mb": 987.6}}}
    text = read(write_report(run_dir, manifest)).text
    for wanted in ("12.35", "988", "a stand-in", "frame 2", "the worst", "Lowest of all: 0.2", "flips"):
        assert wanted in text, wanted


WORST = [{"index": 0, "flips": 2}, {"index": 3, "flips": 4}]
#: 180 faces in 4 keyframes, of which one in a thousand may be turned over: 0.72 faces.
QUALITY = {"summary": {"flips": 6, "keyframes": 4}, "keyframes": WORST}
FLIPPED = "6 faces are turned over, counted in every keyframe, most of them (4) at frame 3: look for folds"
UNSEEN = "62% of the surface is never seen in the clip, its colours come from the surface around it: look at"
LOW = "the asset's outline matches the clip's by 0.899 on average, below 0.9: compare"


def outlines(*iou: float) -> pictures.Silhouettes:
    return pictures.Silhouettes(np.arange(len(iou)), np.array(iou), (0, 0, 1, 1))


@pytest.mark.parametrize(
    ("topology", "texture", "iou", "said"),
    [
        (QUALITY, {}, (1.0,), [FLIPPED]),
        ({"summary": {"flips": 1, "keyframes": 4}}, {}, (1.0,), ["1 face is turned over, counted in every keyframe: "]),
        ({"summary": {"flips": 1, "keyframes": 6}}, {}, (1.0,), []),  # 1 of 1080
        ({"summary": {"flips": 0, "keyframes": 4}}, {"unseen_share": 0.5}, (0.9, 0.9), []),
        ({}, {"unseen_share": 0.6169, "unseen_filled_from": "the surface around it"}, (1.0,), [UNSEEN]),
        ({}, {}, (0.999, 0.799), [LOW]),
        (QUALITY, {"unseen_share": 0.51}, (0.89,), ["0.890 on average", FLIPPED, "51% of the surface is never seen"]),
    ],
)
def test_what_the_numbers_say_against_a_run_is_a_warning(topology, texture, iou, said: list[str]) -> None:
    told = {"export": {"faces": 180}, "topology": topology, "texture": texture}
    found = doubts.found(told, None, outlines(*iou))
    assert len(found) == len(said)
    for sentence, words in zip(found, said, strict=True):
        assert words in sentence


def test_warnings_are_not_none_beside_bad_numbers(run_dir: Path) -> None:
    formats.write_json(run_dir / "7_texture" / "texture.json", {"unseen_share": 0.61})
    formats.write_json(run_dir / "6_topology" / "quality.json", QUALITY)
    text = read(write_report(run_dir, {})).text
    warnings = text[text.index("Warnings") : text.index("Numbers")]
    for words in (FLIPPED, "61% of the surface is never seen", "below 0.9", "misses the clip's outline at frame 2"):
        assert words in warnings
    assert "None." not in warnings
    assert "flips: faces turned over" in text[text.index("Numbers") :]


@pytest.mark.parametrize("fov", [40.0, 41.0])
def test_a_lens_that_may_be_assumed_is_called_so(run_dir: Path, fov: float) -> None:
    assert CameraOptions().fov_deg == report.ASSUMED_FOV_DEG
    for file in ("3_camera/cameras.json", "5_repose/world.json"):
        before = formats.read_json(run_dir / file) if (run_dir / file).is_file() else {}
        formats.write_json(run_dir / file, {**before, "fov_y_deg": fov})
    text = read(write_report(run_dir, {})).text
    assert text.count("40, assumed unless given with --fov") == (2 if fov == 40 else 0)


def test_outlines_agree_where_the_asset_is_the_truth(run_dir: Path) -> None:
    run = pictures.read_run(*(run_dir / name for name in ("1_ingest", "5_repose", "6_topology", "7_texture")))
    found = pictures.silhouettes(run)
    assert found.iou[[0, 1, 3]].min() > 0.95  # half-covered pixels may fall on either side
    assert found.iou[2] == pytest.approx(0.25, abs=0.06)
    left, top, right, bottom = found.box
    assert 0 < left < right <= 96 and 0 <= top < bottom <= 64


def test_frames_between_keyframes_are_measured_and_marked(run_dir: Path) -> None:
    data = formats.read_npz(run_dir / "6_topology" / "animation.npz")
    ends = AnimatedMesh(data["faces"], data["positions"][[0, 3]], data["times_s"][[0, 3]])
    formats.write_animation(run_dir / "6_topology" / "animation.npz", ends, keyframes=np.array([0, 3]))
    run = pictures.read_run(*(run_dir / name for name in ("1_ingest", "5_repose", "6_topology", "7_texture")))
    found = pictures.silhouettes(run)
    assert found.frames.tolist() == [0, 1, 2, 3] and found.iou[[0, 3]].min() > 0.95 > found.iou[1]
    path = write_report(run_dir, {})
    assert path.read_text("utf-8").count("opacity:.45") == 2
    low = [str(k) for k in (1, 2) if found.iou[k] < 0.75]
    assert "2" in low
    warned = f"misses the clip's outline between keyframes at frame{'s' * (len(low) - 1)} {', '.join(low)}: a smaller"
    assert warned in read(path).text
    assert len(read(path).sources) == 1 + 1 + 3 * 2 + 1  # film, turntable, two rows, texture


def test_frame_and_asset_are_the_same_picture_inside_the_box(run_dir: Path) -> None:
    run = pictures.read_run(*(run_dir / name for name in ("1_ingest", "5_repose", "6_topology", "7_texture")))
    frame, asset, _ = pictures.comparison(run, 1, pictures.silhouettes(run).box)
    assert frame.shape == asset.shape
    apart = np.abs(frame.astype(int) - asset)
    assert np.median(apart) == 0 and apart.mean() < 2.0


def test_the_film_plays_every_frame_at_the_clips_speed(run_dir: Path) -> None:
    run = pictures.read_run(*(run_dir / name for name in ("1_ingest", "5_repose", "6_topology", "7_texture")))
    film = Image.open(io.BytesIO(pictures.film(run, (0, 0, 96, 64))))
    assert film.n_frames == POSES and film.size[0] == 2 * 96 and film.info["loop"] == 0
    durations = []
    for k in range(POSES):
        film.seek(k)
        film.load()
        durations.append(film.info["duration"])
    assert durations == [125] * POSES


@pytest.mark.parametrize("missing", ["8_export", "7_texture", "6_topology", "5_repose", "2_generate", "1_ingest"])
def test_what_is_missing_is_left_out(run_dir: Path, missing: str) -> None:
    import shutil

    shutil.rmtree(run_dir / missing)
    reader = read(write_report(run_dir, {}))
    whole = missing in ("8_export", "2_generate")
    assert ("Silhouettes" in reader.text) == whole and "Warnings" in reader.text


def test_an_empty_run_has_a_page(tmp_path: Path) -> None:
    assert tmp_path.name in read(write_report(tmp_path, {})).text


def test_bars_are_as_tall_as_their_values() -> None:
    svg = page.bars([1.0, 0.5, 0.0, 1.7], ["a", "b", "c", "<d>"], (0.9, 0.4))
    tall = [float(h) for h in re.findall(r'<rect[^>]* height="([\d.]+)"', svg)]
    assert tall[0] == tall[3] == 2 * tall[1] > 0 and tall[2] == 0
    assert [c for c in re.findall(r"fill:var\(--(\w+)\)", svg)] == ["good", "fair", "bad", "good"]
    assert "<d>" not in svg and "&lt;d&gt;: 1.700" in svg
