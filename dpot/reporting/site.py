"""The report: a folder of static pages that opens from file://, with everything it needs inside.

`write(folder, gathered)` makes index.html, a page per table and per paper, the methods at equal ε, claims, audits and
attacks. Pages are Jinja templates in templates/; what stands in them was read by gather.py.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dpot import __version__
from dpot.record import commit_of_code, write_atomically
from dpot.reporting import compare, markup, pieces, published, tables
from dpot.reporting.charts import Bar, bars, share
from dpot.reporting.gather import PICTURES, VERDICTS, Gathered, SheetState

TEMPLATES = Path(__file__).parent / "templates"
MARKS = {"within": "≈", "better": "▲", "near": "~", "outside": "▼", "ours": "◆", "not comparable": "∗", "missing": "○"}
NAMES = {
    "dp_swd": "DP-SWD",
    "dp_sinkhorn": "DP-Sinkhorn",
    "wdp": "WDP",
    "triangle_wad": "TriangleWad",
    "sketch": "Sketch",
    "field": "The field",
}
METHODS = {"dp_merf": "DP-MERF"}
CLAIM_KINDS = {"holds": "within", "conditional": "near", "false": "outside", "not checkable": "published only"}
SHOWN_COLUMNS = 9  # a wider table is turned on its side
HEROES = ("Sketch", "DP-SWD-exact")  # whose samples greet the reader
MOST_PICTURES = 24  # on the front page


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
            bounds=compare.BOUNDS,
            verdicts=VERDICTS,
            version=__version__,
            commit=commit_of_code()[0],
            made=time.strftime("%Y-%m-%d", time.gmtime()),
            nav=self._navigation(),
        )
        self.written: list[str] = []

    def _navigation(self) -> list[tuple[str, str]]:
        known = sorted(self.gathered.papers, key=paper_order)
        papers = [(paper_name(paper), paper_page(paper)) for paper in known]
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
        """Copy a file into the report and give its address there; the same content is kept once."""
        content = source.read_bytes()
        name = f"files/{hashlib.sha256(content).hexdigest()[:12]}{source.suffix}"
        if not (self.folder / name).exists():
            write_atomically(self.folder / name, content)
        return name

    def assets(self) -> None:
        """Style and script."""
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


def write(folder: Path, gathered: Gathered) -> list[str]:
    """The whole report; what an earlier one left in the folder is removed first."""
    from dpot.reporting import methods_page, sheet_page

    if (folder / "index.html").exists() and (folder / "assets" / "style.css").exists():
        for name in ("files", "assets"):
            shutil.rmtree(folder / name, ignore_errors=True)
        for old in folder.glob("*.html"):
            old.unlink()
    site = Site(folder, gathered)
    site.assets()
    for state in gathered.sheets:
        sheet_page.write(site, state)
    methods_page.write(site)
    for paper in gathered.papers:
        _paper(site, paper)
    _claims(site)
    _audits(site)
    _attacks(site)
    _index(site)
    return site.written


# what things are called


def paper_name(paper: str) -> str:
    """As people say it."""
    return NAMES.get(paper, paper)


def paper_page(paper: str) -> str:
    """Its address."""
    return f"paper_{paper}.html"


def paper_order(paper: str) -> tuple[int, str]:
    """The papers in the order of NAMES, then the others."""
    names = list(NAMES)
    return (names.index(paper) if paper in names else len(names) - 1, paper)


def sheet_label(state: SheetState) -> str:
    """DP-SWD, Table 2."""
    return f"{paper_name(state.sheet.paper)}, {state.sheet.kind.capitalize()} {state.sheet.name.replace('_', ' ')}"


def ordered(gathered: Gathered) -> list[SheetState]:
    """Sheets paper by paper, tables before figures."""
    return sorted(
        gathered.sheets,
        key=lambda s: (
            paper_order(s.sheet.paper),
            s.sheet.kind != "table",
            not s.sheet.name[:1].isdigit(),
            s.sheet.name,
        ),
    )


def sheet_facts(state: SheetState, order: int = 0) -> dict[str, Any]:
    """What the overview says of a sheet."""
    counts = state.counts
    hits = counts.get("within", 0) + counts.get("better", 0)
    judged = hits + counts.get("near", 0) + counts.get("outside", 0)
    return {
        "order": order,
        "label": sheet_label(state),
        "href": f"{state.key}.html",
        "title": state.sheet.title,
        "state": state.state,
        "strip": Markup(share([(name, counts.get(name, 0)) for name in VERDICTS], sheet_label(state))),
        "total": sum(counts.values()),
        "share": hits / judged if judged else "",
        "hits": f"{hits} of {judged}" if judged else "–",
        "seeds": state.seeds,
    }


def samples_of(state: SheetState) -> list[tuple[str, Path]]:
    """The first sample grid (or feature picture) of each row and data set, with words for it."""
    found = []
    for runs in state.runs:
        for record in runs.records[:1]:
            for file in record.files.values():
                path = record.provenance["directory"] / file
                if path.suffix in PICTURES and path.exists():
                    found.append((runs.name, path))
                    break
    return found


# pages


def _index(site: Site) -> None:
    gathered = site.gathered
    states = ordered(gathered)
    facts = [sheet_facts(state, i) for i, state in enumerate(states)]
    total: Counter[str] = Counter()
    for state in states:
        total.update(state.counts)
    judged = sum(total[name] for name in ("within", "better", "near", "outside"))
    verdicts = Counter(c["verdict"] for c in gathered.claims)
    refuted = sum(1 for a in gathered.audits if a["refuted"])
    run = sum(s.state != "not run yet" for s in states)
    tiles = [
        _tile(run, f"of {len(states)} tables and figures on record", "#tables"),
        _tile(str(total["within"] + total["better"]), f"of {judged} compared cells within bounds or better", "#tables"),
        _tile(verdicts["false"], f"of {len(gathered.claims)} checked claims are false", "claims.html"),
        _tile(refuted, f"of {len(gathered.audits)} audited ε refuted", "audits.html"),
    ]
    pictures = [(state, words, path) for state in states for words, path in samples_of(state)]
    gallery = [
        {"href": site.file(path), "alt": f"{words} ({sheet_label(state)})", "page": f"{state.key}.html"}
        for state, words, path in pictures
    ]
    wanted = [g for name in HEROES for g in gallery if g["alt"].startswith(f"{name},")]
    hero = wanted[0] if wanted else None
    shown = [
        fact | {"matrix": site.matrix(state)}
        for fact, state in zip(facts, states, strict=True)
        if state.cells and state.state != "not run yet" and len(state.cells) <= 150
    ]
    content = {"tiles": tiles, "sheets": facts, "shown": shown, "hero": hero, "gallery": gallery[:MOST_PICTURES]}
    site.page("index.html", "index.html", title="Report", **content)


def _tile(value: Any, label: str, href: str) -> dict[str, Any]:
    return {"value": value, "label": label, "href": href}


def _paper(site: Site, paper: str) -> None:
    printed, lead = [], "This project's own method, beyond the papers." if paper == "sketch" else ""
    if paper in published.papers():
        lead = published.heading(paper)
        for table in published.tables(paper).values():
            columns = list(dict.fromkeys(c.column for c in table.cells))
            body = [
                [row, *(_printed(table.cell(row, column)) for column in columns)]
                for row in dict.fromkeys(c.row for c in table.cells)
            ]
            printed.append(
                {
                    "name": f"Table {table.name}" if table.name[:1].isdigit() else table.name,
                    "caption": table.caption,
                    "table": Markup(markup.table(["", *columns], body, table.caption)),
                    "protocol": table.cells[0].protocol if table.cells else "",
                    "remarks": list(dict.fromkeys(f"{c.row}: {c.remark}" for c in table.cells if c.remark)),
                }
            )
    mine = [sheet_facts(s) for s in ordered(site.gathered) if s.sheet.paper == paper]
    documents = [pieces.of_document(site, d) for d in site.gathered.documents.get(paper, [])]
    documents += [pieces.of_record(site, r) for r in site.gathered.loose_records(paper)[:MOST_PICTURES]]
    site.page(
        paper_page(paper),
        "paper.html",
        title=paper_name(paper),
        lead=lead,
        sheets=mine,
        documents=documents,
        printed=printed,
        open=not mine,
    )


def _printed(cell: published.Cell | None) -> str:
    if cell is None or cell.value is None:
        return "–"
    spread = f" ± {cell.spread:g}" if cell.spread is not None else ""
    return f"{cell.value:g}{spread}"


def _claims(site: Site) -> None:
    claims = [c | {"paper": paper_name(c["paper"])} for c in sorted(site.gathered.claims, key=_by_paper)]
    summary = [(name, n) for name in CLAIM_KINDS if (n := sum(c["verdict"] == name for c in claims))]
    site.page("claims.html", "claims.html", title="Claims", claims=claims, summary=summary)


def _by_paper(claim: dict[str, Any]) -> tuple[int, str]:
    return paper_order(claim["paper"])


def audited_name(audit: dict[str, Any]) -> str:
    """What was audited."""
    return METHODS.get(audit["method"], paper_name(audit["method"])) + (" as in the paper" if audit["unsound"] else "")


def _audits(site: Site) -> None:
    rows, drawn = [], []
    for a in site.gathered.audits:
        positive, null, moved = (a["controls"][name] for name in ("positive", "null", "sensitivity"))
        name = audited_name(a)
        bad = a["refuted"] or not moved["holds"]
        verdict = "refuted" if a["refuted"] else "not refuted" if moved["holds"] else "sensitivity violated"
        rows.append(
            {
                "name": name,
                "claimed": f"{a['claimed_epsilon']:.3g}",
                "bound": f"{a['lower_bound']:.3g}",
                "right": f"{a['correct']} of {a['guesses']}",
                "verdict": verdict,
                "bad": bad,
                "off": f"{positive['lower_bound']:.3g}",
                "alarms": f"{100 * null['false_alarms']:.1f}%",
                "declared": f"{moved['declared']:.4g}",
                "actual": f"{moved['actual']:.4g}",
                "controls": "behave" if positive["caught"] and null["passed"] else "FAIL",
                "unsound": a["unsound"],
                "confidence": a["confidence"],
                "delta": f"{a['delta']:g}",
                "canaries": a["canaries"],
            }
        )
        drawn += [
            Bar(f"{name}: claimed", a["claimed_epsilon"], f"{a['claimed_epsilon']:.3g}", hollow=True),
            Bar(f"{name}: at least", a["lower_bound"], f"{a['lower_bound']:.3g}"),
        ]
    chart = Markup(bars("Claimed ε (hollow) and what the audit found", drawn))
    site.page("audits.html", "audits.html", title="Audits", audits=rows, chart=chart)


def _attacks(site: Site) -> None:
    """Runs of task=attack, and the figures whose title speaks of attacks."""
    claims = [c for c in site.gathered.claims if c["paper"] == "triangle_wad"]
    documents = [pieces.of_record(site, r) for r in site.gathered.attacks]
    for state in ordered(site.gathered):
        if re.search(r"\b(attack|invert|recover)", state.sheet.title):
            documents += [pieces.of_document(site, d) for d in state.documents]
    site.page("attacks.html", "attacks.html", title="Attacks", documents=documents, claims=claims)
