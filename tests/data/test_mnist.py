"""MNIST and Fashion-MNIST: the real files where they are at hand, generated ones of the same format elsewhere."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import threading
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import forked
import numpy as np
import pytest
import torch

from dpot.data.mnist import MNIST, FashionMNIST
from dpot.errors import DataError

WriteIdx = Callable[[Path, np.ndarray], bytes]


class Small(MNIST):
    """The same loader for 20 + 10 generated images; `contents` is set by the fixture."""

    counts: ClassVar[dict[str, int]] = {"train": 20, "t10k": 10}


def generate(folder: Path, write_idx: WriteIdx, ending: str = ".gz") -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = {}
    Small.contents = {}
    for prefix, count in Small.counts.items():
        images = rng.integers(0, 256, (count, 28, 28), np.uint8)
        labels = rng.integers(0, 10, count).astype(np.uint8)
        for key, array in ((f"{prefix}-images-idx3-ubyte", images), (f"{prefix}-labels-idx1-ubyte", labels)):
            content = write_idx(folder / f"{key}{ending}", array)
            Small.contents[key] = hashlib.sha256(content).hexdigest()
            arrays[key] = array
    return arrays


@pytest.mark.parametrize("folder", ["mnist", "mnist/raw", "MNIST/raw"])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_layouts(tmp_path: Path, write_idx: WriteIdx, folder: str, ending: str) -> None:
    arrays = generate(tmp_path / folder, write_idx, ending)
    data = Small().load(tmp_path)
    for part, prefix in ((data.train, "train"), (data.test, "t10k")):
        assert part.x.dtype == torch.uint8
        assert (part.x[:, 0].numpy() == arrays[f"{prefix}-images-idx3-ubyte"]).all()
        assert part.y is not None
        assert (part.y.numpy() == arrays[f"{prefix}-labels-idx1-ubyte"]).all()
    assert data.classes == 10
    assert data.kind == "images"
    assert data.comparable


def test_the_checksum_does_not_depend_on_compression(tmp_path: Path, write_idx: WriteIdx) -> None:
    generate(tmp_path / "a" / "mnist", write_idx, ".gz")
    generate(tmp_path / "b" / "mnist", write_idx, "")
    checksums = {Small().load(tmp_path / root).checksum for root in "ab"}
    assert len(checksums) == 1
    (checksum,) = checksums
    assert checksum.startswith("sha256:")


@pytest.mark.parametrize("key", ["train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_flipped_byte_is_reported_by_name(
    tmp_path: Path, write_idx: WriteIdx, flip: Callable[[Path, int], None], key: str, ending: str
) -> None:
    generate(tmp_path / "mnist", write_idx, ending)
    assert len(Small().load(tmp_path).train) == 20  # decoded and cached: the damage must be seen all the same
    path = tmp_path / "mnist" / f"{key}{ending}"
    flip(path, path.stat().st_size // 2)
    with pytest.raises(DataError, match=f"{path}.*replace the file"):
        Small().load(tmp_path)


def test_truncated_is_reported_by_name(tmp_path: Path, write_idx: WriteIdx) -> None:
    generate(tmp_path / "mnist", write_idx)
    path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz: truncated"):
        Small().load(tmp_path)


def test_mislabelled_is_reported_by_name(tmp_path: Path, write_idx: WriteIdx) -> None:
    generate(tmp_path / "mnist", write_idx)
    labels = np.full(20, 3, np.uint8)
    labels[7] = 10
    content = write_idx(tmp_path / "mnist" / "train-labels-idx1-ubyte.gz", labels)
    Small.contents["train-labels-idx1-ubyte"] = hashlib.sha256(content).hexdigest()
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte\.gz: mislabelled: record 7 has label 10"):
        Small().load(tmp_path)


def test_images_and_labels_swapped(tmp_path: Path, write_idx: WriteIdx) -> None:
    generate(tmp_path / "mnist", write_idx)
    folder = tmp_path / "mnist"
    shutil.copy(folder / "t10k-labels-idx1-ubyte.gz", folder / "train-labels-idx1-ubyte.gz")
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte\.gz: holds 10 values, not 20"):
        Small().load(tmp_path)


@pytest.mark.parametrize("root", [None, "somewhere"])
def test_nothing_at_hand(tmp_path: Path, root: str | None) -> None:
    place = tmp_path / root if root else None
    with pytest.raises(DataError) as caught:
        MNIST().load(place, download=False)
    line = str(caught.value)
    assert "put mnist/train-images-idx3-ubyte.gz" in line
    assert (str(place) if place else "DPOT_DATA") in line
    assert "\n" not in line


def test_one_of_four_is_missing(tmp_path: Path, write_idx: WriteIdx) -> None:
    generate(tmp_path / "mnist", write_idx)
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"put mnist/t10k-labels-idx1-ubyte\.gz in"):
        Small().load(tmp_path, download=False)


def test_nothing_is_written_into_the_data_root(tmp_path: Path, write_idx: WriteIdx) -> None:
    root = tmp_path / "root"
    generate(root / "mnist", write_idx)
    before = {p: p.stat().st_mtime_ns for p in root.rglob("*")}
    for folder in (root / "mnist", root):
        folder.chmod(0o555)
    try:
        assert len(Small().load(root).train) == 20
    finally:
        for folder in (root, root / "mnist"):
            folder.chmod(0o755)
    assert {p: p.stat().st_mtime_ns for p in root.rglob("*")} == before


def test_downloaded_from_the_mirrors_that_torchvision_lists(
    tmp_path: Path, cache: Path, write_idx: WriteIdx, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torchvision.datasets

    arrays = generate(tmp_path / "mirror", write_idx)
    md5s = [(p.name, hashlib.md5(p.read_bytes()).hexdigest()) for p in (tmp_path / "mirror").iterdir()]
    monkeypatch.delenv("DPOT_OFFLINE")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "mirror"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setattr(torchvision.datasets.MNIST, "mirrors", [f"{url}/gone/", f"{url}/"])
        monkeypatch.setattr(torchvision.datasets.MNIST, "resources", md5s)
        into_root = Small().load(tmp_path / "root")
        into_cache = Small().load(None)
        server.shutdown()
        thread.join()
    assert (into_root.train.x[:, 0].numpy() == arrays["train-images-idx3-ubyte"]).all()
    assert into_root.checksum == into_cache.checksum
    for folder in (tmp_path / "root", cache / "downloads"):
        assert len(list((folder / "mnist").iterdir())) == 4


def test_a_failed_download_says_why_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"DPOT_OFFLINE.*put mnist/train-images"):
        MNIST().load(tmp_path)


def test_torchvision_still_lists_what_is_expected() -> None:
    for source in (MNIST(), FashionMNIST()):
        assert set(source.remotes()) == set(source.contents)


def test_limit(tmp_path: Path, write_idx: WriteIdx) -> None:
    generate(tmp_path / "mnist", write_idx)
    data = Small(limit=5, limit_test=2).load(tmp_path)
    assert (len(data.train), len(data.test)) == (5, 2)
    assert not data.comparable


def test_two_processes_on_an_empty_cache(tmp_path: Path, write_idx: WriteIdx) -> None:
    generate(tmp_path / "mnist", write_idx)
    program = (
        "from dpot.data.mnist import MNIST; MNIST.counts = {'train': 20, 't10k': 10};"
        f"MNIST.contents = {Small.contents!r};"
        f"print(int(MNIST().load({str(tmp_path)!r}).train.x.sum()))"
    )
    said = [tmp_path / str(i) for i in range(2)]
    children = [forked.start(["-c", program], out, out.with_suffix(".err")) for out in said]
    for child in children:
        child.join(120)
    assert [child.exitcode for child in children] == [0, 0]
    assert said[0].read_text() == said[1].read_text() > ""


def test_real_mnist(real: Callable[[str], Path]) -> None:
    root = real("mnist")
    data = MNIST().load(root)
    assert data.train.y is not None
    assert data.test.y is not None
    # the class counts of LeCun's page
    assert torch.bincount(data.train.y).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert torch.bincount(data.test.y).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    content = b"\0\0\x08\x03\0\0\xea\x60\0\0\0\x1c\0\0\0\x1c" + data.train.x.numpy().tobytes()
    assert hashlib.md5(content).hexdigest() == "6bbc9ace898e44ae57da46a324031adb"
    assert abs(data.train.x.float().mean().item() / 255 - 0.1307) < 1e-4  # the mean everybody normalises with


def test_real_fashion_mnist(real: Callable[[str], Path]) -> None:
    data = FashionMNIST().load(real("fashion_mnist"))
    assert data.train.y is not None
    assert data.test.y is not None
    assert torch.bincount(data.train.y).tolist() == [6000] * 10
    assert torch.bincount(data.test.y).tolist() == [1000] * 10
    assert abs(data.train.x.float().mean().item() / 255 - 0.2860) < 1e-4


def test_a_flipped_byte_in_real_mnist(
    tmp_path: Path, real: Callable[[str], Path], flip: Callable[[Path, int], None]
) -> None:
    shutil.copytree(real("mnist") / "mnist", tmp_path / "mnist")
    path = tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz"
    path.chmod(0o644)
    content = bytearray(gzip.decompress(path.read_bytes()))
    content[5000] ^= 1  # a sound gzip file around one wrong pixel: only the published checksum can tell
    path.chmod(0o644)
    path.parent.chmod(0o755)
    path.write_bytes(gzip.compress(content, 1))
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte\.gz: corrupt"):
        MNIST().load(tmp_path)
