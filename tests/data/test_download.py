"""Downloads against a server on this machine: good, truncated, wrong, too long, hanging, dripping."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import forked
import pytest

from dpot.data import download
from dpot.data.download import Remote, fetch
from dpot.errors import DataError

CONTENT = os.urandom(300_000)
MD5 = "md5:" + hashlib.md5(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Behaves as the path asks; remembers what was asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []
        self.closing = threading.Event()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name = self.path.strip("/")
        self.server.asked.append(name)
        if name == "missing":
            self.send_error(404)
        elif name == "moved":
            self.answer({"Location": "/good"}, b"", 302)
        elif name == "to_a_local_file":
            self.answer({"Location": "file:///etc/hostname"}, b"", 302)
        elif name == "hang":
            self.server.closing.wait(30)
        elif name == "drip":
            self.answer({"Content-Length": str(len(CONTENT))}, b"")
            while not self.server.closing.wait(0.05):
                self.wfile.write(b"x")
        elif name == "too_long":
            self.answer({"Content-Length": str(10**12)}, CONTENT)
        elif name == "too_long_unsaid":
            self.answer({}, CONTENT * 40)
        elif name == "truncated":
            self.answer({"Content-Length": str(len(CONTENT))}, CONTENT[:1000])
        elif name == "wrong":
            self.answer({"Content-Length": str(len(CONTENT))}, CONTENT[:-1] + b"?")
        else:
            self.answer({"Content-Length": str(len(CONTENT))}, CONTENT)

    def answer(self, headers: dict[str, str], body: bytes, code: int = 200) -> None:
        self.send_response(code)
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.delenv("DPOT_OFFLINE")
    monkeypatch.setattr(download, "TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(download, "SLOW_WINDOW_SECONDS", 0.5)
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.05,))
        thread.start()
        yield running
        running.closing.set()
        running.shutdown()
        thread.join()


def remote(server: Server, *names: str) -> Remote:
    return Remote(tuple(server.url(n) for n in names), MD5, 1_000_000)


@pytest.mark.parametrize("name", ["good", "moved"])
def test_a_good_file(server: Server, tmp_path: Path, name: str) -> None:
    target = tmp_path / "set" / "file.gz"
    assert fetch(remote(server, name), target) == target
    assert target.read_bytes() == CONTENT
    assert os.listdir(target.parent) == ["file.gz"]


def test_what_is_there_is_not_asked_for(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    fetch(remote(server, "good"), tmp_path / "file")
    assert server.asked == []
    assert (tmp_path / "file").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("missing", "answered 404"),
        ("truncated", "truncated or wrong"),
        ("wrong", "truncated or wrong"),
        ("too_long", "more than the 1,000,000 expected"),
        ("too_long_unsaid", "more than the 1,000,000 bytes expected"),
        ("hang", "no answer within 0.5 s"),
        ("drip", "sent only"),
        ("to_a_local_file", "answered 302"),
    ],
)
def test_a_bad_mirror_leaves_nothing_and_the_next_is_tried(server: Server, tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(DataError, match=rf"file could not be downloaded \(127\.0\.0\.1: .*{why}"):
        fetch(remote(server, name), tmp_path / "file")
    assert [p for p in tmp_path.iterdir() if p.name != "cache"] == []
    fetch(remote(server, name, "good"), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_failed_download_leaves_no_folder(server: Server, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    with pytest.raises(DataError, match="answered 404"):
        fetch(remote(server, "missing"), tmp_path / "root" / "new" / "set" / "file")
    assert list((tmp_path / "root").iterdir()) == []


def test_nobody_listens(server: Server, tmp_path: Path) -> None:
    with Server() as other:
        url = other.url("good")
    with pytest.raises(DataError, match="refused"):
        fetch(Remote((url,), MD5, 1_000_000), tmp_path / "file")


def test_no_file_urls(server: Server, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(CONTENT)
    with pytest.raises(DataError, match="could not be downloaded"):
        fetch(Remote(((tmp_path / "source").as_uri(),), MD5, 1_000_000), tmp_path / "file")


def test_offline(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPOT_OFFLINE", "1")
    with pytest.raises(DataError, match="DPOT_OFFLINE"):
        fetch(remote(server, "good"), tmp_path / "file")
    assert server.asked == []


def test_every_download_has_a_checksum() -> None:
    with pytest.raises(ValueError, match="not verified"):
        Remote(("http://127.0.0.1/",), "md5:", 1)


def test_two_processes_download_once(server: Server, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from dpot.data.download import *;"
        "fetch(Remote((sys.argv[1],), sys.argv[2], 10**6), Path(sys.argv[3]))"
    )
    words = ["-c", program, server.url("good"), MD5, str(tmp_path / "file")]
    children = [forked.start(words, tmp_path / f"out{i}", tmp_path / f"err{i}") for i in range(2)]
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0]
    assert server.asked == ["good"]
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_killed_download_is_started_afresh(server: Server, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from dpot.data.download import *;"
        "fetch(Remote((sys.argv[1],), sys.argv[2], 10**6), Path(sys.argv[3]))"
    )
    words = ["-c", program, server.url("drip"), MD5, str(tmp_path / "file")]
    child = forked.start(words, tmp_path / "out", tmp_path / "err")
    part = tmp_path / ".file.part"
    deadline = time.monotonic() + 60
    while not part.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    forked.kill(child)
    assert part.exists()
    assert not (tmp_path / "file").exists()
    fetch(remote(server, "good"), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert not part.exists()
