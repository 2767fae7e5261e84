"""Where files are looked for, and when a remembered checksum may be trusted."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dpot.data import files
from dpot.data.files import Layout, Wanted
from dpot.errors import DataError


def age(path: Path, seconds: float = 60) -> None:
    """Make a file look old, so that its hash is remembered (its change time is faked by the clock below)."""
    then = time.time() - seconds
    os.utime(path, (then, then))


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an hour later: every file is old enough to be remembered."""
    now = time.time
    monkeypatch.setattr(files.time, "time", lambda: now() + 3600)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are really read."""
    seen: list[Path] = []
    original = files.hash_file

    def spy(path: Path, algorithm: str = "sha256") -> str:
        seen.append(path)
        return original(path, algorithm)

    monkeypatch.setattr(files, "hash_file", spy)
    return seen


def test_digest_is_the_sha256(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert files.digests({"k": tmp_path / "a"}) == {"k": hashlib.sha256(b"abc").hexdigest()}


def test_an_unchanged_file_is_read_once(tmp_path: Path, later: None, hashed: list[Path]) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    first = files.digests({"k": tmp_path / "a"})
    assert files.digests({"k": tmp_path / "a"}) == first
    assert len(hashed) == 1
    files.digests({"k": tmp_path / "a"}, rehash=True)
    assert len(hashed) == 2


def test_a_young_file_is_not_remembered(tmp_path: Path, hashed: list[Path]) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    files.digests({"k": tmp_path / "a"})
    files.digests({"k": tmp_path / "a"})
    assert len(hashed) == 2


def test_a_change_is_seen_even_if_the_modification_time_is_put_back(
    tmp_path: Path, later: None, flip: Callable[[Path, int], None]
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    age(path)
    before = files.digests({"k": path})
    times = path.stat()
    time.sleep(0.02)  # past the granularity of the change time
    flip(path, 1)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert path.stat().st_mtime_ns == times.st_mtime_ns
    assert files.digests({"k": path}) != before


@pytest.mark.parametrize("junk", ["", "{", "[]", "null", '{"x": 1}'])
def test_a_damaged_ledger_is_ignored(tmp_path: Path, later: None, cache: Path, junk: str) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    first = files.digests({"k": tmp_path / "a"})
    (ledger,) = (cache / "stamps").iterdir()
    ledger.write_text(junk.replace("x", str(tmp_path / "a")))
    assert files.digests({"k": tmp_path / "a"}) == first
    assert json.loads(ledger.read_text())


def test_the_data_root_comes_before_earlier_downloads(tmp_path: Path, cache: Path) -> None:
    layout = Layout("full", (Wanted("k", ("set/a.gz", "set/a")),))
    downloaded = cache / "downloads" / "set" / "a.gz"
    downloaded.parent.mkdir(parents=True)
    downloaded.touch()
    root = tmp_path / "root"
    (root / "set").mkdir(parents=True)
    assert files.find(layout, files.search_roots(root)) == {"k": downloaded}
    (root / "set" / "a").touch()
    assert files.find(layout, files.search_roots(root)) == {"k": root / "set" / "a"}
    (root / "set" / "a.gz").touch()
    assert files.find(layout, files.search_roots(root)) == {"k": root / "set" / "a.gz"}


def test_the_environment_names_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert files.given_root(None) is None
    monkeypatch.setenv("DPOT_DATA", str(tmp_path / "env"))
    assert files.given_root(None) == tmp_path / "env"
    assert files.given_root(str(tmp_path / "given")) == tmp_path / "given"


def test_downloads_go_to_the_root_if_it_can_be_written(tmp_path: Path, cache: Path) -> None:
    assert files.download_root(tmp_path / "new") == tmp_path / "new"
    assert files.download_root(None) == cache / "downloads"
    assert not (tmp_path / "new").exists()  # asking creates nothing
    (tmp_path / "file").touch()
    assert files.download_root(tmp_path / "file") == cache / "downloads"


def test_a_read_only_root_is_left_alone_even_by_root(tmp_path: Path, cache: Path) -> None:
    readonly = tmp_path / "readonly"
    readonly.mkdir(mode=0o555)
    before = readonly.stat().st_mtime_ns
    assert files.download_root(readonly) == cache / "downloads"
    assert files.download_root(readonly / "below") == cache / "downloads"
    assert readonly.stat().st_mtime_ns == before
    # a file system that takes no files although its mode says otherwise
    assert files.download_root("/proc/self") == cache / "downloads"


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="gone"):
        files.digests({"k": tmp_path / "gone"})


def test_names_that_are_not_utf8(tmp_path: Path, later: None) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.bin"))
    path.write_bytes(b"abc")
    assert files.digests({"k": path}) == files.digests({"k": path})
    files.printable(path).encode("utf-8")


def test_check_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    files.check_file(path, "md5:900150983cd24fb0d6963f7d28e17f72")  # RFC 1321
    with pytest.raises(DataError, match=r"/a: corrupt \(md5"):
        files.check_file(path, "md5:" + "0" * 32)


def test_write_text_leaves_nothing_behind_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("old")

    def fail(*_: object) -> None:
        raise OSError("disk")

    monkeypatch.setattr(files.os, "replace", fail)
    with pytest.raises(OSError, match="disk"):
        files.write_text(tmp_path / "a", "new")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_a_keyed_digest_tells_change_and_nothing_else(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = files.keyed_digest(b"a")
    assert first == files.keyed_digest(b"a") != files.keyed_digest(b"b")
    assert hashlib.sha256(b"a").hexdigest() not in first
    assert (cache / "key").stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("DPOT_CACHE", str(cache.with_name("another")))
    assert files.keyed_digest(b"a") != first
    monkeypatch.setenv("DPOT_CACHE", str(cache))
    (cache / "key").write_text("half a ke")
    assert files.keyed_digest(b"a") == files.keyed_digest(b"a") != first  # a new key
