"""What the renderer refuses: the same things everywhere, always with a hint."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
import torch

import v2m4.render
from v2m4 import transforms
from v2m4.errors import InputError
from v2m4.render import antialias, derivatives, interpolate, rasterize, render, sample_texture

POINTS = np.array([[[-1, -1, 3], [1, -1, 3], [0, 1, 3]]], np.float32)
FACES = np.array([[0, 1, 2]])
K = transforms.fov_to_K(40, 12, 8)
BYTES = np.full((3, 3), 255, np.uint8)


def raster():
    return rasterize(POINTS, FACES, K, 8, 12)


@pytest.mark.parametrize("kind", [np.uint8, np.int64])
@pytest.mark.parametrize(
    ("draw", "what"),
    [
        (lambda colors: render(POINTS, FACES, K, 8, 12, colors), "attributes"),
        (lambda colors: render([POINTS[0]], [FACES], K, 8, 12, [colors]), "attributes"),
        (lambda colors: interpolate(raster(), colors), "attributes"),
        (lambda colors: derivatives(raster(), colors), "attributes"),
        (lambda colors: antialias(raster(), torch.as_tensor(colors)[:1].expand(1, 8, 12, 3)), "colour"),
        (lambda colors: sample_texture(torch.as_tensor(colors)[None], torch.zeros(1, 8, 12, 2)), "a texture"),
    ],
)
def test_bytes_are_refused_by_every_entry_with_the_same_sentence(draw, what: str, kind: type) -> None:
    """Some took 255 for 255 times white, others refused it."""
    with pytest.raises(InputError) as caught:
        draw(BYTES.astype(kind))
    assert caught.value.message == f"{what} must be floating-point, not {np.dtype(kind).name}"
    assert caught.value.hint == "take .float(), and divide bytes by 255"
    assert torch.isfinite(draw((BYTES / 255).astype(np.float32))).all()


@pytest.mark.parametrize(
    ("draw", "hint"),
    [
        (lambda: render(POINTS, FACES, K, 8, 12, torch.ones(3)), "a single number a vertex is (U,1)"),
        (lambda: render(POINTS, FACES, K, 8, 12, torch.ones(4, 3)), "one row for each vertex"),
        (lambda: render(POINTS, FACES.astype(float), K, 8, 12), ".astype(np.int32)"),
        (lambda: render(POINTS, FACES, np.eye(4), 8, 12), "transforms.fov_to_K"),
        (lambda: render(POINTS, FACES, K, 8.0, 12), "height comes first; round it"),
    ],
    ids=["shape of attributes", "rows of attributes", "float faces", "K 4x4", "float size"],
)
def test_what_does_not_fit_comes_with_a_hint(draw, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        draw()
    assert hint in caught.value.hint


def test_every_refusal_of_the_renderer_has_a_hint() -> None:
    """Sentence and hint are written side by side, so the code itself shows whether one is missing."""
    bare, seen = [], 0
    for path in sorted(Path(v2m4.render.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            name = getattr(node, "func", None)
            if isinstance(node, ast.Call) and "InputError" in (getattr(name, "id", ""), getattr(name, "attr", "")):
                seen += 1
                if len(node.args) < 2:
                    bare.append(f"{path.name}:{node.lineno}")
    assert seen > 30 and bare == []
