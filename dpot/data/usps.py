"""USPS: 9298 grey 16×16 digits scanned from envelopes, in [0, 1]."""

from __future__ import annotations

import bz2
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from dpot.data.base import join_notes
from dpot.data.cache import Builder
from dpot.data.download import Remote
from dpot.data.files import Layout, Wanted, check_file, open_regular, refuse
from dpot.data.formats import check_image_values, check_labels, read_npz
from dpot.data.images import resize_array
from dpot.data.source import Facts, FileSource, Known
from dpot.data.splits import hold_out
from dpot.errors import UsageError
from dpot.ranges import Count

STANDARD = (7291, 2007)
PAPERS_TEST = 1860  # of the 9298 images; the domain-adaptation papers train on the other 7438


class USPS(FileSource):
    """split='papers': 7438/1860, as DP-SWD uses it; split='standard': LeCun's 7291/2007.

    The papers' partition comes with CoGAN's file (a pickle, never loaded here) and follows no public rule;
    ours holds out the 1860 positions of smallest hash (dpot/data/splits.py), standard train before test.
    size enlarges the 16×16 scans bilinearly; the papers work at 28. A scan fills the image unless digits says how
    wide it is to be, in the middle of an empty frame: MNIST's digits are 20 wide in 28. How CoGAN's file frames them is
    not known here.
    """

    name = "usps"
    downloadable = True
    licence = "free for research"
    differs = (
        "USPS is split by a public hash and its scans fill the image; the papers take CoGAN's file, whose partition "
        "and frame are not known here"
    )
    source = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html#usps"
    known: ClassVar[dict[str, Known]] = {
        "usps.npz": Known(2_406_669, "95e790f272f9ff97b293f6960cbae5a4632b24788dc64725d33a6fed681fab9f"),
    }

    def __init__(
        self,
        size: Count = 28,
        split: Literal["papers", "standard"] = "papers",
        limit: Count | None = None,
        limit_test: Count | None = None,
        digits: Count | None = None,
    ) -> None:
        super().__init__(limit, limit_test)
        self.size = size
        self.split = split
        self.digits = digits or size
        if self.digits > size:
            raise UsageError(f"digits={digits}: wider than the image, size={size}")

    def options(self) -> dict[str, object]:
        framed = {"digits": self.digits} if self.digits != self.size else {}  # else what is cached already
        return {"size": self.size, "split": self.split, **framed}

    def layouts(self) -> tuple[Layout, ...]:
        return (
            Layout("full", (Wanted("usps.npz", ("usps/usps.npz",)),)),
            Layout("libsvm", tuple(Wanted(f, (f"usps/{f}", f"USPS/{f}", f)) for f in ("usps.bz2", "usps.t.bz2"))),
        )

    def remotes(self) -> dict[str, Remote]:
        import torchvision.datasets

        listed = torchvision.datasets.USPS.split_list.values()
        return {file: Remote((url,), f"md5:{md5}", 32 << 20) for url, file, md5 in listed}

    def decode(self, layout: Layout, paths: Mapping[str, Path], builder: Builder) -> Facts:
        if layout.name == "libsvm":
            for key, remote in self.remotes().items():
                check_file(paths[key], remote.checksum)
            parts = [read_libsvm(paths["usps.bz2"], STANDARD[0]), read_libsvm(paths["usps.t.bz2"], STANDARD[1])]
        else:
            parts = read_usps_npz(paths["usps.npz"])
        if self.split == "papers":
            x, y = (np.concatenate(both) for both in zip(*parts, strict=True))
            parts = [(x[rows], y[rows]) for rows in hold_out(len(x), PAPERS_TEST)]
        for part, (x, y) in zip(("train", "test"), parts, strict=True):
            builder.put(f"{part}_x", framed(resize_array(x[:, None], self.digits), self.size))
            builder.put(f"{part}_y", y)
        note = "7438/1860 split by a public hash, not CoGAN's partition" if self.split == "papers" else ""
        if self.digits != self.size:
            note = join_notes(note, f"digits {self.digits} wide in a frame of {self.size}")
        return Facts(
            10,
            "images",
            note=note,
            comparable=self.split == "papers" and self.size == 28,
            class_names=tuple("0123456789"),
        )


def framed(images: np.ndarray, size: int) -> np.ndarray:
    """N×C×h×w in the middle of size×size images whose border is empty (0)."""
    before = [(size - side) // 2 for side in images.shape[2:]]
    borders = [(b, size - side - b) for b, side in zip(before, images.shape[2:], strict=True)]
    return np.pad(images, [(0, 0), (0, 0), *borders])


def read_usps_npz(path: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """[(images, labels) of the standard train split, of the test split] from x_train, y_train, x_test, y_test."""
    arrays = read_npz(path, ("x_train", "y_train", "x_test", "y_test"))
    parts = []
    for part, count in zip(("train", "test"), STANDARD, strict=True):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if x.shape != (count, 16, 16):
            raise refuse(path, f"x_{part} has the shape {x.shape}, not {(count, 16, 16)}")
        x = check_image_values(x, path)
        unit = x.astype(np.float32) / 255 if x.dtype == np.uint8 else x
        parts.append((unit, check_labels(y, count, 10, path)))
    return parts


def read_libsvm(path: Path, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(images in [0, 1], labels 0..9) from libsvm's text: '<digit+1> 1:<v> ... 256:<v>' with v in [-1, 1]."""
    x = np.full((count, 256), np.nan, np.float32)
    y = np.empty(count, np.int64)
    row = 0
    try:
        with open_regular(path) as raw, bz2.open(raw, "rt", encoding="ascii") as f:
            while line := f.readline(1 << 16):
                fields = line.split()
                if row == count:
                    raise ValueError(f"more than {count} records")
                y[row] = int(fields[0]) - 1
                for field in fields[1:]:
                    index, _, value = field.partition(":")
                    if not 1 <= int(index) <= 256:
                        raise ValueError(f"record {row} names pixel {index}")
                    x[row, int(index) - 1] = float(value)
                row += 1
    except (ValueError, IndexError, EOFError, OSError) as error:
        raise refuse(path, f"truncated or corrupt ({error})") from None
    if row != count or np.isnan(x).any():
        raise refuse(path, f"truncated: {row} of {count} records, or pixels missing")
    images = check_image_values((x.reshape(count, 16, 16) + 1) / 2, path)
    return images, check_labels(y, count, 10, path)
