"""The report: every page of it, in the order they are written.

`write(folder, gathered)` makes index.html, a page per table and per paper, the methods at equal ε, claims, audits and
attacks. What stands in them was read by gather.py.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from markupsafe import Markup

from dpot.reporting import audits, markup, methods_page, pieces, published, sheet_page
from dpot.reporting.charts import Bar, bars, share
from dpot.reporting.gather import Gathered, SheetState
from dpot.reporting.site import CLAIM_KINDS, Site, paper_page
from dpot.reporting.verdicts import JUDGED, VERDICTS

HEROES = ("Sketch", "DP-SWD-exact")  # whose samples greet the reader
MOST_PICTURES = 24  # on the front page


def write(folder: Path, gathered: Gathered) -> list[str]:
    """The whole report; the names of its pages."""
    site = Site(folder, gathered)
    site.begin()
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


def _facts(state: SheetState, order: int = 0) -> dict[str, Any]:
    """What the overview says of a sheet."""
    return {
        "order": order,
        "label": state.label,
        "href": f"{state.key}.html",
        "title": state.sheet.title,
        "state": state.state,
        "strip": Markup(share([(name, state.counts.get(name, 0)) for name in VERDICTS], state.label)),
        "total": sum(state.counts.values()),
        "judged": [state.counts.get(name, 0) if state.judged else "–" for name in JUDGED],
        "apart": state.apart,
        "seeds": state.seeds,
    }


def _index(site: Site) -> None:
    gathered = site.gathered
    states = gathered.ordered
    facts = [_facts(state, i) for i, state in enumerate(states)]
    total: Counter[str] = Counter()
    for state in states:
        total.update(state.counts)
    others = ", ".join(f"{total[name]} {name}" for name in JUDGED[1:])
    own = [c for c in gathered.claims if c["whose"] == "paper"]
    verdicts = Counter(c["verdict"] for c in own)
    refuted = sum(1 for a in gathered.audits if a["refuted"])
    run = sum(s.state != "not run yet" for s in states)
    tiles = [
        _tile(run, f"of {len(states)} tables and figures on record", "#tables"),
        _tile(total["within"], f"published numbers reproduced; {others}", "#tables"),
        _tile(verdicts["false"], f"of {len(own)} checked claims of the papers are false", "claims.html"),
        _tile(refuted, f"of {len(gathered.audits)} audited ε refuted", "audits.html"),
    ]
    pictures = [(state, words, path) for state in states for words, path in pieces.samples_of(state)]
    gallery = [
        {"href": site.file(path), "alt": f"{words} ({state.label})", "page": f"{state.key}.html"}
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
    mine = [_facts(s) for s in site.gathered.ordered if s.sheet.paper == paper]
    documents = [pieces.of_document(site, d) for d in site.gathered.documents.get(paper, [])]
    documents += [pieces.of_record(site, r) for r in site.gathered.loose_records(paper)[:MOST_PICTURES]]
    site.page(
        paper_page(paper),
        "paper.html",
        title=published.paper_name(paper),
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
    claims = [c | {"paper": published.paper_name(c["paper"])} for c in sorted(site.gathered.claims, key=_by_paper)]
    counted = Counter(c["verdict"] for c in claims if c["whose"] == "paper")
    summary = [(name, counted[name]) for name in CLAIM_KINDS if counted[name]]
    site.page("claims.html", "claims.html", title="Claims", claims=claims, summary=summary)


def _by_paper(claim: dict[str, Any]) -> tuple[int, str]:
    return published.paper_order(claim["paper"])


def _audits(site: Site) -> None:
    rows, drawn = [], []
    for a in site.gathered.audits:
        name = audits.called(a)
        rows.append(
            {
                "cells": audits.cells(a),
                "bad": not a["passed"],
                "stale": audits.is_stale(a),
                "verdict": audits.verdict(a),
                "words": audits.in_words(a),
            }
        )
        drawn += [
            Bar(f"{name}: claimed", a["claimed_epsilon"], f"{a['claimed_epsilon']:.3g}", hollow=True),
            Bar(f"{name}: at least", a["lower_bound"], f"{a['lower_bound']:.3g}"),
        ]
    chart = Markup(bars("Claimed ε (hollow) and what the audit found", drawn))
    site.page("audits.html", "audits.html", title="Audits", head=audits.HEAD, audits=rows, chart=chart)


def _attacks(site: Site) -> None:
    """Runs of task=attack, and the figures whose title speaks of attacks."""
    claims = [c for c in site.gathered.claims if c["paper"] == "triangle_wad"]
    documents = [pieces.of_record(site, r) for r in site.gathered.attacks]
    for state in site.gathered.ordered:
        if re.search(r"\b(attack|invert|recover)", state.sheet.title):
            documents += [pieces.of_document(site, d) for d in state.documents]
    site.page("attacks.html", "attacks.html", title="Attacks", documents=documents, claims=claims)
