"""What is written reads back bit for bit; what is damaged is refused by name."""

from __future__ import annotations

import inspect
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from v2m4 import formats
from v2m4.errors import InputError
from v2m4.types import AnimatedMesh, Mesh

quick = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
pictures = arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(4)))
SQUARE = Mesh([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], [[0, 1, 2], [0, 2, 3]])


@quick
@given(pictures)
def test_pictures_keep_every_bit_also_under_alpha_zero(tmp_path: Path, image: np.ndarray) -> None:
    path = tmp_path / "кадр é.png"
    formats.write_image(path, image)
    np.testing.assert_array_equal(formats.read_rgba(path), image)
    formats.write_image(path, image[..., :3])
    np.testing.assert_array_equal(formats.read_rgb(path), image[..., :3])


@quick
@given(
    st.dictionaries(
        st.sampled_from("abc"),
        st.one_of(
            arrays(np.float32, array_shapes(max_dims=3, max_side=4), elements=st.floats(width=32)),
            arrays(np.int32, array_shapes(max_dims=2, max_side=4)),
        ),
    )
)
def test_arrays_keep_every_bit_and_the_same_arrays_give_the_same_file(tmp_path: Path, data: dict) -> None:
    path, again = tmp_path / "a.npz", tmp_path / "b.npz"
    formats.write_npz(path, data)
    formats.write_npz(again, dict(reversed(data.items())))
    assert path.read_bytes() == again.read_bytes()
    read = formats.read_npz(path)
    assert set(read) == set(data)
    for key, value in data.items():
        assert read[key].dtype == value.dtype and read[key].tobytes() == value.tobytes()


PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
ANIMATION = AnimatedMesh([[0, 1, 2]], np.zeros((1, 3, 3)), [0.0])
#: What a writer is given after the path; what reads has to read what was written.
WRITE = {
    "write_bytes": (b"x",),
    "write_json": ({"a": 1},),
    "write_npz": ({"a": np.arange(3)},),
    "write_image": (PIXELS,),
    "write_animation": (ANIMATION,),
    "write_mesh": (SQUARE,),
}
READ = ("read_json", "read_npz", "read_rgba", "read_rgb", "read_animation", "read_mesh")
FOLDERS = ("read_clip", "read_background", "read_camera", "mesh_path", "read_keyframe_meshes", "read_texture")


def leave_folder(folder: Path) -> None:
    """What stages leave for each other, all in one folder."""
    formats.write_image(folder / "frames" / "00000.png", PIXELS)
    clip = {"frames": [{"time_s": 0.0}], "keyframes": [0], "width": 3, "height": 2}
    formats.write_json(folder / "clip.json", clip)
    formats.write_mesh(formats.mesh_path(folder, 0), SQUARE)
    formats.write_image(folder / "base_color.png", PIXELS)
    formats.write_npz(folder / "uv.npz", {"uv": np.zeros((1, 2)), "uv_faces": np.zeros((1, 3), np.int32)})
    formats.write_npz(folder / "background.npz", {"track": np.zeros(1), "frame": np.zeros(1), "xy": np.zeros((1, 2))})
    camera = {"K": np.eye(3).tolist(), "world_to_camera": np.eye(4).tolist(), "width": 3, "height": 2}
    formats.write_json(folder / "world.json", camera)


def test_every_function_takes_text_as_well_as_a_path(tmp_path: Path) -> None:
    public = {
        name
        for name, function in vars(formats).items()
        if inspect.isfunction(function)
        and function.__module__ in ("v2m4.formats", "v2m4.files")
        and not name.startswith("_")
        and any("Path" in str(p.annotation) for p in inspect.signature(function).parameters.values())
    }
    assert public == {*WRITE, *READ, *FOLDERS}
    named = {"image": ".png", "rgba": ".png", "rgb": ".png", "json": ".json", "mesh": ".glb"}
    suffix = {name: named.get(name.partition("_")[2], ".npz") for name in (*WRITE, *READ)}
    for name, content in WRITE.items():
        one, two = (tmp_path / n / f"{name[6:]}{suffix[name]}" for n in ("one", "two"))
        getattr(formats, name)(one, *content)
        getattr(formats, name)(str(two), *content)
        assert one.read_bytes() == two.read_bytes()
    for name in READ:
        what = name.removeprefix("read_")
        path = tmp_path / "one" / f"{'image' if what.startswith('rgb') else what}{suffix[name]}"
        assert repr(getattr(formats, name)(str(path))) == repr(getattr(formats, name)(path))
        with pytest.raises(InputError, match=f"none{suffix[name]}: no such file"):
            getattr(formats, name)(str(tmp_path / f"none{suffix[name]}"))
    leave_folder(tmp_path / "run")
    for name in FOLDERS:
        rest = (0,) if name == "mesh_path" else ()
        found = [getattr(formats, name)(kind(tmp_path / "run"), *rest) for kind in (str, Path)]
        assert repr(found[0]) == repr(found[1])


def test_an_npz_holds_nothing_of_the_time_of_day(tmp_path: Path) -> None:
    formats.write_npz(tmp_path / "a.npz", {"x": np.arange(3)})
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        assert [i.date_time for i in archive.infolist()] == [(1980, 1, 1, 0, 0, 0)]


def test_json_is_readable_and_refuses_nan(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "a.json"
    formats.write_json(path, {"имя": [1, 2.5, None]})
    assert formats.read_json(path) == {"имя": [1, 2.5, None]} and "имя" in path.read_text("utf-8")
    with pytest.raises(ValueError, match="JSON"):
        formats.write_json(path, float("nan"))
    assert formats.read_json(path) == {"имя": [1, 2.5, None]}


@pytest.mark.parametrize("colors", [None, np.array([[0, 1, 2], [255, 254, 3], [128, 20, 99], [7, 8, 9]])])
def test_a_mesh_reads_back_exactly(tmp_path: Path, colors: np.ndarray | None) -> None:
    rng = np.random.default_rng(0)
    mesh = Mesh(rng.normal(size=(4, 3)), SQUARE.faces, colors)
    formats.write_mesh(tmp_path / "m.glb", mesh)
    read = formats.read_mesh(tmp_path / "m.glb")
    assert read.vertices.tobytes() == mesh.vertices.tobytes()
    np.testing.assert_array_equal(read.faces, mesh.faces)
    if colors is None:
        assert read.colors is None
    else:
        np.testing.assert_array_equal(read.colors, mesh.colors)
    first = (tmp_path / "m.glb").read_bytes()
    formats.write_mesh(tmp_path / "m.glb", mesh)
    assert (tmp_path / "m.glb").read_bytes() == first


def test_every_sRGB_value_survives_as_a_vertex_colour(tmp_path: Path) -> None:
    levels = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 3, 1)
    mesh = Mesh(np.random.default_rng(1).normal(size=(256, 3)), np.arange(255).reshape(-1, 3), levels)
    formats.write_mesh(tmp_path / "m.glb", mesh)
    np.testing.assert_array_equal(formats.read_mesh(tmp_path / "m.glb").colors, levels)


def test_obj_and_ply_keep_the_order_of_their_vertices(tmp_path: Path) -> None:
    # Two triangles with a shared edge stored twice: nothing may be welded.
    vertices = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], float)
    lines = [f"v {x} {y} {z}" for x, y, z in vertices] + ["f 1 2 3", "f 4 5 6"]
    (tmp_path / "a.obj").write_text("\n".join(lines) + "\n")
    header = "ply\nformat ascii 1.0\nelement vertex 6\nproperty float x\nproperty float y\nproperty float z\n"
    body = "\n".join(f"{x} {y} {z}" for x, y, z in vertices)
    faces = "element face 2\nproperty list uchar int vertex_indices\nend_header\n"
    (tmp_path / "a.ply").write_text(header + faces + body + "\n3 0 1 2\n3 3 4 5\n")
    for name in ("a.obj", "a.ply"):
        mesh = formats.read_mesh(tmp_path / name)
        np.testing.assert_array_equal(mesh.vertices, vertices)
        np.testing.assert_array_equal(mesh.faces, [[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.glb", b"", "this is no glTF file"),
        ("a.glb", b"glTF\2\0\0\0", "damaged or cut off"),
        ("a.glb", b"no glTF at all, only text", "this is no glTF file"),
        ("a.obj", b"v 0 0 0\nv 1 0 0\nv 0 1 0\n", "no faces"),
        ("a.obj", b"v 0 0 nan\nv 1 0 0\nv 0 1 0\nf 1 2 3\n", "1 of 3 vertices are NaN"),
        ("a.ply", b"ply\nbroken", "cannot be read"),
        ("a.txt", b"", "not a mesh file"),
    ],
)
def test_damaged_meshes_are_refused_by_name(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        formats.read_mesh(tmp_path / name)
    assert name in caught.value.message


def test_a_truncated_glb_is_refused_at_every_length(tmp_path: Path) -> None:
    path = tmp_path / "m.glb"
    formats.write_mesh(path, SQUARE)
    whole = path.read_bytes()
    for length in range(0, len(whole) - 4, 37):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"m\.glb"):
            formats.read_mesh(path)


@pytest.mark.parametrize("read", [formats.read_json, formats.read_npz, formats.read_rgba])
def test_missing_and_damaged_files_are_named(tmp_path: Path, read) -> None:
    with pytest.raises(InputError, match=r"gone: no such file"):
        read(tmp_path / "gone")
    (tmp_path / "bad").write_bytes(b"\x93garbage")
    with pytest.raises(InputError, match=r"bad: cannot be read"):
        read(tmp_path / "bad")


@pytest.mark.parametrize(("at", "byte"), [(4, 108), (14, 99)])
def test_a_damaged_archive_is_named_whatever_its_parser_raises(tmp_path: Path, at: int, byte: int) -> None:
    path = tmp_path / "a.npz"
    formats.write_npz(path, {"x": np.arange(3)})
    data = bytearray(path.read_bytes())
    directory = data.index(b"PK\x01\x02")
    data[directory + at + (2 if at == 4 else 0)] = byte  # version needed: NotImplementedError; a time stamp: harmless
    path.write_bytes(data)
    if at == 4:
        with pytest.raises(InputError, match=r"a\.npz: cannot be read"):
            formats.read_npz(path)
    else:
        assert formats.read_npz(path)["x"].tolist() == [0, 1, 2]


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "evil.npz", x=np.array([{}], object))
    with pytest.raises(InputError, match="evil"):
        formats.read_npz(tmp_path / "evil.npz")


def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        formats.write_bytes(tmp_path / "file" / "x", b"")


def test_an_animation_reads_back_with_its_extras(tmp_path: Path) -> None:
    positions = np.random.default_rng(2).normal(size=(3, 4, 3)).astype(np.float32)
    animation = AnimatedMesh(SQUARE.faces, positions, [0, 0.1, 0.35])
    formats.write_animation(tmp_path / "animation.npz", animation, keyframes=np.array([0, 2, 5], np.int32))
    read = formats.read_animation(tmp_path / "animation.npz")
    assert read.positions.tobytes() == positions.tobytes()
    np.testing.assert_array_equal(read.times_s, [0, 0.1, 0.35])
    assert formats.read_npz(tmp_path / "animation.npz")["keyframes"].tolist() == [0, 2, 5]


def test_a_clip_folder_is_read_in_parts(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    images = rng.integers(0, 255, (3, 5, 7, 4), np.uint8)
    for k, image in enumerate(images):
        formats.write_image(tmp_path / "frames" / f"{formats.frame_name(k)}.png", image)
    frames = [{"index": k, "time_s": k / 7} for k in range(3)]
    meta = {"width": 7, "height": 5, "frames": frames, "keyframes": [0, 2]}
    (tmp_path / "clip.json").write_text(json.dumps(meta))
    clip = formats.read_clip(tmp_path)
    assert [f.index for f in clip.frames] == [0, 1, 2] and clip.keyframes == (0, 2)
    np.testing.assert_array_equal(clip.times_s, [0, 1 / 7, 2 / 7])
    part = formats.read_clip(tmp_path, only=[2])
    assert [f.index for f in part.frames] == [2] and len(part.times_s) == 3
    np.testing.assert_array_equal(part.frame(2).image, images[2])
    for k in (10, 9):
        formats.write_mesh(formats.mesh_path(tmp_path, k), SQUARE)
    assert list(formats.read_keyframe_meshes(tmp_path)) == [9, 10]
