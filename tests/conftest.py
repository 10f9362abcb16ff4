"""What every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakecontext import FakeContext

import v2m4  # noqa: F401  (first: it tells the numerical libraries not to spin, before they are loaded)

#: Ground-truth and real clips that lie beside a full checkout; a plain clone does not have them.
SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture
def shared() -> Path:
    """The folder of shared clips; the test is skipped where there is none."""
    if not SHARED.is_dir():
        pytest.skip("the shared clips (../shared) are not beside this checkout")
    return SHARED


@pytest.fixture
def context(tmp_path: Path) -> FakeContext:
    """A stage context that writes into a fresh folder."""
    out = tmp_path / "out"
    out.mkdir()
    return FakeContext(out)
