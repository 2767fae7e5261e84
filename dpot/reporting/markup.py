"""The Markdown our own tasks write, as HTML: headings, tables, lists, paragraphs, code, emphasis, links."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

_RULE = re.compile(r"^\|?\s*:?-{3,}")
_NUMBER = re.compile(r"^[-+−]?(\d[\d,]*\.?\d*|\.\d+)(e[-+]?\d+)?( ?(%|s|dB|ms|±.*))?$", re.IGNORECASE)
LONG = 24  # characters: such a cell may not be squeezed


def to_html(text: str, level: int = 2) -> str:
    """A page's worth of Markdown; the largest heading becomes <h`level`>. Whatever is HTML in it is shown, not used."""
    return "\n".join(_blocks(text.splitlines(), level))


def inline(text: str) -> str:
    """Code, bold, emphasis and links inside a line."""
    safe = html.escape(text, quote=False)
    pieces = re.split(r"(`[^`]+`)", safe)
    for i, piece in enumerate(pieces):
        if piece.startswith("`") and piece.endswith("`") and len(piece) > 2:
            pieces[i] = f"<code>{piece[1:-1]}</code>"
            continue
        piece = re.sub(r"\[([^\]]+)\]\((https?://[^)\s\"]+)\)", r'<a href="\2">\1</a>', piece)
        piece = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", piece)  # links into the repository lead nowhere from here
        piece = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", piece)
        pieces[i] = re.sub(r"(?<![*\w])\*([^*\s][^*]*)\*", r"<em>\1</em>", piece)
    return "".join(pieces)


def cells(line: str) -> list[str]:
    """The cells of a table's line; an escaped bar is a bar."""
    parts = re.split(r"(?<!\\)\|", line.strip().strip("|") if not line.strip().endswith("\\|") else line.strip()[1:])
    return [part.strip().replace("\\|", "|") for part in parts]


def table(head: list[str], rows: list[list[str]], caption: str = "") -> str:
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


def _kind(cell: str) -> str:
    if cell == "–" or _NUMBER.match(cell):
        return ' class="number"'
    return ' class="text"' if len(cell) > LONG else ""


def _blocks(lines: list[str], level: int) -> Iterator[str]:
    at, top = 0, min((len(m[1]) for line in lines if (m := re.match(r"^(#+) ", line))), default=1)
    while at < len(lines):
        line = lines[at]
        heading = re.match(r"^(#+) (.*)", line)
        if not line.strip():
            at += 1
        elif heading:
            depth = min(6, level + len(heading[1]) - top)
            yield f"<h{depth}>{inline(heading[2])}</h{depth}>"
            at += 1
        elif line.startswith("```"):
            end = next((i for i in range(at + 1, len(lines)) if lines[i].startswith("```")), len(lines))
            yield f"<pre><code>{html.escape(chr(10).join(lines[at + 1 : end]))}</code></pre>"
            at = end + 1
        elif line.startswith("|") and at + 1 < len(lines) and _RULE.match(lines[at + 1]):
            end = next((i for i in range(at + 2, len(lines)) if not lines[i].startswith("|")), len(lines))
            yield table(cells(line), [cells(row) for row in lines[at + 2 : end]])
            at = end
        elif re.match(r"^\s*[-*] ", line):
            end = next((i for i in range(at, len(lines)) if not re.match(r"^(\s*[-*] |\s+\S)", lines[i])), len(lines))
            yield _list(lines[at:end])
            at = end
        else:
            stops = (i for i in range(at + 1, len(lines)) if not lines[i].strip() or re.match(r"^(#|\||```)", lines[i]))
            end = next(stops, len(lines))
            yield f"<p>{inline(' '.join(part.strip() for part in lines[at:end]))}</p>"
            at = end


def _list(lines: list[str]) -> str:
    items: list[list[str]] = []
    for line in lines:
        if re.match(r"^\s*[-*] ", line):
            items.append([re.sub(r"^\s*[-*] ", "", line)])
        else:
            items[-1].append(line.strip())
    return "<ul>" + "".join(f"<li>{inline(' '.join(item))}</li>" for item in items) + "</ul>"
