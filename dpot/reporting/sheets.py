"""Sheets: one yaml per published table in experiments/, with the overrides that make each of its cells.

A *run* is one (row, group of columns with the same overrides, seed); it may fill several cells. A table that needs
no training names the function in dpot.papers that computes it instead.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from dpot.config import REPOSITORY
from dpot.errors import DataError, UsageError
from dpot.reporting import remarks
from dpot.reporting.remarks import Remarks

EXPERIMENTS = REPOSITORY / "experiments"
PUBLISHED_ONLY = "published only"


@dataclass(frozen=True)
class Column:
    """A column: which overrides make it and which metric of the record it shows."""

    name: str
    overrides: tuple[str, ...]
    metric: str


@dataclass(frozen=True)
class PlannedRun:
    """One training to be done for a sheet."""

    row: str
    overrides: tuple[str, ...]
    group: tuple[str, ...]
    seed: int

    def command(self, *profile: str) -> str:
        """What a user would type for this run alone; `profile` are the words that say how large it is."""
        return shlex.join(("dpot", *self.overrides, f"seed={self.seed}", *profile))


@dataclass(frozen=True)
class Sheet:
    """A table to reproduce."""

    paper: str
    name: str
    kind: str  # table or figure
    title: str
    common: tuple[str, ...]
    rows: dict[str, tuple[str, ...] | None]  # None: published only
    columns: tuple[Column, ...]
    seeds: int
    demo: str | None  # a data set that is always at hand, for a demonstration without the real data
    compute: str | None = None  # the function in dpot.papers that makes the whole table, without training
    options: Mapping[str, Any] = field(default_factory=dict)  # of that function
    # row → an override of a column → what this row adds there: settings a paper chose per data set
    special: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    picture: str | None = None  # of a figure: "samples" (grids) or "curves"
    axis: str | None = None  # what a row's last word is, where the picture is of curves
    variants_of: str | None = None  # the method whose settings the rows are: elsewhere it belongs to their names
    # what the quick and smoke profiles add, where cutting steps is not enough for a CPU: (condition or "", override)
    small: tuple[tuple[str, str], ...] = ()
    small_rows: tuple[str, ...] | None = None  # the rows those profiles run unless others are asked for; None: all
    remarks: Remarks = field(default_factory=Remarks)  # what is said of its cells beside their numbers

    @property
    def folder(self) -> str:
        """The name of the folder that its results lie in, below that of its paper."""
        return f"{self.kind}_{self.name}"

    def runs(
        self, seeds: int | None = None, demo: bool = False, small: bool = False, profile: str = ""
    ) -> Iterator[PlannedRun]:
        """Every run the sheet needs, seeds innermost. In a demonstration the data sets give way to `demo`.

        `small` may add something for one profile only (`profile=quick: [...]`).
        """
        groups = list(dict.fromkeys(column.overrides for column in self.columns))
        if demo:
            groups = groups[:1]
        for row, overrides in self.rows.items():
            if overrides is None:
                continue
            for group in groups:
                added = tuple(o for key in group for o in self.special.get(row, {}).get(key, ()))
                if small:
                    chosen_so_far = (*self.common, *overrides, f"profile={profile}")
                    added += tuple(o for condition, o in self.small if _holds(condition, chosen_so_far))
                chosen = tuple(f"dataset={self.demo}" if o.startswith("dataset=") else o for o in group)
                for seed in range(min(self.seeds, seeds or self.seeds)):
                    yield PlannedRun(row, (*self.common, *overrides, *(chosen if demo else group), *added), group, seed)


def _holds(condition: str, overrides: Sequence[str]) -> bool:
    """Whether `group=choice` is what these overrides end up with; no condition always holds."""
    group = condition.partition("=")[0]
    return not condition or [o for o in overrides if o.startswith(f"{group}=")][-1:] == [condition]


def load(paper: str, name: str | int, kind: str = "table") -> Sheet:
    """The sheet of a table or figure; an unknown one is answered with those that exist."""
    path = EXPERIMENTS / f"{paper}_{kind}_{name}.yaml"
    if not path.exists():
        known = ", ".join(
            sorted(p.stem.replace(f"_{kind}_", f" {kind}=") for p in EXPERIMENTS.glob(f"*_{kind}_*.yaml"))
        )
        raise UsageError(f"paper={paper} {kind}={name}: there is no such sheet; known: {known or 'none'}")
    return parse(yaml.safe_load(path.read_text()), path, kind)


def all_sheets() -> list[Sheet]:
    """Every sheet in experiments/."""
    found = []
    for path in sorted(EXPERIMENTS.glob("*.yaml")):
        kind = "figure" if "_figure_" in path.stem else "table"
        found.append(parse(yaml.safe_load(path.read_text()), path, kind))
    return found


def parse(body: dict[str, Any], path: Path, kind: str) -> Sheet:
    """Check a sheet's shape and build it."""
    if "compute" in body:
        head = (body["paper"], str(body[kind]), kind, body["title"])
        empty = Sheet(*head, common=(), rows={}, columns=(), seeds=1, demo=None)
        said = remarks.of_sheet(body, set())
        return replace(empty, compute=str(body["compute"]), options=body.get("options", {}), remarks=said)
    try:
        columns = tuple(
            Column(str(name), tuple(c.get("overrides", ())), str(c["metric"])) for name, c in body["columns"].items()
        )
        rows: dict[str, tuple[str, ...] | None] = {}
        special: dict[str, dict[str, tuple[str, ...]]] = {}
        for name, row in body["rows"].items():
            rows[str(name)] = None if row == PUBLISHED_ONLY else tuple(str(o) for o in row if not isinstance(o, dict))
            for added in () if row == PUBLISHED_ONLY else (o for o in row if isinstance(o, dict)):
                special.setdefault(str(name), {}).update({k: tuple(map(str, v)) for k, v in added.items()})
        return Sheet(
            paper=body["paper"],
            name=str(body[kind]),
            kind=kind,
            title=body["title"],
            common=tuple(body["common"]),
            rows=rows,
            columns=columns,
            seeds=int(body["seeds"]),
            demo=body.get("demo"),
            special=special,
            picture=body.get("picture"),
            axis=body.get("axis"),
            variants_of=body.get("variants_of"),
            small=tuple(_conditional(body.get("small", ()))),
            small_rows=_known(body["small_rows"], rows) if "small_rows" in body else None,
            remarks=remarks.of_sheet(body, {*rows, *(column.name for column in columns)}),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(f"{path}: not a sheet ({type(error).__name__}: {error})") from None


def _known(names: Sequence[str], rows: Mapping[str, tuple[str, ...] | None]) -> tuple[str, ...]:
    for name in names:
        if rows.get(name) is None:
            raise ValueError(f"small_rows: there is no row {name} to run")
    return tuple(names)


def _conditional(items: Sequence[str | dict[str, list[str]]]) -> Iterator[tuple[str, str]]:
    for item in items:
        if isinstance(item, dict):
            yield from ((condition, str(o)) for condition, added in item.items() for o in added)
        else:
            yield "", str(item)
