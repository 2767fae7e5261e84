"""CIFAR-10: a generated archive in the official binary layout, and the subset."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from dpot.data.cifar10 import ARCHIVE, CIFAR10, TEST, TRAIN
from dpot.errors import DataError


class Small(CIFAR10):
    per_batch = 4


def write_archive(path: Path, rows: dict[str, np.ndarray], folder: str = "cifar-10-batches-bin/") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in [("batches.meta.txt", b"airplane\n"), *((n, r.tobytes()) for n, r in rows.items())]:
            info = tarfile.TarInfo(folder + name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    Small.archive_checksum = "md5:" + hashlib.md5(path.read_bytes()).hexdigest()


@pytest.fixture
def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    made = {name: rng.integers(0, 256, (4, 3073), np.uint8) for name in (*TRAIN, TEST)}
    for batch in made.values():
        batch[:, 0] %= 10
    return made


@pytest.mark.parametrize("folder", ["cifar-10-batches-bin/", "../../../", "/"])
def test_the_binary_archive(tmp_path: Path, rows: dict[str, np.ndarray], folder: str) -> None:
    write_archive(tmp_path / "cifar10" / ARCHIVE, rows, folder)
    data = Small().load(tmp_path)
    assert (len(data.train), len(data.test), data.shape) == (20, 4, (3, 32, 32))
    assert data.train.y is not None
    assert data.train.y.tolist() == [int(r[0]) for name in TRAIN for r in rows[name]]
    # the record: label, then the red plane row by row, then green, then blue
    assert data.train.x[6, 0, 2, 5] == rows[TRAIN[1]][2, 1 + 2 * 32 + 5]
    assert data.test.x[3, 2, 31, 31] == rows[TEST][3, -1]
    assert data.comparable


def test_the_published_checksum_is_asked_for(tmp_path: Path, rows: dict[str, np.ndarray]) -> None:
    write_archive(tmp_path / "cifar10" / ARCHIVE, rows)
    with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz: corrupt \(md5"):
        CIFAR10().load(tmp_path)


def test_a_batch_is_missing(tmp_path: Path, rows: dict[str, np.ndarray]) -> None:
    del rows[TRAIN[2]]
    write_archive(tmp_path / "cifar10" / ARCHIVE, rows)
    with pytest.raises(DataError, match=r"no data_batch_3\.bin"):
        Small().load(tmp_path)


def test_a_batch_is_short(tmp_path: Path, rows: dict[str, np.ndarray]) -> None:
    rows[TEST] = rows[TEST][:3]
    write_archive(tmp_path / "cifar10" / ARCHIVE, rows)
    with pytest.raises(DataError, match=r"no test_batch\.bin of 12,292 bytes"):
        Small().load(tmp_path)


def test_mislabelled(tmp_path: Path, rows: dict[str, np.ndarray]) -> None:
    rows[TEST][1, 0] = 10
    write_archive(tmp_path / "cifar10" / ARCHIVE, rows)
    with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz: mislabelled"):
        Small().load(tmp_path)


def test_links_in_the_archive_are_not_followed(tmp_path: Path, rows: dict[str, np.ndarray]) -> None:
    path = tmp_path / "cifar10" / ARCHIVE
    write_archive(path, {n: r for n, r in rows.items() if n != TEST})
    with tarfile.open(path, "w:gz") as archive:
        for name, content in rows.items():
            info = tarfile.TarInfo(name)
            if name == TEST:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            else:
                info.size = content.nbytes
            archive.addfile(info, io.BytesIO(content.tobytes()))
    Small.archive_checksum = "md5:" + hashlib.md5(path.read_bytes()).hexdigest()
    with pytest.raises(DataError, match=r"no test_batch\.bin"):
        Small().load(tmp_path)


def test_an_archive_that_inflates(tmp_path: Path, rows: dict[str, np.ndarray]) -> None:
    write_archive(tmp_path / "cifar10" / ARCHIVE, {**rows, "zeros": np.zeros(10_000_000, np.uint8)})
    with pytest.raises(DataError, match="unpacks to more than"):
        Small().load(tmp_path)


def write_subset(path: Path, **changed: np.ndarray) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 256, (20, 32, 32, 3), np.uint8),
        "y_train": np.arange(20, dtype=np.uint8) % 10,
        "x_test": rng.integers(0, 256, (10, 32, 32, 3), np.uint8),
        "y_test": np.arange(10, dtype=np.uint8),
        **changed,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return arrays


def test_the_subset_is_never_comparable(tmp_path: Path, rows: dict[str, np.ndarray]) -> None:
    arrays = write_subset(tmp_path / "cifar10" / "cifar10_subset.npz")
    data = Small().load(tmp_path)
    assert (data.train.x.numpy() == np.moveaxis(arrays["x_train"], 3, 1)).all()
    assert not data.comparable
    assert "20 train and 10 test" in data.note
    write_archive(tmp_path / "cifar10" / ARCHIVE, rows)
    assert Small().load(tmp_path).comparable  # the full set is preferred


@pytest.mark.parametrize(
    "changed",
    [
        {"x_train": np.zeros((20, 32, 32, 3), np.float32)},
        {"x_test": np.zeros((10, 3, 32, 32), np.uint8)},
        {"y_test": np.full(10, 12, np.uint8)},
    ],
)
def test_a_wrong_subset_is_refused_by_name(tmp_path: Path, changed: dict[str, np.ndarray]) -> None:
    write_subset(tmp_path / "cifar10" / "cifar10_subset.npz", **changed)
    with pytest.raises(DataError, match=r"cifar10_subset\.npz"):
        Small().load(tmp_path)


def test_real_subset(real: Callable[[str], Path]) -> None:
    data = CIFAR10().load(real("cifar10"))
    if data.comparable:
        pytest.skip("the full set is at hand")
    assert data.train.y is not None
    assert torch.bincount(data.train.y).tolist() == [500] * 10
    # the channel means of the full set, within the error of 5000 images
    means = data.train.x.float().mean((0, 2, 3)) / 255
    torch.testing.assert_close(means, torch.tensor([0.4914, 0.4822, 0.4465]), atol=0.01, rtol=0)


def test_the_full_set_as_arrays_is_held_to_its_content(tmp_path: Path) -> None:
    path = tmp_path / "cifar10" / "cifar10_full.npz"
    arrays = write_subset(path)
    with pytest.raises(DataError, match=r"cifar10_full\.npz: corrupt \(sha256 of its arrays"):
        Small().load(tmp_path)
    digest = hashlib.sha256()
    for name in ("x_train", "y_train", "x_test", "y_test"):
        digest.update(arrays[name].tobytes())
    known = type("Known", (Small,), {"arrays_checksum": digest.hexdigest()})
    data = known().load(tmp_path)
    assert data.comparable
    assert not data.note
    assert (data.test.x.numpy() == np.moveaxis(arrays["x_test"], 3, 1)).all()
    arrays["x_test"][3, 5, 7, 1] ^= 1
    np.savez(path, **arrays)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="corrupt"):
        known().load(tmp_path)
