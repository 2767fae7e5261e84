"""`task=triangle_wad`: the figures of TriangleWad, each with its values, a table and a picture.

    dpot task=reproduce paper=triangle_wad figure=1      (or 3, 4, 5, 6)

Written to output_root/triangle_wad/ as JSON (values and where they come from), Markdown and PNG. Table 1 is a sheet of
runs of task=distance. What each figure shows is said in its title; docs/private_distances.md says what follows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from dpot import config
from dpot.config import CONF_DIR
from dpot.data.base import Dataset, Documents, facts
from dpot.errors import DataError, UsageError
from dpot.profiles import Profile
from dpot.record import provenance, write_atomically
from dpot.tasks.base import Answer, Task
from dpot.tasks.clouds import MOST_POINTS

SMALL = tuple(MOST_POINTS)


@dataclass(frozen=True)
class Context:
    """What a figure is made with."""

    cfg: DictConfig
    profile: Profile

    def data(self, name: str, demo: str | None = "digits") -> Any:
        """A data set by name; where it is missing, a small profile goes on with `demo`, which is never comparable."""
        try:
            return self._load(name)
        except DataError:
            if demo is None or self.profile.name not in SMALL:
                raise
            return self._load(demo)

    def _load(self, name: str) -> Any:
        node = OmegaConf.load(CONF_DIR / "dataset" / f"{name}.yaml")
        assert isinstance(node, DictConfig)
        return config.instantiate(node, "dataset").load(self.cfg.data_root)

    def size(self, wanted: int) -> int:
        """A number of points, cut to the profile."""
        return min(wanted, MOST_POINTS.get(self.profile.name, wanted))

    def few(self, wanted: int) -> int:
        """A number of repetitions: 2 in the smallest profile."""
        return min(wanted, 2) if self.profile.name == "smoke" else wanted


@dataclass(frozen=True)
class Figure:
    """What a figure function gives back: rows of a table, pictures by name, the data it used, a note."""

    title: str
    rows: list[dict[str, Any]]
    pictures: dict[str, bytes]
    data: list[Dataset | Documents]
    note: str
    extra: dict[str, Any]


def _figures() -> dict[str, Callable[[Context], Figure]]:
    from dpot.tasks.triangle_contribution import contribution
    from dpot.tasks.triangle_figures import accuracy_and_noise, attack_on_fed_wad, attack_on_triangle_wad
    from dpot.tasks.triangle_text import text_matching

    return {
        "1": attack_on_fed_wad,
        "3": attack_on_triangle_wad,
        "4": accuracy_and_noise,
        "5": contribution,
        "6": text_matching,
    }


class TriangleWadFigures(Task):
    """Make one figure."""

    def run(self, cfg: DictConfig) -> Answer:
        """The figure that figure= names."""
        known = _figures()
        if cfg.paper != "triangle_wad" or str(cfg.figure) not in known:
            raise UsageError(
                f"task=triangle_wad makes paper=triangle_wad figure={', '.join(known)}; table=1 is a sheet"
            )
        number = str(cfg.figure)
        figure = known[number](Context(cfg, config.instantiate(cfg.profile, "profile")))
        folder = Path(cfg.output_root) / "triangle_wad"
        names = {name: f"figure{number}{name and '_' + name}.png" for name in figure.pictures}
        for name, picture in figure.pictures.items():
            write_atomically(folder / names[name], picture)
        files = [*names.values(), f"figure{number}.md", f"figure{number}.json"]
        answer = {
            "paper": "triangle_wad",
            "figure": number,
            "title": figure.title,
            "comparable": cfg.profile.name == "paper" and all(d.comparable for d in figure.data),
            "rows": figure.rows,
            **figure.extra,
            "note": figure.note,
            "profile": cfg.profile.name,
            "provenance": provenance(cfg) | {"data": [facts(d) for d in figure.data]},
            "files": [str(folder / name) for name in files],
        }
        write_atomically(folder / f"figure{number}.md", markdown(figure, names))
        kept = answer | {"files": files}
        write_atomically(folder / f"figure{number}.json", json.dumps(kept, indent=1, allow_nan=False) + "\n")

        def show(console: Console) -> None:
            console.print(markdown(figure, names), highlight=False, markup=False)
            console.print(f"wrote {', '.join(answer['files'])}", highlight=False)

        return Answer(answer, show)


def markdown(figure: Figure, pictures: dict[str, str]) -> str:
    """The rows as a table, further tables, the note and the pictures."""
    lines = [f"# {figure.title}", "", *_table(figure.rows)]
    for name, value in figure.extra.items():
        if isinstance(value, list):
            lines += [f"## {name}", "", *_table(value)]
    lines += [figure.note, "", *[f"![{figure.title}]({name})" for name in pictures.values()]]
    notes = dict.fromkeys(f"Data: {d.name}{f' ({d.note})' if d.note else ''}." for d in figure.data)
    return "\n".join([*lines, "", *notes, ""])


def _table(rows: list[dict[str, Any]]) -> list[str]:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    return [*lines, *[f"| {' | '.join(_text(row.get(key)) for key in columns)} |" for row in rows], ""]


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, list):
        return ", ".join(_text(v) for v in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
