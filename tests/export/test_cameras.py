"""The report on cameras: every pose in the chart, those not trusted shown with their reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from v2m4 import formats
from v2m4.export import cameras


def _told(count: int, bad: tuple[int, ...]) -> dict:
    rows = [
        {
            "index": 3 * n,
            "confidence": 0.0 if n in bad else 0.95 - 0.01 * n,
            "trusted": n not in bad,
            "found": "bridged" if n in bad else "search",
            "reason": "silhouettes agree to 0.40 <only>" if n in bad else "",
        }
        for n in range(count)
    ]
    return {"keyframes": rows, "camera_motion": {"kind": "turning"}}


def _folder(folder: Path, count: int) -> Path:
    for n in range(count):
        picture = np.full((20, 60, 3), 10 * n, np.uint8)
        formats.write_image(folder / "overlays" / f"{formats.frame_name(3 * n)}.png", picture)
    return folder


def test_poses_that_are_not_trusted_are_shown_with_their_reason(tmp_path: Path) -> None:
    found = cameras.section(_folder(tmp_path, 20), _told(20, bad=(7, 12)))
    assert found.count("<title>") == 20
    assert found.count("<img") == cameras.SHOWN
    for n in (7, 12):
        assert (
            f"frame {3 * n} · confidence 0.00 · taken from its neighbours: silhouettes agree to 0.40 &lt;only&gt;"
            in found
        )
    assert "The camera turns" in found and "not trusted" in found


def test_without_overlays_the_chart_is_still_there_and_without_poses_nothing_is(tmp_path: Path) -> None:
    assert cameras.section(tmp_path, _told(3, ())).count("<title>") == 3
    assert cameras.section(tmp_path, {}) == ""
    assert cameras.section(None, _told(3, ())) == ""
