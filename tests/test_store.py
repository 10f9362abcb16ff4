"""Digests, folders, the lock, and the context of a stage."""

from __future__ import annotations

import hashlib
import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from v2m4.errors import InputError, RunLocked
from v2m4.files import write_text
from v2m4.log import Log
from v2m4.store import Context, Digests, StageFolder, StageLog, clean_name, combined, differences, locked
from v2m4.usage import measured


def context(tmp_path: Path, stage: str = "make", seed: int = 0) -> Context:
    return Context(tmp_path, stage, seed, StageLog(stage, Log()), lambda: "cuda")


def test_digests_are_sha256_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"hello")
    assert Digests().file(tmp_path / "a") == hashlib.sha256(b"hello").hexdigest()


def test_a_clean_name_is_text() -> None:
    """A name in another encoding comes from the system as lone surrogates."""
    assert clean_name("caf\udce9") == "caf_"


def test_a_tree_is_names_and_contents_without_junk(tmp_path: Path) -> None:
    for name in ("b/z.txt", "a.txt", ".hidden", "b/.hidden.tmp", ".git/x", "stage.json", "Thumbs.db"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    tree = Digests().tree(tmp_path)
    assert list(tree) == ["a.txt", "b/z.txt"]
    before = Digests().content(tmp_path)
    (tmp_path / "a.txt").rename(tmp_path / "c.txt")
    assert Digests().content(tmp_path) != before


def test_files_are_read_once_and_the_cache_moves_with_its_folder(tmp_path: Path, monkeypatch) -> None:
    old = tmp_path / "old"
    (old / "in").mkdir(parents=True)
    path = old / "in" / "a"
    path.write_bytes(b"hello")
    os.utime(path, ns=(1, 1))  # long ago
    digests = Digests(old / "cache.json")
    expected = digests.tree(old / "in")
    digests.save()
    moved = old.rename(tmp_path / "new")

    def refuse(*_: object) -> None:
        raise AssertionError("read again")

    again = Digests(moved / "cache.json")
    with monkeypatch.context() as patch:
        patch.setattr(hashlib, "sha256", refuse)
        assert again.tree(moved / "in") == expected
    (moved / "in" / "a").write_bytes(b"hellO")
    os.utime(moved / "in" / "a", ns=(2, 2))
    assert again.tree(moved / "in") != expected


def test_combined_does_not_depend_on_order() -> None:
    assert combined({"a": 1, "b": [2]}) == combined({"b": [2], "a": 1}) != combined({"a": 1, "b": [3]})


def test_differences() -> None:
    assert differences({"files": {"a": "1", "b": "2", "c": "3"}}, {"b": "2", "c": "x", "d": "4"}) == (["a"], ["c", "d"])


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=200))
def test_a_clean_name_can_be_a_file_everywhere_and_is_stable(name: str) -> None:
    clean = clean_name(name)
    assert clean and not set(clean) & set('<>:"/\\|?*\0\n') and clean.strip(" .") == clean
    assert len(clean.encode("utf-8", "surrogatepass")) <= 130
    assert clean_name(clean) == clean


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("Ünïcode/..:*?", "Ünïcode_..___"),
        ("con", "_con"),
        ("LPT1.x", "_LPT1.x"),
        ("  ", "asset"),
        ("...", "asset"),
        ("кадр 1", "кадр 1"),
    ],
)
def test_clean_names(name: str, clean: str) -> None:
    assert clean_name(name) == clean


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left"):
        write_text(path, "new")
    assert path.read_text() == "old"


def test_a_partial_folder_of_the_same_key_is_continued(tmp_path: Path) -> None:
    folder = StageFolder(tmp_path / "1_make")
    assert folder.begin("k1", forced=False) == []
    (folder.partial / "a").write_text("x")
    folder.note_warnings(["careful"])
    assert folder.begin("k1", forced=False) == ["careful"] and (folder.partial / "a").exists()
    assert folder.begin("k2", forced=False) == [] and not (folder.partial / "a").exists()
    (folder.partial / ".left.tmp").write_text("")
    folder.finish({"key": "k2", "files": {}})
    assert [p.name for p in folder.path.iterdir()] == ["stage.json"] and not folder.partial.exists()
    assert folder.record() == {"key": "k2", "files": {}}


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from v2m4.store import locked\n"
        "with locked(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        with pytest.raises(RunLocked, match=f"in use by process {process.pid}"), locked(tmp_path):
            pass
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    with locked(tmp_path):
        assert (tmp_path / "run.lock").read_text().strip() == str(os.getpid())
    with locked(tmp_path):
        pass


def test_seeds_depend_on_seed_stage_and_frame_alone(tmp_path: Path) -> None:
    one = context(tmp_path)
    seeds = [one.seed_for(k) for k in range(100)]
    assert seeds == [context(tmp_path).seed_for(k) for k in range(100)]
    assert one.seed_for(7) == seeds[7]  # whatever was asked before
    others = [context(tmp_path, "paint").seed_for(k) for k in range(100)]
    others += [context(tmp_path, seed=1).seed_for(k) for k in range(100)]
    assert len({*seeds, *others}) == 300 and all(0 <= s < 2**32 for s in seeds)


def test_the_device_is_chosen_when_first_asked_for(tmp_path: Path) -> None:
    ctx = context(tmp_path)
    assert ctx.device_used == "cpu"
    assert ctx.device == "cuda" and ctx.device_used == "cuda"


@pytest.mark.parametrize(
    ("items", "name"),
    [
        ([5, 9], "frame 9 (poses)"),
        (range(2), "step 1 (poses)"),
        ([Path("x/a.png"), Path("x/b.png")], "b.png (poses)"),
        (list(enumerate([5, 9])), "frame 9 (poses)"),
        ([(5, "x"), (9, "y")], "frame 9 (poses)"),
    ],
)
def test_the_item_in_work_is_known_when_the_loop_fails(tmp_path: Path, items: object, name: str) -> None:
    ctx = context(tmp_path)
    with pytest.raises(ValueError, match="no"):
        for number, _ in enumerate(ctx.track(items, "poses")):  # type: ignore[arg-type]
            if number == 1:
                raise ValueError("no")
    assert ctx.item == name
    list(ctx.track(items, "poses"))  # type: ignore[arg-type]
    assert ctx.item == ""


def test_usage_sees_time_and_memory() -> None:
    with measured() as small:
        pass
    with measured() as large:
        # Straight from the system: what other tests have freed is not memory that is newly used.
        block = mmap.mmap(-1, 80 << 20)
        block.write(b"x" * len(block))
        block.close()
    assert small.peak_memory_mb and large.peak_memory_mb and large.measured_by in ("peak", "process peak")
    assert large.peak_memory_mb > small.peak_memory_mb + 60 and large.seconds >= 0
    del block
    if large.measured_by == "peak":
        with measured() as after:
            pass
        assert after.peak_memory_mb < large.peak_memory_mb - 60
