"""What is learned from: a data set with its two splits, a pair of them, and the source they come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch

from dpot.data.splits import evenly_spaced
from dpot.errors import DataError, UsageError
from dpot.ranges import Count

KEYED = "hmac-sha256:"  # how the checksum of private data begins
Kind = Literal["images", "features", "text", "table"]


@dataclass(frozen=True, eq=False)
class Split:
    """Records and their labels.

    x is N×C×H×W for images (uint8 in 0..255, or floats in [0, 1]), N×d for features and tables, and N×L word
    numbers for text (-1 after the last word). y is int64, or None where the records carry no label.
    The tensors may be views of a memory-mapped file: reading is cheap, writing stays private to the process.
    """

    x: torch.Tensor
    y: torch.Tensor | None = None
    mixed: bool = False  # in the order of hashes of their names: the first n are as good as any n

    def __post_init__(self) -> None:
        if self.y is not None and (self.y.dtype != torch.int64 or self.y.shape != self.x.shape[:1]):
            raise DataError(
                f"{len(self.x)} records need {len(self.x)} int64 labels, got {self.y.dtype} {tuple(self.y.shape)}"
            )

    def __len__(self) -> int:
        return len(self.x)

    def take(self, count: int | None) -> Split:
        """At most count records, evenly spaced, so that records sorted by class keep their proportions.

        Of mixed ones the first, so that one record more or less, or in another place, exchanges one (see splits.py).
        """
        if count is None or count >= len(self):
            return self
        rows = torch.arange(count) if self.mixed else torch.from_numpy(evenly_spaced(len(self), count))
        return Split(self.x[rows], None if self.y is None else self.y[rows], self.mixed)


@dataclass(frozen=True, eq=False)
class Dataset:
    """One data set as a method sees it, with what a record of the run must say about it."""

    name: str
    train: Split
    test: Split
    classes: int  # 1 where the records carry no label
    kind: Kind
    checksum: str  # of the content of the source files, whatever their compression; keyed where they are private
    licence: str
    source: str
    note: str = ""  # what must stand beside every number made with it
    comparable: bool = True  # False where it is not the data of the papers
    class_names: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()  # of a table
    coding: Mapping[str, Any] = field(default_factory=dict)  # how a bounded table was scaled (dpot/data/coding.py)
    taken: tuple[str, ...] = ()  # what private records decided about the form of the data: an ε holds if it is public
    uncovered: tuple[str, ...] = ()  # what else no ε covers
    validation: Split | None = None  # held out of the training records for choices, where a protocol wants that

    def __post_init__(self) -> None:
        for part, split in (("train", self.train), ("test", self.test)):
            if split.x.dim() != (4 if self.kind == "images" else 2):
                raise DataError(f"{self.name}: {part} {self.kind} have the shape {tuple(split.x.shape)}")
            if split.y is not None and len(split) and not (split.y.min() >= 0 and split.y.max() < self.classes):
                raise DataError(f"{self.name}: {part} labels must lie in 0..{self.classes - 1}")
        if self.train.x.shape[1:] != self.test.x.shape[1:]:
            raise DataError(f"{self.name}: train and test records differ in shape")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one record."""
        return tuple(self.train.x.shape[1:])

    @property
    def public(self) -> bool:
        """Whether the records are known to all: of others nothing is kept under a plain hash."""
        return not self.checksum.startswith(KEYED)

    def limited(self, train: int | None, test: int | None = None) -> Dataset:
        """The same data set with at most so many records, and a note that says so."""
        small = replace(self, train=self.train.take(train), test=self.test.take(test))
        cut = [
            f"{len(new):,} of {len(old):,} {part} records"
            for part, new, old in (("train", small.train, self.train), ("test", small.test, self.test))
            if len(new) < len(old)
        ]
        if not cut:
            return self
        return replace(small, note=join_notes(self.note, *cut), comparable=False)


@dataclass(frozen=True, eq=False)
class Documents(Dataset):
    """Text: x holds word numbers; row w of `vectors` is the vector of word w, `words[w]` the word itself."""

    vectors: torch.Tensor = field(default_factory=lambda: torch.empty(0, 0))
    words: tuple[str, ...] = ()

    def cloud(self, document: torch.Tensor) -> torch.Tensor:
        """The word vectors of one document (a row of x): the point cloud that optimal transport compares."""
        return self.vectors[document[document >= 0].long()]


@dataclass(frozen=True, eq=False)
class Pair:
    """Domain adaptation: learn on source.train, align with target.train, measure on target.test."""

    name: str
    source: Dataset
    target: Dataset

    def __post_init__(self) -> None:
        a, b = self.source, self.target
        if a.classes != b.classes or a.shape != b.shape:
            raise DataError(
                f"{self.name}: {a.name} has {a.classes} classes of shape {a.shape}, "
                f"{b.name} {b.classes} of {b.shape}: they cannot be adapted to each other"
            )

    @property
    def checksum(self) -> str:
        """Of both sides."""
        return f"{self.source.checksum} {self.target.checksum}"

    @property
    def note(self) -> str:
        """What must stand beside every number made with the pair."""
        notes = [f"{d.name}: {d.note}" for d in (self.source, self.target) if d.note]
        return join_notes(*notes)

    @property
    def comparable(self) -> bool:
        """Whether both sides are the data of the papers."""
        return self.source.comparable and self.target.comparable


@dataclass(frozen=True)
class Status:
    """What of a data set is at hand. `place` says what to put where when it is not."""

    present: bool
    files: tuple[Path, ...] = ()
    place: str = ""
    built_in: bool = False  # needs no file at all
    note: str = ""

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(f.stat().st_size for f in self.files)


class Source(ABC):
    """Where a data set comes from: what a config node of the group `dataset` describes."""

    name: str
    licence: str
    source: str
    downloadable = False
    # how records that agree with the papers' in name, number and format differ from them all the same; numbers made
    # with them stand beside the published ones as "other data" (dpot/reporting/verdicts.py), earlier records too
    differs = ""

    def __init__(self, limit: Count | None = None, limit_test: Count | None = None) -> None:
        self.limit = limit
        self.limit_test = limit_test

    def load(self, data_root: str | Path | None = None, *, download: bool = True, verify: bool = False) -> Dataset:
        """Locate, verify, decode. verify=True trusts no remembered checksum and hashes every byte again."""
        return self.whole(data_root, download=download, verify=verify).limited(self.limit, self.limit_test)

    @abstractmethod
    def whole(self, data_root: str | Path | None, *, download: bool, verify: bool) -> Dataset:
        """The data set before any limit."""

    def status(self, data_root: str | Path | None = None) -> Status:
        """What is at hand, without reading the files."""
        return Status(present=True, built_in=True)

    def fetch(self, data_root: str | Path | None = None) -> list[Path]:
        """Download what is missing and can be downloaded; gives the new files."""
        raise UsageError(f"{self.name}: there is nothing to fetch")


def facts(data: Dataset | Pair) -> dict[str, Any]:
    """What a record says of the data."""
    return {"name": data.name, "checksum": data.checksum, "note": data.note, "comparable": data.comparable}


def unit_range(x: torch.Tensor) -> torch.Tensor:
    """Images as floats in [0, 1]: bytes are divided by 255, floats are so already."""
    return x.float() / 255 if x.dtype == torch.uint8 else x.float()


def signed_range(x: torch.Tensor) -> torch.Tensor:
    """Images as floats in [-1, 1]."""
    return unit_range(x) * 2 - 1


def join_notes(*notes: str) -> str:
    """The non-empty notes as one."""
    return "; ".join(n for n in notes if n)
