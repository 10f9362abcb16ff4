"""The user's meshes: which file is which frame, and what is refused before any work (cases R11, R14)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from v2m4.errors import InputError
from v2m4.formats import write_mesh
from v2m4.models.folder import Folder, assign, check, list_meshes
from v2m4.types import Mesh

BODY = Mesh([(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)], [(0, 2, 1), (0, 1, 3), (1, 2, 3), (0, 3, 2)])


def frames(names: list[str]) -> list[dict[str, object]]:
    return [{"index": i, "name": name} for i, name in enumerate(names)]


def paths(*names: str) -> list[Path]:
    return [Path("meshes") / name for name in names]


CLIP = frames([f"walk_{i:03d}.png" for i in range(10, 30)])  # 20 frames whose pictures count from 10
KEYFRAMES = [0, 6, 12, 19]


def test_natural_order_and_junk(tmp_path: Path) -> None:
    for name in ("fox_10.obj", "fox_9.obj", "fox_100.PLY", ".fox_1.obj", "fox.mtl", "Thumbs.db", "notes.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / "old.obj").mkdir()
    assert [p.name for p in list_meshes(tmp_path)] == ["fox_9.obj", "fox_10.obj", "fox_100.PLY"]


def test_no_folder_and_no_meshes_are_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        list_meshes(tmp_path / "nowhere")
    (tmp_path / "a.png").write_text("x")
    with pytest.raises(InputError, match="no mesh files"):
        list_meshes(tmp_path)


def test_as_many_as_frames_means_one_each() -> None:
    files = paths(*(f"m{i * 7}.obj" for i in range(20)))
    got = assign(files, CLIP, KEYFRAMES)
    assert got.files == dict(enumerate(files))
    assert got.rule == "one mesh for every frame, in natural order"


@pytest.mark.parametrize(
    ("names", "expected", "rule"),
    [
        (("walk_012.obj", "walk_020.obj"), [2, 10], "the names of the source pictures"),
        (("00012.glb", "00018.glb"), [12, 18], "frame names of this run"),
        (("fox12.obj", "fox20.obj"), [2, 10], "the numbers of the source pictures"),
        (("fox3.obj", "fox12.obj"), [3, 12], "frame numbers, counted from 0"),
        (("fox0.obj", "fox6.obj", "fox12.obj", "fox19.obj"), KEYFRAMES, "frame numbers, counted from 0"),
    ],
)
def test_matched_by_name(names: tuple[str, ...], expected: list[int], rule: str) -> None:
    got = assign(paths(*names), CLIP, KEYFRAMES)
    assert list(got.files) == expected
    assert [p.name for p in got.files.values()] == list(names)
    assert got.rule == f"{len(names)} meshes matched to frames by {rule}"


def test_frames_of_a_video_are_known_by_their_number_in_it() -> None:
    clip = frames([f"clip2.mp4#{3 * i}" for i in range(10)])
    assert list(assign(paths("m6.obj", "m27.obj"), clip, [0, 9]).files) == [2, 9]


@pytest.mark.parametrize("names", [("a.obj", "b.obj", "c.obj", "d.obj"), ("p40.obj", "p50.obj", "p60.obj", "p70.obj")])
def test_as_many_as_keyframes(names: tuple[str, ...]) -> None:
    got = assign(paths(*names), CLIP, KEYFRAMES)
    assert list(got.files) == KEYFRAMES
    assert [p.name for p in got.files.values()] == list(names)


@pytest.mark.parametrize("start", [0, 1])
def test_poses_that_are_only_counted_are_the_keyframes(start: int) -> None:
    files = paths(*(f"pose_{i + start}.obj" for i in range(4)))
    assert list(assign(files, CLIP, KEYFRAMES).files) == KEYFRAMES


def test_another_count_is_an_error_with_the_counts() -> None:
    with pytest.raises(InputError, match="meshes: 3 meshes for a clip of 20 frames and 4 keyframes"):
        assign(paths("a.obj", "b.obj", "c.obj"), CLIP, KEYFRAMES)
    with pytest.raises(InputError, match="2 meshes"):  # the same frame twice
        assign(paths("fox_3.obj", "bear_3.obj"), CLIP, KEYFRAMES)


def test_the_mesh_is_handed_out_as_given(tmp_path: Path) -> None:
    placed = BODY.moved(BODY.vertices * 7 + np.float32([100, -3, 0.5]))
    write_mesh(tmp_path / "a.glb", placed)
    generated = Folder({4: tmp_path / "a.glb"}).generate(np.zeros((2, 2, 4), np.uint8), 4, 0)
    np.testing.assert_array_equal(generated.mesh.vertices, placed.vertices)
    np.testing.assert_array_equal(generated.mesh.faces, placed.faces)
    assert generated.notes == ("from a.glb",)


OBJ = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (OBJ, "no faces|cannot be read"),
        (OBJ + "f 1 2 3\n", "1 usable triangle; a body needs at least 4"),
        (OBJ.replace("v 0 0 1", "v 0 nan 1") + "f 1 3 2\nf 1 2 4\nf 2 3 4\nf 1 4 3\n", "NaN"),
        ("", "cannot be read|no faces"),
        ("f 1 2 9\n" + OBJ, "bad.obj"),
    ],
)
def test_a_bad_mesh_is_named_with_the_reason(tmp_path: Path, text: str, reason: str) -> None:
    write_mesh(tmp_path / "good.glb", BODY)
    (tmp_path / "bad.obj").write_text(text)
    with pytest.raises(InputError, match=reason) as caught:
        check([tmp_path / "good.glb", tmp_path / "bad.obj"])
    assert "bad.obj" in caught.value.message


def test_meshes_need_not_have_equal_counts(tmp_path: Path) -> None:
    write_mesh(tmp_path / "a.glb", BODY)
    more = Mesh(np.concatenate([BODY.vertices, [[2, 2, 2]]]), np.concatenate([BODY.faces, [[1, 2, 4]]]))
    write_mesh(tmp_path / "b.glb", more)
    check([tmp_path / "a.glb", tmp_path / "b.glb"])
