"""The kinds of files that scripts/fuzz.py damages: small valid ones, and how a user loads them."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from fuzz_damage import in_folder, in_gzip, in_png, in_zip
from fuzz_release import in_release, load_release, write_lines, write_marginals

from dpot.data import weights
from dpot.data.base import Dataset
from dpot.data.bbc import BBC, CATEGORIES
from dpot.data.celeba import CelebA
from dpot.data.cifar10 import CIFAR10, RECORD, TEST, TRAIN
from dpot.data.folder import Folder
from dpot.data.mnist import MNIST
from dpot.data.svhn import SVHN
from dpot.data.table import Table


@dataclass(frozen=True)
class Kind:
    """Valid files under a root, and how a user loads them. `sealed`: checksums cover all values."""

    name: str
    build: Callable[[Path], None]
    load: Callable[[Path], Any]
    sealed: bool
    inside: tuple[Callable[[Random, bytes], bytes], ...] = ()
    around: tuple[Callable[[Random, Path], None], ...] = ()
    files: str = "**/*"  # which of the files are damaged
    refusable: bool = True  # False: must always load to the same values


def random(seed: int = 0) -> np.random.Generator:
    """Numbers for valid files."""
    return np.random.default_rng(seed)


def write_images(root: Path, ending: str) -> None:
    """Two classes of three images each, beside a file that is none."""
    from PIL import Image

    for i in range(6):
        path = root / ("cat", "dog")[i % 2] / f"{i}{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random(i).integers(0, 256, (10, 12, 3), np.uint8)).save(path, quality=90)


def people() -> Any:
    """A small table."""
    import pandas as pd

    columns: dict[str, Any] = {f"c{i}": random(i).normal(size=40).round(3) for i in range(3)}
    return pd.DataFrame(columns | {"age": np.arange(40), "label": ["yes", "no"] * 20})


def write_parquet(root: Path, checksums: bool) -> None:
    """With an index of pandas, as a filtered frame has one."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.Table.from_pandas(people().iloc[::-1])
    pyarrow.parquet.write_table(table, root / "t.parquet", write_page_checksum=checksums)


def write_npz(root: Path, save: Any, own_split: bool) -> None:
    """Images and labels."""
    x, y = random().integers(0, 256, (12, 5, 5), np.uint8), np.arange(12) % 3
    arrays = {"x_train": x, "y_train": y, "x_test": x[:4], "y_test": y[:4]} if own_split else {"x": x, "y": y}
    save(root / "a.npz", **arrays)


class SmallMNIST(MNIST):
    """Twenty and ten images."""

    counts = {"train": 20, "t10k": 10}  # noqa: RUF012


def write_idx(root: Path) -> None:
    """The four files, and their content as the published one."""
    SmallMNIST.contents = {}
    for part, count in SmallMNIST.counts.items():
        for key, shape in ((f"{part}-images-idx3-ubyte", (count, 28, 28)), (f"{part}-labels-idx1-ubyte", (count,))):
            array = random().integers(0, 10, shape, np.uint8)
            content = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *shape) + array.tobytes()
            SmallMNIST.contents[key] = hashlib.sha256(content).hexdigest()
            (root / "mnist").mkdir(exist_ok=True)
            (root / "mnist" / f"{key}.gz").write_bytes(gzip.compress(content, mtime=0))


def write_celeba(root: Path) -> None:
    """Ten faces and their attributes."""
    from PIL import Image

    (root / "celeba").mkdir()
    with zipfile.ZipFile(root / "celeba" / "img_align_celeba.zip", "w") as archive:
        for i in range(1, 11):
            face = io.BytesIO()
            Image.fromarray(random(i).integers(0, 256, (11, 9, 3), np.uint8)).save(face, "JPEG")
            archive.writestr(f"img_align_celeba/{i:06d}.jpg", face.getvalue())
    rows = "".join(f"{i:06d}.jpg {1 if i % 3 else -1} -1\n" for i in range(1, 11))
    text = gzip.compress(f"10\nMale Bald\n{rows}".encode(), mtime=0)
    (root / "celeba" / "list_attr_celeba.txt.gz").write_bytes(text)


def write_bbc(root: Path) -> None:
    """Ten articles and twenty words."""
    words = np.array([f"w{i}" for i in range(20)])
    (root / "bbc").mkdir()
    np.savez(root / "bbc" / "glove_6b_50d_subset.npz", words=words, vectors=random().normal(size=(20, 4)))
    rows = "".join(f"{CATEGORIES[i % 5]},{i}.txt,{' '.join(words[i : i + 5])}\n" for i in range(10))
    (root / "bbc" / "bbc_news.csv.gz").write_bytes(gzip.compress(f"category,file,text\n{rows}".encode(), mtime=0))


class SmallCIFAR10(CIFAR10):
    """Three images a batch."""

    per_batch = 3


def write_tar(root: Path) -> None:
    """The six batches, and their archive as the published one."""
    (root / "cifar10").mkdir()
    path = root / "cifar10" / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in (*TRAIN, TEST):
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = 3 * RECORD
            archive.addfile(member, io.BytesIO(bytes([5]) * member.size))
    SmallCIFAR10.archive_checksum = f"md5:{hashlib.md5(path.read_bytes()).hexdigest()}"


class SmallSVHN(SVHN):
    """Four images and three."""

    counts = {"train": 4, "test": 3}  # noqa: RUF012


def write_mat(root: Path) -> None:
    """Both files, as the published ones."""
    import scipy.io

    (root / "svhn").mkdir()
    SmallSVHN.published = {}
    for part, count in SmallSVHN.counts.items():
        path = root / "svhn" / f"{part}_32x32.mat"
        x = random().integers(0, 256, (32, 32, 3, count), np.uint8)
        scipy.io.savemat(path, {"X": x, "y": np.ones((count, 1))}, do_compression=True)
        SmallSVHN.published[path.name] = f"md5:{hashlib.md5(path.read_bytes()).hexdigest()}"


def write_weights(root: Path) -> None:
    """A tensor, as the published weights."""
    from safetensors.numpy import save

    data = save({"w": np.arange(6, dtype=np.float32)})
    (root / "inception").mkdir()
    (root / "inception" / weights.HALF).write_bytes(data)
    weights.HALF_SHA256 = hashlib.sha256(data).hexdigest()


def load_weights(root: Path) -> Mapping[str, Any]:
    """As the Fréchet distance loads them."""
    from safetensors.numpy import load_file

    return load_file(weights.inception_weights(root, download=False).path)


def write_decoded(root: Path) -> None:
    """A table and its decoded entry."""
    people().to_csv(root / "t.csv", index=False)
    os.environ["DPOT_CACHE"] = str(root / "cache")
    Table(str(root / "t.csv")).load()


def load_decoded(root: Path) -> Dataset:
    """The same table, by what is left of the entry."""
    os.environ["DPOT_CACHE"] = str(root / "cache")
    return Table(str(root / "t.csv")).load()


def folder(root: Path) -> Dataset:
    """Images of one's own."""
    return Folder(str(root), size=8).load()


KINDS = (
    Kind("png", lambda r: write_images(r, ".png"), folder, True, (in_png,), (in_folder,)),
    Kind("jpg", lambda r: write_images(r, ".jpg"), folder, False, (), (in_folder,)),
    Kind("csv", lambda r: people().to_csv(r / "t.csv", index=False), lambda r: Table(str(r / "t.csv")).load(), False),
    Kind(
        "csv.gz",
        lambda r: people().to_csv(r / "t.csv.gz", index=False),
        lambda r: Table(str(r / "t.csv.gz")).load(),
        True,
        (in_gzip,),
    ),
    Kind("parquet", lambda r: write_parquet(r, False), lambda r: Table(str(r / "t.parquet")).load(), False),
    # Checksums cover the pages; the footer, which says where and what they are, has none.
    Kind("parquet+crc", lambda r: write_parquet(r, True), lambda r: Table(str(r / "t.parquet")).load(), False),
    Kind("npz", lambda r: write_npz(r, np.savez, False), folder, True, (in_zip,)),
    Kind("npz packed", lambda r: write_npz(r, np.savez_compressed, True), folder, True, (in_zip,)),
    Kind("idx.gz", write_idx, lambda r: SmallMNIST().load(r, download=False), True, (in_gzip,)),
    Kind("celeba zip", write_celeba, lambda r: CelebA(size=8).load(r), True, (in_zip,), files="**/*.zip"),
    Kind("celeba list", write_celeba, lambda r: CelebA(size=8).load(r), True, (in_gzip,), files="**/*.gz"),
    Kind("bbc vectors", write_bbc, lambda r: BBC().load(r), True, (in_zip,), files="**/*.npz"),
    Kind("bbc csv.gz", write_bbc, lambda r: BBC().load(r), True, (in_gzip,), files="**/*.gz"),
    Kind("cifar10 tar", write_tar, lambda r: SmallCIFAR10().load(r, download=False), True),
    Kind("svhn mat", write_mat, lambda r: SmallSVHN().load(r, download=False), True),
    Kind("safetensors", write_weights, load_weights, True),
    Kind("release", write_marginals, load_release, True, (in_release,)),
    Kind("release of images", write_lines, load_release, True, (in_release,)),
    Kind("decoded npy", write_decoded, load_decoded, True, files="cache/decoded/**/*", refusable=False),
)
