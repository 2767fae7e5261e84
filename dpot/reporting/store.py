"""Where records are found again: the runs of this machine, and those committed under results/.

A committed record is a line of results/PAPER/KIND_NAME/records.jsonl, with the cells of its table or figure that it
fills. A run of this machine is a folder of its own, with a small file for every sheet it serves (cell-*.json). Either
way one run may serve several sheets: a cell of another sheet than that of the folder names it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from dpot.config import INSTALLED, REPOSITORY
from dpot.disk import write_atomically
from dpot.errors import DataError
from dpot.privacy.statement import Statement, warnings_of
from dpot.record import RECORD, Record
from dpot.reporting import sheets
from dpot.reporting.sheets import Sheet

RESULTS = REPOSITORY / "results"
RECORDS = "records.jsonl"
PARTS = ("config", "metrics", "privacy", "provenance", "files")
NOT_PAPERS = ("published", "bench", "claims", "audit", "notes")  # what else lies in results/
log = logging.getLogger("dpot")


@dataclass(frozen=True)
class Home:
    """The cells of a sheet that a run fills: a row, and the columns that have its overrides in common."""

    paper: str
    kind: str
    name: str
    row: str
    columns: tuple[str, ...]
    seed: int
    demo: bool = False

    @property
    def sheet(self) -> tuple[str, str, str]:
        """What names the sheet."""
        return self.paper, self.kind, self.name


@dataclass
class KeptRecord(Record):
    """A record that was found: with the cells it fills and the folder that its files lie in."""

    homes: list[Home] = field(default_factory=list)
    directory: Path = Path()

    def statement(self) -> Statement:
        """Its privacy statement; a record of before the warnings gets those it should have had."""
        told = Statement.from_dict(self.privacy)
        records = self.provenance["data"].get("records")
        private = records.get("target") if isinstance(records, dict) else records
        claimed = told.budget is not None or told.mode == "paper"
        return replace(told, warnings=told.warnings or (warnings_of(told.delta, private) if claimed else []))


def home_of(sheet: Sheet, row: str, group: Sequence[str], seed: int, demo: bool = False) -> Home:
    """The cells of a run with the overrides `group` of its columns."""
    names = tuple(column.name for column in sheet.columns if column.overrides == tuple(group))
    return Home(sheet.paper, sheet.kind, sheet.name, row, names, seed, demo)


def claim(directory: Path, home: Home) -> None:
    """Note beside the record of a run which cells of a sheet it fills."""
    note = json.dumps(asdict(home))
    digest = hashlib.sha256(note.encode()).hexdigest()[:8]
    write_atomically(directory / f"cell-{home.paper}-{home.name}-{digest}.json", note + "\n")


def records(output_root: str | Path | None, committed: bool = True) -> list[KeptRecord]:
    """Every whole record with the cells it fills; a damaged one is named and passed over.

    A run of this machine that is committed too is one record. output_root=None: the committed ones alone.
    """
    found = [] if output_root is None else list(_runs(Path(output_root) / "runs"))
    if committed and INSTALLED:
        log.info("no committed results here: a clone of the repository has them")
    for path in files() if committed else ():
        found += read(path)
    runs: dict[str, KeptRecord] = {}
    for record in found:
        known = runs.setdefault(identity(record), record)
        known.homes += [home for home in record.homes if home not in known.homes]
    return list(runs.values())


def identity(record: Record) -> str:
    """What two copies of one record have in common, and no other record has."""
    return json.dumps([record.provenance.get("fingerprint"), record.provenance.get("finished")])


def filled(found: Iterable[KeptRecord]) -> Iterator[tuple[Sheet, Home, KeptRecord]]:
    """Each record with each sheet it serves, and what it fills there."""
    known = {(sheet.paper, sheet.kind, sheet.name): sheet for sheet in sheets.all_sheets()}
    for record in found:
        for home in record.homes:
            if home.sheet in known:
                yield known[home.sheet], home, record


# committed records


def paper_folders(results: Path | None = None) -> list[Path]:
    """The folders of results/ that hold what was made of a paper."""
    root = results or RESULTS
    return sorted(path for path in root.glob("*") if path.is_dir() and path.name not in NOT_PAPERS)


def files() -> list[Path]:
    """Every file of committed records."""
    return [path for paper in paper_folders() for path in sorted(paper.glob(f"*/{RECORDS}"))]


def folder_of(sheet: Sheet) -> Path:
    """Where what is committed of a sheet lies."""
    return RESULTS / sheet.paper / sheet.folder


def file_name(sheet: Sheet, home: Home, profile: str) -> str:
    """What the pictures of a run are called: by its row, the words its columns begin with alike, and the seed."""
    words = [name.split() for name in home.columns]
    alike = [w[0] for w in zip(*words, strict=False) if len(set(w)) == 1]
    is_only = len({column.overrides for column in sheet.columns}) == 1
    columns = "" if is_only else " ".join(alike) or home.columns[0]
    parts = [home.row, columns, f"s{home.seed}", "" if profile == "paper" else profile]
    return re.sub(r"[^A-Za-z0-9.-]+", "_", "-".join(part for part in parts if part))


def read(path: Path, strict: bool = False) -> list[KeptRecord]:
    """The records of a file. A damaged line is named and passed over, or refused if `strict`."""
    found: list[KeptRecord] = []
    if not path.exists():
        return found
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
            homes = [_home(cell, path) for cell in content["cells"]]
            found.append(KeptRecord(**{part: content[part] for part in PARTS}, homes=homes, directory=path.parent))
        except (ValueError, KeyError, TypeError) as error:
            why = f"{path}, line {number}: not a record ({type(error).__name__})"
            if strict:
                raise DataError(why) from None
            log.warning("%s; passed over", why)
    return found


def write(path: Path, kept: Iterable[KeptRecord]) -> None:
    """Write a file of records, one a line, sorted by the cells they fill, so that a new one is one new line."""
    lines = sorted((_place(record, path), _line(record, path)) for record in kept)
    write_atomically(path, "".join(f"{line}\n" for _, line in lines))


def _own(path: Path) -> tuple[str, str, str]:
    kind, _, name = path.parent.name.partition("_")
    return path.parts[-3], kind, name


def _home(cell: Mapping[str, Any], path: Path) -> Home:
    paper, kind, name = (cell.get(key, own) for key, own in zip(("paper", "kind", "name"), _own(path), strict=True))
    return Home(paper, kind, name, cell["row"], tuple(cell["columns"]), cell["seed"], cell.get("demo", False))


def _place(record: KeptRecord, path: Path) -> tuple[Any, ...]:
    here = [(home.row, home.columns, home.seed) for home in record.homes if home.sheet == _own(path)]
    return (*min(here, default=("", (), 0)), str(record.provenance.get("finished")))


def _line(record: KeptRecord, path: Path) -> str:
    cells = []
    for home in sorted(record.homes, key=lambda home: (home.sheet != _own(path), home.sheet, home.row)):
        elsewhere = {} if home.sheet == _own(path) else {"paper": home.paper, "kind": home.kind, "name": home.name}
        demo = {"demo": True} if home.demo else {}
        cells.append(elsewhere | {"row": home.row, "columns": list(home.columns), "seed": home.seed} | demo)
    return json.dumps({"cells": cells} | {part: getattr(record, part) for part in PARTS}, ensure_ascii=False)


# runs of this machine


def _runs(folder: Path) -> Iterator[KeptRecord]:
    for path in sorted(folder.glob(f"*/{RECORD}")):
        try:
            record = Record.load(path.parent)
        except DataError as error:
            log.warning("%s", error)
            continue
        parts = {part: getattr(record, part) for part in PARTS}
        yield KeptRecord(**parts, homes=list(claims(path.parent)), directory=path.parent)


def claims(directory: Path) -> Iterator[Home]:
    """What the notes beside a record say."""
    for note in sorted(directory.glob("cell-*.json")):
        content = json.loads(note.read_text())
        if "columns" in content:  # earlier versions noted overrides, which change when a configuration file moves
            yield Home(**content | {"columns": tuple(content["columns"])})
