"""What was released of a data set beside what is drawn from it: post-processing of the release, which costs nothing.

comparisons(release, coding, classes, records, labels)      # for each column, or along a line for each class
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dpot.data.coding import Category, Coding, Number, TableCoding, written
from dpot.methods.sketch.file import Release
from dpot.methods.sketch.table_file import TableRelease
from dpot.reporting.charts import Comparison, short

MOST_PLACES = 20  # bars of a plot; finer cells are added up
MOST_PLOTS = 60
MOST_CLASSES = 20  # whose lines are shown


def comparisons(
    release: Release | TableRelease, coding: Coding, classes: Sequence[Any], records: Tensor, labels: Tensor
) -> list[Comparison]:
    """Released counts with the deviation of their noise, and the counts of these synthetic records, scaled alike."""
    scale = release.records / len(records)
    names = [str(name) for name in classes] or ["all"]
    found = []
    if release.classes > 1:
        drawn = torch.bincount(labels, minlength=release.classes) * scale
        deviation = [release.deviation] * release.classes
        found.append(Comparison("Class sizes", names, release.counts.tolist(), deviation, drawn.tolist()))
    if isinstance(release, TableRelease):
        assert isinstance(coding, TableCoding)
        return found + _columns(release, coding, records, scale)
    return found + _lines(release, names, records, labels, scale)


def _columns(release: TableRelease, coding: TableCoding, records: Tensor, scale: float) -> list[Comparison]:
    found: list[Comparison] = []
    at, own = 0, release.marginals
    columns: list[Number | Category] = [*coding.numbers, *coding.categories]
    flat = records.flatten(1).cpu()
    for column, told in zip(release.columns, columns, strict=True):
        noisy = own.cells[at : at + column.values].double().cpu()
        drawn = torch.bincount(column.cells_of(flat), minlength=column.values).double() * scale
        at += column.values
        if len(found) == MOST_PLOTS:
            continue
        ordered = column.cells if column.is_number else column.values
        group = -(-ordered // MOST_PLACES) if column.is_number else 1
        parts = [range(start, min(start + group, ordered)) for start in range(0, ordered, group)]
        parts += [range(ordered, column.values)] if column.values > ordered else []
        if not column.is_number:  # the largest, as released
            parts = sorted(parts, key=lambda part: -float(noisy[part[0]]))[:MOST_PLACES]
        found.append(
            Comparison(
                told.name,
                [_place(told, part, column.cells, column.whole) for part in parts],
                [float(noisy[list(part)].sum()) for part in parts],
                [own.cell_deviation * math.sqrt(len(part)) for part in parts],
                [float(drawn[list(part)].sum()) for part in parts],
            )
        )
    return found


def _place(column: Number | Category, part: range, cells: int, whole: bool) -> str:
    """The name of a bar."""
    if isinstance(column, Category):
        value = column.choices[part[0]]
        return "missing" if value is None else str(value)
    if part[0] >= cells:
        return "missing"
    share = part[0] / (cells - 1) if whole else max(0, part[0] - 1) / (cells - 2)
    value = column.lower + share * (column.upper - column.lower)
    return short(value) if column.dtype in ("float64", "int64", "bool") else written(column, value)


def _lines(release: Release, names: Sequence[str], records: Tensor, labels: Tensor, scale: float) -> list[Comparison]:
    """Each class along the first line that it was released on."""
    first = release.rounds[0]
    layout = first.layout
    counts = torch.zeros(release.classes, layout.bins, dtype=torch.int64, device=records.device)
    layout.count(counts, first.record_map.exactly(records.flatten(1)), labels)
    noise = release.deviation * layout.pieces / math.sqrt(layout.bins)  # the inverse of Plan.count_deviation
    places = [f"{knot - (layout.knots - 1) / 2:+.3g}" for knot in range(layout.knots)]
    return [
        Comparison(
            f"{name}: along the first line",
            places,
            (first.noisy[index, : layout.knots].double() / layout.unit).tolist(),
            [noise] * layout.knots,
            (counts[index, : layout.knots].double() / layout.unit * scale).tolist(),
        )
        for index, name in enumerate(names[:MOST_CLASSES])
    ]
