"""`task=compare`: what is on record beside what was published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from dpot import config
from dpot.reporting import compare, published, sheets, store, tables
from dpot.tasks.base import Answer, Task
from dpot.tasks.compute import chosen_sheet, computed


class Compare(Task):
    """Compare one sheet with the paper's table."""

    def __init__(
        self,
        profile: Literal["paper", "short", "quick", "smoke"] | None = None,
        fail_on: Literal["outside"] | None = None,
        export: str | None = None,
    ) -> None:
        self.profile, self.fail_on, self.export = profile, fail_on, export

    def run(self, cfg: DictConfig) -> Answer:
        """Find the sheet, its records and the published table; answer with every cell."""
        sheet = chosen_sheet(cfg)
        if sheet.compute:
            whole = computed(sheet, cfg)
            found = [cell["verdict"] for cell in whole.data.get("cells", ())]
            return replace(whole, exit_code=int(self.fail_on in found))
        cells = compared(sheet, cfg, self.profile)
        if self.export:
            tables.write(Path(self.export), f"{sheet.paper}_{sheet.folder}", sheet, cells)
        failed = self.fail_on is not None and any(c.verdict == self.fail_on for c in cells)

        def show(console: Console) -> None:
            console.print(tables.Terminal(sheet, cells))
            for line in tables.legend(cells, sheet):
                console.print(line, highlight=False)

        return Answer(compare.as_answer(sheet, cells), show, exit_code=int(failed))


def compared(
    sheet: sheets.Sheet, cfg: DictConfig, profile: str | None, committed: bool = True
) -> list[compare.ComparedCell]:
    """The cells of a sheet from the records at hand (without the committed ones: from this machine's runs alone)."""
    printed = published.tables(sheet.paper).get(sheet.name) if sheet.kind == "table" else None
    cells = compare.compare(sheet, printed, store.records(cfg.output_root, committed), profile)
    absent = lacking(sheet, cfg)
    return [replace(c, verdict="needs data") if c.row in absent and c.ours is None else c for c in cells]


def lacking(sheet: sheets.Sheet, cfg: DictConfig) -> dict[str, str]:
    """The rows whose own data set is not at hand, with what to put where."""
    found = {}
    for row, overrides in sheet.rows.items():
        for name in (o.partition("=")[2] for o in overrides or () if o.startswith("dataset=")):
            node = OmegaConf.load(config.CONF_DIR / "dataset" / f"{name}.yaml")
            status = config.instantiate(cast(DictConfig, node), "dataset").status(cfg.data_root)
            if not status.present:
                found[row] = f"{name} is not at hand: {status.place}"
    return found
