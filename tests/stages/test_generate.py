"""The generate stage: what it writes, where the keyframes come from, what it refuses, and that it resumes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from v2m4 import formats
from v2m4.errors import ConfigError, InputError, MissingBackend
from v2m4.models.clean import is_closed, volume
from v2m4.stages import generate
from v2m4.stages.generate import GenerateOptions
from v2m4.types import Mesh

BODY = Mesh([(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)], [(0, 2, 1), (0, 1, 3), (1, 2, 3), (0, 3, 2)])


@pytest.fixture(autouse=True)
def few_views(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turntables of two views: they take most of the time."""
    monkeypatch.setattr(generate, "VIEWS", 2)


@pytest.fixture
def ingest(tmp_path: Path) -> Path:
    """Six frames of a blob that moves; keyframes 0, 2 and 5."""
    folder = tmp_path / "ingest"
    y, x = np.mgrid[:80, :80] + 0.5
    for i in range(6):
        image = np.zeros((80, 80, 4), np.uint8)
        image[((x - 30 - 4 * i) / 18) ** 2 + ((y - 40) / 30) ** 2 < 1] = (200, 100, 50, 255)
        formats.write_image(folder / "frames" / f"{formats.frame_name(i)}.png", image)
    entries = [dict(index=i, time_s=i / 10, name=f"{i + 1}.png", source_index=i) for i in range(6)]
    formats.write_json(folder / "clip.json", dict(width=80, height=80, frames=entries, keyframes=[0, 2, 5]))
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_inflate_is_the_default_and_says_what_it_is(context, ingest: Path) -> None:
    generate.run(context, GenerateOptions(), ingest)
    meshes = formats.read_keyframe_meshes(context.out)
    assert list(meshes) == [0, 2, 5]
    for mesh in meshes.values():
        assert is_closed(mesh.faces)
        assert volume(mesh) > 0
        assert len(mesh.faces) <= 8000
        assert np.abs(mesh.colors.astype(int) - (200, 100, 50)).max() <= 1
    summary = formats.read_json(context.out / "generate.json")
    assert summary["generator"] == "inflate"
    assert summary["description"] == "a 2.5D stand-in inflated from the silhouette; sides and back are guesses"
    assert summary["keyframes"] == [0, 2, 5]
    assert [(m["index"], m["faces"], m["closed"]) for m in summary["meshes"]] == [
        (k, len(m.faces), True) for k, m in meshes.items()
    ]
    sheet = formats.read_rgb(context.out / "turntable.png")
    rows = np.array_split(sheet, 3)  # one for each keyframe, and there is something to see in each
    assert all(row.reshape(-1, 3).std(0).min() > 5 for row in rows)
    assert sheet.shape[1] == 2 * 256


def test_an_interrupted_run_ends_with_the_same_bytes(context, ingest: Path) -> None:
    options = GenerateOptions(max_faces=1000)
    generate.run(context, options, ingest)
    whole = files(context.out)
    kept = formats.mesh_path(context.out, 0)
    stamp = kept.stat().st_mtime_ns
    formats.mesh_path(context.out, 2).unlink()
    (context.out / "generate.json").unlink()
    (context.out / "turntable.png").unlink()
    generate.run(context, options, ingest)
    assert files(context.out) == whole
    assert kept.stat().st_mtime_ns == stamp
    reduced = formats.read_json(context.out / "generate.json")["meshes"][0]
    assert reduced["faces"] <= 1000
    assert any("reduced from" in note for note in reduced["notes"])


def write_bodies(folder: Path, names: list[str]) -> None:
    for k, name in enumerate(names):
        formats.write_mesh(folder / name, BODY.moved(BODY.vertices * 0.5 + np.float32([k, 10, 0])))


def test_a_mesh_for_every_frame_makes_every_frame_a_keyframe(context, ingest: Path, tmp_path: Path) -> None:
    write_bodies(tmp_path / "mine", [f"fox_{i}.glb" for i in range(8, 14)])
    generate.run(context, GenerateOptions(meshes=tmp_path / "mine"), ingest)
    meshes = formats.read_keyframe_meshes(context.out)
    assert list(meshes) == [0, 1, 2, 3, 4, 5]
    for k, mesh in meshes.items():  # 9 before 10, and nothing moved
        np.testing.assert_array_equal(mesh.vertices, BODY.vertices * 0.5 + np.float32([k, 10, 0]))
    summary = formats.read_json(context.out / "generate.json")
    assert summary["generator"] == "folder"
    assert summary["keyframes"] == [0, 1, 2, 3, 4, 5]
    assert summary["notes"] == ["one mesh for every frame, in natural order"]
    assert summary["meshes"][2]["notes"] == ["from fox_10.glb"]


def test_meshes_for_the_keyframes(context, ingest: Path, tmp_path: Path) -> None:
    write_bodies(tmp_path / "mine", ["a.glb", "b.glb", "c.glb"])
    generate.run(context, GenerateOptions(meshes=tmp_path / "mine"), ingest)
    assert list(formats.read_keyframe_meshes(context.out)) == [0, 2, 5]


def test_one_reference_mesh_for_every_keyframe(context, ingest: Path, tmp_path: Path) -> None:
    import trimesh

    ball = trimesh.creation.icosphere(subdivisions=4, radius=3.0)
    formats.write_mesh(tmp_path / "ref.glb", Mesh(ball.vertices, ball.faces))
    generate.run(context, GenerateOptions(mesh=tmp_path / "ref.glb", max_faces=600), ingest)
    stored = [formats.mesh_path(context.out, k).read_bytes() for k in (0, 2, 5)]
    assert stored[0] == stored[1] == stored[2]
    mesh = formats.read_mesh(formats.mesh_path(context.out, 5))
    assert len(mesh.faces) <= 600
    assert np.abs(np.linalg.norm(mesh.vertices, axis=1) - 3).max() < 0.1
    assert formats.read_json(context.out / "generate.json")["generator"] == "reference"


def test_a_bad_mesh_stops_everything_before_any_work(context, ingest: Path, tmp_path: Path) -> None:
    write_bodies(tmp_path / "mine", ["a.glb", "b.glb"])
    (tmp_path / "mine" / "c.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n")
    with pytest.raises(InputError, match=r"c\.obj: the mesh has 1 usable triangle"):
        generate.run(context, GenerateOptions(meshes=tmp_path / "mine"), ingest)
    assert files(context.out) == {}


def test_wrong_counts_name_both(context, ingest: Path, tmp_path: Path) -> None:
    write_bodies(tmp_path / "mine", ["a.glb", "b.glb"])
    with pytest.raises(InputError, match="2 meshes for a clip of 6 frames and 3 keyframes"):
        generate.run(context, GenerateOptions(meshes=tmp_path / "mine"), ingest)


def test_an_open_mesh_is_told(context, ingest: Path, tmp_path: Path) -> None:
    sheet = Mesh(
        [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0.5, 0.5, 0.2)], [(0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4)]
    )
    formats.write_mesh(tmp_path / "sheet.glb", sheet)
    generate.run(context, GenerateOptions(mesh=tmp_path / "sheet.glb"), ingest)
    summary = formats.read_json(context.out / "generate.json")
    assert "3 of 3 meshes are not closed (first: frame 0)" in summary["notes"]
    assert any(m.startswith("warning: 3 of 3") for m in context.messages)


@pytest.mark.parametrize(
    "options",
    [
        GenerateOptions(meshes=Path("a"), mesh=Path("b.glb")),
        GenerateOptions(meshes=Path("a"), generator="my.module:Gen"),
        GenerateOptions(generator="folder"),
        GenerateOptions(generator="reference"),
        GenerateOptions(generator="inflatable"),
    ],
)
def test_options_that_do_not_fit_are_usage_errors(context, ingest: Path, options: GenerateOptions) -> None:
    with pytest.raises(ConfigError):
        generate.run(context, options, ingest)
    assert files(context.out) == {}


def test_your_own_generator(context, ingest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_gen_for_test.py").write_text(
        "from v2m4.protocols import Generated\n"
        "from v2m4.types import Mesh\n"
        "class Mine:\n"
        "    name, licence, description = 'mine', 'secret', 'a tetrahedron'\n"
        "    def generate(self, image, index, seed):\n"
        "        assert image.shape == (80, 80, 4)\n"
        "        points = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1 + index)]\n"
        "        return Generated(Mesh(points, [(0, 2, 1), (0, 1, 3), (1, 2, 3), (0, 3, 2)]), notes=(f's {seed}',))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    generate.run(context, GenerateOptions(generator="my_gen_for_test:Mine"), ingest)
    assert formats.read_keyframe_meshes(context.out)[5].vertices[:, 2].max() == 6
    summary = formats.read_json(context.out / "generate.json")
    assert (summary["generator"], summary["licence"]) == ("mine", "secret")
    assert [m["notes"] for m in summary["meshes"]] == [["s 0"], ["s 2"], ["s 5"]]


OWN = """
import numpy as np
from v2m4.protocols import Generated

class Base:
    name, licence, description = "mine", "MIT", "a test"
    def generate(self, image, index, seed):
        return self.given

class Nothing(Base): given = None
class Array(Base): given = Generated(np.zeros((3, 3)))
class Nameless:
    def generate(self, image, index, seed): ...
class Lacking(Base):
    def __init__(self): import no_such_package_here
"""


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("Nothing", InputError, "mine gave NoneType instead of a mesh"),
        ("Array", InputError, "mine gave ndarray instead of a mesh"),
        ("Nameless", ConfigError, "no name and no licence and no description"),
        ("Lacking", MissingBackend, "no_such_package_here, which own_gens:Lacking imports"),
    ],
)
def test_what_is_wrong_with_your_own_generator_is_said(
    context, ingest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: type, words: str
) -> None:
    (tmp_path / "own_gens.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(kind, match=words) as caught:
        generate.run(context, GenerateOptions(generator=f"own_gens:{name}"), ingest)
    assert caught.value.hint
    assert not (context.out / "meshes").exists()
