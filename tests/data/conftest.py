"""A cache of its own for every test, no network but 127.0.0.1, and the real data where they are at hand."""

from __future__ import annotations

import gzip
import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

REAL = os.environ.get("DPOT_DATA")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no data root, no downloads."""
    place = tmp_path / "cache"
    monkeypatch.setenv("DPOT_CACHE", str(place))
    monkeypatch.setenv("DPOT_OFFLINE", "1")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("DPOT_DATA", raising=False)
    return place


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests on real data: each set is decoded once."""
    return tmp_path_factory.mktemp("real-cache")


@pytest.fixture
def real(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """real('mnist') gives the data root that holds that folder, or skips the test."""

    def need(folder: str) -> Path:
        if not REAL or not (Path(REAL) / folder).is_dir():
            pytest.skip(f"DPOT_DATA has no {folder}")
        monkeypatch.setenv("DPOT_CACHE", str(shared_cache))
        return Path(REAL)

    return need


@pytest.fixture
def write_idx() -> Callable[[Path, np.ndarray], bytes]:
    """Write an array as an idx file (compressed if the name says so); gives the plain content."""

    def write(path: Path, array: np.ndarray) -> bytes:
        content = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        return content

    return write


@pytest.fixture
def flip() -> Callable[[Path, int], None]:
    """Flip one bit of the byte at a position."""

    def flip_byte(path: Path, position: int) -> None:
        data = bytearray(path.read_bytes())
        data[position] ^= 0x10
        path.write_bytes(data)

    return flip_byte
