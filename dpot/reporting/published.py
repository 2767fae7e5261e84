"""The numbers the papers print, read from results/published/*.yaml through a schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from dpot.config import REPOSITORY, unknown
from dpot.errors import DataError
from dpot.reporting import remarks
from dpot.reporting.remarks import Place

PUBLISHED = REPOSITORY / "results" / "published"
NAMES = {
    "dp_swd": "DP-SWD",
    "dp_sinkhorn": "DP-Sinkhorn",
    "wdp": "WDP",
    "triangle_wad": "TriangleWad",
    "sketch": "Sketch",
    "tables": "Tables",
    "image_bench": "DPImageBench",
    "field": "The field",
}


@dataclass(frozen=True)
class Cell:
    """One printed number. `metric` says what it is: accuracy (%), fid, sigma, ..."""

    paper: str
    version: str
    table: str
    row: str
    column: str
    value: float | None
    metric: str
    spread: float | None = None
    protocol: str = ""
    remark: str = ""


@dataclass(frozen=True)
class Table:
    """A printed table: its caption and its cells in reading order."""

    paper: str
    name: str
    caption: str
    cells: tuple[Cell, ...]
    judged_by: str = ""  # whose classifiers, in a word or two, where methods of several tables stand side by side

    def cell(self, row: str, column: str) -> Cell | None:
        """The cell of a row and column, if the paper prints one."""
        return next((c for c in self.cells if c.row == row and c.column == column), None)


@dataclass(frozen=True)
class Settings:
    """What is printed of how some cells of a table were made: keys of a run's configuration, and where they stand."""

    place: Place
    where: str
    keys: Mapping[str, Any]


@cache
def settings(paper: str, table: str) -> tuple[Settings, ...]:
    """Those of a table; () where nothing is on file."""
    content = yaml.safe_load((PUBLISHED / f"{paper}.yaml").read_text())
    found = []
    for entry in {str(k): v for k, v in (content.get("settings") or {}).items()}.get(table, ()):
        keys = {key: value for key, value in entry.items() if key not in ("where", "rows", "columns")}
        found.append(Settings(remarks.place_of(entry), entry["where"], keys))
    return tuple(found)


@cache
def tables(paper: str) -> dict[str, Table]:
    """All tables of a paper, by name ("2")."""
    path = PUBLISHED / f"{paper}.yaml"
    if not path.exists():
        raise unknown("paper", paper, papers())
    content = yaml.safe_load(path.read_text())
    return {str(name): _table(content, str(name), body, path) for name, body in content["tables"].items()}


def papers() -> list[str]:
    """The papers whose numbers are on file."""
    return sorted(path.stem for path in PUBLISHED.glob("*.yaml"))


def paper_name(paper: str) -> str:
    """As people say it."""
    return NAMES.get(paper, paper)


def paper_order(paper: str) -> tuple[int, str]:
    """The papers in the order of NAMES, then the others."""
    names = list(NAMES)
    return (names.index(paper) if paper in names else len(names) - 1, paper)


def heading(paper: str) -> str:
    """Title, authors and version of a paper, in a line."""
    content = yaml.safe_load((PUBLISHED / f"{paper}.yaml").read_text())
    return f"{content['title']}. {content.get('authors', '')}, {content['version']}."


def table(paper: str, name: str | int) -> Table:
    """One table; an unknown one is answered with those that exist."""
    found = tables(paper)
    if str(name) not in found:
        raise unknown("table", str(name), list(found))
    return found[str(name)]


def _table(content: dict[str, Any], name: str, body: dict[str, Any], path: Path) -> Table:
    columns = [str(c) for c in body["columns"]]
    metrics = body.get("metrics") or [body.get("metric")] * len(columns)
    cells = []
    for row, values in body["rows"].items():
        spreads = body.get("spread", {}).get(row, [None] * len(columns))
        if not len(values) == len(columns) == len(metrics) == len(spreads):
            raise DataError(f"{path}: table {name}, row {row}: {len(values)} values for {len(columns)} columns")
        for column, metric, value, spread in zip(columns, metrics, values, spreads, strict=True):
            if not (value is None or isinstance(value, int | float)) or not isinstance(metric, str):
                raise DataError(f"{path}: table {name}, row {row}, column {column}: not a number with a metric")
            cells.append(
                Cell(
                    paper=content["paper"],
                    version=content["version"],
                    table=name,
                    row=str(row),
                    column=column,
                    value=None if value is None else float(value),
                    metric=metric,
                    spread=spread,
                    protocol=body.get("protocol", ""),
                    remark=body.get("remarks", {}).get(row, ""),
                )
            )
    judged_by = str(body.get("judged_by", "its own protocol"))
    return Table(content["paper"], name, body["caption"], tuple(cells), judged_by)
