"""Everything there is to report, gathered from files: sheets with their cells and runs, documents, claims, audits.

Records are found through store.py. Whatever else a task left under results/reproduced/ (tables as Markdown, figures as
PNG with their data as JSON) is a *document*: the files of one stem in a paper's folder, or all files of a folder
without a record. A document named like a sheet (table4, figure_1, table2_budgets) belongs to it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpot.record import RECORD, Record
from dpot.reporting import compare, published, sheets, store
from dpot.reporting.compare import ComparedCell

SPECIAL = ("claims", "audit")  # folders with a page of their own
PICTURES = (".png", ".svg", ".jpg")
VERDICTS = ("within", "better", "near", "outside", "ours", "not comparable", "published only", "missing")


@dataclass
class Document:
    """Files that belong together and were made by a task."""

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
    records: list[Record]
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
    def counts(self) -> dict[str, int]:
        """How many cells have each verdict."""
        found = Counter(c.verdict for c in self.cells)
        for document in self.documents if not self.cells else ():
            found.update(str(c["verdict"]) for c in document.cells)
        return {name: found[name] for name in VERDICTS if found[name]}

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
    records: list[Record] = field(default_factory=list)

    def loose_records(self, paper: str) -> list[Record]:
        """Committed records in a paper's folder that serve no sheet; those of attacks are on their own page."""
        return [r for r in self.records if _home(r) == paper and not r.provenance["sheets"] and not is_attack(r)]

    @property
    def attacks(self) -> list[Record]:
        """Records of attacks, wherever they lie."""
        return [r for r in self.records if is_attack(r)]

    @property
    def papers(self) -> list[str]:
        """Every paper something is known of."""
        homes = [_home(r) for r in self.records]
        known = [*(s.sheet.paper for s in self.sheets), *published.papers(), *self.documents, *filter(None, homes)]
        return list(dict.fromkeys(sorted(known)))


def is_attack(record: Record) -> bool:
    """Whether a record was made by task=attack."""
    return ".attack." in str((record.config.get("task") or {}).get("_target_"))


def _home(record: Record) -> str | None:
    """The folder of results/reproduced/ that a committed record lies in."""
    directory = record.provenance["directory"]
    if not directory.is_relative_to(store.REPRODUCED):
        return None
    return str(directory.relative_to(store.REPRODUCED).parts[0])


def gather(output_root: str | Path | None, reproduced: Path = store.REPRODUCED) -> Gathered:
    """Read everything; output_root=None leaves this machine's own runs out."""
    records = store.records(output_root)
    documents = find_documents(reproduced)
    states = []
    for sheet in sheets.all_sheets():
        printed = None
        if sheet.kind == "table" and sheet.paper in published.papers():
            printed = published.tables(sheet.paper).get(sheet.name)
        cells = [] if sheet.compute else compare.compare(sheet, printed, records, None)
        mine = [d for d in documents if _belongs(d, sheet)]
        states.append(SheetState(sheet, printed, cells, _runs(sheet, records), mine))
    owned = {id(d) for state in states for d in state.documents}
    loose: dict[str, list[Document]] = {}
    for document in documents:
        if id(document) not in owned:
            loose.setdefault(document.paper, []).append(document)
    roots = [reproduced] + ([Path(output_root)] if output_root is not None else [])
    return Gathered(states, loose, _claims(roots), _latest(roots, "audit"), records)


def find_documents(reproduced: Path) -> list[Document]:
    """Every document under results/reproduced/."""
    found: list[Document] = []
    for paper in sorted(p for p in reproduced.glob("*") if p.is_dir() and p.name not in SPECIAL):
        stems: dict[str, list[Path]] = {}
        for file in sorted(f for f in paper.iterdir() if f.is_file()):
            stems.setdefault(file.stem, []).append(file)
        found += [Document(paper.name, stem, files) for stem, files in stems.items() if stem != "README"]
        for folder in sorted(f for f in paper.rglob("*") if f.is_dir()):
            inside = sorted(f for f in folder.iterdir() if f.is_file() and f.stem != "comparison")
            if inside and not (folder / RECORD).exists() and not any(f.name.startswith("cell-") for f in inside):
                found.append(Document(paper.name, str(folder.relative_to(paper)), inside))
    return found


def _belongs(document: Document, sheet: sheets.Sheet) -> bool:
    pattern = rf"^{sheet.kind}[ _-]?{re.escape(sheet.name)}(?![0-9a-zA-Z]|_(sound|unknowns))"
    return document.paper == sheet.paper and re.match(pattern, document.name) is not None


def _runs(sheet: sheets.Sheet, records: Sequence[Record]) -> list[RunsOfCell]:
    """For every row and group of columns: the command, and the records its cells are made of."""
    own = compare.records_of(sheet, records)
    planned = {(run.row, run.group): run for run in reversed(list(sheet.runs()))}
    found = []
    for (row, group), run in reversed(planned.items()):
        columns = [c for c in sheet.columns if c.overrides == group]
        chosen, profile = compare.chosen_records(own, row, columns[0])
        command = run.command(f"profile={profile or 'paper'}")
        found.append(RunsOfCell(row, [c.name for c in columns], group, chosen, command, profile))
    return found


def _claims(roots: Sequence[Path]) -> list[dict[str, Any]]:
    return [claim for found in _latest(roots, "claims") for claim in found.get("claims", [])]


def _latest(roots: Sequence[Path], folder: str) -> list[dict[str, Any]]:
    """The JSON files of a folder; this machine's own, where there is one, in place of the committed one."""
    files = {file.stem: file for root in roots for file in sorted((root / folder).glob("*.json"))}
    return [json.loads(file.read_text()) for _, file in sorted(files.items())]
