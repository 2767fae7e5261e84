"""SVHN, cropped digits: house numbers from Street View (Netzer et al. 2011), in Matlab files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dpot.data.cache import Builder
from dpot.data.download import Remote
from dpot.data.files import Layout, Wanted, check_file, first_line, open_regular, refuse
from dpot.data.formats import check_labels
from dpot.data.source import Facts, FileSource


class SVHN(FileSource):
    """73,257 train and 26,032 test images, uint8 3×32×32; Matlab's label 10 is the digit 0."""

    name = "svhn"
    downloadable = True
    licence = "non-commercial research"
    source = "http://ufldl.stanford.edu/housenumbers/"
    published: ClassVar[dict[str, str]] = {
        "train_32x32.mat": "md5:e26dedcc434d2e4c54c9b2d4a06d8373",
        "test_32x32.mat": "md5:eb5a983be6a315427106f1b164d9cef3",
    }
    counts: ClassVar[dict[str, int]] = {"train": 73_257, "test": 26_032}

    def layouts(self) -> tuple[Layout, ...]:
        return (Layout("full", tuple(Wanted(f, (f"svhn/{f}", f"SVHN/{f}", f)) for f in self.published)),)

    def remotes(self) -> dict[str, Remote]:
        return {file: Remote((self.source + file,), checksum, 512 << 20) for file, checksum in self.published.items()}

    def decode(self, layout: Layout, paths: Mapping[str, Path], builder: Builder) -> Facts:
        for part, count in self.counts.items():
            path = paths[f"{part}_32x32.mat"]
            check_file(path, self.published[path.name])
            x, y = read_mat(path, count)
            builder.put(f"{part}_x", x)
            builder.put(f"{part}_y", y)
        return Facts(10, "images", class_names=tuple("0123456789"))


def read_mat(path: Path, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(images N×3×32×32, labels 0..9) from X (32×32×3×N, uint8) and y (N×1, 1..10)."""
    import scipy.io

    try:
        with open_regular(path) as f:
            # Shapes first, from the headers: an inflated variable is refused before it is unpacked.
            shapes = {name: shape for name, shape, _ in scipy.io.whosmat(f)}
            if shapes.get("X") != (32, 32, 3, count) or shapes.get("y") != (count, 1):
                raise refuse(path, f"X and y have the shapes {shapes.get('X')} and {shapes.get('y')}")
            f.seek(0)
            mat: dict[str, Any] = scipy.io.loadmat(f, variable_names=["X", "y"])
    except _reader_errors() as error:
        raise refuse(path, f"truncated or corrupt ({first_line(error)})") from None
    x, y = mat["X"], mat["y"]
    if x.dtype != np.uint8 or y.dtype.kind not in "iuf":
        raise refuse(path, f"X is {x.dtype} and y {y.dtype}")
    digits = y[:, 0].astype(np.int64)
    labels = np.where(digits == 10, 0, np.where(digits == 0, -1, digits))  # a raw 0 is not a valid label
    return x.transpose(3, 2, 0, 1), check_labels(labels, count, 10, path)


def _reader_errors() -> tuple[type[Exception], ...]:
    """What scipy's reader raises on damaged files."""
    import zlib

    from scipy.io.matlab import MatReadError

    return (ValueError, TypeError, KeyError, IndexError, OSError, NotImplementedError, MatReadError, zlib.error)
