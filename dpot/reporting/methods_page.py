"""The page that compares methods at equal ε: what others publish, and what is on record here."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass, field

from markupsafe import Markup

from dpot.reporting import published, tables
from dpot.reporting.charts import Bar, bars
from dpot.reporting.compare import ComparedCell
from dpot.reporting.gather import Gathered, SheetState
from dpot.reporting.site import Site, paper_name

COLUMNS = tuple(f"{data} {metric}" for data in ("MNIST", "Fashion") for metric in ("FID", "LogReg", "MLP", "CNN"))
NON_PRIVATE = "∞"
MOST = 20  # methods in a chart


@dataclass
class Line:
    """One method under one budget."""

    name: str
    source: str
    guarantee: str
    epsilon: str
    href: str = ""
    remark: str = ""
    is_ours: bool = False
    cells: dict[str, tuple[float, str]] = field(default_factory=dict)  # column → value, as text


def write(site: Site) -> None:
    """Write methods.html: a chart per column and a table, for each ε."""
    found = all_lines(site.gathered)
    groups = []
    for epsilon in sorted({line.epsilon for line in found}, key=_as_number):
        mine = [line for line in found if line.epsilon == epsilon]
        columns = [c for c in COLUMNS if any(c in line.cells for line in mine)]
        if not columns:
            continue
        title = "Without privacy" if epsilon == NON_PRIVATE else f"ε = {epsilon}, δ = 1e-5"
        groups.append(
            {
                "title": title,
                "columns": columns,
                "charts": [Markup(_chart(title, c, mine)) for c in columns if c.endswith(("MLP", "CNN", "FID"))],
                "rows": [vars(line) | {"values": [line.cells.get(c, (0, "–"))[1] for c in columns]} for line in mine],
            }
        )
    site.page("methods.html", "methods.html", title="Methods at equal ε", groups=groups)


def all_lines(gathered: Gathered) -> list[Line]:
    """Every method under every budget, by ε, ours before the published."""
    found = [*_ours(gathered), *_printed(gathered)]
    return sorted(found, key=lambda line: (_as_number(line.epsilon), not line.is_ours))


def _as_number(epsilon: str) -> float:
    return float("inf") if epsilon == NON_PRIVATE else float(epsilon)


def _chart(title: str, column: str, found: list[Line]) -> str:
    best_first = -1 if not column.endswith("FID") else 1
    mine = sorted((line for line in found if column in line.cells), key=lambda line: best_first * line.cells[column][0])
    if not any(line.is_ours for line in mine) or len(mine) < 2:
        return ""
    unique = {(line.name, line.cells[column]): line for line in mine}  # a row that several papers print
    drawn = [Bar(line.name, *line.cells[column], hollow=not line.is_ours) for line in unique.values()]
    return bars(f"{column}, {title} (filled: ours)", drawn[:MOST], from_zero=False)


def _ours(gathered: Gathered) -> list[Line]:
    """Comparable cells of sheets whose columns are images' metrics, by the budget their runs were given."""
    found = []
    for state in gathered.sheets:
        if not any(c.name in COLUMNS for c in state.sheet.columns):
            continue
        for row in dict.fromkeys(c.row for c in state.cells):
            cells = [c for c in state.cells if c.row == row and c.column in COLUMNS and c.ours is not None]
            if cells and all(c.comparable for c in cells):
                line = _line(state, row, cells)
                if line is not None:
                    found.append(line)
    return found


def _line(state: SheetState, row: str, cells: list[ComparedCell]) -> Line | None:
    runs = [r for r in state.runs if r.row == row and r.records]
    privacy = [r.records[0].privacy for r in runs]
    budgets = {(r.records[0].config.get("privacy") or {}).get("epsilon") for r in runs}
    deltas = {(r.records[0].config.get("privacy") or {}).get("delta") for r in runs}
    if len(budgets) != 1 or (budgets != {None} and deltas - {None} != {1e-5}):
        return None
    (budget,) = budgets
    rigorous = all(p.get("rigorous") and p.get("epsilon") is not None for p in privacy)
    guarantee = "none" if budget is None else "proved" if rigorous else "claimed, not proved"
    seeds = round(statistics.fmean(c.seeds for c in cells))
    label = f"{paper_name(state.sheet.paper)} {state.sheet.kind} {state.sheet.name}"
    line = Line(row, f"ours, {label}, {seeds} seed(s)", guarantee, _text(budget), f"{state.key}.html", is_ours=True)
    line.cells = {c.column: (float(c.ours or 0), tables.ours_text(c)) for c in cells}
    return line


def _text(budget: float | None) -> str:
    return NON_PRIVATE if budget is None else f"{budget:g}"


def _printed(gathered: Gathered) -> list[Line]:
    """Published tables with the same columns; their ε stands in the caption, rows without privacy in the sheet."""
    free = {
        (s.sheet.paper, s.sheet.name, row)
        for s in gathered.sheets
        for row, overrides in s.sheet.rows.items()
        if overrides is not None and "privacy=none" in overrides
    }
    found = []
    for paper in published.papers():
        for table in published.tables(paper).values():
            budget = re.search(r"\((\d+(?:\.\d+)?), 1e-5\)", table.caption)
            if budget is None:
                continue
            for row in dict.fromkeys(c.row for c in table.cells):
                cells = [c for c in table.cells if c.row == row and c.column in COLUMNS and c.value is not None]
                if not cells:
                    continue
                non_private = (paper, table.name, row) in free
                line = Line(
                    row,
                    f"published, {paper_name(paper)}",
                    "none" if non_private else "claimed",
                    NON_PRIVATE if non_private else f"{float(budget[1]):g}",
                    remark="" if non_private else cells[0].remark,
                )
                line.cells = {c.column: (float(c.value or 0), tables.number(c.value, c.metric)) for c in cells}
                found.append(line)
    return found
