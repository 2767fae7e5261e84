"""Figures put together from records: sample grids side by side, and curves of a metric."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from dpot.record import Record
from dpot.reporting.sheets import Column, Sheet
from dpot.reporting.store import Home

MOST_BESIDE = 4  # curves of a line of the picture


@dataclass(frozen=True)
class Panel:
    """A run of a figure: the cells it fills, where its files lie and what it found."""

    home: Home
    directory: Path
    record: Record

    @property
    def row(self) -> str:
        """The row it is of."""
        return self.home.row

    @property
    def data(self) -> str:
        """The data set it ran on."""
        return str(self.record.provenance["data"]["name"])


def draw(sheet: Sheet, panels: Sequence[Panel]) -> bytes:
    """The sheet's picture as PNG, by its kind."""
    return gallery(sheet.title, panels) if sheet.picture == "samples" else curves(sheet, panels)


def gallery(title: str, panels: Sequence[Panel]) -> bytes:
    """The grids of samples: a column per row of the sheet, a line per data set."""
    from matplotlib.figure import Figure
    from PIL import Image

    rows = list(dict.fromkeys(p.row for p in panels))
    data = list(dict.fromkeys(p.data for p in panels))
    figure = Figure(figsize=(3.2 * len(rows), 3.4 * len(data) + 0.3), layout="constrained")
    axes = figure.subplots(len(data), len(rows), squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for panel in panels:
        axis = axes[data.index(panel.data)][rows.index(panel.row)]
        with Image.open(panel.directory / panel.record.files["samples"]) as image:
            axis.imshow(image)
        axis.set_title(f"{panel.row}\n{panel.data}, {_size(panel.record)}", fontsize=8)
    figure.suptitle(title, fontsize=9)
    return _png(figure)


def curves(sheet: Sheet, panels: Sequence[Panel]) -> bytes:
    """Each metric over an axis: the last word of a row is its place there, the words before it name the curve.

    Means of the seeds, with bars of one standard deviation.
    """
    from matplotlib.figure import Figure

    def shown(column: Column) -> bool:
        return any(column.name in p.home.columns and _value(p.record, column.metric) is not None for p in panels)

    columns = [c for c in sheet.columns if shown(c)]
    lines = -(-len(columns) // MOST_BESIDE) or 1
    beside = -(-len(columns) // lines) or 1
    figure = Figure(figsize=(4.2 * beside, 3.4 * lines), layout="constrained")
    axes = figure.subplots(lines, beside, squeeze=False).flat
    for axis, column in zip(axes, columns, strict=False):
        mine = [p for p in panels if column.name in p.home.columns]
        ticks: set[float] = set()
        for name in dict.fromkeys(p.row.rpartition(" ")[0] for p in mine):
            points: dict[float, list[float]] = {}
            for panel in mine:
                curve, _, place = panel.row.rpartition(" ")
                value = _value(panel.record, column.metric)
                if curve == name and value is not None:
                    points.setdefault(float(place), []).append(value)
            places = sorted(points)
            spread = [stdev(points[x]) if len(points[x]) > 1 else 0.0 for x in places]
            means = [fmean(points[x]) for x in places]
            axis.errorbar(places, means, yerr=spread, marker="o", capsize=3, alpha=0.8, label=name)
            ticks |= set(places)
        axis.set_xscale("log")
        axis.set_xticks(sorted(ticks), [f"{x:g}" for x in sorted(ticks)])
        axis.minorticks_off()
        axis.set_xlabel(sheet.axis or "")
        axis.set_ylabel(column.name)
        sizes = sorted({_size(p.record) for p in mine}, key=lambda size: (len(size), size))
        axis.set_title(" or ".join(sizes) if len(sizes) < 3 else f"{sizes[0]} to {sizes[-1]}", fontsize=8)
        axis.legend(fontsize=7)
    for axis in axes:  # of places that no column takes
        axis.set_axis_off()
    figure.suptitle(sheet.title, fontsize=9)
    return _png(figure)


def _size(record: Record) -> str:
    """How long the run was, so that a short one is not taken for the paper's."""
    steps = record.metrics.get("training", {}).get("steps")
    return f"{steps:,} steps" if steps else "no training"


def _value(record: Record, metric: str) -> float | None:
    value = record.metrics.get(metric)
    return float(value["mean"] if isinstance(value, dict) else value) if value is not None else None


def _png(figure: object) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=130)  # type: ignore[attr-defined]
    return out.getvalue()
