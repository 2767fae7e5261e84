"""CIFAR-10: the full set from its binary archive (the Python one is pickled), or a balanced subset."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import ClassVar

import numpy as np

from dpot.data.cache import Builder
from dpot.data.download import Remote
from dpot.data.files import Layout, Wanted, check_file, open_regular, refuse
from dpot.data.formats import BROKEN, check_labels, read_npz
from dpot.data.source import Facts, FileSource, Known

ARCHIVE = "cifar-10-binary.tar.gz"
ARCHIVE_MD5 = "md5:c32a1d4ab5d03f1284b67883e8d87530"  # published on the data set's page
RECORD = 1 + 3 * 32 * 32  # the label, then the red, green and blue planes
PER_BATCH = 10_000
TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
TEST = "test_batch.bin"
FULL = "cifar10_full.npz"
ARRAYS = ("x_train", "y_train", "x_test", "y_test")
# of the bytes of the four arrays, one after the other
ARRAYS_SHA256 = "80387ddb9a0edf3fc4a964ee3770296169bb26a651050df20035579673099660"


class CIFAR10(FileSource):
    """50,000 train and 10,000 test images, uint8 3×32×32 (Krizhevsky 2009).

    Looked for as the archive (unpacked batches have no published checksum), then as cifar10_full.npz, the same images
    as arrays, whose content is verified, then as cifar10_subset.npz, whose numbers are not comparable.
    `dpot task=data task.fetch=cifar10` gets the archive, which is then preferred.
    """

    name = "cifar10"
    downloadable = True
    licence = "free for research"
    source = "https://www.cs.toronto.edu/~kriz/cifar.html"
    archive_checksum = ARCHIVE_MD5
    arrays_checksum = ARRAYS_SHA256
    per_batch = PER_BATCH
    known: ClassVar[dict[str, Known]] = {
        "cifar10_subset.npz": Known(19_817_729, "8f9d868d719d4244198c57a610ffe28265cab9ecc7d75a5a566cadd0076af003"),
    }

    def layouts(self) -> tuple[Layout, ...]:
        return (
            Layout("full", (Wanted(ARCHIVE, (f"cifar10/{ARCHIVE}", ARCHIVE)),)),
            Layout("full, one .npz file", (Wanted(FULL, (f"cifar10/{FULL}", FULL)),)),
            Layout("subset", (Wanted("cifar10_subset.npz", ("cifar10/cifar10_subset.npz",)),)),
        )

    def remotes(self) -> dict[str, Remote]:
        return {ARCHIVE: Remote((f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}",), ARCHIVE_MD5, 256 << 20)}

    def decode(self, layout: Layout, paths: Mapping[str, Path], builder: Builder) -> Facts:
        if layout.name != "full":
            return self._decode_arrays(next(iter(paths.values())), builder)
        path = paths[ARCHIVE]
        check_file(path, self.archive_checksum)
        batches = read_tar(path, (*TRAIN, TEST), self.per_batch * RECORD)
        for part, names in (("train", TRAIN), ("test", (TEST,))):
            rows = np.concatenate([np.frombuffer(batches[n], np.uint8).reshape(-1, RECORD) for n in names])
            builder.put(f"{part}_x", rows[:, 1:].reshape(-1, 3, 32, 32))
            builder.put(f"{part}_y", check_labels(rows[:, 0], len(rows), 10, path))
        return Facts(10, "images", class_names=CLASS_NAMES)

    def _decode_arrays(self, path: Path, builder: Builder) -> Facts:
        """The full set, whose content is known, or a subset, which is whatever it says it is."""
        arrays = read_npz(path, ARRAYS)
        for part in ("train", "test"):
            x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
            if x.dtype != np.uint8 or x.ndim != 4 or x.shape[1:] != (32, 32, 3):
                raise refuse(path, f"x_{part} is {x.dtype} {x.shape}, not uint8 N×32×32×3")
            builder.put(f"{part}_x", x.transpose(0, 3, 1, 2))
            builder.put(f"{part}_y", check_labels(y, len(x), 10, path))
        if path.name == FULL:
            found = hashlib.sha256(b"".join(np.ascontiguousarray(arrays[name]).data for name in ARRAYS)).hexdigest()
            if found != self.arrays_checksum:
                raise refuse(path, f"corrupt (sha256 of its arrays {found}, known {self.arrays_checksum})")
            return Facts(10, "images", class_names=CLASS_NAMES)
        note = f"a subset of {len(arrays['x_train']):,} train and {len(arrays['x_test']):,} test images"
        return Facts(10, "images", note=note, comparable=False, class_names=CLASS_NAMES)


CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def read_tar(path: Path, names: tuple[str, ...], size: int) -> dict[str, bytes]:
    """The named regular files of a .tar.gz, each of exactly this size.

    Members are told by the last part of their name, which is never used as a path. Reading stops at
    the size of the wanted members and their headers.
    """
    found: dict[str, bytes] = {}
    bound = (len(names) + 2) * (size + (64 << 10))
    try:
        with open_regular(path) as raw, gzip.GzipFile(fileobj=raw) as f:
            plain = f.read(bound + 1)
        if len(plain) > bound:
            raise refuse(path, f"unpacks to more than the {bound:,} bytes expected")
        with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
            for member in archive:
                name = PurePosixPath(member.name).name
                if name in names and member.isreg() and member.size == size:
                    content = archive.extractfile(member)
                    found[name] = content.read() if content else b""
    except (*BROKEN, tarfile.TarError) as error:
        raise refuse(path, f"truncated or corrupt ({error})") from None
    missing = [name for name in names if name not in found]
    if missing:
        raise refuse(path, f"has no {missing[0]} of {size:,} bytes")
    return found
