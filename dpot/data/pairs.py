"""Domain-adaptation pairs: two sources, and which records of the target are aligned with and measured on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from dpot.data.base import Pair, Source, Status, join_notes

Part = Literal["train", "test"]


class Adaptation:
    """Learn on the source's train records, align with the target's `align` records, measure on `evaluate`.

    The published numbers were measured on the very records used for alignment (DP-SWD, Section 5: USPS train
    for M-U, MNIST test for U-M, whole domains for the rest); evaluate=test, where the target has a test split
    of its own, gives the stricter figure.
    """

    def __init__(
        self, name: str, source: Source, target: Source, align: Part = "train", evaluate: Part = "train"
    ) -> None:
        self.name = name
        self.source = source
        self.target = target
        self.align = align
        self.evaluate = evaluate

    @property
    def licence(self) -> str:
        """The licences of both sides."""
        return self._both(self.source.licence, self.target.licence)

    @property
    def sources(self) -> tuple[Source, Source]:
        """Both sides."""
        return self.source, self.target

    @staticmethod
    def _both(a: str, b: str) -> str:
        return a if a == b else join_notes(a, b)

    def load(self, data_root: str | Path | None = None, *, download: bool = True, verify: bool = False) -> Pair:
        """Both sides, the target arranged so that train is aligned with and test is measured on."""
        source = self.source.load(data_root, download=download, verify=verify)
        whole = self.target.load(data_root, download=download, verify=verify)
        splits = {"train": whole.train, "test": whole.test}
        note = f"measured on the {self.evaluate} records, aligned with the {self.align} records"
        if splits[self.align] is splits[self.evaluate]:
            note = "measured on the records used for alignment, as published"
        target = replace(whole, train=splits[self.align], test=splits[self.evaluate], note=join_notes(whole.note, note))
        return Pair(self.name, source, target)

    def status(self, data_root: str | Path | None = None) -> Status:
        """Present if both sides are."""
        a, b = self.source.status(data_root), self.target.status(data_root)
        return Status(
            a.present and b.present,
            tuple(dict.fromkeys(a.files + b.files)),
            join_notes(a.place, b.place),
            a.built_in and b.built_in,
            self._both(a.note, b.note),
        )

    def fetch(self, data_root: str | Path | None = None) -> list[Path]:
        """Download what either side lacks."""
        return [
            path
            for side in (self.source, self.target)
            if not side.status(data_root).present
            for path in side.fetch(data_root)
        ]
