"""The fuzzer of scripts/fuzz.py: a short run finds nothing, and it would find what is wrong."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import forked
import numpy as np
import pytest

from dpot.errors import DataError

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def fuzz(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import fuzz  # type: ignore[import-not-found]

    return fuzz


def test_three_seconds_of_damaged_files(tmp_path: Path) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    words = [str(SCRIPTS / "fuzz.py"), "--seconds", "3", "--processes", "1"]
    process = forked.start(words, out, err, os.environ | {"OMP_NUM_THREADS": "1"})
    process.join(300)
    assert process.exitcode == 0, out.read_text() + err.read_text()[-3000:]
    tried = re.findall(r"^(.{14}) +([\d,]+)", out.read_text(), re.MULTILINE)
    assert len(tried) == 18
    assert all(int(count.replace(",", "")) > 0 for _, count in tried)


def load(_: Path) -> dict[str, Any]:
    """What stands for a data set."""
    return {"x": np.arange(3), "train y": np.arange(3)}


def crash(_: Path) -> dict[str, Any]:
    raise KeyError("x")


def chatter(_: Path) -> dict[str, Any]:
    raise DataError("two\nlines")


def refuse(_: Path) -> dict[str, Any]:
    raise DataError("one line")


def lose(_: Path) -> dict[str, Any]:
    return {"x": np.arange(3), "train y": None}


def alter(_: Path) -> dict[str, Any]:
    return {"x": np.arange(4), "train y": np.arange(3)}


def gorge(_: Path) -> dict[str, Any]:
    np.ones(64 << 20, np.uint8)
    return load(_)


@pytest.mark.parametrize(
    ("loader", "sealed", "outcome", "what"),
    [
        (load, True, "same", ""),
        (refuse, True, "refused", ""),
        (alter, False, "different", ""),
        (alter, True, "finding", "other values of x"),
        (lose, False, "finding", "labels vanished"),
        (crash, False, "finding", "KeyError"),
        (chatter, False, "finding", "several lines"),
        (gorge, False, "finding", "took"),
    ],
)
def test_what_is_a_finding(
    fuzz: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    loader: Any,
    sealed: bool,
    outcome: str,
    what: str,
) -> None:
    monkeypatch.setattr(fuzz, "BYTES_AT_MOST", 32 << 20)
    kind = fuzz.Kind("demo", lambda root: (root / "file").write_bytes(b"content"), load, sealed)
    bench = fuzz.Bench(tmp_path, seed=0)
    bench.prepare(kind)
    found = bench.judge(dataclasses.replace(kind, load=loader), 1)
    assert found[0] == outcome
    assert what in found[1]


def test_a_case_is_repeatable(fuzz: ModuleType, tmp_path: Path) -> None:
    kind = next(kind for kind in fuzz.KINDS if kind.name == "npz")
    bench = fuzz.Bench(tmp_path, seed=3)
    bench.prepare(kind)
    contents = []
    for copy in "ab":
        root = tmp_path / copy
        root.mkdir()
        kind.build(root)
        bench.damage(kind, 7, root)
        contents.append([path.read_bytes() for path in sorted(root.rglob("*"))])
    assert contents[0] == contents[1]
