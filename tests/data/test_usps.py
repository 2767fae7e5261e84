"""USPS, from the .npz file and from libsvm's text."""

from __future__ import annotations

import bz2
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from dpot.data.usps import USPS, read_libsvm
from dpot.errors import DataError, UsageError


def write_npz(path: Path, **changed: np.ndarray) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.random((7291, 16, 16), np.float32),
        "y_train": rng.integers(0, 10, 7291).astype(np.uint8),
        "x_test": rng.random((2007, 16, 16), np.float32),
        "y_test": rng.integers(0, 10, 2007).astype(np.uint8),
        **changed,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return arrays


def test_standard_split(tmp_path: Path) -> None:
    arrays = write_npz(tmp_path / "usps" / "usps.npz")
    data = USPS(size=16, split="standard").load(tmp_path)
    assert (data.train.x[:, 0].numpy() == arrays["x_train"]).all()
    assert (data.test.x[:, 0].numpy() == arrays["x_test"]).all()
    assert data.test.y is not None
    assert (data.test.y.numpy() == arrays["y_test"]).all()
    assert not data.comparable


def test_papers_split_is_a_partition_of_all_images(tmp_path: Path) -> None:
    arrays = write_npz(tmp_path / "usps" / "usps.npz")
    data = USPS(size=16, split="papers").load(tmp_path)
    assert (len(data.train), len(data.test)) == (7438, 1860)
    assert data.train.y is not None
    assert data.test.y is not None
    ours = torch.cat([data.train.x, data.test.x]).flatten(1).numpy()
    labels = torch.cat([data.train.y, data.test.y]).numpy()
    everything = np.concatenate([arrays["x_train"], arrays["x_test"]]).reshape(9298, -1)
    order, wanted = np.lexsort(ours.T), np.lexsort(everything.T)
    assert (ours[order] == everything[wanted]).all()
    assert (labels[order] == np.concatenate([arrays["y_train"], arrays["y_test"]])[wanted]).all()


def test_enlarged_to_28(tmp_path: Path) -> None:
    flat = np.full((7291, 16, 16), 0.25, np.float32)
    write_npz(tmp_path / "usps" / "usps.npz", x_train=flat)
    data = USPS(size=28, split="standard").load(tmp_path)
    assert data.shape == (1, 28, 28)
    torch.testing.assert_close(data.train.x, torch.full((7291, 1, 28, 28), 0.25))  # interpolation keeps constants
    assert data.test.x.min() >= 0
    assert data.test.x.max() <= 1


def test_framed_as_mnist_is(tmp_path: Path) -> None:
    """The same scans in the middle of an empty frame: with digits=16 not a pixel of them changes."""
    arrays = write_npz(tmp_path / "usps" / "usps.npz")
    data = USPS(split="standard", digits=16).load(tmp_path)
    x = data.train.x[:, 0].numpy()
    assert x.shape == (7291, 28, 28)
    assert (x[:, 6:22, 6:22] == arrays["x_train"]).all()
    assert x.sum() == pytest.approx(arrays["x_train"].sum(), rel=1e-4)  # nothing outside
    assert "16 wide" in data.note
    odd = USPS(split="standard", digits=21).load(tmp_path).train.x[:, 0]
    drawn = odd.sum(0) > 0
    assert drawn.any(0).nonzero().flatten().tolist() == list(range(3, 24))
    assert drawn.any(1).nonzero().flatten().tolist() == list(range(3, 24))
    with pytest.raises(UsageError, match="digits=29"):
        USPS(digits=29)


def test_digits_as_wide_as_the_image_are_the_default(tmp_path: Path) -> None:
    write_npz(tmp_path / "usps" / "usps.npz")
    one, other = (USPS(digits=digits).load(tmp_path) for digits in (None, 28))
    assert torch.equal(one.train.x, other.train.x)
    assert one.note == other.note
    assert USPS().options() == {"size": 28, "split": "papers"}  # the key of what is cached


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"x_train": np.zeros((7290, 16, 16), np.float32)}, "x_train has the shape"),
        ({"y_test": np.full(2007, 10, np.uint8)}, "mislabelled"),
        ({"y_test": np.zeros(2006, np.uint8)}, "mislabelled"),
        ({"x_test": np.full((2007, 16, 16), 1.5, np.float32)}, r"\[0, 1\]"),
    ],
)
def test_refused_by_name(tmp_path: Path, changed: dict[str, np.ndarray], why: str) -> None:
    write_npz(tmp_path / "usps" / "usps.npz", **changed)
    with pytest.raises(DataError, match=f"usps.npz.*{why}"):
        USPS().load(tmp_path)


def libsvm(path: Path, x: np.ndarray, y: np.ndarray, ending: str = "\n") -> None:
    lines = [
        f"{label + 1} " + " ".join(f"{i + 1}:{v:.6f}" for i, v in enumerate(row))
        for row, label in zip(x, y, strict=True)
    ]
    path.write_bytes(bz2.compress((ending.join(lines) + ending).encode()))


def test_libsvm_text(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.uniform(-1, 1, (12, 256)), rng.integers(0, 10, 12)
    libsvm(tmp_path / "usps.bz2", x, y)
    images, labels = read_libsvm(tmp_path / "usps.bz2", 12)
    np.testing.assert_allclose(images.reshape(12, 256), (x + 1) / 2, atol=1e-6)
    assert (labels == y).all()
    for count in (11, 13):
        with pytest.raises(DataError, match=r"usps\.bz2"):
            read_libsvm(tmp_path / "usps.bz2", count)


@pytest.mark.parametrize(
    "line", ["", "1", "x 1:0", "1 0:0.5", "1 257:0.5", "1 1:abc", "11 " + " ".join(f"{i}:0" for i in range(1, 257))]
)
def test_broken_libsvm_text(tmp_path: Path, line: str) -> None:
    (tmp_path / "usps.bz2").write_bytes(bz2.compress(f"{line}\n".encode()))
    with pytest.raises(DataError, match=r"usps\.bz2"):
        read_libsvm(tmp_path / "usps.bz2", 1)


def test_real_usps(real: Callable[[str], Path]) -> None:
    root = real("usps")
    standard = USPS(size=16, split="standard").load(root)
    assert standard.train.y is not None
    assert standard.test.y is not None
    # the class counts of the data set as published with The Elements of Statistical Learning
    assert torch.bincount(standard.train.y).tolist() == [1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644]
    assert torch.bincount(standard.test.y).tolist() == [359, 264, 198, 166, 200, 160, 170, 147, 166, 177]
    papers = USPS().load(root)
    assert (len(papers.train), len(papers.test), papers.shape) == (7438, 1860, (1, 28, 28))
    assert papers.comparable
    assert "7438/1860" in papers.note
