"""Pieces of pages: documents, pictures of runs, privacy statements, and records that serve no table."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from markupsafe import Markup

from dpot.record import PRIVATE
from dpot.reporting import markup
from dpot.reporting.gather import PICTURES, Document, SheetState
from dpot.reporting.site import Site
from dpot.reporting.store import KeptRecord

MOST_FILES = 8  # of a document's further files, to be linked


def of_document(site: Site, document: Document) -> dict[str, Any]:
    """A document as the templates want it: Markdown as HTML, plots, a table of its rows if it has no text."""
    data = document.data
    others = [f for f in document.files if f.suffix not in (*PICTURES, ".md")][:MOST_FILES]
    return {
        "name": document.name,
        "texts": [Markup(markup.to_html(text, 2)) for text in document.texts],
        "pictures": [{"href": site.file(f), "alt": _picture_words(document, f, data)} for f in document.pictures],
        "table": Markup("") if document.texts else _rows_as_table(data),
        "made_by": _made_words(data.get("provenance")),
        "others": [{"href": site.file(f), "name": f.name} for f in others],
    }


def of_record(site: Site, record: KeptRecord) -> dict[str, Any]:
    """A record that serves no table, in the shape of a document: its lists as tables, its numbers, pictures."""
    made = record.provenance
    name = f"{made['data'].get('name', '')}, seed {made.get('seed')}"
    flat = [[key, _plain(_mean_of(v))] for key, v in record.metrics.items() if isinstance(_mean_of(v), int | float)]
    parts = [f"<h2>{markup.inline(name)}</h2>", f"<p>{markup.inline(str(record.privacy.get('headline', '')))}</p>"]
    parts += [markup.table(["metric", "value"], flat)] if flat else []
    parts += [_rows_as_table({"rows": value}, key.replace("_", " ")) for key, value in record.metrics.items()]
    command = shlex.join(["dpot", *map(str, made.get("command") or [])])
    parts.append(str(Markup("<p><code class='command'>{}</code></p>").format(command)))
    pictures = [path for path in _shown(record) if path.suffix in PICTURES]
    return {
        "name": name,
        "texts": [Markup("\n".join(parts))],
        "pictures": [{"href": site.file(f), "alt": f"{name}: {f.stem}"} for f in pictures if f.exists()],
        "table": "",
        "made_by": _made_words(made),
        "others": [],
    }


def of_statement(site: Site, record: KeptRecord) -> str:
    """The address of the record's privacy statement as a page of its own; "" if it has none."""
    if "entries" not in record.privacy:
        return ""
    return site.keep(record.statement().to_html().encode(), ".html")


def samples_of(state: SheetState) -> list[tuple[str, Path]]:
    """The first sample grid (or feature picture) of each row and data set, with words for it."""
    found = []
    for runs in state.runs:
        for record in runs.records[:1]:
            shown = [path for path in _shown(record) if path.suffix in PICTURES and path.exists()]
            found += [(runs.name, path) for path in shown[:1]]
    return found


def _shown(record: KeptRecord) -> list[Path]:
    """The files of a record, without those that show private records."""
    return [record.directory / file for file in record.files.values() if Path(file).parts[0] != PRIVATE]


def _picture_words(document: Document, file: Path, data: dict[str, Any]) -> str:
    named = data.get("title") or data.get("caption") or document.name.replace("_", " ")
    part = file.stem.partition("_")[2]  # of several: computed_ab.png
    return f"{document.paper}, {named}" + (f" ({part})" if part else "")


def _mean_of(value: Any) -> Any:
    return value.get("mean") if isinstance(value, dict) else value


def _rows_as_table(data: dict[str, Any], caption: str = "") -> Markup:
    rows = data.get("rows")
    if not isinstance(rows, list) or not rows or not all(isinstance(r, dict) for r in rows):
        return Markup("")
    head = list(dict.fromkeys(str(key) for row in rows for key in row))
    body = [[_plain(row.get(key)) for key in head] for row in rows]
    return Markup(markup.table([name.replace("_", " ") for name in head], body, caption))


def _plain(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _made_words(made: Any) -> str:
    if not isinstance(made, dict) or not made:
        return ""
    commit = str(made.get("commit") or "")[:10]
    parts = [f"commit {commit}" if commit else "", str(made.get("device") or ""), str(made.get("finished") or "")]
    return "Made by " + ", ".join(p for p in parts if p) if any(parts) else ""
