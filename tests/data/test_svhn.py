"""SVHN: generated Matlab files in the official layout."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.io

from dpot.data.svhn import SVHN, read_mat
from dpot.errors import DataError


class Small(SVHN):
    counts: ClassVar[dict[str, int]] = {"train": 30, "test": 20}


def make(count: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "X": rng.integers(0, 256, (32, 32, 3, count), np.uint8),
        "y": (np.arange(count) % 10 + 1).astype(np.uint8)[:, None],
    }


def write(root: Path, **changed: dict[str, Any]) -> dict[str, dict[str, np.ndarray]]:
    mats = {"train": make(30, 0), "test": make(20, 1)}
    (root / "svhn").mkdir(parents=True, exist_ok=True)
    published = {}
    for part, mat in mats.items():
        mat.update(changed.get(part, {}))
        path = root / "svhn" / f"{part}_32x32.mat"
        scipy.io.savemat(path, mat, do_compression=True)
        published[path.name] = "md5:" + hashlib.md5(path.read_bytes()).hexdigest()
    Small.published = published
    return mats


def test_images_and_labels(tmp_path: Path) -> None:
    mats = write(tmp_path)
    data = Small().load(tmp_path)
    assert (len(data.train), len(data.test), data.shape) == (30, 20, (3, 32, 32))
    assert data.train.x[4, 2, 7, 9] == mats["train"]["X"][7, 9, 2, 4]
    assert data.train.y is not None
    assert data.train.y[:10].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]  # Matlab's 10 is the digit 0
    assert data.comparable


@pytest.mark.parametrize("label", [0, 11])
def test_mislabelled(tmp_path: Path, label: int) -> None:
    y = make(20, 1)["y"]
    y[3] = label
    write(tmp_path, test={"y": y})
    with pytest.raises(DataError, match=r"test_32x32\.mat: mislabelled: record 3"):
        Small().load(tmp_path)


@pytest.mark.parametrize("changed", [{"X": np.zeros((32, 32, 3, 31), np.uint8)}, {"X": np.zeros((32, 32, 3, 30))}])
def test_wrong_images(tmp_path: Path, changed: dict[str, Any]) -> None:
    write(tmp_path, train=changed)
    with pytest.raises(DataError, match=r"train_32x32\.mat"):
        Small().load(tmp_path)


def test_the_published_checksum_is_asked_for(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(DataError, match=r"train_32x32\.mat: corrupt \(md5"):
        SVHN().load(tmp_path)


def test_damaged_at_any_place(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / "svhn" / "train_32x32.mat"
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for cut in [0, 1, 100, 127, 128, 140, *rng.integers(0, len(whole), 20).tolist()]:
        path.write_bytes(whole[:cut])
        with pytest.raises(DataError, match=r"train_32x32\.mat"):
            read_mat(path, 30)


def test_what_to_put_where(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"put svhn/train_32x32\.mat, svhn/test_32x32\.mat in "):
        SVHN().load(tmp_path, download=False)


def test_checksums_are_those_of_torchvision() -> None:
    import torchvision.datasets

    listed = torchvision.datasets.SVHN.split_list
    assert SVHN.published == {listed[p][1]: f"md5:{listed[p][2]}" for p in ("train", "test")}
    assert [r.urls[0] for r in SVHN().remotes().values()] == [listed["train"][0], listed["test"][0]]
