"""A data set that comes in files: locate them, download what can be, verify, decode once, map the rest."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch

from dpot.data.base import Dataset, Kind, Source, Split, Status
from dpot.data.cache import Builder, Entry, cached
from dpot.data.download import Remote, fetch
from dpot.data.files import (
    Layout,
    digests,
    download_root,
    find,
    given_root,
    keyed_digest,
    printable,
    refuse,
    search_roots,
)
from dpot.errors import DataError

BY_PLACE = (
    "which records are held out, or left out by a limit: it goes by their places in the file, and in a neighbouring "
    "file all others must stand in the same places"
)
BY_NAME = (
    "one record more or less, where it decides which others are held out, or left out by a limit: these go by names "
    "and by how many there are, so that another record may take the place of the one"
)


@dataclass(frozen=True)
class Facts:
    """What a decoder finds out beside the tensors; kept with them in the cache."""

    classes: int
    kind: Kind
    note: str = ""
    comparable: bool = True
    class_names: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    coding: dict[str, Any] = field(default_factory=dict)
    contents: dict[str, str] = field(default_factory=dict)  # SHA-256 by file, where compression must not matter
    by_name: bool = False  # records are in the order of hashes of their names
    taken: tuple[str, ...] = ()  # what the records decided about their form, found while they were decoded


@dataclass(frozen=True)
class Known:
    """A file without a published checksum, as the project was checked with it.

    A file of the same size with other bytes is that file damaged, and is refused; one of another size is the
    user's own, and has to pass the decoder's checks.
    """

    size: int
    sha256: str


class FileSource(Source):
    """Subclasses say which files they want and how to decode them; everything else is here.

    decode() puts train_x, train_y, test_x and test_y into the builder; labels may be left out, and without
    test_x the test records are the train records. It must verify what it reads: an entry of the cache is
    what its decoder vouched for.
    """

    known: ClassVar[dict[str, Known]] = {}  # by file name; see Known
    decoder = 1  # part of the cache's key: raise it when decode() gives other tensors
    cache = True  # False: decoded records are deleted as soon as they are in memory
    public = True  # whether the records are known to all; of others a record must not have a plain hash

    @abstractmethod
    def layouts(self) -> tuple[Layout, ...]:
        """The ways in which the data set may come, most wanted first."""

    @abstractmethod
    def decode(self, layout: Layout, paths: Mapping[str, Path], builder: Builder) -> Facts:
        """Verify and decode the files of a layout."""

    def options(self) -> dict[str, Any]:
        """What, beside the files, the decoded tensors depend on."""
        return {}

    def remotes(self) -> dict[str, Remote]:
        """What can be downloaded, by the key of the file."""
        return {}

    def advice(self) -> str:
        """Where a person finds the files, for those that cannot be downloaded."""
        return f"get it from {self.source}"

    def whole(self, data_root: str | Path | None, *, download: bool, verify: bool) -> Dataset:
        layout, paths = self.resolve(data_root, download)
        hashes = digests(paths, rehash=verify)
        for key, path in paths.items():
            known = self.known.get(path.name)
            if known and path.stat().st_size == known.size and hashes[key] != known.sha256:
                raise refuse(path, f"corrupt (sha256 {hashes[key]}, known {known.sha256})")
        parts = {
            "source": type(self).__qualname__,
            "decoder": self.decoder,
            "layout": layout.name,
            "files": hashes,
            "options": self.options(),
        }
        decode = lambda builder: asdict(self.decode(layout, paths, builder))  # noqa: E731
        entry = cached(self.name, parts, decode, verify=verify, keep=self.cache)
        return self.dataset(entry, hashes)

    def dataset(self, entry: Entry, hashes: Mapping[str, str]) -> Dataset:
        """The data set in an entry of the cache."""
        return Dataset(**self.describe(entry, hashes))

    def describe(self, entry: Entry, hashes: Mapping[str, str]) -> dict[str, Any]:
        """The fields of the Dataset."""
        facts = Facts(**entry.facts)
        contents = facts.contents or dict(hashes)
        lines = "".join(f"{key} {value}\n" for key, value in sorted(contents.items())).encode("utf-8", "surrogatepass")
        train = self._split(entry, "train", facts.by_name)
        return {
            "name": self.name,
            "train": train,
            "test": self._split(entry, "test", facts.by_name) if "test_x" in entry.arrays else train,
            "classes": facts.classes,
            "kind": facts.kind,
            "checksum": f"sha256:{hashlib.sha256(lines).hexdigest()}" if self.public else keyed_digest(lines),
            "licence": self.licence,
            "source": self.source,
            "note": facts.note,
            "comparable": facts.comparable,
            "class_names": tuple(facts.class_names),
            "columns": tuple(facts.columns),
            "coding": facts.coding,
            "taken": self.taken(facts),
            "uncovered": self.uncovered(facts),
        }

    def taken(self, facts: Facts) -> tuple[str, ...]:
        """What private records decided about the form of the data: its classes, whatever else."""
        if self.public or facts.classes < 2:
            return tuple(facts.taken)
        return ("which classes there are: they were taken from the labels or the folders", *facts.taken)

    def uncovered(self, facts: Facts) -> tuple[str, ...]:
        """What else no ε covers: which records are left out."""
        return ()

    @staticmethod
    def _split(entry: Entry, part: str, mixed: bool) -> Split:
        y = entry.arrays.get(f"{part}_y")
        return Split(torch.from_numpy(entry.arrays[f"{part}_x"]), None if y is None else torch.from_numpy(y), mixed)

    def resolve(self, data_root: str | Path | None, download: bool) -> tuple[Layout, dict[str, Path]]:
        """The first complete layout: at hand, or after a download; else an error that says what to put where."""
        roots = search_roots(data_root)
        for layout in self.layouts():
            found = find(layout, roots)
            if len(found) == len(layout.files):
                return layout, found
        reason = ""
        if download:
            try:
                if self.fetch(data_root):
                    return self.resolve(data_root, download=False)
            except DataError as error:
                reason = f"{error}; "
        raise DataError(f"{self.name} is not at hand: {reason}{self._place(data_root)}")

    def fetch(self, data_root: str | Path | None = None) -> list[Path]:
        """Download the first layout that can be downloaded; files already at hand are left alone."""
        remotes = self.remotes()
        layout = next((w for w in self.layouts() if all(f.key in remotes for f in w.files)), None)
        if layout is None:
            raise DataError(f"{self.name} cannot be downloaded")
        found = find(layout, search_roots(data_root))
        root = download_root(data_root)
        missing = [f for f in layout.files if f.key not in found]
        return [fetch(remotes[f.key], root / f.places[0]) for f in missing]

    def status(self, data_root: str | Path | None = None) -> Status:
        roots = search_roots(data_root)
        for layout in self.layouts():
            found = find(layout, roots)
            if len(found) == len(layout.files):
                return Status(True, tuple(found.values()), note="" if layout.name == "full" else layout.name)
        return Status(False, place=self._place(data_root))

    def _place(self, data_root: str | Path | None) -> str:
        """Which file to put where, counting from the layout that is nearest to complete."""
        roots = search_roots(data_root)
        layout = min(self.layouts(), key=lambda w: len(w.files) - len(find(w, roots)))
        found = find(layout, roots)
        missing = [f.places[0] for f in layout.files if f.key not in found]
        names = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
        given = given_root(data_root)
        where = f"in {printable(given)}" if given else "in a folder and set data_root or DPOT_DATA to it"
        return f"put {names} {where} ({self.advice()})"
