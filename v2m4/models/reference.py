"""One mesh of the user's for the whole clip: every keyframe starts from it (+Y up, front +Z, taken as it stands)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from v2m4.formats import read_mesh
from v2m4.protocols import Generated


class Reference:
    """Generator that gives the same mesh for every frame. InputError when the file cannot be used."""

    name = "reference"
    licence = "yours"
    description = "one mesh of your own for the whole clip, frame and scale kept as given"

    def __init__(self, path: Path) -> None:
        self.mesh = read_mesh(path)
        self.path = path

    def generate(self, image: np.ndarray, index: int, seed: int) -> Generated:
        """The same mesh object each time; the picture, the index and the seed are not used."""
        return Generated(self.mesh, notes=(f"from {self.path.name}, the same for every keyframe",))
