"""The Markdown our own tasks write, as HTML; the tables of a page, which all look alike."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

_NUMBER = re.compile(r"^[-+−]?(\d[\d,]*\.?\d*|\.\d+)(e[-+]?\d+)?( ?(%|s|dB|ms|±.*))?$", re.IGNORECASE)
LONG = 24  # characters: such a cell may not be squeezed
# whatever is HTML in a text is shown, not used
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")


def to_html(text: str, level: int = 2) -> str:
    """A page's worth of Markdown; its largest heading becomes <h`level`>."""
    tokens = _MARKDOWN.parse(text)
    top = min((int(token.tag[1]) for token in tokens if token.type == "heading_open"), default=1)
    parts: list[str] = []
    block: list[Token] = []
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, level + int(token.tag[1]) - top)}"
        if token.children:
            token.children = _shown(token.children)
        block.append(token)
        if token.level == 0 and token.nesting <= 0:  # the end of a block
            is_table = block[0].type == "table_open"
            parts.append(_table_of(block) if is_table else _MARKDOWN.renderer.render(block, _MARKDOWN.options, {}))
            block = []
    return "\n".join(part.strip() for part in parts if part.strip() != "<p></p>")


def inline(text: str) -> str:
    """Code, bold, emphasis and links inside a line."""
    (line,) = _MARKDOWN.parseInline(text)
    line.children = _shown(line.children or [])
    return _MARKDOWN.renderer.render([line], _MARKDOWN.options, {})


def plain(text: str) -> str:
    """Any text as Markdown that shows it as it stands: nothing in it is markup, HTML or the end of a cell."""
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", html.escape(" ".join(text.split()), quote=False))


def table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """A sortable table; a column is right-aligned where its cells are numbers."""
    lines = ['<div class="scroll" tabindex="0" role="region" aria-label="table"><table class="sortable">']
    if caption:
        lines.append(f"<caption>{inline(caption)}</caption>")
    numeric = [i > 0 and any(_NUMBER.match(r[i]) for r in rows if len(r) > i) for i in range(len(head))]
    kinds = [' class="number"' if is_number else "" for is_number in numeric]
    cells_of_head = (f'<th scope="col"{kind}>{inline(c)}</th>' for c, kind in zip(head, kinds, strict=True))
    lines.append("<thead><tr>" + "".join(cells_of_head) + "</tr></thead><tbody>")
    for row in rows:
        padded = [*row, *[""] * (len(head) - len(row))]
        first = f'<th scope="row">{inline(padded[0])}</th>'
        rest = "".join(f"<td{_kind(c)}>{inline(c)}</td>" for c in padded[1 : len(head)])
        lines.append(f"<tr>{first}{rest}</tr>")
    return "\n".join([*lines, "</tbody></table></div>"])


def _table_of(tokens: Sequence[Token]) -> str:
    rows: list[list[str]] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            rows[-1].append(token.content)
    return table(rows[0], rows[1:])


def _shown(tokens: Sequence[Token]) -> list[Token]:
    """Without what leads nowhere from a report: of links into the repository the words are left, and pictures are
    shown beside the text, not in it. Lines of a text flow on.
    """
    kept: list[Token] = []
    dead = False
    for token in tokens:
        if token.type == "link_open" and not str(token.attrGet("href")).startswith(("http://", "https://")):
            dead = True
        elif token.type == "link_close" and dead:
            dead = False
        elif token.type != "image":
            kept.append(Token("text", "", 0, content=" ") if token.type == "softbreak" else token)
    return kept


def _kind(cell: str) -> str:
    if cell == "–" or _NUMBER.match(cell):
        return ' class="number"'
    return ' class="text"' if len(cell) > LONG else ""
