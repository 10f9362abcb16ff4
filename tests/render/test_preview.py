"""Sheets, turntables, overlays, films."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import trimesh

from v2m4.errors import InputError
from v2m4.render.preview import (
    BACKDROP,
    BT601,
    contact_sheet,
    difference,
    on_checker,
    on_white,
    overlay,
    side_by_side,
    turntable,
    turntable_labels,
    write_mp4,
)
from v2m4.types import Mesh


@pytest.mark.parametrize("kind", [str, Path])
def test_a_film_is_written_wherever_its_path_says(tmp_path, kind):
    write_mp4(kind(tmp_path / "new" / "a.mp4"), [plain((1, 2, 3))] * 2, 24)
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["a.mp4"]
    with pytest.raises(InputError, match="at least one picture"):
        write_mp4(kind(tmp_path / "b.mp4"), [], 24)


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


def test_the_views_of_a_turntable_are_named():
    assert turntable_labels(4) == ["front", "90°", "back", "270°"]
    assert turntable_labels(6) == ["front", "60°", "120°", "back", "240°", "300°"]
    assert turntable_labels(7)[1] == "51°"


def test_a_mesh_without_vertices_turns_as_nothing():
    assert not np.any(turntable(Mesh(np.zeros((0, 3)), np.zeros((0, 3), int)), 2, 8))


def test_a_difference_shows_what_is_missing_in_red_and_what_is_too_much_in_blue():
    frame, render = plain((0, 0, 0, 0)), plain((0, 0, 0, 0))
    frame[:, 5:15], render[:, 10:20] = (50, 60, 70, 255), (50, 60, 70, 255)
    shown = difference(frame, render).astype(int)
    assert (shown[:, 5:10, 0] > shown[:, 5:10, 2] + 100).all()
    assert (shown[:, 15:20, 2] > shown[:, 15:20, 0] + 100).all()
    assert len(np.unique(shown[:, 10:15].reshape(-1, 3), axis=0)) == 1  # both agree
    with pytest.raises(InputError, match="30x20, the render 31x20"):
        difference(frame, plain((0, 0, 0, 0), 20, 31))


def test_an_overlay_is_frame_render_and_difference_with_their_titles():
    frame, render = plain((0, 0, 0, 0), 60, 90), plain((0, 0, 0, 0), 60, 90)
    frame[:, 15:45], render[:, 30:60] = (50, 60, 70, 255), (50, 60, 70, 255)
    image = overlay(frame, render)
    panes = [on_white(frame), on_white(render), difference(frame, render)]
    np.testing.assert_array_equal(image[:60], np.concatenate(panes, 1))
    strips = np.split(image[60:], 3, 1)
    assert all(strip.max() > 150 for strip in strips) and not np.array_equal(strips[0], strips[1])
    changed = overlay(frame, render, ("frame 7", "render", "difference"))[60:]
    assert not np.array_equal(changed[:, :90], strips[0]) and np.array_equal(changed[:, 90:180], strips[1])


def test_films_of_different_sizes_play_beside_each_other_unstretched():
    """A disc stays a disc: in a picture half as large, and in a later one of another shape."""

    def disc(height: int, width: int) -> np.ndarray:
        y, x = np.indices((height, width)) + 0.5
        inside = np.hypot(y - height / 2, x - width / 2) < height / 4
        return np.where(inside[..., None], (0, 200, 0, 255), (0, 0, 0, 0)).astype(np.uint8)

    left = (disc(80, 60) for _ in range(2))
    pictures = list(side_by_side(left, [disc(40, 50), disc(40, 120)]))
    assert [p.shape for p in pictures] == [(80, 60 + 100, 3)] * 2
    for k, radius in ((0, 20), (1, 8.33)):
        right = pictures[k][:, 60:]
        green = right[..., 1].astype(int) - right[..., 0] > 100
        rows, columns = np.flatnonzero(green.any(1)), np.flatnonzero(green.any(0))
        assert np.ptp(rows) + 1 == pytest.approx(2 * radius, abs=2) == np.ptp(columns) + 1
        assert rows.mean() == pytest.approx(39.5, abs=1) and columns.mean() == pytest.approx(49.5, abs=1)
        assert right[0, 0].tolist() == BACKDROP.tolist()
        np.testing.assert_array_equal(pictures[k][:, :60], pictures[0][:, :60])
    titled = next(side_by_side([plain((9, 9, 9), 80, 60)], [disc(40, 50)], titles=("clip", "asset")))
    assert titled.shape[0] > 80 and titled[80:, :60].max() > 150 and titled[80:, 60:].max() > 150


def test_films_that_do_not_fit_together_are_refused():
    with pytest.raises(InputError, match="equally many"):
        list(side_by_side([plain((1, 2, 3))] * 2, [plain((1, 2, 3))]))
    with pytest.raises(InputError, match="1 titles for 2 films"):
        list(side_by_side([plain((1, 2, 3))], [plain((1, 2, 3))], titles=["one"]))


def test_films_beside_each_other_become_an_mp4_of_even_size(tmp_path):
    import av

    red, blue = plain((200, 30, 30), 35, 51), plain((30, 30, 200, 255), 70, 60)
    write_mp4(tmp_path / "both.mp4", side_by_side([red] * 3, [blue] * 3), 10)
    with av.open(str(tmp_path / "both.mp4")) as film:
        assert int(film.streams.video[0].codec_context.colorspace) == BT601
        frames = [f.to_ndarray(format="rgb24") for f in film.decode(video=0)]
    assert len(frames) == 3 and frames[0].shape == (70, 102 + 60, 3)
    np.testing.assert_allclose(frames[1][:, :98].mean((0, 1)), red[0, 0], atol=12)
    np.testing.assert_allclose(frames[1][:, 106:].mean((0, 1)), blue[0, 0, :3], atol=12)


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
