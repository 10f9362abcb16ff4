"""The engine on a tiny pipeline of its own: what runs, what is kept, and what survives being killed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
from fakewalk import ITEMS, Walk, walk

from v2m4.config import read_toml
from v2m4.errors import ConfigError, InputError, MissingBackend, RunLocked, StageError
from v2m4.log import Log
from v2m4.pipeline import choose_device, run
from v2m4.planning import Request, RunState, plan, read_run_options, resolve_options, status

ALL = ("ingest", "make", "paint", "export")
FAKEWALK = Path(__file__).parent / "support" / "fakewalk.py"


class Lines:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def write(self, level: str, text: str) -> None:
        self.lines.append((level, text))

    def text(self, level: str = "info") -> str:
        return "\n".join(t for kind, t in self.lines if kind == level)


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flushing to the disk is what takes the time here."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    path = tmp_path / "fox.txt"
    path.write_text("a fox runs", "utf-8")
    return path


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "fox"


def everything(folder: Path) -> dict[str, tuple[str, int]]:
    """Every file with its digest and time stamp, folders too: equal means untouched."""
    return {
        p.relative_to(folder).as_posix(): (
            hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else "",
            p.stat().st_mtime_ns,
        )
        for p in folder.rglob("*")
    }


def results(run_dir: Path) -> dict[str, bytes]:
    """What the stages made, without what says when and how long."""
    found = (p for p in run_dir.rglob("*") if p.is_file() and p.parent != run_dir and p.name != "stage.json")
    return {p.relative_to(run_dir).as_posix(): p.read_bytes() for p in found}


def test_first_run_makes_the_whole_directory(clip: Path, run_dir: Path) -> None:
    fake = Walk()
    summary = walk(fake.stages, run_dir, clip)
    assert fake.calls == list(ALL) and summary.ran == ALL
    assert sorted(p.name for p in run_dir.iterdir() if not p.name.startswith(".")) == [
        "1_ingest", "2_make", "3_paint", "4_export", "fox.glb", "log.txt", "manifest.json", "report.html", "run.lock",
        "run.toml",
    ]  # fmt: skip
    assert summary.asset == run_dir / "fox.glb"
    assert summary.asset.read_bytes() == (run_dir / "4_export" / "fox.glb").read_bytes()
    manifest = json.loads((run_dir / "manifest.json").read_text("utf-8"))
    assert [s["state"] for s in manifest["stages"].values()] == ["finished"] * 4
    assert manifest["sources"]["ingest.clip"] == {
        "name": "fox.txt",
        "sha256": hashlib.sha256(b"a fox runs").hexdigest(),
    }
    assert manifest["licences"] == {"brush": "MIT"}
    assert {"v2m4", "python", "numpy", "torch"} <= set(manifest["versions"])
    assert manifest["stages"]["make"]["device"] == "cpu" and manifest["stages"]["make"]["peak_memory_mb"] > 1


def test_second_run_keeps_everything_and_says_so_in_one_line(clip: Path, run_dir: Path) -> None:
    fake, lines = Walk(), Lines()
    walk(fake.stages, run_dir, clip)
    before = everything(run_dir)
    fake.calls.clear()
    summary = walk(fake.stages, run_dir, clip, log=Log(lines))
    assert fake.calls == [] and summary.ran == ()
    assert lines.lines == [("info", f"nothing to do: 4 stages kept, {run_dir / 'fox.glb'} is up to date")]
    after = everything(run_dir)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert changed <= {"log.txt", "run.lock", ".digests.json"}


def test_another_folder_of_weights_runs_nothing_again(clip: Path, run_dir: Path, tmp_path: Path) -> None:
    fake = Walk()
    walk(fake.stages, run_dir, clip)
    fake.calls.clear()
    summary = walk(fake.stages, run_dir, clip, values={"run": {"weights_dir": str(tmp_path)}})
    assert summary.ran == () and fake.calls == []


def test_the_folder_of_weights_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_options({"run": {"weights_dir": "here"}})["run"].weights_dir == tmp_path / "here"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_options({"run": {"weights_dir": "~/w"}})["run"].weights_dir == tmp_path / "w"
    assert resolve_options({})["run"].weights_dir is None


def test_two_directories_hold_the_same_bytes(clip: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        walk(Walk().stages, tmp_path / name / "fox", clip, values={"make": {"seeds": 1000}})
    assert results(tmp_path / "one" / "fox") == results(tmp_path / "two" / "fox")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, []),
        ({"ingest": {"length": 5}}, ["ingest", "make", "paint", "export"]),
        ({"make": {"scale": 2.0}}, ["make", "paint", "export"]),
        ({"paint": {"color": "blue"}}, ["paint", "export"]),
        ({"export": {"name": "hero"}}, ["export"]),
        # The same bytes come out, so what follows is kept.
        ({"make": {"scale": 1.1}}, ["make"]),
        ({"ingest": {"length": 50}}, ["ingest"]),
        # The seed is part of every key, but here nothing depends on it.
        ({"run": {"seed": 7}}, ["ingest", "make", "paint", "export"]),
        ({"run": {"device": "cpu"}}, []),
    ],
)
def test_an_option_runs_its_stage_and_what_follows(
    clip: Path, run_dir: Path, values: dict, expected: list[str]
) -> None:
    fake = Walk()
    walk(fake.stages, run_dir, clip)
    fake.calls.clear()
    walk(fake.stages, run_dir, clip, values=values)
    assert fake.calls == expected
    fake.calls.clear()
    walk(fake.stages, run_dir, clip, values=values)
    assert fake.calls == []


def test_results_after_a_detour_are_those_of_a_straight_run(clip: Path, tmp_path: Path) -> None:
    detour, straight = tmp_path / "detour" / "fox", tmp_path / "straight" / "fox"
    for values in ({"make": {"scale": 2.0}}, {"paint": {"color": "blue"}}, {"make": {"scale": 3.0}}):
        walk(Walk().stages, detour, clip, values=values)
    walk(Walk().stages, straight, clip, values={"make": {"scale": 3.0}})
    assert results(detour) == results(straight)
    assert (detour / "fox.glb").read_bytes() == (straight / "fox.glb").read_bytes()


def test_the_clips_content_counts_and_not_its_name(clip: Path, run_dir: Path) -> None:
    fake = Walk()
    walk(fake.stages, run_dir, clip)
    fake.calls.clear()
    renamed = clip.rename(clip.with_name("other name é.txt"))
    walk(fake.stages, run_dir, renamed)
    assert fake.calls == []
    renamed.write_text("a fox sits", "utf-8")
    walk(fake.stages, run_dir, renamed)
    assert fake.calls == list(ALL)


def test_a_version_raised_by_hand_runs_the_stage_again(clip: Path, run_dir: Path) -> None:
    import dataclasses

    fake = Walk()
    walk(fake.stages, run_dir, clip)
    fake.calls.clear()
    raised = (*fake.stages[:2], dataclasses.replace(fake.stages[2], version=2), fake.stages[3])
    walk(raised, run_dir, clip)
    assert fake.calls == ["paint"]


# --- edited, missing, forced ------------------------------------------------------------------------------------------


def test_an_edited_file_is_kept_and_used(clip: Path, run_dir: Path) -> None:
    fake, lines = Walk(), Lines()
    walk(fake.stages, run_dir, clip)
    fake.calls.clear()
    (run_dir / "3_paint" / "color.txt").write_text("repainted", "utf-8")
    walk(fake.stages, run_dir, clip, log=Log(lines))
    assert fake.calls == ["export"]
    assert (run_dir / "fox.glb").read_text("utf-8") == "glTF repainted"
    assert "paint: kept (edited: color.txt)" in lines.text()
    manifest = json.loads((run_dir / "manifest.json").read_text("utf-8"))
    assert manifest["stages"]["paint"]["state"] == "edited" and manifest["stages"]["paint"]["edited"] == ["color.txt"]
    fake.calls.clear()
    walk(fake.stages, run_dir, clip)
    assert fake.calls == []


def test_an_edit_outlives_changed_options_and_only_force_drops_it(clip: Path, run_dir: Path) -> None:
    fake, lines = Walk(), Lines()
    walk(fake.stages, run_dir, clip)
    edited = run_dir / "3_paint" / "color.txt"
    edited.write_text("repainted", "utf-8")
    fake.calls.clear()
    walk(fake.stages, run_dir, clip, values={"make": {"scale": 2.0}}, log=Log(lines))
    assert fake.calls == ["make", "export"] and edited.read_text("utf-8") == "repainted"
    assert "--force paint" in lines.text("warning")
    fake.calls.clear()
    walk(fake.stages, run_dir, clip, values={"make": {"scale": 2.0}}, force=frozenset({"paint"}))
    assert fake.calls == ["paint", "export"] and edited.read_text("utf-8").startswith("red")


def test_an_added_file_is_an_edit_but_hidden_junk_is_not(clip: Path, run_dir: Path) -> None:
    fake = Walk()
    walk(fake.stages, run_dir, clip)
    fake.calls.clear()
    for junk in (".DS_Store", "Thumbs.db"):
        (run_dir / "2_make" / "meshes" / junk).write_bytes(b"x")
    walk(fake.stages, run_dir, clip)
    assert fake.calls == []
    (run_dir / "2_make" / "meshes" / "00099.txt").write_text("mine\n", "utf-8")
    walk(fake.stages, run_dir, clip)
    assert fake.calls == ["paint", "export"]
    assert (run_dir / "fox.glb").read_text("utf-8").endswith("mine\n")


def test_a_missing_file_runs_its_stage_and_brings_back_the_same_bytes(clip: Path, run_dir: Path) -> None:
    fake = Walk()
    walk(fake.stages, run_dir, clip)
    before = results(run_dir)
    fake.calls.clear()
    (run_dir / "2_make" / "meshes" / "00003.txt").unlink()
    walk(fake.stages, run_dir, clip)
    assert fake.calls == ["make"] and results(run_dir) == before


def test_a_missing_file_does_not_cost_an_edit_beside_it(clip: Path, run_dir: Path) -> None:
    fake = Walk()
    walk(fake.stages, run_dir, clip)
    meshes = run_dir / "2_make" / "meshes"
    original = (meshes / "00003.txt").read_text("utf-8")
    (meshes / "00003.txt").unlink()
    (meshes / "00004.txt").write_text("mine\n", "utf-8")
    for _ in range(2):
        walk(fake.stages, run_dir, clip)
        assert (meshes / "00003.txt").read_text("utf-8") == original
        assert (meshes / "00004.txt").read_text("utf-8") == "mine\n"
    assert [s.state for s in status(run_dir, fake.stages)] == ["finished", "edited", "finished", "finished"]


def test_a_file_changed_within_the_clocks_grain_is_seen(clip: Path, run_dir: Path) -> None:
    """Same size, same time stamp, other bytes, directly after the run."""
    fake = Walk()
    walk(fake.stages, run_dir, clip)
    path = run_dir / "3_paint" / "color.txt"
    stat, text = path.stat(), path.read_text("utf-8")
    with open(path, "r+", encoding="utf-8") as handle:
        handle.write(text.replace("red", "RED"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    fake.calls.clear()
    walk(fake.stages, run_dir, clip)
    assert fake.calls == ["export"]


def test_force_runs_one_stage_and_the_same_bytes_stop_there(clip: Path, run_dir: Path) -> None:
    fake = Walk()
    walk(fake.stages, run_dir, clip)
    before = results(run_dir)
    fake.calls.clear()
    walk(fake.stages, run_dir, clip, force=frozenset({"ingest", "paint"}))
    assert fake.calls == ["ingest", "paint"] and results(run_dir) == before


def test_a_lost_or_damaged_record_runs_the_stage_again(clip: Path, run_dir: Path) -> None:
    fake = Walk()
    walk(fake.stages, run_dir, clip)
    fake.calls.clear()
    (run_dir / "2_make" / "stage.json").unlink()
    (run_dir / "3_paint" / "stage.json").write_text("{", "utf-8")
    walk(fake.stages, run_dir, clip)
    assert fake.calls == ["make", "paint"]


def test_the_asset_on_top_is_brought_back_and_an_edited_one_is_not_overwritten(clip: Path, run_dir: Path) -> None:
    fake, lines = Walk(), Lines()
    top = run_dir / "fox.glb"
    walk(fake.stages, run_dir, clip)
    top.unlink()
    (run_dir / "report.html").unlink()
    fake.calls.clear()
    walk(fake.stages, run_dir, clip)
    assert fake.calls == [] and top.is_file() and (run_dir / "report.html").is_file()
    top.write_bytes(b"mine")
    walk(fake.stages, run_dir, clip, values={"paint": {"color": "blue"}}, log=Log(lines))
    assert top.read_bytes() == b"mine" and "changed by hand" in lines.text("warning")
    walk(fake.stages, run_dir, clip, values={"paint": {"color": "blue"}}, force=frozenset({"export"}))
    assert top.read_text("utf-8").startswith("glTF blue")
    walk(fake.stages, run_dir, clip, values={"export": {"name": "hero"}})
    assert (run_dir / "hero.glb").is_file() and not top.exists()


# --- interrupted ------------------------------------------------------------------------------------------------------


def _spawn(*arguments: object) -> int:
    return subprocess.run([sys.executable, str(FAKEWALK), *map(str, arguments)], timeout=60).returncode


def test_killed_in_a_stage_it_goes_on_there_and_ends_in_the_same_bytes(clip: Path, tmp_path: Path) -> None:
    killed, straight = tmp_path / "killed" / "fox", tmp_path / "straight" / "fox"
    assert _spawn(clip, killed, 4) == -9
    assert not (killed / "2_make").exists() and not (killed / "fox.glb").exists()
    assert len(list((killed / "2_make.partial" / "meshes").glob("*.txt"))) == 4
    fake = Walk()
    walk(fake.stages, killed, clip)  # the lock of the killed process is no obstacle
    assert fake.calls == ["make", "paint", "export"]
    assert fake.items == [("make", 4), ("make", 5)]
    walk(Walk().stages, straight, clip)
    assert results(killed) == results(straight)
    assert not (killed / "2_make.partial").exists()


def test_unfinished_work_of_another_key_is_wiped(clip: Path, run_dir: Path) -> None:
    assert _spawn(clip, run_dir, 4) == -9
    fake = Walk()
    walk(fake.stages, run_dir, clip, values={"make": {"scale": 2.0}})
    assert fake.items == [("make", k) for k in range(ITEMS)]
    assert (run_dir / "2_make" / "meshes" / "00000.txt").read_text("utf-8") == "a fox runs 2 0\n"


def test_the_old_result_stands_until_the_new_one_is_whole(clip: Path, run_dir: Path) -> None:
    fake = Walk()
    walk(fake.stages, run_dir, clip)
    before = results(run_dir)

    def fail() -> None:
        raise RuntimeError("no")

    fake.at["make", 2] = fail
    with pytest.raises(StageError):
        walk(fake.stages, run_dir, clip, values={"make": {"scale": 2.0}})
    now = results(run_dir)
    assert {k: v for k, v in now.items() if ".partial" not in k} == before
    fake.at.clear()
    fake.calls.clear()
    walk(fake.stages, run_dir, clip)  # back to the first options: nothing to do
    assert fake.calls == []


class Stop(BaseException):
    """Stands for the process being killed."""


def _die_at(point: int, patch: pytest.MonkeyPatch) -> None:
    """The file operation number ``point`` from now on does not happen, and neither does anything after it."""
    count = iter(range(1_000_000))

    def deadly(function):
        def wrapped(*args, **kwargs):
            if next(count) >= point:
                raise Stop
            return function(*args, **kwargs)

        return wrapped

    for name in ("rename", "replace", "unlink", "mkdir", "rmdir"):
        patch.setattr(os, name, deadly(getattr(os, name)))
    for name in ("copy2", "copyfile", "rmtree"):
        patch.setattr(shutil, name, deadly(getattr(shutil, name)))


@pytest.mark.parametrize("stride", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_any_file_operation_the_same_command_gives_the_same_bytes(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stride: int
) -> None:
    """Every rename, unlink, mkdir, copy and folder removal is a place to die, with an edit and a loss to carry."""

    def prepared(place: Path) -> Path:
        walk(Walk().stages, place, clip)
        (place / "2_make" / "meshes" / "00004.txt").write_text("mine\n", "utf-8")
        (place / "2_make" / "meshes" / "00003.txt").unlink()
        return place

    values = {"paint": {"color": "blue"}}
    straight = prepared(tmp_path / "straight" / "fox")
    walk(Walk().stages, straight, clip, values=values)
    original = prepared(tmp_path / "original" / "fox")
    for point in range(0, 1000, stride):
        run_dir = tmp_path / f"killed{point}" / "fox"
        shutil.copytree(original, run_dir)
        with monkeypatch.context() as patch:
            _die_at(point, patch)
            try:
                walk(Walk().stages, run_dir, clip, values=values)
                break
            except Stop:
                pass
        walk(Walk().stages, run_dir, clip, values=values)
        assert results(run_dir) == results(straight), point
        assert (run_dir / "fox.glb").read_bytes() == (straight / "fox.glb").read_bytes(), point
        assert not [p for p in run_dir.iterdir() if p.suffix in (".partial", ".old")], point
        assert [s.state for s in status(run_dir, Walk().stages)] == ["finished", "edited", "finished", "finished"]
    assert point > 30


def test_a_forced_run_that_was_killed_goes_on_with_the_same_command(clip: Path, run_dir: Path) -> None:
    fake = Walk()
    walk(fake.stages, run_dir, clip)

    def stop() -> None:
        raise KeyboardInterrupt

    fake.at["make", 3] = stop
    with pytest.raises(KeyboardInterrupt):
        walk(fake.stages, run_dir, clip, force=frozenset({"make"}))
    fake.at.clear()
    fake.items.clear()
    walk(fake.stages, run_dir, clip, force=frozenset({"make"}))
    assert fake.items == [("make", k) for k in range(3, ITEMS)]
    fake.items.clear()
    walk(fake.stages, run_dir, clip, force=frozenset({"make"}))
    assert len(fake.items) == ITEMS


def test_interrupted_says_so_in_the_manifest_and_keeps_warnings(clip: Path, run_dir: Path) -> None:
    fake = Walk()
    values = {"make": {"warn": "the light flickers"}}

    def stop() -> None:
        raise KeyboardInterrupt

    fake.at["make", 3] = stop
    with pytest.raises(KeyboardInterrupt):
        walk(fake.stages, run_dir, clip, values=values)
    states = {n: s["state"] for n, s in json.loads((run_dir / "manifest.json").read_text("utf-8"))["stages"].items()}
    assert states == {"ingest": "finished", "make": "interrupted", "paint": "not run", "export": "not run"}
    assert [s.state for s in status(run_dir, fake.stages)] == ["finished", "unfinished", "not run", "not run"]
    fake.at.clear()
    walk(fake.stages, run_dir, clip, values=values)
    manifest = json.loads((run_dir / "manifest.json").read_text("utf-8"))
    assert manifest["stages"]["make"]["warnings"] == ["the light flickers"]


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("boom"), 1),
        (InputError("frame is empty", "paint it"), 1),
        (ConfigError("too small"), 2),
        (MissingBackend("rembg", "pip install rembg", "MIT"), 3),
    ],
)
def test_an_error_names_the_stage_and_the_item_and_keeps_its_exit_code(
    clip: Path, run_dir: Path, error: Exception, code: int
) -> None:
    fake = Walk()

    def fail() -> None:
        raise error

    fake.at["make", 4] = fail
    with pytest.raises(StageError, match=r"stage make failed at frame 4 \(meshes\)") as caught:
        walk(fake.stages, run_dir, clip)
    assert caught.value.exit_code == code and "what was finished is kept" in caught.value.hint
    same_fault_again = isinstance(error, (ConfigError, InputError))
    assert ("run the same command again to resume" in caught.value.hint) != same_fault_again
    assert caught.value.__cause__ is error
    assert "Traceback" in (run_dir / "log.txt").read_text("utf-8")
    fake.at.clear()
    fake.items.clear()
    walk(fake.stages, run_dir, clip)
    assert fake.items == [("make", 4), ("make", 5)]


def test_a_missing_clip_leaves_nothing_behind_and_names_the_nearest(clip: Path, run_dir: Path) -> None:
    with pytest.raises(InputError, match="no such file") as caught:
        walk(Walk().stages, run_dir, clip.with_name("fix.txt"))
    assert "fox.txt" in caught.value.hint
    assert not run_dir.parent.exists()


def test_a_run_directory_inside_its_own_clip_is_refused(tmp_path: Path) -> None:
    (tmp_path / "frames").mkdir()
    with pytest.raises(ConfigError, match="inside"):
        walk(Walk().stages, tmp_path / "frames" / "run", tmp_path / "frames")
    assert not (tmp_path / "frames" / "run").exists()


def test_an_unwritable_place_is_a_clear_error(clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(InputError, match=r"file|cannot make") as caught:
            walk(Walk().stages, place, clip)
        assert "-o" in caught.value.hint

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "there").mkdir()
    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(InputError, match=r"cannot write .*Permission denied"):
        walk(Walk().stages, tmp_path / "there", clip)


def test_one_process_at_a_time(clip: Path, run_dir: Path) -> None:
    fake = Walk()
    inner: list[str] = []

    def second() -> None:
        with pytest.raises(RunLocked, match=str(os.getpid())) as caught:
            walk(Walk().stages, run_dir, clip)
        inner.append(caught.value.message)

    fake.at["make", 1] = second
    walk(fake.stages, run_dir, clip)
    assert len(inner) == 1
    walk(fake.stages, run_dir, clip)  # and it is free again


@pytest.mark.parametrize("cuda", [True, False])
def test_the_device_is_what_torch_has_and_never_a_silent_substitute(
    cuda: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=lambda: cuda))
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    assert choose_device("cpu") == "cpu"
    assert choose_device("auto") == ("cuda" if cuda else "cpu")
    if cuda:
        assert choose_device("cuda") == "cuda"
    else:
        with pytest.raises(MissingBackend, match="CUDA") as caught:
            choose_device("cuda")
        assert caught.value.exit_code == 3 and "--device cpu" in caught.value.hint


def test_a_demanded_device_that_is_not_there_is_refused_before_anything_is_written(
    clip: Path, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no stage asks for the device: a run on the CPU is not what was asked for."""
    torch = types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=lambda: False))
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    fake = Walk()
    with pytest.raises(MissingBackend, match="CUDA"):
        walk(fake.stages, run_dir, clip, values={"run": {"device": "cuda"}})
    assert fake.calls == [] and not run_dir.exists()


def test_a_stage_that_exits_has_failed(clip: Path, run_dir: Path) -> None:
    """sys.exit(0) in somebody's generator must not pass for a finished run."""
    fake = Walk()
    fake.at["make", 2] = sys.exit
    with pytest.raises(StageError, match="SystemExit") as caught:
        walk(fake.stages, run_dir, clip)
    assert caught.value.exit_code == 1
    manifest = json.loads((run_dir / "manifest.json").read_text("utf-8"))
    assert manifest["stages"]["make"]["state"] == "failed"


def test_a_file_edited_into_nonsense_is_named_where_it_brings_a_stage_down(clip: Path, run_dir: Path) -> None:
    """Running the same command again would fail the same way."""
    fake = Walk()
    walk(fake.stages, run_dir, clip)
    (run_dir / "2_make" / "meshes" / "00003.txt").write_bytes(b"\xff")
    with pytest.raises(StageError, match="stage paint failed: UnicodeDecodeError") as caught:
        walk(fake.stages, run_dir, clip)
    assert f"{run_dir / '2_make' / 'meshes' / '00003.txt'} was edited by hand" in caught.value.hint
    (run_dir / "2_make" / "meshes" / "00003.txt").unlink()
    assert walk(fake.stages, run_dir, clip).asset


@pytest.mark.parametrize("rubbish", [b"", b"\xff\xfe", b"{bad", b"[1]", b'{"key": 1, "files": [1], "clip.txt": 5}'])
@pytest.mark.parametrize("name", ["manifest.json", ".digests.json", "run.toml", "2_make/stage.json"])
def test_damaged_bookkeeping_is_made_anew(clip: Path, run_dir: Path, name: str, rubbish: bytes) -> None:
    fake = Walk()
    walk(fake.stages, run_dir, clip)
    before = results(run_dir)
    if name == ".digests.json" and rubbish.startswith(b'{"key"'):
        rubbish = json.dumps({p.relative_to(run_dir).as_posix(): 5 for p in run_dir.rglob("*.*")}).encode()
    (run_dir / name).write_bytes(rubbish)
    assert walk(fake.stages, run_dir, clip).ran == (("make",) if name.endswith("stage.json") else ())
    assert results(run_dir) == before
    assert [row.state for row in status(run_dir, fake.stages)] == ["finished"] * 4


def test_a_damaged_run_toml_is_the_runs_fault_not_the_users(run_dir: Path) -> None:
    run_dir.mkdir(parents=True)
    (run_dir / "run.toml").write_text("[make", "utf-8")
    with pytest.raises(InputError, match=r"run\.toml") as caught:
        status(run_dir, Walk().stages)
    assert f"v2m4 run CLIP -o {run_dir}" in caught.value.hint


def test_a_way_up_and_out_of_the_clip_is_not_inside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`cd frames; v2m4 run . -o ../fox`, and the asset is called fox however the folder is written."""
    fake, frames = Walk(), tmp_path / "frames"
    frames.mkdir()
    monkeypatch.chdir(frames)
    options = resolve_options({"ingest": {"clip": str(frames)}}, stages=fake.stages)
    request = Request(Path("../fox/inner/.."), options, dry_run=True)
    assert [d.action for d in run(request, fake.stages).decisions] == ["run"] * 4
    assert RunState(request, fake.stages).options["export"].name == "fox"
    (tmp_path / "link").symlink_to(frames)
    for inside in ("out", "../frames/out", "../link/out"):
        with pytest.raises(ConfigError, match="lies inside"):
            run(Request(Path(inside), options, dry_run=True), fake.stages)


def test_a_home_that_does_not_exist_is_no_crash(clip: Path, run_dir: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        walk(Walk().stages, run_dir, Path("~nobody_of_that_name/clip.mp4"))


def test_unknown_stages_name_the_nearest(clip: Path, run_dir: Path) -> None:
    for request in ({"until": "pain"}, {"only": "pain"}, {"force": frozenset({"pain"})}):
        with pytest.raises(ConfigError) as caught:
            walk(Walk().stages, run_dir, clip, **request)
        assert "paint" in caught.value.hint


def test_a_stage_that_will_not_run_cannot_be_forced(clip: Path, run_dir: Path) -> None:
    with pytest.raises(ConfigError, match="--force paint comes after --until make"):
        walk(Walk().stages, run_dir, clip, until="make", force=frozenset({"paint"}))
    assert walk(Walk().stages, run_dir, clip, until="make", force=frozenset({"make"})).ran == ("ingest", "make")


@pytest.mark.skipif(os.name == "nt" or sys.platform == "darwin", reason="such names cannot exist here")
@pytest.mark.parametrize("where", ["caf\udce9", "caf\udce9/a.txt", "frames/caf\udce9.txt"])
def test_a_name_that_is_no_text_is_refused_before_anything_is_written(tmp_path: Path, where: str) -> None:
    """From a disk with Latin-1 names."""
    path = tmp_path / where
    path.parent.mkdir(exist_ok=True)
    path.write_text("a fox", "utf-8")
    clip = tmp_path / where.partition("/")[0]
    with pytest.raises(InputError, match=r"caf.udce9.* is not valid UTF-8"):
        walk(Walk().stages, tmp_path / "run", clip)
    assert not (tmp_path / "run").exists()
    (tmp_path / "fox.txt").write_text("a fox", "utf-8")
    with pytest.raises(InputError, match="not valid UTF-8"):
        walk(Walk().stages, tmp_path / "r\udce9n", tmp_path / "fox.txt")


def test_a_run_does_not_read_what_it_replaces(clip: Path, run_dir: Path) -> None:
    fake = Walk()
    walk(fake.stages, run_dir, clip)
    with pytest.raises(ConfigError, match=r"clip\.txt belongs to a stage of this run") as caught:
        walk(fake.stages, run_dir, run_dir / "1_ingest" / "clip.txt")
    assert "in place" in caught.value.hint
    walk(Walk().stages, run_dir.parent / "other", run_dir / "1_ingest" / "clip.txt")  # another run may


def test_a_report_that_fails_is_a_warning(clip: Path, run_dir: Path) -> None:
    lines, fake = Lines(), Walk()

    def broken(run_dir: Path, facts: object) -> Path:
        raise ValueError("no template")

    options = resolve_options({"ingest": {"clip": str(clip)}}, stages=fake.stages)
    summary = run(Request(run_dir, options), fake.stages, Log(lines), broken)
    assert summary.asset is not None and summary.report is None
    assert "no template" in lines.text("warning")


# --- plans, parts, status ---------------------------------------------------------------------------------------------


def test_a_dry_run_touches_nothing_and_says_what_and_why(clip: Path, run_dir: Path) -> None:
    fake = Walk()
    summary = walk(fake.stages, run_dir, clip, dry_run=True)
    assert [d.action for d in summary.decisions] == ["run"] * 4 and not run_dir.parent.exists()
    walk(fake.stages, run_dir, clip)
    (run_dir / "3_paint" / "color.txt").write_text("repainted", "utf-8")
    before, calls = everything(run_dir), list(fake.calls)
    summary = walk(fake.stages, run_dir, clip, values={"make": {"scale": 2.0}}, dry_run=True)
    told = [(d.stage, d.action, d.why) for d in summary.decisions]
    assert told == [
        ("ingest", "keep", "unchanged"),
        ("make", "run", "scale was 1.0 and is 2.0"),
        ("paint", "keep", "edited"),
        ("export", "run", "paint has changed"),
    ]
    summary = walk(fake.stages, run_dir, clip, values={"ingest": {"length": 3}}, dry_run=True)
    assert [d.action for d in summary.decisions] == ["run", "maybe", "keep", "run"]
    assert everything(run_dir) == before and fake.calls == calls


def test_until_stops_there_and_a_later_run_goes_on(clip: Path, run_dir: Path) -> None:
    fake = Walk()
    summary = walk(fake.stages, run_dir, clip, until="make")
    assert fake.calls == ["ingest", "make"] and summary.asset is None
    assert summary.report == run_dir / "report.html" and summary.report.is_file()  # what there is so far
    walk(fake.stages, run_dir, clip)
    assert fake.calls == list(ALL)
    (run_dir / "report.html").write_text("the asset's", "utf-8")
    summary = walk(fake.stages, run_dir, clip, until="make", values={"make": {"scale": 3.0}})
    assert summary.report is None and (run_dir / "report.html").read_text("utf-8") == "the asset's"  # it stands


def test_one_stage_alone_needs_its_inputs(clip: Path, run_dir: Path) -> None:
    fake = Walk()
    walk(fake.stages, run_dir, clip, until="ingest")
    with pytest.raises(InputError, match="paint reads make, which is not finished"):
        walk(fake.stages, run_dir, clip, only="paint")
    fake.calls.clear()
    walk(fake.stages, run_dir, clip, only="make", values={"ingest": {"length": 2}})
    assert fake.calls == ["make"]


def test_the_last_line_names_the_report_and_what_one_stage_left_behind(clip: Path, run_dir: Path) -> None:
    lines, fake = Lines(), Walk()
    walk(fake.stages, run_dir, clip, log=Log(lines))
    assert f"done: {run_dir / 'fox.glb'}, look at {run_dir / 'report.html'} (" in lines.text("info")
    blue = {"paint": {"color": "blue"}}
    lines = Lines()
    walk(fake.stages, run_dir, clip, only="paint", values=blue, log=Log(lines))
    assert f"export still holds the old result, go on with: v2m4 stage export {run_dir}" in lines.text("info")
    lines = Lines()
    walk(fake.stages, run_dir, clip, only="export", values=blue, log=Log(lines))
    assert "old result" not in lines.text("info")


def test_run_toml_is_every_option_and_gives_the_same_run(clip: Path, run_dir: Path, tmp_path: Path) -> None:
    fake = Walk()
    values = {"make": {"scale": 2.5, "seeds": 99}, "run": {"seed": 5}}
    walk(fake.stages, run_dir, clip, values=values)
    again = read_run_options(run_dir, stages=fake.stages)
    assert again == resolve_options({"ingest": {"clip": str(clip)}}, values, stages=fake.stages)
    table = read_toml(run_dir / "run.toml")
    assert table["make"] == {"scale": 2.5, "seeds": 99, "warn": ""} and table["run"]["seed"] == 5
    fake.calls.clear()
    run(Request(run_dir, again), fake.stages)
    assert fake.calls == []
    other = tmp_path / "copy" / "fox"
    run(Request(other, again), fake.stages)
    assert results(other) == results(run_dir)


def test_status_reports_states_and_costs_without_touching(clip: Path, run_dir: Path) -> None:
    fake = Walk()
    walk(fake.stages, run_dir, clip)
    assert {r.state for r in status(run_dir, fake.stages)} == {"finished"}
    clip.write_text("another clip", "utf-8")
    rows = status(run_dir, fake.stages)
    assert [r.state for r in rows] == ["out of date", "may change", "may change", "may change"]
    assert "unless ingest gives the same" in rows[1].note
    (run_dir / "2_make" / "meshes" / "00001.txt").write_text("x", "utf-8")
    before = everything(run_dir)
    rows = status(run_dir, fake.stages)
    assert [r.state for r in rows] == ["out of date", "edited", "out of date", "out of date"]
    assert rows[1].note == "meshes/00001.txt" and rows[0].record["seconds"] >= 0
    assert everything(run_dir) == before
    clip.unlink()
    assert status(run_dir, fake.stages)[0].state == "out of date"
    with pytest.raises(InputError, match="not a run directory"):
        status(run_dir.parent, fake.stages)


def test_plan_is_what_run_then_does(clip: Path, run_dir: Path) -> None:
    fake = Walk()
    options = resolve_options({"ingest": {"clip": str(clip)}}, stages=fake.stages)
    assert [d.action for d in plan(Request(run_dir, options), fake.stages)] == ["run"] * 4
    run(Request(run_dir, options), fake.stages)
    assert [d.action for d in plan(Request(run_dir, options), fake.stages)] == ["keep"] * 4


def test_a_run_directory_can_be_moved(clip: Path, run_dir: Path) -> None:
    fake = Walk()
    walk(fake.stages, run_dir, clip, values={"export": {"name": "fox"}})
    moved = run_dir.rename(run_dir.with_name("elsewhere é"))
    fake.calls.clear()
    walk(fake.stages, moved, clip, values={"export": {"name": "fox"}})
    assert fake.calls == []
