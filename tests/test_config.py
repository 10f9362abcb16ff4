"""Options: layers, checks, and a text that reads back to the same values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from v2m4 import config
from v2m4.config import opt
from v2m4.errors import ConfigError

settings.register_profile("quick", max_examples=50, deadline=None)
settings.load_profile("quick")


@dataclass(frozen=True)
class PaintOptions:
    size: int = opt(1024, "texels", minimum=16, maximum=4096)
    gain: float = opt(1.0, "how strong", minimum=0.0)
    mode: str = opt("soft", "how", choices=("soft", "hard"))
    note: str = opt("", "free text")
    clean: bool = opt(True, "tidy up")
    rate: float | None = opt(None, "rate, if any")
    folder: Path | None = opt(None, "where", content=True)
    lens: float | str = opt(40.0, "degrees, or auto", minimum=1.0, maximum=160.0, choices=("auto",))


STAGES = {"paint": PaintOptions}


def resolved(**values: object) -> PaintOptions:
    return config.resolve(STAGES, {"paint": values})["paint"]


options = st.builds(
    PaintOptions,
    size=st.integers(16, 4096),
    gain=st.floats(0, 1e6),
    mode=st.sampled_from(["soft", "hard"]),
    note=st.text(st.characters(exclude_categories=("Cs",))) | st.sampled_from(['a "b" \\ c', "zwei\nZeilen\t!"]),
    clean=st.booleans(),
    rate=st.none() | st.floats(0.1, 100),
    folder=st.none() | st.sampled_from([Path("a b/é"), Path("/x")]),
)


@given(options, st.booleans())
def test_toml_reads_back_to_the_same_options(value: PaintOptions, comments: bool) -> None:
    import tomllib

    text = config.to_toml({"paint": value}, comments)
    assert config.resolve(STAGES, tomllib.loads(text))["paint"] == value


def test_defaults_and_layers() -> None:
    assert config.resolve(STAGES, config.defaults(STAGES))["paint"] == PaintOptions() == resolved()
    merged = config.merge({"paint": {"size": 64, "gain": 2.0}}, {}, {"paint": {"size": 128}})
    assert merged == {"paint": {"size": 128, "gain": 2.0}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("paint.size=64", 64),
        ("paint.gain = 2.5", 2.5),
        ("paint.clean=false", False),
        ("paint.note=a=b c", "a=b c"),
        ('paint.note="quoted"', "quoted"),
        ("paint.note=", ""),
        ("paint.folder=C:\\new\\table", "C:\\new\\table"),
    ],
)
def test_an_assignment_is_toml_or_else_plain_text(text: str, value: object) -> None:
    ((stage, table),) = config.parse_assignment(text).items()
    assert stage == "paint" and list(table.values()) == [value]


def test_values_are_converted_only_where_nothing_is_lost() -> None:
    assert resolved(gain=2).gain == 2.0 and isinstance(resolved(gain=2).gain, float)
    assert resolved(folder="a").folder == Path("a") and resolved(folder="").folder is None
    assert resolved(rate="").rate is None


@pytest.mark.parametrize(
    ("values", "words", "hint"),
    [
        ({"sise": 3}, "unknown option paint.sise", "paint.size"),
        ({"size": 8}, "out of range", "at least 16"),
        ({"size": 1e9}, "whole number", "paint.size=200"),
        ({"size": 5000}, "out of range", "at most 4096"),
        ({"size": True}, "whole number", "paint.size="),
        ({"size": "64"}, "whole number", "paint.size=200"),
        ({"clean": 1}, "true or false", "paint.clean=true"),
        ({"mode": "sharp"}, "paint.mode cannot be 'sharp'", "soft, hard"),
        ({"gain": float("nan")}, "out of range", ""),
        ({"rate": "fast"}, "a number", "paint.rate=0.5"),
    ],
)
def test_wrong_values_are_refused_by_name(values: dict, words: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        resolved(**values)
    assert hint in caught.value.hint and caught.value.exit_code == 2


def test_unknown_stages_name_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown stage pain") as caught:
        config.resolve(STAGES, {"pain": {}})
    assert "paint" in caught.value.hint


@pytest.mark.parametrize("text", ["size", "size=3", "paint.=3", ".size=3", "=3", "paint.size"])
def test_unreadable_assignments(text: str) -> None:
    with pytest.raises(ConfigError, match="cannot read --set"):
        config.parse_assignment(text)


@pytest.mark.parametrize("content", ["size = 3\n", "[paint\n", b"\xff\xfe"])
def test_unreadable_files(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=r"x\.toml") as caught:
        config.read_toml(path)
    assert caught.value.hint
    with pytest.raises(ConfigError, match="no such") as caught:
        config.read_toml(tmp_path / "none.toml")
    assert caught.value.hint


def test_presets_exist_and_others_do_not() -> None:
    for name in config.PRESETS:
        assert isinstance(config.read_preset(name), dict)
    with pytest.raises(ConfigError, match="unknown preset best"):
        config.read_preset("best")


def test_a_number_or_a_word() -> None:
    assert resolved(lens="auto").lens == "auto"
    assert resolved(lens=35).lens == 35.0
    assert resolved(lens="35.5").lens == 35.5
    for wrong in ("automatic", 0.2, "200", True, [40]):
        with pytest.raises(ConfigError, match=r"paint\.lens"):
            resolved(lens=wrong)
