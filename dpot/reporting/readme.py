"""What README.md and results/README.md say of the results: written from what is committed and from nothing else.

results/README.md is written as a whole, of README.md the blocks between HTML comments. `make readme`
(scripts/write_readme.py) rewrites both; a test compares them with the results.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from dpot.config import REPOSITORY
from dpot.disk import write_atomically
from dpot.errors import DataError
from dpot.privacy.statement import Statement
from dpot.reporting import audits, methods_page, published, store, verdicts
from dpot.reporting.gather import Gathered, RunsOfCell, SheetState, gather
from dpot.reporting.verdicts import COUNTED_APART, JUDGED

MARK = "written by `make readme`"
README = REPOSITORY / "README.md"
STATEMENT = "## A privacy statement"  # the section of results/README.md that the picture links to
SHOWN_PAPERS = ("DP-SWD-b", "DP-SWD-c", "DP-MERF", "DP-Sinkhorn", "DPDM (accuracy sampler)", "DPDM (FID sampler)")
ALL_COLUMNS = methods_page.COLUMNS
SMALL_COLUMNS = tuple(f"{data} {metric}" for data in ("MNIST", "Fashion") for metric in ("FID", "MLP", "CNN"))
JUDGED_BY = """Downstream accuracy (%) and FID; **bold** is ours, with a proof of the ε. Rows were judged by different
classifiers, which *judged by* names, so that a point or two between rows of different judges says nothing. Settings
were chosen on these images, outside every ε: the sketch's rules on MNIST's training images (and where its lines look
on Fashion-MNIST's too), DP-SWD-exact's by MNIST's test accuracy; DP-MERF's and DP-CGAN's are their authors'. How the
others chose is theirs to say.
"""
HEAD = """# What is on record

Every number here comes from the records in this folder. `make readme` writes this page, `make report` shows everything
as web pages with curves, pictures, privacy statements and the command of every cell.

| what | where |
|---|---|
| the numbers that the papers print | `published/PAPER.yaml` |
| the runs of a table or figure, one per line | `PAPER/KIND_NAME/records.jsonl` |
| published and reproduced numbers side by side | `PAPER/KIND_NAME/comparison.md` (also `.csv`, `.tex`, `.json`) |
| samples and features of the first seeds | `PAPER/KIND_NAME/pictures/` |
| a figure drawn from runs | `PAPER/KIND_NAME/figure.png` |
| tables and figures that are computed without training | `PAPER/KIND_NAME/computed.json` (`.md`, `.png`) |
| what to know about particular records | `PAPER/KIND_NAME/notes.md` |
| claims of the papers, checked; audits of an ε | `claims/`, `audit/` |
| speed | `bench/` |
"""


def updated(text: str, gathered: Gathered) -> str:
    """The text with every block written anew; an unknown or unclosed block is an error."""

    def written(found: re.Match[str]) -> str:
        name = found[1]
        if name not in BLOCKS:
            raise DataError(f"README: no block is called {name}; there are {', '.join(BLOCKS)}")
        return f"<!-- {name}: {MARK} -->\n\n{BLOCKS[name](gathered)}\n\n<!-- end of {name} -->"

    after, blocks = re.subn(rf"<!-- (\w+): {MARK} -->\n.*?<!-- end of \1 -->", written, text, flags=re.DOTALL)
    if blocks != text.count(f": {MARK} -->"):
        raise DataError("README: a block is not closed by <!-- end of NAME -->")
    return after


def update() -> list[Path]:
    """Rewrite both files; those that changed."""
    gathered = gather(None)
    wanted = {README: updated(README.read_text(), gathered), store.RESULTS / "README.md": overview(gathered)}
    changed = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    for path in changed:
        write_atomically(path, wanted[path])
    return changed


# results/README.md


def overview(gathered: Gathered) -> str:
    """The whole of results/README.md."""
    parts = [
        HEAD,
        "## Tables and figures\n",
        state(gathered),
        "\n## MNIST and Fashion-MNIST at equal ε\n",
        JUDGED_BY,
        methods(gathered),
        "\n## What was checked\n",
        checks(gathered),
        *statement(gathered),
    ]
    return "\n".join(parts).rstrip() + "\n"


def state(gathered: Gathered) -> str:
    """Every table and figure on record: how its cells compare, seeds, where it lies."""
    lines = [*(f"- **{verdicts.count_head(name)}**: {text}" for name, text in verdicts.MEANING.items()), ""]
    heads = ["table", "what", *map(verdicts.count_head, JUDGED), "counted apart", "seeds", "where"]
    lines += [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    missing: dict[str, list[str]] = {}
    for one in gathered.ordered:
        if one.state == "not run yet":
            paper, _, name = one.label.partition(", ")
            missing.setdefault(paper, []).append(name)
            continue
        judged = [str(one.counts.get(name, 0)) if one.judged else "–" for name in JUDGED]
        apart = one.apart if one.state != "not comparable yet" else "not comparable yet"
        cells = [one.label, one.sheet.title, *judged, apart, one.seeds, _where(one)]
        lines.append(f"| {' | '.join(cells)} |")
    if missing:
        named = "; ".join(f"{paper}: {', '.join(names)}" for paper, names in missing.items())
        lines += ["", f"Not on record yet. {named}."]
    return "\n".join(lines)


def _where(one: SheetState) -> str:
    folder = store.folder_of(one.sheet)
    files = [f for d in one.documents for f in d.files if f.stem.startswith("computed") and f.suffix in (".md", ".png")]
    if (folder / "comparison.md").exists():
        files = [folder / "comparison.md"]
    elif not files:
        return "–"
    return f"[{files[0].name}]({files[0].relative_to(store.RESULTS)})"


def methods(gathered: Gathered) -> str:
    """Both data sets at ε = 1 and 10: ours with a proof and from a table, and the best known of the published ones."""
    rows = [[*_cells(line, ALL_COLUMNS), line.judged_by, line.source] for line in _lines(gathered, ALL_COLUMNS)]
    return _table(["ε", "method", *ALL_COLUMNS, "judged by", "source"], rows)


def checks(gathered: Gathered) -> str:
    """Claims by verdict, audits by outcome."""
    lines = ["| paper | claims that hold | conditional | false | not the paper's own |", "|---|---|---|---|---|"]
    for paper in sorted({c["paper"] for c in gathered.claims}, key=published.paper_order):
        mine = [c for c in gathered.claims if c["paper"] == paper]
        found = Counter(c["verdict"] for c in mine if c["whose"] == "paper")
        apart = "; ".join(f"{c['name']}: {c['verdict']} ({c['whose']})" for c in mine if c["whose"] != "paper") or "–"
        name = published.paper_name(paper)
        lines.append(f"| {name} | {found['holds']} | {found['conditional']} | {found['false']} | {apart} |")
    lines += ["", "| audit | claimed ε | ε at least (95%) | planted faults | verdict |", "|---|---|---|---|---|"]
    for audit in gathered.audits:
        shown = [f"{audit['claimed_epsilon']:.3g}", f"{audit['lower_bound']:.3g}", audits.caught(audit)]
        verdict = "**refuted**" if audit["refuted"] else audits.verdict(audit)
        stale = " (stale)" if audits.is_stale(audit) else ""
        lines.append(f"| {' | '.join([audits.called(audit), *shown, verdict + stale])} |")
    return "\n".join(lines)


def statement(gathered: Gathered) -> list[str]:
    """The privacy statement of the run whose samples README.md shows, as an example of all."""
    best = _best_runs(gathered)
    if best is None:
        return []
    said = Statement.from_dict(best.records[0].privacy).to_markdown().partition("\n")[2]  # without its heading
    lead = f"Every record carries one. This is that of {best.name}, seed 0, whose samples the front page shows."
    return [f"\n{STATEMENT}\n", lead, said]


# the blocks of README.md


def picture(gathered: Gathered) -> str:
    """Samples of a private generator, with the record and the statement they come from."""
    runs = _best_runs(gathered)
    if runs is None:
        return ""
    record = runs.records[0]
    folder = Path(os.path.relpath(record.directory, REPOSITORY))
    seconds = float((record.metrics.get("training") or {}).get("seconds") or record.provenance["seconds"])
    guarantee = f"({record.privacy['budget']:g}, {record.privacy['delta']:g})"
    anchor = STATEMENT.strip("# ").lower().replace(" ", "-")
    return (
        f"![Digits from a generator trained under {guarantee}-differential privacy, one row per class]"
        f"({folder}/{record.files['samples']})\n\n"
        f"*Digits from a generator trained with {runs.row} under a proved {guarantee} guarantee: "
        f"{seconds:.0f} s of training on one {record.provenance['device']} ([records]({folder}/{store.RECORDS}), "
        f"[privacy statement](results/README.md#{anchor})).*"
    )


def _best_runs(gathered: Gathered) -> RunsOfCell | None:
    """A rigorous run on MNIST with samples: the sketch's, else DP-SWD's, at the largest budget."""
    for paper in ("sketch", "dp_swd"):
        mine = [runs for one in gathered.ordered if one.sheet.paper == paper for runs in one.runs]
        found = [runs for runs in mine if runs.records and runs.profile == "paper" and _fits(runs)]
        if found:
            return max(found, key=lambda runs: float(runs.records[0].privacy["budget"]))
    return None


def _fits(runs: RunsOfCell) -> bool:
    record = runs.records[0]
    sound = record.privacy.get("rigorous") and record.privacy.get("budget") is not None
    return bool(sound) and record.provenance["data"].get("name") == "mnist" and "samples" in record.files


def summary(gathered: Gathered) -> str:
    """Private methods on both data sets at ε = 10 and 1, and how many cells of each paper come out."""
    by_name: dict[tuple[bool, str, str], methods_page.Line] = {}
    for line in sorted(_lines(gathered, SMALL_COLUMNS), key=lambda line: len(line.cells)):
        by_name[line.is_ours, line.epsilon, line.name] = line  # of several tables the one that says most
    shown = sorted(by_name.values(), key=lambda line: (-float(line.epsilon), -line.cells[SMALL_COLUMNS[1]][0]))
    rows = [[*_cells(line, SMALL_COLUMNS), line.judged_by, "ours" if line.is_ours else line.source] for line in shown]
    lines = [_table(["ε", "method", *SMALL_COLUMNS, "judged by", "source"], rows), ""]
    counted: dict[str, Counter[str]] = {}
    for one in gathered.ordered:
        counted.setdefault(one.sheet.paper, Counter()).update(one.counts)
    kinds = [*JUDGED, *(name for name in COUNTED_APART if any(n[name] for n in counted.values()))]
    rows = [
        [published.paper_name(paper), *(str(n[name]) for name in kinds)]
        for paper, n in counted.items()
        if any(n[name] for name in kinds)
    ]
    return "\n".join([*lines, _table(["paper", *map(verdicts.count_head, kinds)], rows)])


def _lines(gathered: Gathered, columns: tuple[str, ...]) -> list[methods_page.Line]:
    """Ours with a proof and from a table, and the best known of the published ones."""
    found = []
    for line in methods_page.all_lines(gathered):
        is_shown = line.guarantee == "proved" and line.kind == "table" if line.is_ours else line.name in SHOWN_PAPERS
        if is_shown and line.epsilon != methods_page.NON_PRIVATE and any(c in line.cells for c in columns):
            found.append(line)
    return found


def _cells(line: methods_page.Line, columns: tuple[str, ...]) -> list[str]:
    name = f"**{line.name}**" if line.is_ours else line.name
    return [line.epsilon, name, *(line.cells.get(c, (0, "–"))[1] for c in columns)]


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)).replace("| --- ", "|---")


BLOCKS: dict[str, Callable[[Gathered], str]] = {"picture": picture, "methods": summary}
