"""Weights: found where they lie; fetched only after saying so, whole and right or not at all."""

from __future__ import annotations

import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakecontext import FakeContext

from v2m4.errors import InputError
from v2m4.weights import Weights, fetch, find

DATA = bytes(range(256)) * 5000


class Handler(http.server.BaseHTTPRequestHandler):
    """``/whole`` answers with DATA, ``/short`` breaks off, anything else is not there."""

    def do_GET(self) -> None:
        if self.path not in ("/whole", "/short"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(DATA)))
        self.end_headers()
        self.wfile.write(DATA if self.path == "/whole" else DATA[:1000])

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    """A server on this machine; its address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def weights(url: str, md5: str = hashlib.md5(DATA).hexdigest()) -> Weights:
    return Weights("tiny", "tiny.onnx", url, 1.3, md5, "Apache-2.0")


def test_fetched_whole_after_saying_so(server, tmp_path):
    log = FakeContext(tmp_path)
    path = fetch(weights(f"{server}/whole"), tmp_path / "deep" / "place", log)
    assert path == tmp_path / "deep" / "place" / "tiny.onnx" and path.read_bytes() == DATA
    assert len(log.messages) == 1
    for part in ("tiny (1 MB, licence Apache-2.0)", f"{server}/whole", str(path), "--weights-dir"):
        assert part in log.messages[0]


@pytest.mark.parametrize(
    ("where", "md5", "said"),
    [
        pytest.param("/whole", "0" * 32, "not what it should be", id="another file"),
        pytest.param("/short", None, "1000 of 1280000 bytes|IncompleteRead|could not be fetched", id="breaks off"),
        pytest.param("/nowhere", None, "could not be fetched.*Not Found", id="not there"),
    ],
)
def test_nothing_is_left_of_what_went_wrong(server, tmp_path, where, md5, said):
    wrong = weights(server + where, *([md5] if md5 else []))
    with pytest.raises(InputError, match=said) as caught:
        fetch(wrong, tmp_path, FakeContext(tmp_path))
    assert str(tmp_path / "tiny.onnx") in caught.value.hint and "--weights-dir" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_no_network_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match="could not be fetched"):
        fetch(weights("http://127.0.0.1:9/whole"), tmp_path, FakeContext(tmp_path))
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(InputError, match="could not be fetched"):
        fetch(weights("http://127.0.0.1:9/whole"), blocked / "folder", FakeContext(tmp_path))


def test_the_first_folder_wins(tmp_path):
    folders = [tmp_path / name for name in "abc"]
    for folder in folders[1:]:
        folder.mkdir()
        (folder / "x.onnx").touch()
    assert find("x.onnx", folders) == tmp_path / "b" / "x.onnx" and find("y.onnx", folders) is None


def test_the_table_of_models_is_complete():
    from v2m4.models.rembg import MODELS

    for model in MODELS.values():
        assert model.url.startswith("https://") and len(model.md5) == 32 and model.licence in ("MIT", "Apache-2.0")
    assert Path(MODELS["birefnet-general"].file).name == "birefnet-general.onnx"
