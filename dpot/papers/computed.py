"""What a computed table or figure is: its numbers, tables and pictures, and what it was computed with.

Functions in the papers' folders return a `Computed`; dpot/tasks/compute.py writes and shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dpot import config
from dpot.errors import DataError
from dpot.profiles import Profile

SMALL = ("short", "quick", "smoke")  # profiles in which embedded data may stand in for missing ones


@dataclass(frozen=True)
class Context:
    """What a figure may need to know of the run: a function that takes a `context` is given it."""

    profile: Profile
    seed: int = 0
    device: str = "cpu"
    data_root: str | None = None
    output_root: str | None = None

    def data(self, name: str, demo: str | None = None) -> Any:
        """A data set by name; where it is missing, a small profile goes on with `demo`, which is never comparable."""
        try:
            return self._load(name)
        except DataError:
            if demo is None or self.profile.name not in SMALL:
                raise
            return self._load(demo)

    def _load(self, name: str) -> Any:
        node = OmegaConf.load(config.CONF_DIR / "dataset" / f"{name}.yaml")
        assert isinstance(node, DictConfig)
        return config.instantiate(node, "dataset").load(self.data_root)


@dataclass(frozen=True)
class Table:
    """Rows to be shown.

    `columns` says which keys are shown, under which heading and how their numbers are written; without it every key
    is shown as it is.
    """

    title: str
    rows: Sequence[Mapping[str, Any]]
    note: str = ""
    columns: Mapping[str, tuple[str, str]] | None = None  # key → heading, format of its numbers
    sideways: bool = False  # a line for every key: for few rows with many keys

    def lines(self) -> list[list[str]]:
        """The heading, then every row, as text."""
        columns = self.columns or {key: (key, ".4g") for row in self.rows for key in row}
        lines = [[heading for heading, _ in columns.values()]]
        lines += [[_text(row.get(key), form) for key, (_, form) in columns.items()] for row in self.rows]
        return [list(line) for line in zip(*lines, strict=True)] if self.sideways else lines

    def markdown(self) -> str:
        """The table under its title, with its note."""
        head, *body = (f"| {' | '.join(line)} |" for line in self.lines())
        rule = "|" + "---|" * len(self.lines()[0])
        return "\n".join([f"## {self.title}", "", head, rule, *body, "", *([self.note, ""] if self.note else [])])


def _text(value: Any, form: str) -> str:
    if isinstance(value, list):
        return ", ".join(_text(v, form) for v in value)
    if value is None or isinstance(value, bool):
        return {None: "–", True: "yes", False: "no"}[value]
    return format(value, form) if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Computed:
    """What was computed: the numbers that are kept, and how they are shown."""

    numbers: dict[str, Any]
    tables: Sequence[Table] = ()
    pictures: Mapping[str, bytes] = field(default_factory=dict)  # PNG, by what its file's name ends with, "" if alone
    data: Sequence[Any] = ()  # the data sets behind it
