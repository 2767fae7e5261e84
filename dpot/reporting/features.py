"""The picture of source and target features, before and after adaptation."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any


def feature_picture(content: Mapping[str, Any]) -> bytes:
    """Two panels as PNG: dots are source records, crosses target records, colours classes.

    content: title, kind, panels {"before": {"source": [[x, y], ...], "target": [...]}, "after": ...} and classes
    {"source": [...], "target": [...]}, as task=adapt keeps it in features.json.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.2), dpi=100)
    FigureCanvasAgg(figure)
    marks: dict[str, dict[str, Any]] = {
        "source": {"marker": "o", "s": 9, "alpha": 0.45},
        "target": {"marker": "x", "s": 14, "alpha": 0.9},
    }
    for place, (when, panel) in enumerate(content["panels"].items()):
        axes = figure.add_subplot(1, 2, place + 1)
        for side, mark in marks.items():
            points = panel[side]
            axes.scatter(
                [x for x, _ in points],
                [y for _, y in points],
                c=content["classes"][side],
                cmap="tab10",
                linewidths=0.9 if side == "target" else 0,
                label=side,
                **mark,
            )
        axes.set_title(f"{when} alignment")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.legend(loc="best", fontsize=8)
    figure.suptitle(f"{content['title']}: features, {content['kind'].upper()} (colours: classes)", fontsize=10)
    figure.tight_layout()
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()
