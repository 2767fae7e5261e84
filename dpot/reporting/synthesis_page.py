"""One page about a synthesis: samples, released against synthetic counts, utility, statement, how to cite.

The page holds everything it shows, so that it can be sent as one file and opens from file://. No private record is on
it: samples are synthetic, and plots compare them with the noisy counts that were released within ε.
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dpot.privacy import registry
from dpot.privacy.statement import Statement
from dpot.reporting import charts, markup
from dpot.reporting.site import TEMPLATES
from dpot.version import __version__

READABLE = 64  # pixels: a small image is shown at this width at least
CITATION = """@software{{dpot,
  title = {{dpot: optimal transport under differential privacy}},
  version = {{{version}}},
  year = {{{year}}},
  note = {{Synthetic data under ({epsilon}, {delta})-differential privacy}}
}}"""


@dataclass(frozen=True)
class Row:
    """The samples of one class side by side, as PNG."""

    name: str
    png: bytes
    width: int  # of the whole picture, in its own pixels
    each: int  # of one sample


@dataclass(frozen=True)
class Made:
    """What a page is made of."""

    title: str
    statement: Statement
    records: int
    rows: Sequence[Row] = ()  # of images
    preview: tuple[Sequence[str], Sequence[Sequence[str]]] | None = None  # of a table: its head, some records
    comparisons: Sequence[charts.Comparison] = ()
    changed: Sequence[str] = ()  # what was resized or cut
    remarks: Sequence[str] = ()
    utility: Mapping[str, float] = field(default_factory=dict)
    held_out: int = 0
    data: str = "own data"


def render(made: Made) -> str:
    """The page."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    told = made.statement
    about = registry.About("synthesize", made.data, made.records, datetime.date.today())
    cite = CITATION.format(
        version=__version__,
        year=about.published.year,
        epsilon="∞" if told.epsilon is None else f"{told.epsilon:.4g}",
        delta=f"{told.delta:g}",
    )
    return environment.get_template("synthesis.html").render(
        made=made,
        headline=told.headline(),
        good=told.verdict == "yes",
        rows=[_row(row) for row in made.rows],
        charts=[Markup(charts.against(one)) for one in made.comparisons],
        preview=Markup(_preview(*made.preview)) if made.preview else "",
        statement=Markup(markup.to_html(told.to_markdown(), 2)),
        registry=registry.write(registry.record(told, about)),
        cite=cite,
        style=Markup((TEMPLATES / "style.css").read_text()),
        version=__version__,
    )


def _row(row: Row) -> dict[str, Any]:
    scale = max(1, -(-READABLE // row.each))
    return {
        "name": row.name,
        "source": f"data:image/png;base64,{base64.b64encode(row.png).decode()}",
        "width": row.width * scale,
    }


def _preview(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = Markup("").join(Markup("<th scope='col'>{}</th>").format(name) for name in head)
    body = Markup("").join(
        Markup("<tr>{}</tr>").format(Markup("").join(Markup("<td>{}</td>").format(value) for value in row))
        for row in rows
    )
    table = Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(cells, body)
    return Markup('<div class="scroll" tabindex="0" role="region" aria-label="synthetic records">{}</div>').format(
        table
    )
