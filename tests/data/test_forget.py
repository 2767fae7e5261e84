"""Decoded private records do not stay where nobody wants them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from dpot.composing import compose_config
from dpot.data.files import cache_root
from dpot.data.folder import Folder
from dpot.data.table import Table
from dpot.errors import UsageError
from dpot.launch import run


@pytest.fixture
def own(tmp_path: Path) -> tuple[Path, Path]:
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(4):
        Image.fromarray(np.full((8, 8), 50 * i, np.uint8)).save(folder / f"{i}.png")
    pd.DataFrame({"a": range(30), "label": [0, 1] * 15}).to_csv(tmp_path / "t.csv", index=False)
    return folder, tmp_path / "t.csv"


def kept() -> list[str]:
    return sorted(path.name.rpartition("-")[0] for path in (cache_root() / "decoded").glob("*"))


def forget(what: str) -> list[str]:
    return list(run(compose_config(["task=data", f"task.forget={what}"])).data["forgotten"])


def test_decoded_records_are_their_owners_and_can_be_forgotten(own: tuple[Path, Path]) -> None:
    Folder(str(own[0]), size=8).load()
    Table(str(own[1])).load()
    (cache_root() / "decoded" / "mnist-0").mkdir()  # of a public data set
    assert kept() == ["folder", "mnist", "table"]
    files = list((cache_root() / "decoded").rglob("*.npy"))
    assert files
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
    assert len(forget("table")) == 1
    assert kept() == ["folder", "mnist"]
    forget("own")
    assert kept() == ["mnist"]
    forget("all")
    assert kept() == []
    with pytest.raises(UsageError, match="did you mean"):
        forget("tabel")


def test_without_a_cache_nothing_stays(own: tuple[Path, Path]) -> None:
    first = Folder(str(own[0]), size=8).load()
    again = Folder(str(own[0]), size=8, cache=False).load()
    assert kept() == []
    assert np.array_equal(first.train.x, again.train.x)
    assert again.checksum == first.checksum
    table = Table(str(own[1]), cache=False).load()
    assert kept() == []
    assert len(table.train) == 27
    assert float(table.train.x.sum() + table.test.x.sum()) == sum(range(30))
