"""The decoded cache: built once, by one process, whole or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import forked
import numpy as np
import pytest

from dpot.data.cache import Builder, Entry, cache_size, cached
from dpot.errors import DataError

TRUTH = np.arange(6000, dtype=np.uint8).reshape(10, 600)


class Decoder:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, builder: Builder) -> dict[str, Any]:
        self.calls += 1
        builder.put("x", TRUTH)
        builder.put("none", np.empty((0, 3), np.int64))
        return {"classes": 3}


def load(decoder: Decoder, verify: bool = False, **parts: Any) -> Entry:
    return cached("toy", {"file": "a", **parts}, decoder, verify=verify)


def entry_folder(cache: Path) -> Path:
    (folder,) = (p for p in (cache / "decoded").iterdir() if not p.name.startswith("."))
    return folder


def test_decoded_once() -> None:
    decoder = Decoder()
    for _ in range(3):
        entry = load(decoder)
        assert (entry.arrays["x"] == TRUTH).all()
        assert entry.arrays["none"].shape == (0, 3)
        assert entry.facts == {"classes": 3}
    assert decoder.calls == 1
    assert cache_size() >= TRUTH.nbytes


def test_nobody_else_can_read_an_entry(cache: Path) -> None:
    load(Decoder())
    assert entry_folder(cache).stat().st_mode & 0o077 == 0


def test_other_options_are_another_entry() -> None:
    decoder = Decoder()
    load(decoder, size=1)
    load(decoder, size=2)
    assert decoder.calls == 2


def test_arrays_are_mapped_and_writes_stay_private() -> None:
    entry = load(Decoder())
    assert isinstance(entry.arrays["x"], np.memmap)
    entry.arrays["x"][...] = 0
    assert (load(Decoder()).arrays["x"] == TRUTH).all()


def truncate(folder: Path) -> None:
    data = (folder / "x.npy").read_bytes()
    (folder / "x.npy").write_bytes(data[:-1])


def flip_value(folder: Path) -> None:
    data = bytearray((folder / "x.npy").read_bytes())
    data[-7] ^= 1
    (folder / "x.npy").write_bytes(data)


def drop(folder: Path) -> None:
    (folder / "none.npy").unlink()


def alter_meta(folder: Path) -> None:
    text = (folder / "meta.json").read_text()
    (folder / "meta.json").write_text(text.replace('"classes": 3', '"classes": 4'))


def empty_meta(folder: Path) -> None:
    (folder / "meta.json").write_text("")


@pytest.mark.parametrize("damage", [truncate, flip_value, drop, alter_meta, empty_meta])
def test_a_damaged_entry_is_rebuilt(cache: Path, damage: Callable[[Path], None]) -> None:
    decoder = Decoder()
    load(decoder)
    damage(entry_folder(cache))
    entry = load(decoder)
    assert (entry.arrays["x"] == TRUTH).all()
    assert entry.facts == {"classes": 3}
    assert decoder.calls == 2
    load(decoder)
    assert decoder.calls == 2


def test_verify_reads_every_byte(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bits that rot beneath the file system leave the stamp alone; only verify can find them."""
    from dpot.data import cache as module

    decoder = Decoder()
    load(decoder)
    flip_value(entry_folder(cache))
    import json

    meta = json.loads((entry_folder(cache) / "meta.json").read_text())
    monkeypatch.setattr(module, "stamp_of", lambda path: meta["arrays"][path.stem]["stamp"])
    load(decoder)
    assert decoder.calls == 1
    load(decoder, verify=True)
    assert decoder.calls == 2


def test_a_failed_decoder_leaves_nothing(cache: Path) -> None:
    def fail(builder: Builder) -> dict[str, Any]:
        builder.put("x", TRUTH)
        raise DataError("corrupt")

    with pytest.raises(DataError, match="corrupt"):
        cached("toy", {}, fail)
    assert list((cache / "decoded").iterdir()) == []


def test_a_cache_that_cannot_be_written_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DPOT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match="set DPOT_CACHE"):
        load(Decoder())


def test_a_full_disk_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    from dpot.data import cache as module

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "posix_fallocate", full, raising=False)
    with pytest.raises(DataError, match=r"No space left.*set DPOT_CACHE"):
        load(Decoder())


CHILD = """
import sys, time
from pathlib import Path
import numpy as np
from dpot.data.cache import cached
log, pause = Path(sys.argv[1]), float(sys.argv[2])
def decode(builder):
    with log.open("a") as f:
        f.write("decoding\\n")
    x = builder.empty("x", (100, 10), np.int64)
    x[:50] = 7
    print("half", flush=True)
    time.sleep(pause)
    x[50:] = 7
    return {}
print(int(cached("child", {}, decode).arrays["x"].sum()), flush=True)
"""


def start(log: Path, pause: float, said: Path) -> BaseProcess:
    return forked.start(["-c", CHILD, str(log), str(pause)], said, said.with_suffix(".err"))


def test_two_processes_on_an_empty_cache(tmp_path: Path) -> None:
    log, said = tmp_path / "log", [tmp_path / str(i) for i in range(2)]
    children = [start(log, 0.5, out) for out in said]
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0]
    assert [out.read_text().split()[-1] for out in said] == ["7000", "7000"]
    assert log.read_text() == "decoding\n"


def test_killed_while_decoding(tmp_path: Path, cache: Path) -> None:
    said = tmp_path / "said"
    child = start(tmp_path / "log", 60, said)
    deadline = time.monotonic() + 60
    while not (said.exists() and said.read_text() == "half\n") and time.monotonic() < deadline:
        time.sleep(0.02)
    forked.kill(child)
    left = [p.name for p in (cache / "decoded").iterdir()]
    assert len(left) == 1
    assert left[0].startswith(".")  # nothing that could be mistaken for an entry

    def decode(builder: Builder) -> dict[str, Any]:
        builder.put("x", np.full((100, 10), 7))
        return {}

    assert cached("child", {}, decode).arrays["x"].sum() == 7000
    assert not [p for p in (cache / "decoded").iterdir() if p.name.startswith(".")]
