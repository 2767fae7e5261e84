"""A picture of a synthetic table: a panel per column, classes in colours. Only synthetic records are in it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

MOST_PANELS, MOST_VALUES, BARS, ACROSS = 40, 12, 30, 4


def column_picture(frame: pd.DataFrame, labels: np.ndarray | None = None) -> bytes:
    """PNG: histograms of numbers and times, bars for the most frequent values of categories, a bar for gaps."""
    import pandas as pd
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = list(frame.columns[:MOST_PANELS])
    rows = -(-len(shown) // ACROSS)
    figure = Figure(figsize=(3 * ACROSS, 2.2 * rows + 0.6), dpi=80)
    FigureCanvasAgg(figure)
    names = [None] if labels is None else list(np.unique(labels))
    groups = [frame if name is None else frame[labels == name] for name in names]
    for place, name in enumerate(shown):
        axes, values = figure.add_subplot(rows, ACROSS, place + 1), frame[name]
        if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):
            held = values.dropna().to_numpy(np.float64)
            if len(held):
                edges = np.histogram_bin_edges(held, min(BARS, len(np.unique(held))))
                parts = [group[name].dropna().to_numpy(np.float64) for group in groups]
                axes.hist(parts, edges.tolist(), stacked=True)
        else:
            words = values.astype(object).where(values.notna(), "missing").astype(str)
            common = words.value_counts().index[:MOST_VALUES]
            below = np.zeros(len(common))
            for group in groups:
                heights = [int((words[group.index] == word).sum()) for word in common]
                axes.bar(range(len(common)), heights, bottom=below)
                below = below + heights
            axes.set_xticks(range(len(common)), [word[:12] for word in common], rotation=60, fontsize=6)
        axes.set_title(str(name)[:30], fontsize=8)
        axes.tick_params(labelsize=6)
    left = f", the first {len(shown)} of {len(frame.columns)} columns" if len(shown) < len(frame.columns) else ""
    classes = "" if labels is None else "; colours: " + ", ".join(str(name)[:20] for name in names[:10])
    figure.suptitle(f"{len(frame)} synthetic records{left}{classes}", fontsize=9)
    figure.tight_layout()
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()
