"""Keep finished runs for good: take the paper-profile records of a sheet into results/, with its tables.

    python scripts/keep_results.py outputs dp_swd table 2

Adds the record of every run of the sheet that is comparable with the paper to its records.jsonl, and copies samples and
pictures of features of the first seed. With --subsets runs on a part of the paper's data are kept, with --profile short
those of fewer steps; both stay marked as not comparable. A run that is kept already is left alone, unless --anew asks
for the new one in its place, in every sheet that the old one served. One that was kept for another sheet, or that
another sheet of the paper asks for in the same words, stays where it is and gets a note that it serves here too. Then
writes the comparison as Markdown, LaTeX, CSV and JSON, the picture of a figure, README.md and results/README.md anew.
Of a sheet that is computed as a whole, copies what was computed. DPOT_DATA tells a row that was not run from one that
cannot be, for want of data.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from dpot.disk import write_atomically
from dpot.record import Record
from dpot.reporting import compare, pictures, published, readme, sheets, store, tables
from dpot.reporting.gather import COMPUTED
from dpot.reporting.store import Home, KeptRecord
from dpot.tasks.compare import lacking

FEATURES = ("picture", "features")  # large, and much alike: of sheets with published numbers alone


def main() -> None:
    """Copy, then compare what is committed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output_root", type=Path)
    parser.add_argument("paper")
    parser.add_argument("kind", choices=["table", "figure"])
    parser.add_argument("name")
    parser.add_argument("--subsets", action="store_true", help="keep runs on a part of the paper's data too")
    parser.add_argument("--profile", default="paper", choices=["paper", "short"], help="keep short runs, as such")
    parser.add_argument("--anew", action="store_true", help="let new runs take the place of those kept for their cells")
    options = parser.parse_args()
    if not os.environ.get("DPOT_DATA"):
        parser.error("set DPOT_DATA: without it every row that was not run would be said to lack its data")
    sheet = sheets.load(options.paper, options.name, options.kind)

    def is_wanted(record: Record) -> bool:
        comparable = options.subsets or record.provenance["data"]["comparable"]
        return bool(comparable and record.config["profile"]["name"] == options.profile)

    if not sheet.columns:
        computed = options.output_root / COMPUTED / sheet.paper / sheet.folder
        if not (computed / f"{COMPUTED}.json").exists():
            parser.error(f"{computed} has nothing that was computed")
        keep_computed(computed, store.folder_of(sheet))
    elif not (options.output_root / "runs").is_dir():
        parser.error(f"{options.output_root} has no runs")
    else:
        served = keep_runs(sheet, options.output_root, is_wanted, options.anew)
        for other in [sheet, *(one for one in sheets.all_sheets() if (one.paper, one.kind, one.name) in served)]:
            write_comparison(other)
    readme.update()


def keep_computed(source: Path, target: Path) -> None:
    """Copy the files of a table or figure that was computed, in place of those of an earlier time."""
    for old in target.glob(f"{COMPUTED}*"):
        old.unlink()
    for file in sorted(source.glob(f"{COMPUTED}*")):
        write_atomically(target / file.name, file.read_bytes())
        print(f"kept: {file.name}")


def keep_runs(
    sheet: sheets.Sheet, output_root: Path, is_wanted: Callable[[Record], bool], anew: bool = False
) -> set[tuple[str, str, str]]:
    """Add the runs of a sheet that are not kept yet, or, `anew`, put them in the place of those that are.

    Returns the other sheets that the replaced runs served.
    """
    others: set[tuple[str, str, str]] = set()
    folder = store.folder_of(sheet)
    kept = {path: store.read(path, strict=True) for path in {*store.files(), folder / store.RECORDS}}
    committed = [record for found in kept.values() for record in found]
    served = {_cell(home) for home, record in compare.records_of(sheet, committed) if is_wanted(record)}
    changed = {folder / store.RECORDS}
    finished = compare.records_of(sheet, store.records(output_root, committed=False))
    known = {store.identity(record): record for record in committed}
    copies = [(home, known[store.identity(run)]) for home, run in finished if store.identity(run) in known]
    for home, record in [*copies, *of_other_sheets(sheet, committed)]:
        if is_wanted(record) and _cell(home) not in served:
            record.homes.append(home)
            changed.add(record.directory / store.RECORDS)
            served.add(_cell(home))
            print(f"serves here too: {record.homes[0].row}, seed {home.seed}, of {record.directory.name}")
    for home, run in finished:
        if not is_wanted(run):
            continue
        homes = [home]
        if anew and store.identity(run) not in known:
            for path, found in kept.items():
                old = [record for record in found if home in record.homes and is_wanted(record)]
                homes += [other for record in old for other in record.homes if other not in homes]
                others |= {other.sheet for other in homes} - {home.sheet}
                kept[path] = [record for record in found if record not in old]
                changed |= {path} if old else set()
            served.discard(_cell(home))
        name = store.file_name(sheet, home, run.config["profile"]["name"])
        if _cell(home) in served:
            print(f"kept already: {name}")
            continue
        record = replace(run, homes=homes, directory=folder, files=_copied(sheet, home, run, name))
        kept[folder / store.RECORDS].append(record)
        served.add(_cell(home))
        print(f"kept: {name}")
    for path in sorted(changed):
        if kept[path] or path.exists():
            store.write(path, kept[path])
    return others


def _copied(sheet: sheets.Sheet, home: Home, run: KeptRecord, name: str) -> dict[str, str]:
    """Copy the pictures of a first seed; what they are and where they lie."""
    printed = sheet.kind == "table" and sheet.name in published.tables(sheet.paper)
    wanted = ("samples", *(FEATURES if printed else ())) if home.seed == 0 else ()
    files = {}
    for what in wanted:
        source = run.directory / run.files.get(what, "")
        if source.is_file():
            files[what] = f"pictures/{name}{source.suffix}"
            target = store.folder_of(sheet) / files[what]
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    return files


def write_comparison(sheet: sheets.Sheet) -> None:
    """The comparison, and the picture of a figure, from what is committed."""
    folder, records = store.folder_of(sheet), store.records(None)
    printed = published.tables(sheet.paper).get(sheet.name) if sheet.kind == "table" else None
    cells = compare.compare(sheet, printed, records, None)  # of the largest profile there is
    absent = lacking(sheet, OmegaConf.create({"data_root": os.environ["DPOT_DATA"]}))
    cells = [replace(c, verdict="needs data") if c.row in absent and c.ours is None else c for c in cells]
    tables.write(folder, "comparison", sheet, cells)
    if sheet.picture:
        write_atomically(folder / "figure.png", pictures.draw(sheet, kept_panels(sheet, records)))


def _cell(home: Home) -> tuple[Any, ...]:
    """Which row, columns and seed a run is of."""
    return home.row, home.columns, home.seed


def of_other_sheets(sheet: sheets.Sheet, records: Sequence[KeptRecord]) -> Iterator[tuple[Home, KeptRecord]]:
    """Runs kept for another sheet of the paper that this one asks for in the same words, and what they are here."""
    wanted = {(frozenset(run.overrides), run.seed): run for run in sheet.runs()}
    for other in sheets.all_sheets():
        if other.paper != sheet.paper or (other.kind, other.name) == (sheet.kind, sheet.name):
            continue
        known = {_cell(store.home_of(other, run.row, run.group, run.seed)): run for run in other.runs()}
        for home, record in compare.records_of(other, records):
            there = known.get(_cell(home))
            here = there and wanted.get((frozenset(there.overrides), there.seed))
            if here:
                yield store.home_of(sheet, here.row, here.group, here.seed, home.demo), record


def kept_panels(sheet: sheets.Sheet, records: Sequence[KeptRecord]) -> list[pictures.Panel]:
    """The kept runs of a figure, in the order of the sheet's rows; of samples the first seed's."""
    rows = list(sheet.rows)
    found = compare.records_of(sheet, records)
    shown = [(home, record) for home, record in found if sheet.picture != "samples" or home.seed == 0]
    panels = [pictures.Panel(home, record.directory, record) for home, record in shown]
    return sorted(panels, key=lambda panel: rows.index(panel.row))


if __name__ == "__main__":
    main()
