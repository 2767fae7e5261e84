"""Published against reproduced: each cell of a sheet with its number, ours, the difference and a verdict."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dpot.record import Record
from dpot.reporting.published import Table
from dpot.reporting.sheets import Column, Sheet
from dpot.reporting.store import Home, KeptRecord
from dpot.reporting.verdicts import by_numbers, difference_of_data, verdict

ACCURACIES = ("accuracy", "logreg", "mlp", "cnn", "cnn_adam")
PROFILES = ("paper", "short", "quick", "smoke")


@dataclass(frozen=True)
class ComparedCell:
    """One cell of a comparison."""

    row: str
    column: str
    metric: str
    published: float | None
    ours: float | None
    std: float | None
    seeds: int
    profile: str | None
    data: str | None
    comparable: bool
    verdict: str
    remark: str = ""
    spread: float | None = None  # the published standard deviation, where there is one
    over: str | None = None  # what ours is over: seeds; of one run, its passes or draws of the data
    guarantee: str | None = None  # of the ε that the runs state: proved, conditional or not proved
    numbers: str | None = None  # what the two numbers alone would say, whatever else is known of the cell
    because: str | None = None  # the paragraph that says why: docs/PAGE.md#anchor
    noise: float | None = None  # what one training of the row is known to differ by
    counted: bool = True  # False where another row stands for the same published number

    @property
    def difference(self) -> float | None:
        """Ours minus published, where both exist."""
        return None if self.ours is None or self.published is None else self.ours - self.published


def compare(
    sheet: Sheet, published: Table | None, records: Iterable[KeptRecord], profile: str | None
) -> list[ComparedCell]:
    """Set every cell of the sheet beside the published one.

    Of the records that belong to the sheet, those of the largest profile are used (or of the one asked for); a run
    on the demonstration data is used only where there is no other, and is never comparable.
    """
    own = records_of(sheet, records)
    printed_rows = (c.row for c in published.cells) if published else ()
    return [
        _cell(sheet, published, own, row, column, profile)
        for row in dict.fromkeys([*sheet.rows, *printed_rows])
        for column in sheet.columns
    ]


def _cell(
    sheet: Sheet, published: Table | None, own: Owned, row: str, column: Column, profile: str | None
) -> ComparedCell:
    said = sheet.remarks
    (their_row, first), (their_column, leads) = said.published_name(row), said.published_name(column.name)
    printed = published.cell(their_row, their_column) if published and their_row and their_column else None
    theirs = printed.value if printed else None
    metric = printed.metric if printed else _metric_of(published, column)
    chosen, used_profile = chosen_records(sheet, own, row, column, profile)
    values = [v for v in (_value(r, column.metric) for r in chosen) if v is not None]
    std, over = _spread(chosen, values, column.metric)
    ours = statistics.fmean(values) if values else None
    comparable = bool(values) and all(_comparable(r) for r in chosen)
    data = chosen[0].provenance["data"].get("name") if values else None
    remark = said.said(row, column.name)
    known_noise = said.noise[row].spread.get(metric) if row in said.noise else None
    says = "other data" if data and difference_of_data(data) else remark.says if remark else None
    found = verdict(metric, theirs, ours, comparable, _runs(chosen, column.metric), known_noise, says)
    return ComparedCell(
        row=row,
        column=column.name,
        metric=metric,
        published=theirs,
        ours=ours,
        std=std,
        seeds=len(values),
        profile=used_profile if values else None,
        data=data,
        comparable=comparable,
        verdict=found,
        remark=printed.remark if printed else "",
        spread=printed.spread if printed else None,
        over=over,
        guarantee=_guarantee(chosen) if values else None,
        numbers=by_numbers(metric, theirs, ours) if theirs is not None and ours is not None and comparable else None,
        because=remark.because if remark and found in (remark.says, "other data") else None,
        noise=known_noise if values else None,
        counted=first and leads,
    )


Owned = list[tuple[Home, KeptRecord]]  # records with the cells they fill


def records_of(sheet: Sheet, records: Iterable[KeptRecord]) -> Owned:
    """The records that serve a sheet."""
    name = (sheet.paper, sheet.kind, sheet.name)
    return [(home, r) for r in records for home in r.homes if home.sheet == name]


def chosen_records(
    sheet: Sheet, own: Owned, row: str, column: Column, profile: str | None = None
) -> tuple[list[KeptRecord], str | None]:
    """Those a cell is made of, one per seed, and their profile. A run fills every column with the same overrides."""
    alike = {c.name for c in sheet.columns if c.overrides == column.overrides}
    mine = [(home, r) for home, r in own if home.row == row and not alike.isdisjoint(home.columns)]
    return _largest(mine, profile)


def as_answer(sheet: Sheet, cells: list[ComparedCell]) -> dict[str, Any]:
    """The comparison as the JSON document of `task=compare`."""
    return {
        "paper": sheet.paper,
        sheet.kind: int(sheet.name) if sheet.name.isdigit() else sheet.name,
        "title": sheet.title,
        "cells": [asdict(c) | {"difference": c.difference} for c in cells],
    }


def _largest(found: Owned, profile: str | None) -> tuple[list[KeptRecord], str | None]:
    for name in (profile,) if profile in PROFILES else PROFILES:
        for demo in (False, True):
            fitting = [(h, r) for h, r in found if r.config["profile"]["name"] == name and h.demo is demo]
            fitting.sort(key=lambda one: str(one[1].provenance.get("finished", "")))
            newest = {h.seed: r for h, r in fitting}  # a run made again, with other settings or code, counts once
            if newest:
                return [newest[seed] for seed in sorted(newest)], name
    return [], None


def _comparable(record: Record) -> bool:
    """The paper's sizes on the paper's data; `profile=paper profile.steps=1000` is not the paper's size."""
    profile = record.config["profile"]
    cut = any(profile.get(size) is not None for size in ("steps", "records", "samples"))
    return profile["name"] == "paper" and not cut and bool(record.provenance["data"].get("comparable", False))


def _value(record: Record, metric: str) -> float | None:
    value = record.metrics.get(metric)
    return float(value["mean"] if isinstance(value, dict) else value) if value is not None else None


def _runs(records: Sequence[Record], metric: str) -> int:
    """How many trainings a number is the mean of; of one run that drew its data several times, the draws."""
    values = [r.metrics.get(metric) for r in records]
    draws = [int(v["draws"]) for v in values if isinstance(v, dict) and "draws" in v]
    return max(len(values), *draws) if draws else len(values)


def _guarantee(records: Sequence[KeptRecord]) -> str | None:
    """What the weakest of the statements that promise an ε says of it; None if none promises one."""
    verdicts = {r.statement().verdict for r in records if r.privacy.get("budget") is not None}
    words = {"no": "not proved", "conditional": "conditional", "yes": "proved"}
    return next((words[verdict] for verdict in words if verdict in verdicts), None)


def _spread(records: Sequence[Record], values: list[float], metric: str) -> tuple[float | None, str | None]:
    """The standard deviation, and over what: seeds, or what one run did several times."""
    if len(values) > 1:
        return statistics.stdev(values), "seeds"
    value = records[0].metrics.get(metric) if records else None
    if not isinstance(value, dict) or value.get("std") is None:
        return None, None
    return value["std"], "draws" if "draws" in value else "passes"


def _metric_of(published: Table | None, column: Column) -> str:
    """What a cell measures: as printed in its column, else by the name of the metric in the record."""
    ours = "accuracy" if column.metric in ACCURACIES else "fid" if column.metric == "fid" else "value"
    printed = published.cells if published else ()
    return next((c.metric for c in printed if c.column == column.name), ours)
