"""Options: one `opt()` feeds validation, command-line help, `v2m4 config` and the docs.

Each stage has a frozen dataclass of options whose fields are made by :func:`opt`. Values come, in this order, from
defaults, a preset, a TOML file and flags; an unknown key is an error that names the nearest one.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from v2m4.errors import ConfigError

PRESETS = ("fast", "default", "quality")


def opt(
    default: Any,
    help: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Sequence[str] | None = None,
    content: bool = False,
) -> Any:
    """A dataclass field with its help text and limits.

    ``content=True`` marks a path whose *content* (not its name) decides whether the stage has to run again.
    """
    metadata = dict(help=help, minimum=minimum, maximum=maximum, choices=choices, content=content)
    return dataclasses.field(default=default, metadata=metadata)


Options = Any  # an instance of a stage's options dataclass
Values = dict[str, dict[str, Any]]  # stage -> option -> value as written by the user


def defaults(stages: Mapping[str, type]) -> Values:
    """Every option of every stage with its default; ``stages`` maps stage name -> options dataclass."""
    return {name: {f.name: f.default for f in dataclasses.fields(cls)} for name, cls in stages.items()}


def read_toml(path: Path) -> Values:
    """A table per stage. ConfigError if it is not readable TOML of that shape."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such configuration file", "v2m4 config > run.toml makes one to edit") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            f"{path}: not a readable TOML file ({error})", "v2m4 config > run.toml makes one to edit"
        ) from None
    for key, table in data.items():
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: {key} stands outside a table", f"write it below a line like [{'ingest'}]")
    return data


def read_preset(name: str) -> Values:
    """The values of a shipped preset."""
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name}", f"choose one of {', '.join(PRESETS)}")
    return read_toml(Path(__file__).parent / "presets" / f"{name}.toml")


def parse_assignment(text: str) -> Values:
    """``stage.option=value`` as given to --set; the value is TOML, or else a bare string."""
    key, sign, value = text.partition("=")
    stage, dot, option = key.strip().partition(".")
    if not (sign and dot and stage and option):
        raise ConfigError(
            f"cannot read --set {text}", "write it as stage.option=value, for example camera.directions=200"
        )
    try:
        parsed = tomllib.loads(f"v = {value.strip()}")["v"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    return {stage: {option: parsed}}


def merge(*layers: Values) -> Values:
    """Later layers win."""
    out: Values = {}
    for layer in layers:
        for stage, table in layer.items():
            out.setdefault(stage, {}).update(table)
    return out


def resolve(stages: Mapping[str, type], values: Values) -> dict[str, Options]:
    """Checked options of every stage. ConfigError names an unknown key and the nearest known one."""
    for stage, table in values.items():
        if stage not in stages:
            raise ConfigError(f"unknown stage {stage} in the options", _nearest(stage, list(stages)))
        known = {f.name for f in dataclasses.fields(stages[stage])}
        for key in table:
            if key not in known:
                everywhere = [f"{s}.{f.name}" for s, cls in stages.items() for f in dataclasses.fields(cls)]
                raise ConfigError(f"unknown option {stage}.{key}", _nearest(f"{stage}.{key}", everywhere))
    return {name: cls(**_checked(name, cls, values.get(name, {}))) for name, cls in stages.items()}


def _nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, 1, 0.5)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"


def _checked(stage: str, cls: type, table: Mapping[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    return {key: _convert(f"{stage}.{key}", value, hints[key], fields[key].metadata) for key, value in table.items()}


def _convert(name: str, value: Any, hint: Any, meta: Mapping[str, Any]) -> Any:
    allowed = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if type(None) in allowed and value in (None, ""):
        return None
    kinds = [k for k in allowed if k is not type(None)]
    kind = kinds[0]
    low, high, choices = meta.get("minimum"), meta.get("maximum"), meta.get("choices") or ()
    if kind is float and str in kinds and isinstance(value, str):  # a number, or one of some words
        if value in choices:
            return value
        try:
            value = float(value)
        except ValueError:
            raise ConfigError(
                f"{name} cannot be {value!r}", f"give a number ({_range(low, high)}), or {' or '.join(choices)}"
            ) from None
        choices = None
    elif str in kinds and kind is not str:
        choices = None
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if kind in (Path, str) and isinstance(value, (str, Path)):
        value = kind(value)
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise ConfigError(f"{name} must be {_kind_name(kind)}, not {value!r}", _example(name, kind))
    if choices and value not in choices:
        raise ConfigError(f"{name} cannot be {value!r}", f"choose one of {', '.join(choices)}")
    if (low is not None and value < low) or (high is not None and value > high) or value != value:
        raise ConfigError(f"{name} = {value} is out of range", f"allowed: {_range(low, high)}")
    return value


def _example(name: str, kind: type) -> str:
    value = {int: "200", float: "0.5", bool: "true"}.get(kind, '"words"')
    return f"write it like {name}={value}; v2m4 config shows every option with its default"


def _kind_name(kind: type) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a text", Path: "a path"}.get(
        kind, kind.__name__
    )


def _range(low: float | None, high: float | None) -> str:
    return " and ".join(
        ([f"at least {low}"] if low is not None else []) + ([f"at most {high}"] if high is not None else [])
    )


def plain(options: Options) -> dict[str, Any]:
    """Options as TOML/JSON values: paths become text, None becomes an empty text."""
    out = {}
    for f in dataclasses.fields(options):
        value = getattr(options, f.name)
        out[f.name] = "" if value is None else str(value) if isinstance(value, Path) else value
    return out


def to_toml(options: Mapping[str, Options], comments: bool = False) -> str:
    """All options as a TOML text that :func:`read_toml` reads back."""
    lines: list[str] = []
    for stage, value in options.items():
        lines.append(f"[{stage}]")
        meta = {f.name: f.metadata for f in dataclasses.fields(value)}
        for key, item in plain(value).items():
            if comments and meta[key].get("help"):
                lines.append(f"# {_describe(meta[key])}")
            lines.append(f"{key} = {_toml_value(item)}")
        lines.append("")
    return "\n".join(lines)


def _describe(meta: Mapping[str, Any]) -> str:
    limits = _range(meta["minimum"], meta["maximum"])
    extra = " | ".join([*([limits] if limits else []), *(meta["choices"] or [])])
    return meta["help"] + (f" [{extra}]" if extra else "")


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON's escapes are TOML's
