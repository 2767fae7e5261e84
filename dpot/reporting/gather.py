"""Everything there is to report, gathered from files: sheets with their cells and runs, documents, claims, audits.

Records are found through store.py. Whatever else lies in a folder of results/PAPER/ (what was computed rather than
trained, as computed.json, .md and .png; figure.png; notes.md) is a *document*. That of a folder named like a sheet
(table_4) belongs to the sheet.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpot.reporting import compare, published, sheets, store, verdicts
from dpot.reporting.compare import ComparedCell
from dpot.reporting.store import KeptRecord
from dpot.reporting.verdicts import JUDGED, VERDICTS

PICTURES = (".png", ".svg", ".jpg")
COMPUTED = "computed"  # the stem of what is computed, and the folder of output_root that it is written to


@dataclass
class Document:
    """The files of a folder that belong to no record."""

    paper: str
    name: str
    files: list[Path]

    @property
    def pictures(self) -> list[Path]:
        """The plots."""
        return [f for f in self.files if f.suffix in PICTURES]

    @property
    def texts(self) -> list[str]:
        """Its Markdown."""
        return [f.read_text() for f in self.files if f.suffix == ".md"]

    @property
    def data(self) -> dict[str, Any]:
        """Its JSON, the first there is; {} if none is readable."""
        for file in self.files:
            if file.suffix == ".json":
                try:
                    content = json.loads(file.read_text())
                except (json.JSONDecodeError, UnicodeDecodeError):
                    continue
                return content if isinstance(content, dict) else {"values": content}
        return {}

    @property
    def cells(self) -> list[dict[str, Any]]:
        """The compared cells it holds, if it is a comparison."""
        found = self.data.get("cells", [])
        return [c for c in found if isinstance(c, dict) and "verdict" in c]


@dataclass
class RunsOfCell:
    """The records behind a row and a group of columns."""

    row: str
    columns: list[str]
    group: tuple[str, ...]  # the overrides of these columns
    records: list[KeptRecord]
    command: str
    profile: str | None

    @property
    def name(self) -> str:
        """The row and what tells these columns from the others: their name, or their data set and settings."""
        told = self.columns if len(self.columns) == 1 else [o.partition("=")[2] for o in self.group]
        return ", ".join([self.row, *told])


@dataclass
class SheetState:
    """A sheet, what is published, what is on record."""

    sheet: sheets.Sheet
    printed: published.Table | None
    cells: list[ComparedCell]
    runs: list[RunsOfCell]
    documents: list[Document]

    @property
    def key(self) -> str:
        """A name fit for a file."""
        return re.sub(r"[^A-Za-z0-9_]+", "_", f"{self.sheet.paper}_{self.sheet.kind}_{self.sheet.name}")

    @property
    def label(self) -> str:
        """DP-SWD, Table 2."""
        kind, name = self.sheet.kind.capitalize(), self.sheet.name.replace("_", " ")
        return f"{published.paper_name(self.sheet.paper)}, {kind} {name}"

    @property
    def judged(self) -> int:
        """How many cells are held against a published number."""
        return sum(self.counts.get(name, 0) for name in JUDGED)

    @property
    def apart(self) -> str:
        """What is counted apart from them, in words."""
        return verdicts.in_words(self.counts)

    @property
    def counts(self) -> dict[str, int]:
        """How many cells have each verdict, each published number once."""
        found = Counter(c.verdict for c in self.cells if c.counted)
        for document in self.documents if not self.cells else ():
            found.update(self._verdict(cell) for cell in document.cells)
        return {name: found[name] for name in VERDICTS if found[name]}

    def _verdict(self, cell: dict[str, Any]) -> str:
        """Of a cell that was computed: what the sheet says of it, if anything."""
        found, said = str(cell["verdict"]), self.sheet.remarks.said(str(cell["row"]), str(cell.get("column")))
        return said.says if said and (found == "outside" or said.says != "explained") else found

    @property
    def state(self) -> str:
        """In a word: what a reader can expect."""
        if any(c.ours is not None for c in self.cells):
            return "on record" if any(c.comparable for c in self.cells) else "not comparable yet"
        return "recomputed" if self.documents else "not run yet"

    @property
    def seeds(self) -> str:
        """The seeds behind its cells."""
        found = sorted({c.seeds for c in self.cells if c.ours is not None})
        return "–" if not found else f"{found[0]}" if len(found) == 1 else f"{found[0]}–{found[-1]}"


@dataclass
class Gathered:
    """All of it."""

    sheets: list[SheetState]
    documents: dict[str, list[Document]]  # by paper, those that belong to no sheet
    claims: list[dict[str, Any]]
    audits: list[dict[str, Any]]
    records: list[KeptRecord] = field(default_factory=list)

    @property
    def ordered(self) -> list[SheetState]:
        """Sheets paper by paper, tables before figures."""

        def place(state: SheetState) -> tuple[Any, ...]:
            sheet = state.sheet
            return published.paper_order(sheet.paper), sheet.kind != "table", not sheet.name[:1].isdigit(), sheet.name

        return sorted(self.sheets, key=place)

    def loose_records(self, paper: str) -> list[KeptRecord]:
        """Committed records in a paper's folder that serve no sheet; those of attacks are on their own page."""
        return [r for r in self.records if _home(r) == paper and not r.homes and not is_attack(r)]

    @property
    def attacks(self) -> list[KeptRecord]:
        """Records of attacks, wherever they lie."""
        return [r for r in self.records if is_attack(r)]

    @property
    def papers(self) -> list[str]:
        """Every paper something is known of."""
        homes = [_home(r) for r in self.records]
        known = [*(s.sheet.paper for s in self.sheets), *published.papers(), *self.documents, *filter(None, homes)]
        return list(dict.fromkeys(sorted(known)))


def is_attack(record: KeptRecord) -> bool:
    """Whether a record was made by task=attack."""
    return ".attack." in str((record.config.get("task") or {}).get("_target_"))


def _home(record: KeptRecord) -> str | None:
    """The folder of results/ that a committed record lies in."""
    if not record.directory.is_relative_to(store.RESULTS):
        return None
    return str(record.directory.relative_to(store.RESULTS).parts[0])


def gather(output_root: str | Path | None, results: Path | None = None) -> Gathered:
    """Read everything; output_root=None leaves this machine's own runs out."""
    results = results or store.RESULTS
    records = store.records(output_root)
    roots = [results] + ([Path(output_root)] if output_root is not None else [])
    documents = find_documents(results, *(root / COMPUTED for root in roots[1:]))
    states = []
    for sheet in sheets.all_sheets():
        printed = None
        if sheet.kind == "table" and sheet.paper in published.papers():
            printed = published.tables(sheet.paper).get(sheet.name)
        cells = compare.compare(sheet, printed, records, None)
        mine = [d for d in documents if (d.paper, d.name) == (sheet.paper, sheet.folder)]
        states.append(SheetState(sheet, printed, cells, _runs(sheet, records), mine))
    owned = {id(d) for state in states for d in state.documents}
    loose: dict[str, list[Document]] = {}
    for document in documents:
        if id(document) not in owned:
            loose.setdefault(document.paper, []).append(document)
    return Gathered(states, loose, _claims(roots), _latest(roots, "audit"), records)


def find_documents(results: Path, *computed: Path) -> list[Document]:
    """Every document under results/; what this machine computed stands in place of what is committed."""
    found: dict[tuple[str, str], list[Path]] = {}
    for root in (results, *computed):
        for folder in (f for paper in store.paper_folders(root) for f in sorted(paper.iterdir()) if f.is_dir()):
            kept = found.setdefault((folder.parent.name, folder.name), [])
            new = [f for f in sorted(folder.iterdir()) if f.is_file() and f.name != store.RECORDS]
            if root != results and new:
                kept[:] = [f for f in kept if not f.stem.startswith(COMPUTED)]
            kept += [f for f in new if f.stem != "comparison"]
    return [Document(paper, name, files) for (paper, name), files in sorted(found.items()) if files]


def _runs(sheet: sheets.Sheet, records: Sequence[KeptRecord]) -> list[RunsOfCell]:
    """For every row and group of columns: the command, and the records its cells are made of."""
    own = compare.records_of(sheet, records)
    planned = {(run.row, run.group): run for run in reversed(list(sheet.runs()))}
    found = []
    for (row, group), run in reversed(planned.items()):
        columns = [c for c in sheet.columns if c.overrides == group]
        chosen, profile = compare.chosen_records(sheet, own, row, columns[0])
        command = run.command(f"profile={profile or 'paper'}")
        found.append(RunsOfCell(row, [c.name for c in columns], group, chosen, command, profile))
    return found


def _claims(roots: Sequence[Path]) -> list[dict[str, Any]]:
    """As they were checked; files of before the distinction name no owner, and are the paper's."""
    return [{"whose": "paper"} | claim for found in _latest(roots, "claims") for claim in found.get("claims", [])]


def _latest(roots: Sequence[Path], folder: str) -> list[dict[str, Any]]:
    """The JSON files of a folder; this machine's own, where there is one, in place of the committed one."""
    files = {file.stem: file for root in roots for file in sorted((root / folder).glob("*.json"))}
    return [json.loads(file.read_text()) for _, file in sorted(files.items())]
