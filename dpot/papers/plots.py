"""Plots as PNG: strips of images, lines and bars, and what a plot of one's own begins and ends with."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Line = tuple[Sequence[float], Sequence[float]]


def blank(width: float, height: float) -> Any:
    """An empty figure, in inches; no display is opened."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def png(figure: Any) -> bytes:
    """The figure as PNG, without the version of the library that drew it."""
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=120, metadata={"Software": None})
    return out.getvalue()


def strips(rows: Sequence[tuple[str, Tensor]], shape: Sequence[int], title: str, count: int = 8) -> bytes:
    """One line of images per row, with its name; images are flat rows of values, cut to [-1, 1]."""
    figure = blank(1.0 * count + 2.6, 1.02 * len(rows) + 0.5)
    axes = figure.subplots(len(rows), count, squeeze=False)
    for line, (name, images) in zip(axes, rows, strict=True):
        for axis in line:
            axis.set_xticks([])
            axis.set_yticks([])
            axis.set_frame_on(False)
        for axis, image in zip(line, images[:count], strict=False):
            picture = ((image.reshape(*shape).clamp(-1, 1) + 1) / 2).permute(1, 2, 0).numpy()
            axis.imshow(picture, cmap="gray", vmin=0, vmax=1)
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    figure.suptitle(title, fontsize=9)
    return png(figure)


def lines(panels: Sequence[tuple[str, str, str, Mapping[str, Line], str]], title: str) -> bytes:
    """Panels side by side: (title, x name, y name, lines by name, log axes as "", "x", "y" or "xy")."""
    figure = blank(4.4 * len(panels), 3.5)
    for axis, (head, x, y, series, logs) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for name, (places, values) in series.items():
            axis.plot(places, values, marker="o", markersize=3, linewidth=1.2, label=name)
        _label(axis, head, x, y)
        if "x" in logs:
            axis.set_xscale("log")
        if "y" in logs:
            axis.set_yscale("log")
    figure.suptitle(title, fontsize=9)
    return png(figure)


def bars(panels: Sequence[tuple[str, Mapping[str, Sequence[float]]]], groups: Sequence[str], title: str) -> bytes:
    """Panels one below the other, each with bars by group for every series."""
    figure = blank(8.4, 2.3 * len(panels) + 0.4)
    for axis, (head, series) in zip(figure.subplots(len(panels), 1, squeeze=False)[:, 0], panels, strict=True):
        width = 0.8 / len(series)
        for number, (name, values) in enumerate(series.items()):
            places = [i + (number - (len(series) - 1) / 2) * width for i in range(len(groups))]
            axis.bar(places, values, width, label=name)
        axis.set_xticks(range(len(groups)), groups, fontsize=7)
        _label(axis, head, "", "")
    figure.suptitle(title, fontsize=9)
    return png(figure)


def _label(axis: Any, head: str, x: str, y: str) -> None:
    axis.set_title(head, fontsize=8)
    axis.set_xlabel(x, fontsize=8)
    axis.set_ylabel(y, fontsize=8)
    axis.tick_params(labelsize=7)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=6, ncols=2)
