"""The user's own images: class sub-folders, a flat folder, or an .npz file.

    photos/cat/1.jpg, photos/dog/7.png           two classes
    photos/1.jpg, photos/2.jpg                   no labels
    photos/train/cat/1.jpg, photos/test/cat/2.jpg   the user's own split
    data.npz                                     x and y, or x_train, y_train, x_test, y_test
A .csv or .parquet file is read as a table (dpot/data/table.py).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from dpot.data.base import Dataset, Status, join_notes
from dpot.data.cache import Builder
from dpot.data.files import Layout, Wanted, printable, refuse, unpacked_at_most, unreadable
from dpot.data.formats import NPZ_AT_MOST, check_features, check_image_values, npz_shapes, read_npz
from dpot.data.images import IMAGE_AT_MOST, decode_into, is_grey, read_image, resize_array
from dpot.data.source import BY_NAME, BY_PLACE, Facts, FileSource
from dpot.data.splits import hold_out_fraction, in_hash_order, share
from dpot.data.table import CSV_ENDINGS, PARQUET_ENDINGS, Table
from dpot.errors import DataError, UsageError
from dpot.ranges import Count, Probability
from dpot.regular import irregular

IMAGE_ENDINGS = (".png", ".jpg", ".jpeg")
TEST_FOLDERS = ("test", "validation", "valid", "val")  # the first that exists is the test split
NPZ_NAMES = {"x", "y", "x_train", "y_train", "x_test", "y_test"}
ENLARGED_FREELY = 256 << 20  # bytes of the images of an .npz at their new size, however small the file is
LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R 601, as Pillow's own conversion


class Folder(FileSource):
    """Images N×C×size×size, stretched without crop; grey only if every image is, unless channels says.

    Files are put in the order of their names' hashes, and the first share test_fraction is held out, unless the folder
    brings its split; records of an .npz are held out by position.
    """

    name = "folder"
    licence = "yours"
    source = "your own files"
    public = False
    decoder = 2

    def __init__(
        self,
        path: str | None = None,
        size: Count = 32,
        channels: Literal["auto", "grey", "colour"] = "auto",
        label: str | None = "label",
        test_fraction: Probability = 0.1,
        limit: Count | None = None,
        limit_test: Count | None = None,
        follow_links: bool = False,
        streamed: bool = False,
    ) -> None:
        super().__init__(limit, limit_test)
        self.streamed = streamed  # not read here, but by an engine
        self.path = path
        self.size = size
        self.channels = channels
        self.label = label  # the label's column, if the path is a table
        self.test_fraction = test_fraction
        self.follow_links = follow_links  # symbolic links that lead out of the folder

    def options(self) -> dict[str, object]:
        return {"size": self.size, "channels": self.channels, "test_fraction": self.test_fraction}

    def taken(self, facts: Facts) -> tuple[str, ...]:
        looked = ("whether there are colours: all images were looked at (dataset.channels=grey or colour says it)",)
        return super().taken(facts) + (looked if self.channels == "auto" and facts.kind == "images" else ())

    def uncovered(self, facts: Facts) -> tuple[str, ...]:
        return (BY_NAME if facts.by_name else BY_PLACE,)

    def layouts(self) -> tuple[Layout, ...]:
        return ()  # what there is decides; see resolve

    def status(self, data_root: str | Path | None = None) -> Status:
        return Status(False, place="set dataset.path to a folder of your own images")

    def fetch(self, data_root: str | Path | None = None) -> list[Path]:
        raise UsageError("folder: there is nothing to fetch; set dataset.path to your own images")

    def whole(self, data_root: str | Path | None, *, download: bool, verify: bool) -> Dataset:
        if self.path and self.path.lower().endswith((*CSV_ENDINGS, *PARQUET_ENDINGS)):
            table = Table(self.path, self.label, test_fraction=self.test_fraction)
            return table.whole(data_root, download=download, verify=verify)
        dataset = super().whole(data_root, download=download, verify=verify)
        ignored = scan(Path(self.path or "").expanduser(), self.follow_links).ignored
        return replace(dataset, note=join_notes(dataset.note, f"{ignored} other files ignored" if ignored else ""))

    def resolve(self, data_root: str | Path | None, download: bool) -> tuple[Layout, dict[str, Path]]:
        if not self.path:
            raise UsageError("dataset.path: must be given, a folder of images, an .npz, .csv or .parquet file")
        found = scan(Path(self.path).expanduser(), self.follow_links)
        return Layout(found.kind, tuple(Wanted(key, ()) for key in found.files)), found.files

    def decode(self, layout: Layout, paths: Mapping[str, Path], builder: Builder) -> Facts:
        if layout.name == "npz":
            return self._decode_npz(next(iter(paths.values())), builder)
        keys = in_hash_order(paths)
        if layout.name == "split":
            parts = {part: [k for k in keys if k.startswith(f"{part}/")] for part in ("train", "test")}
            class_of = {k: _folder_of(k.partition("/")[2]) for k in keys}
        else:
            held = share(len(keys), self.test_fraction)
            parts = {"train": keys[held:], "test": keys[:held]}
            class_of = {k: _folder_of(k) for k in keys}
        names = sorted({class_of[k] for k in keys} - {""})
        if layout.name == "split":
            taught = {class_of[k] for k in parts["train"]}
            stranger = next((k for k in parts["test"] if class_of[k] not in taught), None)
            if stranger is not None:
                raise DataError(f"{printable(paths[stranger])} is of a class that has no training image: add some")
        grey = self.channels == "grey" or (self.channels == "auto" and all(map(is_grey, paths.values())))
        for part, chosen in parts.items():
            x = builder.empty(f"{part}_x", (len(chosen), 1 if grey else 3, self.size, self.size), np.uint8)
            where = [paths[k] for k in chosen]
            reads = [partial(read_image, w) for w in where]
            decode_into(x, [printable(w) for w in where], reads, f"decoding {part}")
            if names:
                builder.put(f"{part}_y", np.array([names.index(class_of[k]) for k in chosen], np.int64))
        shown = tuple(map(printable, names))
        return Facts(
            max(len(names), 1), "images", note="your own images", comparable=False, class_names=shown, by_name=True
        )

    def _decode_npz(self, path: Path, builder: Builder) -> Facts:
        shapes = npz_shapes(path)
        own_split = {"x_train", "x_test"} <= set(shapes)
        if not own_split and "x" not in shapes:
            raise refuse(path, f"needs x and y, or x_train, y_train, x_test, y_test; has {', '.join(shapes)}")
        endings = ("_train", "_test") if own_split else ("",)
        wanted = [f"{v}{e}" for e in endings for v in "xy" if f"{v}{e}" in shapes]
        others = [name for name in shapes if name not in wanted]
        if others and (set(others) & NPZ_NAMES or not any(name.startswith("y") for name in wanted)):
            raise refuse(path, f"holds '{others[0]}' beside {', '.join(wanted)}: name the labels y, leave out the rest")
        arrays = read_npz(path, wanted)
        labelled = {e for e in endings if f"y{e}" in arrays}
        if labelled not in (set(), set(endings)):
            raise refuse(path, "mislabelled: only one of the two splits has labels")
        values = [self._records(arrays[f"x{e}"], path) for e in endings]
        labels, names = _class_numbers([arrays[f"y{e}"] for e in endings if e in labelled], values, path)
        if own_split:
            parts = [(values[i], labels[i] if labels else None) for i in range(2)]
        else:
            if len(values[0]) < 2:
                raise refuse(path, "holds fewer than 2 records")
            rows = hold_out_fraction(len(values[0]), self.test_fraction)
            parts = [(values[0][r], labels[0][r] if labels else None) for r in rows]
        for part, (x, y) in zip(("train", "test"), parts, strict=True):
            builder.put(f"{part}_x", x)
            if y is not None:
                builder.put(f"{part}_y", y)
        kind: Literal["images", "features"] = "images" if values[0].ndim == 4 else "features"
        return Facts(max(len(names), 1), kind, note="your own data", comparable=False, class_names=names)

    def _records(self, x: np.ndarray, path: Path) -> np.ndarray:
        """x of an .npz as N×C×size×size, or N×d where it is a matrix."""
        if x.ndim == 2:
            return check_features(x, path)
        if x.ndim == 3:
            x = x[:, None]
        elif x.ndim == 4 and (x.shape[1] in (1, 3)) != (x.shape[3] in (1, 3)):
            x = x if x.shape[1] in (1, 3) else x.transpose(0, 3, 1, 2)
        else:
            raise refuse(path, f"x has the shape {x.shape}, not N×H×W, N×H×W×C, N×C×H×W (C 1 or 3) or N×d")
        if 0 in x.shape:
            raise refuse(path, f"x is empty, of shape {x.shape}")
        x = check_image_values(x, path)
        if self.channels == "grey" and x.shape[1] == 3:
            luma = np.tensordot(x.astype(np.float32), LUMA, (1, 0))[:, None]
            x = np.rint(luma).astype(np.uint8) if x.dtype == np.uint8 else luma.clip(0, 1)
        elif self.channels == "colour" and x.shape[1] == 1:
            x = np.repeat(x, 3, axis=1)
        taken = len(x) * x.shape[1] * self.size**2 * x.itemsize
        if taken > max(ENLARGED_FREELY, unpacked_at_most(path.stat().st_size)):
            raise refuse(path, f"its {len(x):,} images would take {taken:,} bytes: lower dataset.size={self.size}")
        return resize_array(x, self.size)


def _folder_of(key: str) -> str:
    """The class of an image: the first folder of its name, '' in a flat folder."""
    return key.partition("/")[0] if "/" in key else ""


def _class_numbers(
    given: list[np.ndarray], values: list[np.ndarray], path: Path
) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """Labels of any whole numbers or words → numbers 0..C-1 in their sorted order, and their names."""
    if not given:
        return [], ()
    for x, y in zip(values, given, strict=True):
        if y.shape != (len(x),) or y.dtype.kind not in "iubU":
            raise refuse(path, f"mislabelled: {len(x):,} records, labels {y.dtype} of shape {y.shape}")
    names, numbers = np.unique(np.concatenate(given), return_inverse=True)
    cuts = np.cumsum([len(y) for y in given])[:-1]
    return np.split(numbers.astype(np.int64), cuts), tuple(map(str, names))


@dataclass
class Scan:
    """What a path holds: `files` by their name relative to it, in sorted order."""

    kind: Literal["npz", "images", "split"]
    files: dict[str, Path]
    ignored: int = field(default=0)


def scan(path: Path, follow_links: bool = False) -> Scan:
    """Look at what there is; refuse what can be understood in two ways, and a file that would be two records."""
    found = _scan(path, follow_links)
    if path.is_dir():
        _check_files(found.files.values(), path, follow_links, NPZ_AT_MOST if found.kind == "npz" else IMAGE_AT_MOST)
    return found


def _scan(path: Path, follow_links: bool) -> Scan:
    if path.is_file():
        if path.suffix.lower() != ".npz":
            raise DataError(f"{printable(path)} is neither a folder nor an .npz, .csv or .parquet file")
        return Scan("npz", {path.name: path})
    if not path.is_dir():
        wrong = "is neither a regular file nor a folder" if path.exists() else "does not exist"
        raise DataError(f"{printable(path)} {wrong}: set dataset.path to a folder of images")
    every = sorted(_walk(path, follow_links), key=lambda item: os.fsencode(item[0]))
    images = {k: p for k, p in every if p.name.lower().endswith(IMAGE_ENDINGS) and not _hidden(k)}
    archives = {k: p for k, p in every if p.name.lower().endswith(".npz") and not _hidden(k)}
    ignored = len(every) - len(images) - len(archives)
    if archives:
        if images or len(archives) > 1:
            raise DataError(f"{printable(path)} holds several .npz files or images beside one: name one of them")
        return Scan("npz", archives, ignored)
    tops = {_folder_of(k) for k in images}
    if "" in tops and len(tops) > 1:
        raise DataError(f"{printable(path)} has images both at its top and in sub-folders: move one kind away")
    test = next((name for name in TEST_FOLDERS if name in tops), None)
    if test is not None and "train" in tops and tops <= {"train", *TEST_FOLDERS}:
        split = {f"train/{k[6:]}": p for k, p in images.items() if k.startswith("train/")}
        split |= {f"test/{k[len(test) + 1 :]}": p for k, p in images.items() if k.startswith(f"{test}/")}
        if len({"/" in k.partition("/")[2] for k in split}) > 1:
            raise DataError(f"{printable(path)}: train and {test} must both have class sub-folders, or both none")
        return Scan("split", split, ignored + len(images) - len(split))
    if len(images) < 2:
        raise DataError(f"{printable(path)} holds {len(images)} png or jpg images; at least 2 are needed")
    return Scan("images", images, ignored)


def _walk(path: Path, follow_links: bool) -> Iterator[tuple[str, Path]]:
    """(relative name with '/', path) of every file; links to folders are followed at the top only."""
    for top in os.scandir(path):
        if top.is_symlink() and not _hidden(top.name) and os.path.isdir(top.path):
            _check_link(Path(top.path), path, follow_links)  # before all of another disk is looked through
        if os.path.isdir(top.path) and not (top.is_symlink() and _hidden(top.name)):
            for folder, folders, names in os.walk(top.path):
                for name in (*names, *(f for f in folders if os.path.islink(os.path.join(folder, f)))):
                    file = Path(folder, name)
                    yield file.relative_to(path).as_posix(), file
        else:
            yield top.name, Path(top.path)


def _check_files(files: Iterable[Path], root: Path, follow_links: bool, at_most: int) -> None:
    """Refuse what is no regular file or too large, a link that leads out of the folder, one file under two names.

    An ε is about one record more or less; an image that is reached twice, by a link to it or to a folder above it,
    would be two records.
    """
    names: dict[tuple[int, int], Path] = {}
    for path in files:
        try:
            found = path.stat()
        except OSError as error:
            raise unreadable(path, error) from None
        if not stat.S_ISREG(found.st_mode):
            raise irregular(path)
        if found.st_size > at_most:
            raise refuse(path, f"has {found.st_size:,} bytes, more than the {at_most:,} that are read")
        if path.is_symlink():
            _check_link(path, root, follow_links)
        first = names.setdefault((found.st_dev, found.st_ino), path)
        if first is not path:
            raise DataError(
                f"{printable(path)} and {printable(first)} are one file, which would count as two records: "
                "take one of them away"
            )


def _check_link(path: Path, root: Path, follow_links: bool) -> None:
    if not follow_links and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
        raise DataError(
            f"{printable(path)} is a link that leads out of the folder: set dataset.follow_links=true if it is meant to"
        )


def _hidden(key: str) -> bool:
    return any(part.startswith(".") or part == "__MACOSX" for part in key.split("/"))
