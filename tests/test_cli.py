"""The command line: what it prints, how it ends, and that it is quick."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from v2m4 import cli, pipeline, planning
from v2m4.config import PRESETS, read_preset
from v2m4.errors import ConfigError, InputError, MissingBackend, RunLocked, StageError
from v2m4.formats import write_image, write_mesh
from v2m4.stages import STAGES
from v2m4.types import Mesh


def python(*code: str, **kwargs: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *code], capture_output=True, text=True, timeout=120, **kwargs)


@pytest.fixture
def frames(tmp_path: Path) -> Path:
    """Three pictures of a square with alpha."""
    for k in range(3):
        image = np.zeros((40, 40, 4), np.uint8)
        image[10:30, 8 + k : 28 + k] = (200, 80, 40, 255)
        write_image(tmp_path / "square" / f"{k}.png", image)
    return tmp_path / "square"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[planning.Request]:
    """What the command line asks of the pipeline, which does nothing."""
    requests: list[planning.Request] = []

    def run(request: planning.Request, **_: object) -> pipeline.Summary:
        requests.append(request)
        return pipeline.Summary(request.run_dir, (), 0.0)

    monkeypatch.setattr(pipeline, "run", run)
    return requests


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["stage", "-h"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        f"import sys; from v2m4.cli import main; assert main({arguments}) == 0; "
        "print([m for m in ('torch', 'numba', 'numpy', 'cv2', 'scipy', 'PIL', 'rich.console', 'pygltflib')"
        " if m in sys.modules])"
    )
    result = python("-c", code)
    assert result.returncode == 0 and result.stdout.splitlines()[-1] == "[]", result.stdout + result.stderr


def test_the_package_and_the_stage_table_import_no_torch() -> None:
    code = "import sys, v2m4, v2m4.pipeline; print([m for m in ('torch', 'numba', 'cv2', 'scipy') if m in sys.modules])"
    assert python("-c", code).stdout.strip() == "[]"


def test_help_takes_less_than_a_third_of_a_second_of_work() -> None:
    """Processor time, so that a busy machine does not decide."""
    resource = pytest.importorskip("resource")

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        python("-m", "v2m4.cli", "--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(once() for _ in range(3)) < 0.3


def test_flags_become_options(frames: Path, tmp_path: Path, asked: list, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mesh = tmp_path / "mesh.glb"
    write_mesh(mesh, Mesh(np.eye(3), [[0, 1, 2]]))
    arguments = (
        "run square --mesh mesh.glb --target godot --fps 12.5 --fov 33 --device cpu --seed 5 --until camera "
        "--force ingest --force camera --set topology.nodes=99 --set export.name=hero"
    )
    assert cli.main(arguments.split()) == 0
    request = asked[0]
    assert request.run_dir == Path("runs/square") and request.until == "camera"
    assert request.force == {"ingest", "camera"} and not request.dry_run
    options = request.options
    assert options["ingest"].source == frames and options["ingest"].fps == 12.5
    assert options["generate"].mesh == mesh and options["generate"].meshes is None
    assert options["export"].target == "godot" and options["export"].name == "hero"
    assert options["camera"].fov_deg == 33.0 and options["topology"].nodes == 99
    assert options["run"] == planning.RunOptions(seed=5, device="cpu")


def test_later_layers_win(frames: Path, tmp_path: Path, asked: list) -> None:
    (tmp_path / "my.toml").write_text("[run]\nseed = 3\n[topology]\nnodes = 77\n[texture]\nsize = 512\n")
    run = ["run", str(frames), "--config", str(tmp_path / "my.toml"), "--set", "topology.nodes=88"]
    assert cli.main([*run, "--seed", "4"]) == 0
    options = asked[0].options
    assert (options["run"].seed, options["topology"].nodes, options["texture"].size) == (4, 88, 512)


def test_a_runs_own_toml_gives_the_same_options(frames: Path, tmp_path: Path, asked: list) -> None:
    assert cli.main(["run", str(frames), "--set", "texture.size=512", "--seed", "9", "--preset", "fast"]) == 0
    from v2m4.config import to_toml

    (tmp_path / "run.toml").write_text(to_toml(asked[0].options, comments=True), "utf-8")
    assert cli.main(["run", "--config", str(tmp_path / "run.toml")]) == 0
    assert asked[1].options == asked[0].options and asked[1].run_dir == asked[0].run_dir


def test_the_folder_here_as_clip(frames: Path, asked: list, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(frames)
    assert cli.main(["run", ".", "-o", "../out"]) == 0
    assert asked[0].options["ingest"].source == frames


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["runn", "x"], ["no command runn", "did you mean run?"]),
        (["run", "clip", "--presett", "fast"], ["--presett", "did you mean --preset?"]),
        (["run", "clip", "--preset", "best"], ["best", "quality"]),
        (["run", "clip", "--device", "tpu"], ["tpu", "cuda"]),
        (["run", "clip", "--seed", "-1"], ["-1", "see v2m4 run --help"]),
        (["run"], ["which clip?", "v2m4 run CLIP"]),
        (["run", "clip", "--set", "textur.size=3"], ["textur", "did you mean texture?"]),
        (["run", "clip", "--set", "texture.siz=3"], ["texture.siz", "did you mean texture.size?"]),
        (["run", "clip", "--set", "texture.size=3"], ["texture.size = 3", "at least 256"]),
        (["run", "clip", "--set", "texture.size=big"], ["texture.size", "whole number"]),
        (["run", "clip", "--set", "texture.size"], ["--set texture.size", "stage.option=value"]),
        (["run", "clip", "--target", "quake"], ["quake", "godot"]),
        (["run", "clip", "--config", "no.toml"], ["no.toml", "no such"]),
        (["run", "clip", "--meshes", "a", "--mesh", "b"], ["--meshes", "--mesh", "exclude"]),
        (["inspect"], ["FILE", "see v2m4 inspect --help"]),
    ],
)
def test_wrong_usage_is_one_sentence_a_hint_and_exit_code_2(
    arguments: list[str], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    said = capsys.readouterr()
    lines = said.err.splitlines()
    assert len(lines) == 2 and lines[0].startswith("error: ") and lines[1].startswith("hint: ") and said.out == ""
    for word in words:
        assert word in said.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("the clip is empty", "bring another"), 1),
        (StageError("camera", "frame 3", ValueError("bad")), 1),
        (StageError("ingest", "frame 3", MissingBackend("rembg", "pip install rembg")), 3),
        (RunLocked("in use"), 1),
        (ConfigError("too small"), 2),
        (MissingBackend("rembg", "pip install rembg", "MIT"), 3),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError("division by zero"), 1),
    ],
)
def test_exit_codes(
    error: BaseException, code: int, frames: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(pipeline, "run", fail)
    assert cli.main(["run", str(frames)]) == code
    said = capsys.readouterr().err
    assert "Traceback" not in said and "hint: " in said
    if code == 130:
        assert "kept" in said
    elif not isinstance(error, KeyboardInterrupt):
        with pytest.raises(type(error)):  # --debug shows where
            cli.main(["run", str(frames), "--debug"])


def test_ctrl_c_ends_with_130_and_keeps_the_work(frames: Path, tmp_path: Path) -> None:
    """A real signal, in the middle of a real stage."""
    code = (
        "import os, signal, sys; from v2m4.cli import main; from v2m4.stages import ingest\n"
        "def stop(*a, **k): os.kill(os.getpid(), signal.SIGINT)\n"
        "ingest.read_frames = stop\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    out = tmp_path / "out"
    result = python("-c", code, "run", str(frames), "-o", str(out))
    assert result.returncode == 130 and "hint: the work is kept" in result.stderr and "Traceback" not in result.stderr
    states = json.loads((out / "manifest.json").read_text("utf-8"))["stages"]
    assert states["ingest"]["state"] == "interrupted"
    assert cli.main(["run", str(frames), "-o", str(out), "--until", "ingest"]) == 0


def test_a_missing_clip_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "fox.mp4"]) == 1
    assert "fox.mp4" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_ingest_status_and_a_second_run(
    frames: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real stage through the real command line."""
    out = tmp_path / "space é" / "walk"
    command = ["run", str(frames), "-o", str(out), "--until", "ingest"]
    assert cli.main([*command, "--dry-run"]) == 0
    assert "ingest     would run" in capsys.readouterr().out and not out.exists()
    assert cli.main(command) == 0
    assert json.loads((out / "1_ingest" / "clip.json").read_text("utf-8"))["crop"]["picture_width"] == 40
    assert tomllib.loads((out / "run.toml").read_text("utf-8"))["ingest"]["source"] == str(frames)
    capsys.readouterr()
    assert cli.main(command) == 0
    assert capsys.readouterr().out.splitlines() == [f"nothing to do: 1 stage kept, {out} is up to date"]
    assert cli.main(["status", str(out)]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 1 + len(STAGES) and rows[1].split()[:2] == ["ingest", "finished"]
    assert rows[2].split()[:3] == ["generate", "not", "run"]
    assert cli.main(["stage", "camera", str(out)]) == 1
    assert "generate, which is not finished" in capsys.readouterr().err
    assert cli.main(["stage", "ingest", str(out), "--set", "ingest.keyframe_step=3"]) == 0
    assert "keyframe_step was" in capsys.readouterr().out
    assert json.loads((out / "1_ingest" / "clip.json").read_text("utf-8"))["keyframes"] == [0, 2]


@pytest.mark.parametrize("preset", [None, *PRESETS])
def test_config_prints_every_option_as_toml(preset: str | None, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["config", *(["--preset", preset] if preset else [])]) == 0
    text = capsys.readouterr().out
    options = planning.resolve_options(tomllib.loads(text))
    layers = [read_preset(preset)] if preset else []
    assert options == planning.resolve_options(*layers)
    assert set(options) == {"run", *(s.name for s in STAGES)}
    import dataclasses

    keys = sum(len(dataclasses.fields(o)) for o in options.values())
    comments = [line for line in text.splitlines() if line.startswith("# ")]
    assert len(comments) == keys  # every option is explained


@pytest.mark.parametrize("preset", PRESETS)
def test_every_key_of_a_preset_is_an_option(preset: str) -> None:
    planning.resolve_options(read_preset(preset))


def test_the_table_is_in_order() -> None:
    names = [s.name for s in STAGES]
    assert names == ["ingest", "generate", "camera", "refine", "repose", "topology", "texture", "export"]
    for number, stage in enumerate(STAGES):
        assert set(stage.needs) <= set(names[:number])


@pytest.mark.slow  # imports everything
def test_doctor_finds_the_core(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    import v2m4.doctor as doctor

    monkeypatch.setitem(sys.modules, "transformers", None)  # as if it were not installed
    assert cli.main(["doctor"]) == 0
    text = capsys.readouterr().out
    for word in (
        "numpy",
        "torch",
        "rembg",
        "pytorch3d",
        "v2m4[sam2]",
        "of SAM 2",
        "nvdiffrast",
        "not commercial",
        "device",
        "numba",
        "codecs",
        "h264",
        "licence",
        "all that is needed",
    ):
        assert word in text
    monkeypatch.setitem(doctor.CORE, "no_such_module", "no-such-package")
    assert cli.main(["doctor"]) == 3
    assert "not usable: no-such-package missing" in capsys.readouterr().out


def test_a_reader_that_leaves_is_no_error() -> None:
    result = python("-c", "import subprocess, sys; p = subprocess.Popen([sys.executable, '-m', 'v2m4.cli', 'config'], "
                    "stdout=subprocess.PIPE, stderr=subprocess.PIPE); p.stdout.close(); e = p.stderr.read(); "
                    "print(p.wait(), b'Traceback' in e, b'error' in e)")  # fmt: skip
    assert result.stdout.split()[1:] == ["False", "False"]


def test_status_of_no_run_prints_no_table(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["status", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert said.out == "" and "is not a run directory" in said.err
