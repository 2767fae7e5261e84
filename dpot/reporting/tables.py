"""A comparison as a table: on the terminal, in Markdown, LaTeX (booktabs), CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import os
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from dpot.config import REPOSITORY
from dpot.disk import write_atomically
from dpot.reporting.compare import ComparedCell, as_answer
from dpot.reporting.sheets import Sheet
from dpot.reporting.verdicts import COUNTED_APART, ENOUGH, FEW, MEANING, difference_of_data

NAMES = 22  # characters of a line of names, at least, where a screen is narrow
STYLE = {
    "within": "green",
    FEW: "green",
    "better": "bold green",
    "outside": "red",
    "not comparable": "yellow",
    "ours": "cyan",
    **dict.fromkeys(COUNTED_APART, "yellow"),
}


def number(value: float | None, metric: str = "accuracy") -> str:
    """As the papers print it: one decimal for accuracies and FIDs, three for the rest, fewer where they say nothing."""
    if value is None:
        return "–"
    if metric in ("accuracy", "fid"):
        return f"{value:.1f}"
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.0f}" if abs(value) < 1e6 else f"{value:.3g}"


def short_text(cell: ComparedCell) -> str:
    """Our number with its spread; what it is the spread of is for the legend to say."""
    if cell.ours is None:
        return "–"
    spread = f" ± {number(cell.std, cell.metric)}" if cell.std is not None else ""
    return f"{number(cell.ours, cell.metric)}{spread}"


def ours_text(cell: ComparedCell) -> str:
    """Our number with its spread, which is over seeds unless it says otherwise."""
    return short_text(cell) + (" (passes)" if cell.over == "passes" else "")


def dagger(cell: ComparedCell) -> str:
    """The mark of a number whose runs state an ε that is not proved."""
    return "†" if cell.guarantee == "not proved" else ""


def star(cell: ComparedCell) -> str:
    """The mark of a number that is not held against the published one."""
    return "*" if cell.verdict == "not comparable" else ""


def verdict_text(cell: ComparedCell) -> str:
    """The verdict; counted apart, with what the numbers alone would say; of few trainings, with what they differ by."""
    if cell.verdict in COUNTED_APART and cell.numbers:
        return f"{cell.verdict} ({cell.numbers})"
    is_few = cell.seeds < ENOUGH and cell.verdict in ("better", "outside", FEW)
    return f"{cell.verdict} (trainings differ by {cell.noise:g})" if is_few and cell.noise else cell.verdict


def difference_text(cell: ComparedCell) -> str:
    """Ours minus published, with its sign."""
    if cell.difference is None:
        return "–"
    return ("+" if cell.difference >= 0 else "-") + number(abs(cell.difference), cell.metric)


def legend(cells: list[ComparedCell], sheet: Sheet | None = None) -> list[str]:
    """What the reader must know about where the numbers come from."""
    made = [c for c in cells if c.ours is not None]
    lines = []
    for profile in dict.fromkeys(c.profile for c in made):
        mine = [c for c in made if c.profile == profile]
        data = ", ".join(sorted({str(c.data) for c in mine}))
        counts = sorted({c.seeds for c in mine})
        seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]}–{counts[-1]}"
        lines.append(f"Ours: profile {profile}, data {data}, {seeds} seed(s) per cell.")
    if any(c.over == "draws" for c in made):
        lines.append("With one seed, ± is the standard deviation over draws of the data within the run.")
    if any(c.over == "passes" for c in made):
        lines.append("With one seed, ± is the standard deviation over the run's passes of sampling and classifying.")
    if any(c.guarantee == "not proved" for c in made):
        lines.append("† marks runs whose ε is stated without a complete proof; their statements say why.")
    if any(c.verdict == "not comparable" for c in made):
        lines.append("Numbers marked * are NOT comparable with the published ones (smaller profile or other data).")
    shown = [name for name in MEANING if any(c.verdict == name for c in cells)]
    lines += [f"{name[0].upper()}{name[1:]}: {MEANING[name]}." for name in shown]
    if any(c.verdict == "other data" for c in made):
        told = dict.fromkeys(difference_of_data(str(c.data)) for c in made)
        lines += [f"Other data: {text}." for text in told if text]
    lines += [f"{c.row}: {c.remark}." for c in {c.row: c for c in cells if c.remark}.values()]
    return lines + (_of_sheet(sheet, made) if sheet else [])


def _of_sheet(sheet: Sheet, made: list[ComparedCell]) -> list[str]:
    """What the sheet says of its rows: what trainings differ by, and where settings are not the printed ones."""
    lines = []
    few = {c.row for c in made if c.seeds < ENOUGH and c.published is not None}
    for row, noise in sheet.remarks.noise.items():
        spread = ", ".join(f"{value:g} ({metric})" for metric, value in noise.spread.items())
        if row in few:
            lines.append(f"{row}: trainings are known to differ by {spread} ({noise.source}).")
    for departure in sheet.remarks.departs:
        where = ", ".join(departure.place.rows + departure.place.columns) or "all rows"
        lines += [f"Not as printed: {where}: {key}: {reason}." for key, reason in departure.keys.items()]
    return lines


@dataclass(frozen=True)
class Terminal:
    """Rows × columns; each cell shows published | ours, coloured by the verdict. Wide sheets come in several parts."""

    sheet: Sheet
    cells: list[ComparedCell]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """As many columns abreast as the screen has room for."""
        sheet = self.sheet
        yield Text(f"{sheet.paper} {sheet.kind} {sheet.name}: {sheet.title}\npublished | ours", style="italic")
        rows = list(dict.fromkeys(c.row for c in self.cells))
        texts = {(c.row, c.column): _cell_text(c) for c in self.cells}
        left = room = options.max_width - min(NAMES, max((len(r) for r in rows), default=0)) - 4  # borders and padding
        part: list[str] = []
        for column in dict.fromkeys(c.column for c in self.cells):
            width = 3 + max(len(column), *(texts[row, column].cell_len for row in rows))
            if part and width > left:
                yield _part(part, rows, texts)
                part, left = [], room
            part.append(column)
            left -= width
        yield _part(part, rows, texts)


def _cell_text(cell: ComparedCell) -> Text:
    return Text.assemble(
        f"{number(cell.published, cell.metric)} | ",
        (f"{short_text(cell)}{dagger(cell)}{star(cell)}", STYLE.get(cell.verdict, "dim")),
    )


def _part(columns: list[str], rows: list[str], texts: dict[tuple[str, str], Text]) -> RichTable:
    table = RichTable()
    table.add_column("method", overflow="fold")  # on a narrow screen names give way, not numbers
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row, *(texts[row, column] for column in columns))
    return table


def write(folder: Path, stem: str, sheet: Sheet, cells: list[ComparedCell]) -> None:
    """All four files of a comparison."""
    inside = folder.resolve().is_relative_to(REPOSITORY)
    root = os.path.relpath(REPOSITORY, folder.resolve()) if inside else None
    write_atomically(folder / f"{stem}.md", markdown(sheet, cells, root))
    write_atomically(folder / f"{stem}.tex", latex(sheet, cells))
    write_atomically(folder / f"{stem}.csv", comma_separated(cells))
    write_atomically(folder / f"{stem}.json", json.dumps(as_answer(sheet, cells), indent=1) + "\n")


def markdown(sheet: Sheet, cells: list[ComparedCell], root: str | None = None) -> str:
    """One line per cell, for a page; with the way to the repository's root, verdicts link to their reasons."""
    lines = [
        f"# {sheet.paper}, {sheet.kind} {sheet.name}: {sheet.title}",
        "",
        "| row | column | published | ours | seeds | difference | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for c in cells:
        said = verdict_text(c)
        said = f"[{said}]({root}/{c.because})" if root and c.because else said
        ours = f"{ours_text(c)}{dagger(c)}{star(c)}"
        parts = [c.row, c.column, number(c.published, c.metric), ours, str(c.seeds), difference_text(c), said]
        lines.append(f"| {' | '.join(parts)} |")
    return "\n".join([*lines, "", *(f"- {line}" for line in legend(cells, sheet)), ""])


def latex(sheet: Sheet, cells: list[ComparedCell]) -> str:
    """A booktabs table: published / ours per column."""
    columns = list(dict.fromkeys(c.column for c in cells))
    wide = 1 + 2 * len(columns)
    escape = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#"}

    def clean(text: str) -> str:
        return "".join(escape.get(ch, ch) for ch in text)

    lines = [
        r"\begin{tabular}{l" + "rr" * len(columns) + "}",
        r"\toprule",
        " & ".join(["", *(rf"\multicolumn{{2}}{{c}}{{{clean(c)}}}" for c in columns)]) + r" \\",
        " & ".join(["method", *["published & ours"] * len(columns)]) + r" \\",
        r"\midrule",
    ]
    for row in dict.fromkeys(c.row for c in cells):
        parts = [clean(row)]
        for column in columns:
            cell = next(c for c in cells if c.row == row and c.column == column)
            ours = ours_text(cell).replace(" ± ", r"\,$\pm$\,").replace("–", "--")
            ours += dagger(cell).replace("†", r"$^\dagger$") + star(cell).replace("*", r"$^\ast$")
            if cell.verdict in COUNTED_APART:
                ours = rf"\textit{{{ours}}}"
            parts.append(f"{number(cell.published, cell.metric).replace('–', '--')} & {ours}")
        lines.append(" & ".join(parts) + r" \\")
    if any(star(c) for c in cells):
        lines += [r"\midrule", rf"\multicolumn{{{wide}}}{{l}}{{$^\ast$ not comparable with the published number}} \\"]
    apart = [name for name in COUNTED_APART if any(c.verdict == name for c in cells)]
    if apart:
        lines += [r"\midrule", rf"\multicolumn{{{wide}}}{{l}}{{\textit{{in italics}}: {', '.join(apart)}}} \\"]
    notes = [f"% {line}" for line in legend(cells, sheet)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", *notes, ""])


def comma_separated(cells: list[ComparedCell]) -> str:
    """CSV, one line per cell."""
    out = io.StringIO()
    writer = csv.writer(out)
    names = ["row", "column", "metric", "published", "ours", "std", "seeds", "profile", "data", "verdict", "guarantee"]
    names += ["numbers", "because", "counted"]
    writer.writerow(names)
    for c in cells:
        writer.writerow([getattr(c, name) for name in names])
    return out.getvalue()
