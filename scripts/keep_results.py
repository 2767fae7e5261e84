"""Keep finished runs for good: copy the paper-profile records of a sheet into results/reproduced/, with its tables.

    python scripts/keep_results.py outputs dp_swd table 2

Copies the record and the cell note of every run of the sheet that is comparable with the paper, and samples, pictures
of features and statement pages of the first seed. With --subsets runs on a part of the paper's data are kept, with
--profile short those of fewer steps; both stay marked as not comparable. A run that is kept already is left alone; one
that another sheet of the paper asks for in the same words stays where it is and gets a note that it serves here too.
Then writes the comparison as Markdown, LaTeX, CSV and JSON, the picture of a figure, and the numbers of README.md anew.
DPOT_DATA tells a row that was not run from one that cannot be, for want of data.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from dpot.record import RECORD, Record, write_atomically
from dpot.reporting import compare, pictures, published, readme, sheets, store, tables
from dpot.tasks.compare import lacking

# of the first seed; all they say stands in every record
PAGES = ("samples.png", "privacy.md", "privacy.html")
FEATURES = ("features.png", "features.json")  # large, and much alike: of sheets with published numbers alone


def main() -> None:
    """Copy, then compare what is committed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output_root", type=Path)
    parser.add_argument("paper")
    parser.add_argument("kind", choices=["table", "figure"])
    parser.add_argument("name")
    parser.add_argument("--subsets", action="store_true", help="keep runs on a part of the paper's data too")
    parser.add_argument("--profile", default="paper", choices=["paper", "short"], help="keep short runs, as such")
    options = parser.parse_args()
    if not os.environ.get("DPOT_DATA"):
        parser.error("set DPOT_DATA: without it every row that was not run would be said to lack its data")
    sheet = sheets.load(options.paper, options.name, options.kind)
    if sheet.compute:
        parser.error(f"{sheet.compute} computes this sheet as a whole: copy its files to {store.REPRODUCED}")
    if not (options.output_root / "runs").is_dir():
        parser.error(f"{options.output_root} has no runs")
    folder = store.REPRODUCED / sheet.paper / f"{sheet.kind}_{sheet.name}"
    printed = published.tables(sheet.paper).get(sheet.name) if sheet.kind == "table" else None
    nowhere = folder / "no-other-runs"  # only what is committed counts

    def is_wanted(record: Record) -> bool:
        comparable = options.subsets or record.provenance["data"]["comparable"]
        return bool(comparable and record.config["profile"]["name"] == options.profile)

    committed = store.records(nowhere)
    served = {_cell(home) for home, record in compare.records_of(sheet, committed) if is_wanted(record)}
    for home, record in of_other_sheets(sheet, committed):
        if is_wanted(record) and _cell(home) not in served:
            store.claim(record.provenance["directory"], home)
            served.add(_cell(home))
            print(f"serves here too: {record.provenance['directory'].relative_to(store.REPRODUCED)}")
    for home, run in finished(options.output_root, sheet):
        if not is_wanted(Record.load(run)):
            continue
        short = [options.profile] if options.profile != "paper" else []
        words = "-".join([home["row"], *home["group"], f"s{home['seed']}", *short])
        target = folder / re.sub(r"[^A-Za-z0-9.-]+", "_", words.replace("dataset=", ""))
        if _cell(home) in served or (target / RECORD).exists():
            print(f"kept already: {target.name}")
            continue
        target.mkdir(parents=True, exist_ok=True)
        for name in (*PAGES, *(FEATURES if printed else ())) if home["seed"] == 0 else ():
            if (run / name).exists():
                shutil.copyfile(run / name, target / name)
        store.claim(target, home)
        shutil.copyfile(run / RECORD, target / RECORD)  # last, as a run does
        print(f"kept: {target.name}")
    cells = compare.compare(sheet, printed, store.records(nowhere), None)  # of the largest profile there is
    absent = lacking(sheet, OmegaConf.create({"data_root": os.environ["DPOT_DATA"]}))
    cells = [replace(c, verdict="needs data") if c.row in absent and c.ours is None else c for c in cells]
    write_atomically(folder / "comparison.md", tables.markdown(sheet, cells))
    write_atomically(folder / "comparison.tex", tables.latex(sheet, cells))
    write_atomically(folder / "comparison.csv", tables.comma_separated(cells))
    write_atomically(folder / "comparison.json", json.dumps(compare.as_answer(sheet, cells), indent=1) + "\n")
    if sheet.picture:
        write_atomically(folder / f"{sheet.kind}_{sheet.name}.png", pictures.draw(sheet, kept_panels(sheet, nowhere)))
    readme.update()


def _cell(home: dict[str, Any]) -> tuple[Any, ...]:
    """Which row, columns and seed a run is of."""
    return home["row"], *home["group"], home["seed"]


def finished(output_root: Path, sheet: sheets.Sheet) -> Iterator[tuple[dict[str, Any], Path]]:
    """The runs of the sheet in a folder of runs: which cell and seed each is, and where it lies."""
    for note in sorted((output_root / "runs").glob("*/cell-*.json")):
        home = json.loads(note.read_text())
        mine = (home["paper"], home["kind"], home["name"]) == (sheet.paper, sheet.kind, sheet.name)
        if mine and (note.parent / RECORD).exists():  # a run that is not finished has a note and no record
            yield home, note.parent


def of_other_sheets(sheet: sheets.Sheet, records: Sequence[Record]) -> Iterator[tuple[dict[str, Any], Record]]:
    """Runs kept for another sheet of the paper that this one asks for in the same words, and what they are here."""
    wanted = {(frozenset(run.overrides), run.seed): run for run in sheet.runs()}
    for other in sheets.all_sheets():
        if other.paper != sheet.paper or (other.kind, other.name) == (sheet.kind, sheet.name):
            continue
        known = {(run.row, run.group, run.seed): run for run in other.runs()}
        for home, record in compare.records_of(other, records):
            there = known.get((home["row"], tuple(home["group"]), home["seed"]))
            here = there and wanted.get((frozenset(there.overrides), there.seed))
            if here:
                own = {"kind": sheet.kind, "name": sheet.name, "row": here.row, "group": list(here.group)}
                yield home | own, record


def kept_panels(sheet: sheets.Sheet, nowhere: Path) -> list[pictures.Panel]:
    """The kept runs of a figure, in the order of the sheet's rows; of samples the first seed's."""
    panels, rows = [], list(sheet.rows)
    for home, record in compare.records_of(sheet, store.records(nowhere)):
        if sheet.picture != "samples" or home["seed"] == 0:
            panels.append(pictures.Panel(home["row"], tuple(home["group"]), record.provenance["directory"], record))
    return sorted(panels, key=lambda panel: rows.index(panel.row))


if __name__ == "__main__":
    main()
