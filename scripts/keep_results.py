"""Keep finished runs for good: copy the paper-profile records of a sheet into results/reproduced/, with its tables.

    python scripts/keep_results.py outputs dp_swd table 2

Copies the record and the cell note of every run of the sheet that is comparable with the paper, and samples, pictures
of features and statement pages of the first seed. With --subsets runs on a part of the paper's data are kept too, with
--profile short those of fewer steps; both stay marked as not comparable. Then writes the comparison as Markdown, LaTeX,
CSV and JSON beside them, the picture of a figure, and the numbers of README.md anew. A run that is kept already is left
alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

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
    sheet = sheets.load(options.paper, options.name, options.kind)
    folder = store.REPRODUCED / sheet.paper / f"{sheet.kind}_{sheet.name}"
    printed = published.tables(sheet.paper).get(sheet.name) if sheet.kind == "table" else None
    for note in sorted((options.output_root / "runs").glob("*/cell-*.json")):
        home, run = json.loads(note.read_text()), note.parent
        record = Record.load(run)
        is_paper = record.config["profile"]["name"] == options.profile and (
            options.subsets or record.provenance["data"]["comparable"]
        )
        if (home["paper"], home["kind"], home["name"]) != (sheet.paper, sheet.kind, sheet.name) or not is_paper:
            continue
        short = [options.profile] if options.profile != "paper" else []
        words = "-".join([home["row"], *home["group"], f"s{home['seed']}", *short])
        target = folder / re.sub(r"[^A-Za-z0-9.-]+", "_", words.replace("dataset=", ""))
        if (target / RECORD).exists():
            print(f"kept already: {target.name}")
            continue
        target.mkdir(parents=True, exist_ok=True)
        for name in (*PAGES, *(FEATURES if printed else ())) if home["seed"] == 0 else ():
            if (run / name).exists():
                shutil.copyfile(run / name, target / name)
        shutil.copyfile(note, target / note.name)
        shutil.copyfile(run / RECORD, target / RECORD)  # last, as a run does
        print(f"kept: {target.name}")
    nowhere = folder / "no-other-runs"  # only what is committed counts
    cells = compare.compare(sheet, printed, store.records(nowhere), None)  # of the largest profile there is
    absent = lacking(sheet, OmegaConf.create({"data_root": os.environ.get("DPOT_DATA")}))
    cells = [replace(c, verdict="needs data") if c.row in absent and c.ours is None else c for c in cells]
    write_atomically(folder / "comparison.md", tables.markdown(sheet, cells))
    write_atomically(folder / "comparison.tex", tables.latex(sheet, cells))
    write_atomically(folder / "comparison.csv", tables.comma_separated(cells))
    write_atomically(folder / "comparison.json", json.dumps(compare.as_answer(sheet, cells), indent=1) + "\n")
    if sheet.picture:
        write_atomically(folder / f"{sheet.kind}_{sheet.name}.png", pictures.draw(sheet, kept_panels(sheet, folder)))
    readme.update()


def kept_panels(sheet: sheets.Sheet, folder: Path) -> list[pictures.Panel]:
    """The kept runs of a figure, in the order of the sheet's rows; of samples the first seed's."""
    panels, rows = [], list(sheet.rows)
    for note in sorted(folder.glob("*/cell-*.json")):
        home, record = json.loads(note.read_text()), Record.load(note.parent)
        if sheet.picture != "samples" or home["seed"] == 0:
            panels.append(pictures.Panel(home["row"], tuple(home["group"]), note.parent, record))
    return sorted(panels, key=lambda panel: rows.index(panel.row))


if __name__ == "__main__":
    main()
