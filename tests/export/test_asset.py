from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from v2m4.errors import InputError
from v2m4.export.asset import AssetSettings, clean_name, is_closed, make_asset, target_names
from v2m4.types import AnimatedMesh, Texture

Make = Callable[..., AnimatedMesh]


def test_the_first_pose_stands_on_the_ground_above_the_origin(moving_sphere: Make, sphere_texture: Texture) -> None:
    animation = moving_sphere(5)
    asset = make_asset(animation, sphere_texture, animation.times_s)
    low, high = asset.positions.min(0), asset.positions.max(0)
    assert low[1] == 0
    np.testing.assert_allclose((low + high)[[0, 2]], 0, atol=1e-6)
    np.testing.assert_allclose(high - low, np.ptp(animation.positions[0], axis=0), atol=1e-6)  # metres are kept
    np.testing.assert_allclose(
        asset.positions, (animation.positions[0] + asset.translation)[asset.split.welded], atol=1e-6
    )
    walked = (asset.positions + asset.deltas[-1]).mean(0) - asset.positions.mean(0)
    welded = animation.positions[:, asset.split.welded]
    np.testing.assert_allclose(walked, (welded[-1] - welded[0]).mean(0), atol=1e-6)


def test_normals_are_smooth_over_the_seam(moving_sphere: Make, sphere_texture: Texture) -> None:
    animation = moving_sphere(1)
    asset = make_asset(animation, sphere_texture, animation.times_s)
    outward = animation.positions[0] - animation.positions[0].mean(0)
    cosine = np.einsum(
        "vc,vc->v", asset.normals, (outward / np.linalg.norm(outward, axis=1)[:, None])[asset.split.welded]
    )
    assert cosine.min() > 0.99
    for vertex in np.flatnonzero(np.bincount(asset.split.welded) > 1):
        normals = asset.normals[asset.split.welded == vertex]
        np.testing.assert_array_equal(normals, np.broadcast_to(normals[0], normals.shape))


def test_normal_deltas_give_unit_normals(moving_sphere: Make, sphere_texture: Texture) -> None:
    animation = moving_sphere(4)
    asset = make_asset(animation, sphere_texture, animation.times_s, AssetSettings(morph_normals=True))
    assert asset.normal_deltas is not None and np.abs(asset.normal_deltas).max() > 0.05
    np.testing.assert_allclose(np.linalg.norm(asset.normals + asset.normal_deltas, axis=2), 1, atol=1e-3)


def test_targets_are_named_after_their_frames(moving_sphere: Make, sphere_texture: Texture) -> None:
    animation = moving_sphere(3, fps=6)
    frames = np.arange(9) / 24
    asset = make_asset(animation, sphere_texture, frames, pose_frames=np.array([0, 4, 8]))
    assert asset.target_names == ("frame_004", "frame_008")
    names = target_names(np.array([9, 99, 1000, 12345]))
    assert list(names) == sorted(names) and len(set(map(len, names))) == 1


def test_only_meshes_that_would_show_holes_are_double_sided(moving_sphere: Make, sphere_texture: Texture) -> None:
    animation = moving_sphere(1)
    assert is_closed(animation.faces) and not is_closed(animation.faces[1:])
    assert not is_closed(np.concatenate([animation.faces[:1, ::-1], animation.faces[1:]]))  # one face inside out
    assert not make_asset(animation, sphere_texture, animation.times_s).double_sided
    inside_out = AnimatedMesh(animation.faces[:, ::-1], animation.positions, animation.times_s)
    assert make_asset(inside_out, sphere_texture, animation.times_s).double_sided
    assert make_asset(animation, sphere_texture, animation.times_s, AssetSettings(double_sided=True)).double_sided


def test_a_mesh_without_extent_is_refused(sphere_texture: Texture) -> None:
    faces = np.tile([[0, 1, 2]], (len(sphere_texture.uv_faces), 1))
    flat = AnimatedMesh(faces, np.ones((1, 3, 3)), np.zeros(1))
    with pytest.raises(InputError, match="no extent"):
        make_asset(flat, sphere_texture, np.zeros(1))


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("Ünïcode/..:*?", "Unicode"),
        ("fox run (final).mp4", "fox_run_final_mp4"),
        ("狐", "狐"),
        ("CON", "CON_asset"),
        ("../../etc/passwd", "etc_passwd"),
        ("...", "asset"),
        ("", "asset"),
        ("x" * 300, "x" * 100),
    ],
)
def test_names_fit_every_file_system(name: str, clean: str, tmp_path: Path) -> None:
    assert clean_name(name) == clean
    (tmp_path / f"{clean}.glb").touch()
    assert [p.name for p in tmp_path.iterdir()] == [f"{clean}.glb"]
