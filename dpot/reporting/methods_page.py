"""The page that compares methods at equal ε: what others publish, and what is on record here."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from markupsafe import Markup

from dpot.reporting import published, tables
from dpot.reporting.charts import Bar, bars
from dpot.reporting.compare import ComparedCell
from dpot.reporting.gather import Gathered, RunsOfCell, SheetState
from dpot.reporting.published import paper_name
from dpot.reporting.site import Site

COLUMNS = tuple(f"{data} {metric}" for data in ("MNIST", "Fashion") for metric in ("FID", "LogReg", "MLP", "CNN"))
METRICS = {"fid": "FID", "logreg": "LogReg", "mlp": "MLP", "cnn": "CNN"}
DATA = {"mnist": "MNIST", "fashion_mnist": "Fashion"}
DELTA = 1e-5
NON_PRIVATE = "∞"
MOST = 20  # methods in a chart
JUDGES = {  # whose classifiers judged a run of ours, by the protocol in its record
    "merf": "scikit-learn",
    "gs_wgan": "scikit-learn, and a CNN",
    "dp_sinkhorn": "DP-Sinkhorn's",
    "sinkhorn": "DP-Sinkhorn's, with a larger CNN",
}


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
    judged_by: str = ""
    kind: str = "table"  # or figure, whose runs may be judged more briefly, or variants of one method
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
    """What generators on MNIST and Fashion-MNIST reach here, by the budget their runs were given."""
    found: dict[tuple[str, str, str], Line] = {}
    counted: dict[int, str] = {}  # runs that serve several sheets count in the first
    for state in gathered.sheets:
        if state.sheet.picture == "samples":  # pictures of runs that a table counts
            continue
        at = {(c.row, c.column): c for c in state.cells}
        metrics = {c.name: METRICS.get(c.metric) for c in state.sheet.columns}
        for runs in state.runs:
            data = DATA.get(str(runs.records[0].provenance["data"].get("name"))) if runs.records else None
            if data is None or not all(_counts(at.get((runs.row, name))) for name in runs.columns):
                continue
            line = _line(state, runs)
            if line is None or _judged_on(runs) == "train":  # where settings were chosen
                continue
            if any(counted.setdefault(id(record), state.key) != state.key for record in runs.records):
                continue
            line = found.setdefault((state.key, line.name, line.epsilon), line)
            for name in runs.columns:
                cell, metric = at[runs.row, name], metrics[name]
                if metric is not None:
                    line.cells[f"{data} {metric}"] = (float(cell.ours or 0), tables.ours_text(cell))
    return [line for line in found.values() if line.cells]


def _counts(cell: ComparedCell | None) -> bool:
    """Whether a cell is made at full size, and is no second reading of a published row."""
    return cell is not None and cell.ours is not None and cell.comparable and cell.counted


def _line(state: SheetState, runs: RunsOfCell) -> Line | None:
    """An empty line for a run; None if its δ is not that of the page."""
    privacy, budget = runs.records[0].privacy, runs.records[0].config.get("privacy") or {}
    epsilon = budget.get("epsilon")
    if epsilon is not None and budget.get("delta") != DELTA:
        return None
    proved = privacy.get("rigorous") and privacy.get("epsilon") is not None
    guarantee = "none" if epsilon is None else "proved" if proved else "claimed, not proved"
    label = f"{paper_name(state.sheet.paper)} {state.sheet.kind} {state.sheet.name}"
    source = f"ours, {label}, {len(runs.records)} seed(s)"
    name = runs.row.rpartition(" ")[0] if state.sheet.axis else runs.row  # without its place on the axis
    kind, varied = state.sheet.kind, state.sheet.variants_of
    if varied is not None:
        name, kind = f"{varied}, {name}", "variants"
    protocol = str((runs.records[0].config.get("classifier") or {}).get("protocol"))
    judge = JUDGES.get(protocol, protocol)
    return Line(name, source, guarantee, _text(epsilon), f"{state.key}.html", is_ours=True, judged_by=judge, kind=kind)


def _judged_on(runs: RunsOfCell) -> str:
    return str((runs.records[0].config.get("task") or {}).get("judged_on", "test"))


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
    for paper in (p for p in published.papers() if p != "sketch"):  # which repeats what others publish
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
                    judged_by=table.judged_by,
                )
                line.cells = {c.column: (float(c.value or 0), tables.number(c.value, c.metric)) for c in cells}
                found.append(line)
    return found
