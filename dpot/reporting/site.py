"""The folder of the report while it is written: static pages that open from file://, with all they need inside.

Pages are Jinja templates in templates/. Which pages there are, and what stands in them, is for pages.py to say.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dpot import __version__
from dpot.disk import write_atomically
from dpot.record import commit_of_code
from dpot.reporting import published, tables, verdicts
from dpot.reporting.gather import Gathered, SheetState

TEMPLATES = Path(__file__).parent / "templates"
MARKS = {"within": "≈", verdicts.FEW: "~", "better": "▲", "outside": "▼", "explained": "▽", "ours": "◆"}
MARKS |= {"not comparable": "∗", "missing": "○", "fitted": "⊙"}
MARKS |= dict.fromkeys(("other data", "other method", "other setting"), "≠")
CLAIM_KINDS = {"holds": "within", "conditional": verdicts.FEW, "false": "outside", "not checkable": "published only"}
SHOWN_COLUMNS = 9  # a wider table is turned on its side


class Site:
    """The folder while it is written: templates, and the files that pages show."""

    def __init__(self, folder: Path, gathered: Gathered) -> None:
        self.folder, self.gathered = folder, gathered
        self.environment = Environment(
            loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )
        self.environment.globals.update(
            marks=MARKS,
            number=tables.number,
            ours_text=tables.ours_text,
            short_text=tables.short_text,
            difference_text=tables.difference_text,
            kinds=CLAIM_KINDS,
            meanings=verdicts.MEANING,
            verdict_text=tables.verdict_text,
            verdicts=verdicts.VERDICTS,
            version=__version__,
            commit=commit_of_code()[0],
            made=time.strftime("%Y-%m-%d", time.gmtime()),
            nav=self._navigation(),
        )
        self.written: list[str] = []

    def _navigation(self) -> list[tuple[str, str]]:
        known = sorted(self.gathered.papers, key=published.paper_order)
        papers = [(published.paper_name(paper), paper_page(paper)) for paper in known]
        others = [
            ("Equal ε", "methods.html"),
            ("Claims", "claims.html"),
            ("Audits", "audits.html"),
            ("Attacks", "attacks.html"),
        ]
        return [("Overview", "index.html"), *papers, *others]

    def page(self, name: str, template: str, **content: Any) -> None:
        """Write one page."""
        text = self.environment.get_template(template).render(page=name, **content)
        write_atomically(self.folder / name, text)
        self.written.append(name)

    def part(self, template: str, **content: Any) -> Markup:
        """A piece of a page."""
        return Markup(self.environment.get_template(template).render(**content))

    def file(self, source: Path) -> str:
        """Copy a file into the report and give its address there."""
        return self.keep(source.read_bytes(), source.suffix)

    def keep(self, content: bytes, suffix: str) -> str:
        """Put a file into the report and give its address there; the same content is kept once."""
        name = f"files/{hashlib.sha256(content).hexdigest()[:12]}{suffix}"
        if not (self.folder / name).exists():
            write_atomically(self.folder / name, content)
        return name

    def begin(self) -> None:
        """Style and script; what an earlier report left in the folder is removed."""
        if (self.folder / "index.html").exists() and (self.folder / "assets" / "style.css").exists():
            for name in ("files", "assets"):
                shutil.rmtree(self.folder / name, ignore_errors=True)
            for old in self.folder.glob("*.html"):
                old.unlink()
        for name in ("style.css", "report.js"):
            write_atomically(self.folder / "assets" / name, (TEMPLATES / name).read_text())

    def matrix(self, state: SheetState) -> Markup:
        """Rows × columns, or the other way round where there are many columns."""
        columns = list(dict.fromkeys(c.column for c in state.cells))
        rows = list(dict.fromkeys(c.row for c in state.cells))
        at = {(c.row, c.column): c for c in state.cells}
        remarks = {c.row: c.remark for c in state.cells if c.remark}
        if len(columns) > SHOWN_COLUMNS and len(rows) < len(columns):
            body = [(column, [at.get((row, column)) for row in rows]) for column in columns]
            return self.part(
                "matrix.html", corner="column", columns=rows, rows=body, remarks={}, caption=state.sheet.title
            )
        body = [(row, [at.get((row, column)) for column in columns]) for row in rows]
        return self.part(
            "matrix.html", corner="row", columns=columns, rows=body, remarks=remarks, caption=state.sheet.title
        )


def paper_page(paper: str) -> str:
    """The address of a paper's page."""
    return f"paper_{paper}.html"
