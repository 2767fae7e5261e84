"""Office-31 and VisDA feature files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpot.data.features import Office31, VisDA
from dpot.errors import DataError


def write(
    path: Path, classes: int, count: int = 100, d: int = 6, dtype: Any = np.float16, **changed: Any
) -> np.ndarray:
    x = np.random.default_rng(0).random((count, d)).astype(dtype)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **{"x": x, "y": np.arange(100) % classes, **changed})
    return x


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", ["train.npz", "train_resnet50.npz"])
def test_visda(tmp_path: Path, dtype: Any, name: str) -> None:
    x = write(tmp_path / "visda" / name, 12, dtype=dtype)
    data = VisDA("train").load(tmp_path)
    assert data.classes == 12
    assert data.kind == "features"
    np.testing.assert_array_equal(data.train.x.numpy(), x.astype(np.float32))
    assert data.test is data.train  # a domain has no split of its own
    assert not data.comparable  # 100 records are not VisDA
    assert "152,397 published" in data.note


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"y": np.arange(100) % 13}, "mislabelled: record 12 has label 12"),
        ({"y": np.arange(100) % 11}, "mislabelled: no record of class 11"),
        ({"y": np.arange(99) % 12}, "mislabelled: 100 records"),
        ({"x": np.full((100, 6), np.nan)}, "record 0 holds a value that is not a finite number"),
        ({"x": np.zeros((100, 2, 3))}, "N×d"),
        ({"x": np.array([["a"] * 6] * 100)}, "N×d"),
        ({"x": np.array([[{}] * 6] * 100)}, "pickled"),
    ],
)
def test_refused_by_name(tmp_path: Path, changed: dict[str, Any], why: str) -> None:
    write(tmp_path / "visda" / "validation.npz", 12, **changed)
    with pytest.raises(DataError, match=rf"validation\.npz: .*{why}"):
        VisDA("validation").load(tmp_path)


def test_what_to_put_where(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"put office31/amazon_resnet50\.npz in .*2048-d"):
        Office31("amazon").load(tmp_path)


def test_a_file_of_the_known_size_must_be_the_known_file(
    tmp_path: Path, real: Callable[[str], Path], flip: Callable[[Path, int], None]
) -> None:
    source = real("office31") / "office31" / "dslr_resnet50.npz"
    path = tmp_path / "office31" / source.name
    path.parent.mkdir()
    path.write_bytes(source.read_bytes())
    assert Office31("dslr").load(tmp_path).comparable
    flip(path, 10)  # the time stamp of a member: harmless to the arrays, and reported all the same
    with pytest.raises(DataError, match=r"dslr_resnet50\.npz: corrupt"):
        Office31("dslr").load(tmp_path)


@pytest.mark.parametrize(("domain", "count"), [("amazon", 2817), ("dslr", 498), ("webcam", 795)])
def test_real_office31(real: Callable[[str], Path], domain: Any, count: int) -> None:
    data = Office31(domain).load(real("office31"))
    assert tuple(data.train.x.shape) == (count, 2048)
    assert data.classes == 31
    assert data.comparable
