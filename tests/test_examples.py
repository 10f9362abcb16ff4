"""The numbered examples run and do what they say."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from v2m4 import formats

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.mark.slow
def test_the_pose_is_found_from_one_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["01_fit_pose.py", "--picture", str(tmp_path / "fit.png")])
    runpy.run_path(str(EXAMPLES / "01_fit_pose.py"), run_name="__main__")
    before, after = re.findall(r"([\d.]+) degrees and ([\d.]+) %", capsys.readouterr().out)
    assert float(before[0]) == pytest.approx(15, abs=0.01) and float(before[1]) == pytest.approx(5, abs=0.01)
    assert float(after[0]) < 0.5 and float(after[1]) < 0.5
    assert formats.read_rgba(tmp_path / "fit.png").shape[1] == 3 * 192
