"""Sheets, turntables, overlays, films."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh

from v2m4.errors import InputError
from v2m4.render.preview import contact_sheet, on_checker, on_white, overlay, turntable, write_mp4
from v2m4.types import Mesh


def plain(color: tuple[int, ...], height: int = 20, width: int = 30) -> np.ndarray:
    return np.full((height, width, len(color)), color, np.uint8)


def test_alpha_goes_over_white_and_over_a_checkerboard():
    half = plain((100, 0, 200, 128), 40, 40)
    assert on_white(half)[0, 0].tolist() == [177, 127, 227]
    assert len(np.unique(on_checker(plain((0, 0, 0, 0), 40, 40)))) == 2
    np.testing.assert_array_equal(on_checker(plain((9, 8, 7, 255))), plain((9, 8, 7)))


def test_a_contact_sheet_goes_row_by_row():
    colors = [(250, 0, 0), (0, 250, 0), (0, 0, 250), (90, 90, 90), (1, 2, 3)]
    sheet = contact_sheet([plain(c) for c in colors], 2)
    assert sheet.shape == (60, 60, 3)
    for i, color in enumerate(colors):
        assert sheet[i // 2 * 20 + 10, i % 2 * 30 + 15].tolist() == list(color)


def test_a_contact_sheet_centres_smaller_pictures_and_writes_labels():
    images = [plain((250, 0, 0), 10, 10), plain((0, 250, 0, 255), 20, 40)]
    sheet = contact_sheet(images, 2, ["first", "second"])
    assert sheet.shape[1:] == (80, 4) and sheet.shape[0] > 20
    assert sheet[10, 20].tolist() == [250, 0, 0, 255] and sheet[2, 2, 3] == 0
    for x in (0, 40):
        strip = sheet[20:, x : x + 40]
        assert strip[..., 0].max() > 150 and (strip[..., 3] == 255).all()
    with pytest.raises(InputError):
        contact_sheet([], 2)
    with pytest.raises(InputError):
        contact_sheet(images, 2, ["one label"])


@pytest.mark.parametrize("size", [1e-4, 1.0, 300.0])
def test_a_turntable_starts_in_front_and_shows_all_of_any_size(size):
    """A long box whose front (+Z) is red and right (+X) is blue."""
    box = trimesh.creation.box((1, 0.5, 2))
    box = trimesh.Trimesh(box.vertices[box.faces.reshape(-1)], np.arange(36).reshape(-1, 3), process=False)
    normals = box.face_normals.repeat(3, 0)
    colors = np.where(normals[:, 2:] > 0.5, [255, 0, 0], np.where(normals[:, :1] > 0.5, [0, 0, 255], [120, 120, 120]))
    mesh = Mesh(box.vertices * size + 5 * size, box.faces, colors.astype(np.uint8))
    views = turntable(mesh, 4, 64)
    assert len(views) == 4 and all(v.shape == (64, 64, 4) for v in views)
    assert views[0][34, 32].tolist() == [255, 0, 0, 255] and views[1][34, 32].tolist() == [0, 0, 255, 255]
    for view in views:
        assert not view[[0, -1]].any() and not view[:, [0, -1]].any() and (view[..., 3] > 0).mean() > 0.05


def test_an_overlay_shows_what_is_missing_in_red_and_what_is_too_much_in_blue():
    frame, render = plain((0, 0, 0, 0)), plain((0, 0, 0, 0))
    frame[:, 5:15], render[:, 10:20] = (50, 60, 70, 255), (50, 60, 70, 255)
    image = overlay(frame, render)
    assert image.shape == (20, 90, 3)
    np.testing.assert_array_equal(image[:, :60], np.concatenate([on_white(frame), on_white(render)], 1))
    difference = image[:, 60:].astype(int)
    assert (difference[:, 5:10, 0] > difference[:, 5:10, 2] + 100).all()
    assert (difference[:, 15:20, 2] > difference[:, 15:20, 0] + 100).all()
    assert len(np.unique(difference[:, 10:15].reshape(-1, 3), axis=0)) == 1  # both agree
    with pytest.raises(InputError):
        overlay(frame, plain((0, 0, 0, 0), 20, 31))


def test_a_film_has_its_pictures_rate_and_an_even_size(tmp_path):
    import av

    colors = [(200, 30, 30), (30, 200, 30), (30, 30, 200)]
    images = [plain(c, 35, 51) for c in colors for _ in range(2)]
    for name in ("a.mp4", "b.mp4"):
        write_mp4(tmp_path / "films" / name, images, 12.5)
    assert sorted(p.name for p in (tmp_path / "films").iterdir()) == ["a.mp4", "b.mp4"]
    assert (tmp_path / "films" / "a.mp4").read_bytes() == (tmp_path / "films" / "b.mp4").read_bytes()
    with av.open(str(tmp_path / "films" / "a.mp4")) as film:
        stream = film.streams.video[0]
        frames = [f.to_ndarray(format="rgb24") for f in film.decode(stream)]
        assert float(stream.average_rate) == 12.5 and stream.codec_context.pix_fmt == "yuv420p"
    assert len(frames) == 6 and frames[0].shape == (36, 52, 3)
    for frame, image in zip(frames, images, strict=True):
        np.testing.assert_allclose(frame.mean((0, 1)), image[0, 0], atol=12)


def test_a_film_that_cannot_be_made_is_refused(tmp_path):
    for images, fps in (([], 12), ([plain((1, 2, 3)), plain((1, 2, 3), 5, 5)], 12), ([plain((1, 2, 3))], 0)):
        with pytest.raises(InputError):
            write_mp4(tmp_path / "film.mp4", images, fps)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError):
        write_mp4(tmp_path / "file" / "film.mp4", [plain((1, 2, 3))], 12)
    with pytest.raises(Exception, match=r"shape|dim|axis|index"):  # fails half-way: nothing is left behind
        write_mp4(tmp_path / "film.mp4", [plain((1, 2, 3)), np.zeros((20, 30), np.uint8)], 12)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
