"""A stage context for tests of a single stage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class FakeContext:
    """A stage context without a pipeline: remembers what it was told."""

    out: Path
    seed: int = 0
    device: str = "cpu"
    weights_dir: Path | None = None
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

    def track(
        self, items: Iterable[Any], label: str, total: int | None = None, named: bool = True
    ) -> Iterator[Any]:  # fmt: skip
        return iter(items)
