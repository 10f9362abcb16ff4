"""glTF containers: exact, aligned, repeatable, and able to read what others write; and what `v2m4 inspect` says."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path

import numpy as np
import pygltflib
import pytest

from v2m4.errors import InputError
from v2m4.formats import encode_png, read_mesh
from v2m4.glb import GlbBuilder, GlbReader
from v2m4.inspection import inspect_glb

POINTS = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32)
FACES = np.array([[0, 2, 1], [0, 1, 3]], np.uint16)


def write_gltf(path: Path, change=None) -> Path:
    """A .gltf with one embedded buffer, made without our writer. ``change`` edits the document."""
    data = POINTS.tobytes() + FACES.tobytes()
    uri = "data:application/octet-stream;base64," + base64.b64encode(data).decode()
    document = {
        "asset": {"version": "2.0"},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "indices": 1}]}],
        "accessors": [
            {"bufferView": 0, "componentType": 5126, "count": 4, "type": "VEC3", "min": [0, 0, 0], "max": [1, 1, 1]},
            {"bufferView": 1, "componentType": 5123, "count": 6, "type": "SCALAR"},
        ],
        "bufferViews": [
            {"buffer": 0, "byteOffset": 0, "byteLength": 48},
            {"buffer": 0, "byteOffset": 48, "byteLength": 12},
        ],
        "buffers": [{"byteLength": len(data), "uri": uri}],
    }
    if change:
        change(document)
    path.write_text(json.dumps(document))
    return path


def animated(targets: int = 3, times: tuple[float, ...] = (0.0, 0.04, 0.08, 0.12), active: int = 1) -> bytes:
    """A GLB with a texture, morph targets and a weights animation."""
    glb = GlbBuilder()
    attributes = pygltflib.Attributes(
        POSITION=glb.accessor(POINTS, bounds=True),
        NORMAL=glb.accessor(np.tile(np.float32([0, 0, 1]), (4, 1))),
        TEXCOORD_0=glb.accessor(POINTS[:, :2]),
    )
    morphs = [{"POSITION": glb.accessor(POINTS * k, bounds=True)} for k in range(1, targets + 1)]
    primitive = pygltflib.Primitive(
        attributes=attributes, indices=glb.accessor(FACES.reshape(-1)), material=0, targets=morphs
    )
    weights = np.zeros((len(times), targets), np.float32)
    weights[-1, :active] = 1
    clock = glb.accessor(np.float32(times), bounds=True)
    glb.gltf.images = []
    picture = glb.image(encode_png(np.full((2, 4, 3), 200, np.uint8)), "image/png", "base")
    glb.gltf.textures = [pygltflib.Texture(source=picture)]
    pbr = pygltflib.PbrMetallicRoughness(baseColorTexture=pygltflib.TextureInfo(index=0), metallicFactor=0.0)
    glb.gltf.materials = [pygltflib.Material(pbrMetallicRoughness=pbr, alphaCutoff=None)]
    glb.gltf.meshes = [pygltflib.Mesh(primitives=[primitive], weights=[0.0] * targets, name="fox")]
    glb.gltf.nodes = [pygltflib.Node(mesh=0)]
    glb.gltf.animations = [
        pygltflib.Animation(
            channels=[
                pygltflib.AnimationChannel(sampler=0, target=pygltflib.AnimationChannelTarget(node=0, path="weights"))
            ],
            samplers=[
                pygltflib.AnimationSampler(
                    input=clock, output=glb.accessor(weights.reshape(-1)), interpolation="LINEAR"
                )
            ],
        )
    ]
    return glb.to_bytes()


def test_accessors_read_back_exactly_and_everything_is_aligned(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    stored = [
        rng.normal(size=(5, 3)).astype(np.float32),
        rng.integers(0, 255, 7).astype(np.uint8),
        rng.integers(0, 60000, (3, 2)).astype(np.uint16),
        rng.integers(0, 9, 5).astype(np.uint32),
    ]
    glb = GlbBuilder()
    indices = [glb.accessor(a, bounds=True) for a in stored]
    path = tmp_path / "a.glb"
    path.write_bytes(glb.to_bytes())
    reader = GlbReader(path)
    for index, array in zip(indices, stored, strict=True):
        read = reader.accessor(index)
        assert read.dtype == array.dtype and read.tobytes() == array.tobytes()
        entry = reader.gltf.accessors[index]
        assert entry.min == array.reshape(len(array), -1).min(0).tolist()
        assert entry.max == array.reshape(len(array), -1).max(0).tolist()
    assert all(view.byteOffset % 4 == 0 for view in reader.gltf.bufferViews)
    data = path.read_bytes()
    magic, version, length, json_length = struct.unpack_from("<4sIII", data)
    assert (magic, version, length) == (b"glTF", 2, len(data))
    assert json_length % 4 == 0 and struct.unpack_from("<I", data, 20 + json_length)[0] % 4 == 0


def test_the_same_content_gives_the_same_bytes() -> None:
    assert animated() == animated()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_a_number_is_not_written(bad: float) -> None:
    with pytest.raises(InputError, match="NaN or infinite"):
        GlbBuilder().accessor(np.array([0, bad], np.float32))


def test_a_foreign_file_is_read(tmp_path: Path) -> None:
    (part,) = GlbReader(write_gltf(tmp_path / "a.gltf")).primitives()
    np.testing.assert_array_equal(part.positions, POINTS)
    np.testing.assert_array_equal(part.faces, FACES)
    assert part.colors() is None


def test_transforms_of_nested_nodes_are_applied(tmp_path: Path) -> None:
    half = float(np.sqrt(0.5))

    def nest(document: dict) -> None:
        document["nodes"] = [
            {"children": [1], "translation": [0, 0, 5], "scale": [2, 2, 2]},
            {"mesh": 0, "rotation": [0, half, 0, half]},  # a quarter turn about y: x -> -z
        ]

    (part,) = GlbReader(write_gltf(tmp_path / "a.gltf", nest)).primitives()
    np.testing.assert_allclose(part.positions[1], [0, 0, 3], atol=1e-6)
    np.testing.assert_allclose(part.positions[3], [2, 0, 5], atol=1e-6)


def test_a_matrix_is_column_major_and_a_mirror_keeps_faces_outside(tmp_path: Path) -> None:
    def mirror(document: dict) -> None:
        document["nodes"] = [{"mesh": 0, "matrix": [-1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 7, 8, 9, 1]}]

    (part,) = GlbReader(write_gltf(tmp_path / "a.gltf", mirror)).primitives()
    np.testing.assert_allclose(part.positions[1], [6, 8, 9])
    np.testing.assert_array_equal(part.faces, FACES[:, ::-1])


def test_sparse_and_normalized_accessors(tmp_path: Path) -> None:
    def sparse(document: dict) -> None:
        document["accessors"][0]["sparse"] = {
            "count": 1,
            "indices": {"bufferView": 1, "byteOffset": 2, "componentType": 5123},  # index 2
            "values": {"bufferView": 0, "byteOffset": 36},  # the last point
        }
        document["accessors"].append(
            {"bufferView": 0, "componentType": 5121, "count": 4, "type": "VEC3", "normalized": True}
        )

    reader = GlbReader(write_gltf(tmp_path / "a.gltf", sparse))
    np.testing.assert_array_equal(reader.accessor(0), POINTS[[0, 1, 3, 3]])
    raw = np.frombuffer(POINTS.tobytes()[:12], np.uint8).reshape(4, 3)
    np.testing.assert_allclose(reader.accessor(2), raw / 255)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(extensionsRequired=["KHR_draco_mesh_compression"]), "compressed"),
        (lambda d: d["buffers"][0].update(uri="gone.bin"), r"gone\.bin is missing"),
        (lambda d: d["accessors"][0].update(count=400), "shorter"),
        (lambda d: d["meshes"][0]["primitives"][0].update(mode=1), "not stored as triangles"),
        (lambda d: d["scenes"][0].update(nodes=[5]), "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, change, words: str) -> None:
    path = write_gltf(tmp_path / "a.gltf", change)
    with pytest.raises(InputError, match=words):
        GlbReader(path).primitives()


def test_a_texture_gives_the_colour_at_each_vertex(tmp_path: Path) -> None:
    (tmp_path / "a.glb").write_bytes(animated())
    (part,) = GlbReader(tmp_path / "a.glb").primitives()
    np.testing.assert_array_equal(part.colors(), np.full((4, 3), 200))


# --- inspect ----------------------------------------------------------------------------------------------------------


def textured(document: dict) -> None:
    """A red picture beside the file, under a percent-encoded name."""
    document["meshes"][0]["primitives"][0]["attributes"]["TEXCOORD_0"] = 0
    document["meshes"][0]["primitives"][0]["material"] = 0
    document["materials"] = [{"pbrMetallicRoughness": {"baseColorTexture": {"index": 0}}}]
    document["textures"], document["images"] = [{"source": 0}], [{"uri": "my%20red.png"}]


def test_files_beside_it_and_embedded_pictures_are_found(tmp_path: Path) -> None:
    """Exporters percent-encode names with a space, and embed pictures and buffers under their own media type."""
    red = encode_png(np.full((2, 2, 3), (200, 10, 10), np.uint8))
    (tmp_path / "my red.png").write_bytes(red)

    def embedded(document: dict) -> None:
        textured(document)
        document["images"][0]["uri"] = "data:image/png;base64," + base64.b64encode(red).decode()
        buffer = document["buffers"][0]
        buffer["uri"] = buffer["uri"].replace("octet-stream", "gltf-buffer")

    def webp(document: dict) -> None:
        textured(document)
        document["textures"] = [{"extensions": {"EXT_texture_webp": {"source": 0}}}]

    for change in (textured, embedded, webp):
        (part,) = GlbReader(write_gltf(tmp_path / "m.gltf", change)).primitives()
        assert part.uv is not None and part.image is not None
        assert part.image.reshape(-1, 3).tolist() == [[200, 10, 10]] * 4
        assert "2x2 PNG" in inspect_glb(tmp_path / "m.gltf").text()


def without_position(document: dict) -> None:
    del document["meshes"][0]["primitives"][0]["attributes"]["POSITION"]


def with_another_texture(document: dict) -> None:
    textured(document)
    document["textures"] = [{"extensions": {"KHR_texture_basisu": {"source": 0}}}]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d["nodes"][0].update(children=[0]), "cannot be read as glTF"),
        (without_position, "cannot be read as glTF"),
        (lambda d: d["accessors"][0].update(count=10**15, bufferView=None), "cannot be read as glTF"),
        (textured, "its file my%20red.png is missing"),
        (with_another_texture, "a kind that is not read here"),
    ],
    ids=["a node that is its own child", "no positions", "absurd count", "no picture", "another texture"],
)
def test_a_file_that_breaks_the_rules_is_refused_not_a_crash(tmp_path: Path, change, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read_mesh(write_gltf(tmp_path / "m.gltf", change))
    assert "m.gltf" in caught.value.message and caught.value.hint


def test_inspect_tells_what_is_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "fox.glb"
    path.write_bytes(animated())
    before = path.read_bytes()
    found = inspect_glb(path)
    text = found.text()
    for words in (
        "fox.glb: glTF 2.0",
        'mesh 0 "fox": 4 vertices, 2 triangles, NORMAL, TEXCOORD_0',
        "1 x 1 x 1",
        "targets   3 (POSITION)",
        "material 0: OPAQUE, base colour texture, metallic 0",
        "image 0: 4x2 PNG RGB",
        "weights, LINEAR, 4 keys, 0.000 to 0.120 s, on a grid of 25 fps",
        "at most 1 targets at a key",
    ):
        assert words in text
    assert found.warnings == () and path.read_bytes() == before


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (animated(65), "65 targets: more than 64"),
        (animated(257), "257 targets: more than 256"),
        (animated(times=(1.0, 1.5)), "begins at 1.000 s"),
        (animated(times=(0.0, 0.5, 0.5)), "do not rise"),
        (animated(9, active=9), "uses 9 targets at once"),
    ],
)
def test_inspect_warns(tmp_path: Path, data: bytes, words: str) -> None:
    (tmp_path / "a.glb").write_bytes(data)
    assert any(words in warning for warning in inspect_glb(tmp_path / "a.glb").warnings)


def test_inspect_reads_foreign_and_uneven_files(tmp_path: Path) -> None:
    assert "no normals" in inspect_glb(write_gltf(tmp_path / "a.gltf")).text()
    (tmp_path / "b.glb").write_bytes(animated(times=(0.0, 0.033, 0.41, 1.467)))
    assert "uneven" in inspect_glb(tmp_path / "b.glb").text()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("README.md", b"# v2m4\n\nFrom one video", "this is no glTF file"),
        ("a.glb", b"# v2m4\n\nFrom one video", "this is no glTF file"),
        ("a.gltf", b"", "this is no glTF file"),
        ("a.png", b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "this is no glTF file"),
        ("a.gltf", b'{"name": "v2m4"}', "this is JSON, but no glTF: it has no asset entry"),
        ("a.gltf", b'{"asset": {"version": "2.0"}, "nodes": [', "the glTF is damaged or cut off"),
        ("a.glb", animated()[:200], "the glTF is damaged or cut off"),
    ],
)
def test_what_is_no_gltf_is_told_in_one_sentence(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    """Not in the words of a parser."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        inspect_glb(str(tmp_path / name))
    assert caught.value.message == f"{tmp_path / name}: {said}" and caught.value.hint


@pytest.mark.parametrize("content", [b"", b"glTF\2\0\0\0", animated()[:200]])
def test_inspect_refuses_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.glb"
    with pytest.raises(InputError, match=r"bad\.glb: no such file"):
        inspect_glb(path)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"bad\.glb"):
        inspect_glb(path)
