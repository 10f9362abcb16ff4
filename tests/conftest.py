"""What every test may use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import v2m4  # noqa: F401  (first: it tells the numerical libraries not to spin, before they are loaded)

#: Ground-truth and real clips that lie beside a full checkout; a plain clone does not have them.
SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture
def shared() -> Path:
    """The folder of shared clips; the test is skipped where there is none."""
    if not SHARED.is_dir():
        pytest.skip("the shared clips (../shared) are not beside this checkout")
    return SHARED


@dataclass
class FakeContext:
    """A stage context without a pipeline: remembers what it was told."""

    out: Path
    seed: int = 0
    device: str = "cpu"
    messages: list[str] = field(default_factory=list)

    @property
    def log(self) -> FakeContext:
        return self

    def info(self, text: str) -> None:
        self.messages.append(text)

    def warning(self, text: str) -> None:
        self.messages.append(f"warning: {text}")

    def seed_for(self, index: int) -> int:
        return self.seed * 1000 + index

    def track(self, items: Iterable[Any], label: str, total: int | None = None) -> Iterator[Any]:
        return iter(items)


@pytest.fixture
def context(tmp_path: Path) -> FakeContext:
    """A stage context that writes into a fresh folder."""
    out = tmp_path / "out"
    out.mkdir()
    return FakeContext(out)
