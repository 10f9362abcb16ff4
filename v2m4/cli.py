"""The command line. Everything heavy is imported inside the commands, so that ``--help`` answers at once."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import v2m4
from v2m4 import config
from v2m4.errors import ConfigError, V2M4Error

#: Flag -> option. Flags are shorthands: everything can also be said with --set.
SHORTHANDS = {
    "meshes": "generate.meshes",
    "mesh": "generate.mesh",
    "generator": "generate.generator",
    "target": "export.target",
    "fps": "ingest.fps",
    "masks": "ingest.masks",
    "object": "ingest.object",
    "fov": "camera.fov_deg",
    "poses": "camera.poses",
    "seed": "run.seed",
    "device": "run.device",
    "weights_dir": "run.weights_dir",
    "prompt": "ingest.prompt",
}
CLIP = "ingest.source"


class _Group(click.Group):
    """Names the nearest command for one that does not exist."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], self.list_commands(ctx), 1)
            known = ", ".join(self.list_commands(ctx))
            raise ConfigError(f"no command {args[0]}", f"did you mean {close[0]}?" if close else f"known: {known}")
        return super().resolve_command(ctx, args)


def _options(*decorators: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def apply(function: Any) -> Any:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


_tuning = _options(
    click.option("--config", "config_file", type=click.Path(path_type=Path), help="TOML file with a table per stage."),
    click.option(
        "--set", "assignments", multiple=True, metavar="STAGE.OPTION=VALUE", help="Set one option; repeatable."
    ),
    click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), help="Where torch computes."),
    click.option(
        "--weights-dir",
        type=click.Path(path_type=Path),
        help="Folder with weights of networks; looked into first.",
    ),
    click.option("--seed", type=click.IntRange(min=0), help="Every random choice derives from it."),
)
_debug = click.option("--debug", is_flag=True, help="Show the traceback of an error.")
_dry_run = click.option("--dry-run", is_flag=True, help="Say what would run and why; touch nothing.")
_preset = click.option("--preset", type=click.Choice(config.PRESETS), help="A set of options to start from.")


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(v2m4.__version__, prog_name="v2m4")
def cli() -> None:
    """From one video of a moving object to a game-ready animated mesh (glTF).

    \b
    v2m4 run fox.mp4                     everything, into runs/fox/; run it again to resume
    v2m4 run fox.mp4 --meshes my_meshes  with your own meshes, one a frame
    v2m4 config                          every option, as a file to edit
    """


@cli.command()
@click.argument("clip", required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Run directory [runs/<name of the clip>].")
@click.option("--masks", type=click.Path(path_type=Path), help="Folder of masks, one a frame: white is the object.")
@click.option("--prompt", help="The object for SAM 2: in the first picture a point x,y on it, or a box x0,y0,x1,y1.")
@click.option(
    "--object",
    help="Of several in the first frame: all, largest, nearest to the middle, or its number from the left, from 0.",
)
@click.option("--meshes", type=click.Path(path_type=Path), help="Folder of your own meshes, one a frame or keyframe.")
@click.option("--mesh", type=click.Path(path_type=Path), help="One mesh of your own for the whole clip.")
@click.option(
    "--poses", type=click.Path(path_type=Path), help="File with the pose of each mesh in the camera: skips the search."
)
@click.option("--generator", help="What makes a mesh from a picture: inflate, or package.module:Class.")
@_preset
@click.option("--target", help="Engine the asset is for: blender, unity, unreal, godot, three.")
@_tuning
@click.option("--until", metavar="STAGE", help="Stop after this stage; after ingest you know if the clip will do.")
@click.option("--force", multiple=True, metavar="STAGE", help="Run this stage again, edited or not; repeatable.")
@click.option("--fps", type=float, help="Rate of a folder of pictures; resamples a video to the nearest frames.")
@click.option("--fov", help="Vertical field of view in degrees, if you know it, or auto.")
@_dry_run
@_debug
def run(
    clip: str | None, output: Path | None, preset: str | None, config_file: Path | None, assignments: tuple[str, ...],
    until: str | None, force: tuple[str, ...], dry_run: bool, debug: bool, **shorthands: Any,
) -> None:  # fmt: skip
    """Turn CLIP (a video, an animated picture or a folder of pictures) into an animated mesh.

    The same command again resumes, or does only what has changed.
    """
    from v2m4 import planning

    if shorthands["meshes"] and shorthands["mesh"]:
        raise ConfigError("--meshes and --mesh exclude each other", "give a mesh for each frame, or one for all")
    layers = _layers(preset, config_file, assignments, {**shorthands, "clip": os.path.abspath(clip) if clip else None})
    options = planning.resolve_options(*layers)
    source = getattr(options["ingest"], CLIP.partition(".")[2])
    if not source:
        raise ConfigError("which clip?", "v2m4 run CLIP, with a video, an animated picture or a folder of pictures")
    request = planning.Request(
        output or _default_output(Path(source)), options, until=until, force=frozenset(force), dry_run=dry_run
    )
    _run(request)


@cli.command()
@click.argument("name")
@click.argument("run_dir", type=click.Path(path_type=Path))
@_tuning
@click.option("--force", is_flag=True, help="Run it whatever its state, edited or not.")
@_dry_run
@_debug
def stage(
    name: str, run_dir: Path, config_file: Path | None, assignments: tuple[str, ...], force: bool, dry_run: bool,
    debug: bool, **shorthands: Any,
) -> None:  # fmt: skip
    """Run one stage NAME of RUN_DIR; the stages it reads must be finished.

    The options are those of the run (run.toml), changed by --config and --set.
    """
    from v2m4 import planning

    options = planning.read_run_options(run_dir, *_layers(None, config_file, assignments, shorthands))
    forced = frozenset({name} if force else ())
    _run(planning.Request(run_dir, options, only=name, force=forced, dry_run=dry_run))


def _layers(
    preset: str | None, config_file: Path | None, assignments: tuple[str, ...], shorthands: dict[str, Any]
) -> list[config.Values]:
    """Preset, file, flags, in the order in which they win."""
    layers = [config.read_preset(preset)] if preset else []
    if config_file:
        layers.append(config.read_toml(config_file))
    for flag, value in shorthands.items():
        if value is not None:
            table, _, option = (CLIP if flag == "clip" else SHORTHANDS[flag]).partition(".")
            layers.append({table: {option: os.path.abspath(value) if isinstance(value, Path) else value}})
    return [*layers, *map(config.parse_assignment, assignments)]


def _default_output(source: Path) -> Path:
    from v2m4.store import clean_name

    return Path("runs") / clean_name(source.name if source.is_dir() else source.stem)


def _run(request: Any) -> None:
    from v2m4 import pipeline
    from v2m4.log import Log, PlainSink, TerminalSink

    if request.dry_run:
        for decision in pipeline.run(request).decisions:
            will = {"keep": "kept", "run": "would run", "resume": "would go on", "maybe": "would run"}[decision.action]
            note = ", although its options or inputs have changed" if decision.stale else ""
            click.echo(f"{decision.stage:10} {will:12} {decision.why}{note}")
        return
    sink = TerminalSink() if sys.stdout.isatty() else PlainSink(sys.stdout, sys.stderr)
    pipeline.run(request, log=Log(sink))


@cli.command()
@click.argument("run_dir", type=click.Path(path_type=Path))
@_debug
def status(run_dir: Path, debug: bool) -> None:
    """Show what state the stages of RUN_DIR are in, and what they cost."""
    from v2m4 import planning

    rows = planning.status(run_dir)
    click.echo(f"{'stage':10} {'state':12} {'seconds':>8} {'peak MB':>8} {'device':6}  note")
    for row in rows:
        seconds, memory = (row.record.get(key) for key in ("seconds", "peak_memory_mb"))
        warnings = len(row.record.get("warnings", []))
        note = "; ".join(filter(None, [row.note, f"{warnings} warning{'s' * (warnings != 1)}" if warnings else ""]))
        click.echo(
            f"{row.name:10} {row.state:12} {_number(seconds, 1):>8} {_number(memory, 0):>8} "
            f"{row.record.get('device', ''):6}  {note}".rstrip()
        )


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


@cli.command("config")
@_preset
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="TOML file with a table per stage.")
@click.option("--set", "assignments", multiple=True, metavar="STAGE.OPTION=VALUE", help="Set one option; repeatable.")
@_debug
def show_config(preset: str | None, config_file: Path | None, assignments: tuple[str, ...], debug: bool) -> None:
    """Print every option with its meaning and limits, as TOML to edit and give to --config."""
    from v2m4 import planning

    layers = _layers(preset, config_file, assignments, {})
    click.echo(config.to_toml(planning.resolve_options(*layers), comments=True), nl=False)


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@_debug
def inspect(file: Path, debug: bool) -> None:
    """Say what is in a .glb or .gltf FILE, ours or anybody's. Never writes."""
    from v2m4.inspection import inspect_glb

    click.echo(inspect_glb(file).text())


@cli.command()
@_debug
def doctor(debug: bool) -> None:
    """Check this machine: packages, optional backends, device, codecs."""
    from v2m4.doctor import examine

    found = examine()
    click.echo(found.text())
    if found.missing:
        raise SystemExit(3)


# --- errors -----------------------------------------------------------------------------------------------------------


def _usage_hint(error: click.UsageError) -> str:
    if isinstance(error, click.NoSuchOption) and error.possibilities:
        return f"did you mean {error.possibilities[0]}?"
    command = error.ctx.command_path if error.ctx else "v2m4"
    return f"see {command} --help"


def _say(message: str, hint: str) -> None:
    encoding = sys.stderr.encoding or "utf-8"
    for label, text in (("error", message), ("hint", hint or "--debug shows where it happened")):
        click.echo(f"{label}: {text}".encode(encoding, "backslashreplace").decode(encoding), err=True)


def main(arguments: list[str] | None = None) -> int:
    """The program. Returns the exit code: 0 good, 1 an asset or stage failed, 2 wrong usage, 3 a backend is missing,
    130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = cli.main(arguments, prog_name="v2m4", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 1
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted", "the work is kept: run the same command again to go on")
        return 130
    except click.UsageError as error:
        _say(error.format_message().rstrip("."), _usage_hint(error))
        return 2
    except click.ClickException as error:
        _say(error.format_message(), "")
        return 1
    except BrokenPipeError:  # the reader of our output has left, as in `v2m4 config | head`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return 0
    except Exception as error:
        if "--debug" in arguments:
            raise
        if isinstance(error, V2M4Error):
            _say(error.message, error.hint)
            return error.exit_code
        _say(f"{type(error).__name__}: {error}", "this is a fault of v2m4; --debug shows where it happened")
        return 1


if __name__ == "__main__":
    sys.exit(main())
