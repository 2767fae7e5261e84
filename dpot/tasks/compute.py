"""`task=compute`: a table or figure that is computed, not trained; its sheet names the function.

    dpot task=compute paper=dp_swd figure=1 task.options={draws:2000}

task=reproduce and task=compare come here for such sheets. What is found is written to
output_root/computed/PAPER/KIND_NAME/ as computed.json (numbers and where they come from), computed.md and computed.png.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dpot import config
from dpot.data.base import facts
from dpot.disk import write_atomically
from dpot.errors import UsageError
from dpot.papers.computed import Computed, Context
from dpot.record import provenance
from dpot.reporting import sheets
from dpot.tasks.base import Answer, Task


class Compute(Task):
    """Compute the table (paper=, table=) or figure (figure=), with options of its function where they are given."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.options = options or {}

    def run(self, cfg: DictConfig) -> Answer:
        """Find the sheet, compute, write."""
        return computed(chosen_sheet(cfg), cfg, self.options)


def chosen_sheet(cfg: DictConfig) -> sheets.Sheet:
    """The sheet that paper= and table= (or figure=) name."""
    if cfg.paper is None or (cfg.table is None and cfg.figure is None):
        raise sheets.unknown_sheet("say which table or figure:", cfg.paper)
    if cfg.table is not None:
        return sheets.load(cfg.paper, cfg.table, "table")
    return sheets.load(cfg.paper, cfg.figure, "figure")


def computed(sheet: sheets.Sheet, cfg: DictConfig, options: Mapping[str, Any] | None = None) -> Answer:
    """Compute a sheet as a whole, write its files and answer with its numbers."""
    context = Context(
        profile=config.instantiate(cfg.profile, "profile"),
        seed=int(cfg.seed),
        device=str(cfg.device),
        data_root=cfg.data_root,
        output_root=cfg.output_root,
    )
    found = _call(sheet, options or {}, context)
    folder = Path(cfg.output_root) / "computed" / sheet.paper / f"{sheet.kind}_{sheet.name}"
    pictures = {f"computed{end and '_' + end}.png": png for end, png in found.pictures.items()}
    text = _markdown(found, list(pictures))
    files: dict[str, str | bytes] = pictures | ({"computed.md": text} if text else {})
    origin = provenance(cfg)
    data: dict[str, Any] = {
        "paper": sheet.paper,
        sheet.kind: int(sheet.name) if sheet.name.isdigit() else sheet.name,
        "title": sheet.title,
        **found.numbers,
    }
    if found.data:
        whole = context.profile.name == "paper" and all(d.comparable for d in found.data)
        data |= {"profile": context.profile.name, "comparable": whole}
        origin["data"] = [facts(d) for d in found.data]
    data |= {"provenance": origin, "files": [*files, "computed.json"]}
    files["computed.json"] = json.dumps(data, indent=1, allow_nan=False) + "\n"
    for name, content in files.items():
        write_atomically(folder / name, content)
    written = [str(folder / name) for name in files]
    return Answer(data | {"files": written}, lambda console: _show(console, found, written))


def _call(sheet: sheets.Sheet, options: Mapping[str, Any], context: Context) -> Computed:
    """What the sheet's function returns; it must be one of dpot.papers, and its options must fit its signature."""
    name = f"{sheet.paper} {sheet.kind} {sheet.name}"
    if sheet.compute is None:
        raise UsageError(f"{name} is made of training runs: task=reproduce makes them")
    if not sheet.compute.startswith("dpot.papers."):
        raise UsageError(
            f"{name}: compute: {sheet.compute} is refused: a sheet may name functions of dpot.papers alone"
        )
    node = OmegaConf.create({"_target_": sheet.compute, **sheet.options, **options})
    config.check_arguments(node, config.locate(sheet.compute, name), "task.options")
    found = config.instantiate(node, name, context=context)
    if not isinstance(found, Computed):
        raise UsageError(f"{name}: compute={sheet.compute} computes no table or figure")
    return found


def _markdown(found: Computed, pictures: list[str]) -> str:
    """Tables, pictures, and the data behind them; nothing where there is no table."""
    if not found.tables:
        return ""
    shown = [f"![{found.tables[0].title}]({name})\n" for name in pictures]
    data = dict.fromkeys(f"Data: {d.name}{f' ({d.note})' if d.note else ''}.\n" for d in found.data)
    parts = [*(table.markdown() for table in found.tables), "".join(shown), "".join(data)]
    return "\n".join(part for part in parts if part)


def _show(console: Console, found: Computed, written: list[str]) -> None:
    for table in found.tables:
        head, *body = table.lines()
        shown = Table(*map(escape, head), title=table.title, box=box.SIMPLE, padding=0)
        for line in body:
            shown.add_row(*map(escape, line))
        console.print(shown)
        if table.note:
            console.print(table.note, highlight=False, markup=False)
    console.print(f"wrote {' and '.join(written)}", highlight=False)
