"""The page of one table or figure: numbers, pictures, curves, privacy statements, provenance, commands."""

from __future__ import annotations

import re
import statistics
from typing import Any

from markupsafe import Markup

from dpot.record import Record
from dpot.reporting import pieces, published, tables
from dpot.reporting.charts import Bar, Series, bars, lines
from dpot.reporting.gather import RunsOfCell, SheetState
from dpot.reporting.site import Site, paper_page
from dpot.reporting.store import KeptRecord

NOTES = ("Ours", "With", "Numbers", "Other data", "Not as printed")  # the rest of the legend the page says elsewhere
MOST_SERIES = 8
MOST_POINTS = 240


def write(site: Site, state: SheetState) -> None:
    """Write the page."""
    sheet = state.sheet
    has_cells = bool(state.cells)
    on_record = any(c.ours is not None for c in state.cells)
    site.page(
        f"{state.key}.html",
        "sheet.html",
        title=sheet.title,
        label=state.label,
        paper_href=paper_page(sheet.paper),
        paper_title=published.paper_name(sheet.paper),
        make=_make(state),
        matrix=site.matrix(state) if has_cells else Markup(""),
        notes=[line for line in tables.legend(state.cells, sheet) if line.startswith(NOTES)],
        protocol=state.printed.cells[0].protocol if state.printed and state.printed.cells else "",
        documents=[pieces.of_document(site, d) for d in state.documents],
        has_results=on_record or bool(state.documents),
        charts=[Markup(c) for c in _charts(state) if c],
        gallery=[{"href": site.file(path), "alt": words} for words, path in pieces.samples_of(state)],
        statements=_statements(site, state),
        runs=[_run(r) for r in state.runs],
        cells=state.cells,
    )


def _make(state: SheetState) -> str:
    sheet = state.sheet
    if sheet.name.isalnum():
        paper = "" if sheet.paper == "dp_swd" else f" PAPER={sheet.paper}"
        return f"make reproduce-{sheet.kind}-{sheet.name}{paper}"
    return f"dpot task=reproduce paper={sheet.paper} {sheet.kind}={sheet.name}"


def _run(runs: RunsOfCell) -> dict[str, Any]:
    records = runs.records
    seconds = [_seconds(record) for record in records]
    facts = [r.provenance for r in records]
    return {
        "row": runs.row,
        "columns": ", ".join(runs.columns),
        "seeds": len(records) or "–",
        "profile": runs.profile or "–",
        "data": _joined([f["data"].get("name") for f in facts]),
        "device": _joined([f.get("device") for f in facts]),
        "seconds": f"{statistics.fmean(seconds):.0f}" if seconds else "–",
        "seconds_value": statistics.fmean(seconds) if seconds else "",
        "commit": _joined([code for record in records for code in _codes(record)]),
        "command": runs.command,
    }


def _training(record: Record) -> dict[str, Any]:
    return record.metrics.get("training") or {}


def _seconds(record: Record) -> float:
    """Of the run; of one that was resumed at least those of its training, which count from the beginning."""
    return max(float(record.provenance.get("seconds", 0)), float(_training(record).get("seconds") or 0))


def _codes(record: Record) -> list[str]:
    """The commits that had a part in it, the last one that of the record."""
    before = [str(part["code"] or "unknown")[:10] for part in _training(record).get("earlier") or []]
    own = str(record.provenance.get("commit") or "")[:10] + ("+" if record.provenance.get("dirty") else "")
    return [*before, own]


def _joined(values: list[Any]) -> str:
    return ", ".join(dict.fromkeys(str(v) for v in values if v)) or "–"


def _statements(site: Site, state: SheetState) -> list[dict[str, Any]]:
    found = []
    for runs in state.runs:
        for record in runs.records[:1]:
            privacy = record.privacy
            if not privacy or privacy.get("headline") is None:
                continue
            accountants = [
                (name, f"{a['epsilon']:.4g}" if a.get("epsilon") is not None else f"– ({a.get('reason', '')})")
                for name, a in (privacy.get("accountants") or {}).items()
                if isinstance(a, dict)
            ]
            entries = [f"{e['count']} × {e['released']}" for e in privacy.get("entries", []) if "released" in e]
            facts = [
                ("Neighbouring data sets", f"{privacy.get('adjacency')}: {privacy.get('adjacency_meaning', '')}"),
                ("Released", "; ".join(entries)),
                ("Mode", privacy.get("mode", "")),
            ]
            found.append(
                {
                    "name": runs.name,
                    "headline": " ".join([privacy["headline"], *_added_warnings(record)]),
                    "rigorous": bool(privacy.get("rigorous")) and privacy.get("epsilon") is not None,
                    "facts": [(term, text) for term, text in facts if text],
                    "reasons": privacy.get("reasons", []),
                    "not_covered": privacy.get("not_covered", []),
                    "accountants": accountants,
                    "page": pieces.of_statement(site, record),
                    "delta": f"{privacy['delta']:g}" if privacy.get("delta") is not None else "–",
                }
            )
    return found


def _added_warnings(record: KeptRecord) -> list[str]:
    """Those that a headline of before them lacks."""
    if "entries" not in record.privacy:
        return []
    return [warning for warning in record.statement().warnings if warning not in record.privacy["headline"]]


# curves


def _charts(state: SheetState) -> list[str]:
    return [*_over_epsilon(state), *_loss_curves(state), *_epoch_curves(state), _cost(state)]


def _data_of(record: Record) -> str:
    return str(record.provenance["data"].get("name", ""))


def _loss_curves(state: SheetState) -> list[str]:
    by_data: dict[str, list[Series]] = {}
    for runs in state.runs:
        for record in runs.records[:1]:
            history = (record.metrics.get("training") or {}).get("history") or []
            points = [(float(p["step"]), float(p["loss"])) for p in history if p.get("loss") is not None]
            if len(points) > 1:
                by_data.setdefault(_data_of(record), []).append(Series(_short(runs), _thinned(_relative(points))))
    title = "loss over training, each by its own first value"
    return [lines(f"{data}: {title}", s[:MOST_SERIES], "step", "loss") for data, s in by_data.items()]


def _short(runs: RunsOfCell) -> str:
    """The name without the data set, which stands in the title."""
    return ", ".join(part for part in runs.name.split(", ") if part != _data_of(runs.records[0]))


def _relative(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Losses of different methods have different units: each curve starts at 1."""
    first = abs(points[0][1]) or 1.0
    return [(x, y / first) for x, y in points]


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    step = max(1, len(points) // MOST_POINTS)
    return points[::step]


def _epoch_curves(state: SheetState) -> list[str]:
    """Accuracy against the ε spent so far, where a run kept both by epoch."""
    by_data: dict[str, list[Series]] = {}
    for runs in state.runs:
        for record in runs.records[:1]:
            epochs = record.metrics.get("epochs")
            if not isinstance(epochs, list):
                continue
            points = [
                (float(e["epsilon"]), float(e["accuracy"]))
                for e in epochs
                if isinstance(e, dict) and e.get("epsilon") is not None and e.get("accuracy") is not None
            ]
            if len(points) > 1:
                by_data.setdefault(_data_of(record), []).append(Series(_short(runs), _thinned(points)))
    return [
        lines(f"{data}: accuracy over the ε spent", s[:MOST_SERIES], "ε", "accuracy") for data, s in by_data.items()
    ]


def _over_epsilon(state: SheetState) -> list[str]:
    """A metric against the budget, where rows of one name differ in it (DP-SWD 1, DP-SWD 2.33, ...)."""
    budgets = {
        (runs.row, name): (runs.records[0].config.get("privacy") or {}).get("epsilon")
        for runs in state.runs
        if runs.records
        for name in runs.columns
    }
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for cell in state.cells:
        budget = budgets.get((cell.row, cell.column))
        if cell.ours is not None and budget is not None:
            name = re.sub(r"[ ,]*(ε ?= ?)?[\d.]+$", "", cell.row) or cell.row
            found.setdefault(cell.column, {}).setdefault(name, []).append((float(budget), cell.ours))
    charts = []
    for column, series in found.items():
        several = [Series(n, sorted(p)) for n, p in series.items() if len({x for x, _ in p}) > 1]
        if several:
            charts.append(lines(f"{column} over ε", several[:MOST_SERIES], "ε", column, log_x=True))
    return charts


def _cost(state: SheetState) -> str:
    values, devices = [], []
    for runs in state.runs:
        found = [t for r in runs.records if isinstance(t := r.metrics.get("training"), dict) and "seconds" in t]
        times = [float(t["seconds"]) for t in found if _is_whole(t)]
        if times:
            mean = statistics.fmean(times)
            values.append(Bar(runs.name, mean, f"{mean:.1f} s"))
            devices.append(runs.records[0].provenance.get("device"))
    return bars("Training time per run", values[:24], f"on {_joined(devices)}") if values else ""


def _is_whole(training: dict[str, Any]) -> bool:
    """Whether its seconds are of all its steps; older records have only those since the last resume."""
    rate = training.get("steps_per_second")
    return rate is None or rate * training["seconds"] > 0.9 * training["steps"]
