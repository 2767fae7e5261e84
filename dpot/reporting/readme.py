"""The numbers of README.md: blocks between HTML comments, written from what is committed and from nothing else.

`make readme` (scripts/write_readme.py) rewrites them; a test compares them with the results.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from dpot.config import REPOSITORY
from dpot.errors import DataError
from dpot.reporting import methods_page, site
from dpot.reporting.gather import Gathered, RunsOfCell, SheetState, gather

MARK = "written by `make readme`"
README = REPOSITORY / "README.md"
SHOWN_PAPERS = ("DP-SWD-b", "DP-SWD-c", "DP-MERF", "DP-Sinkhorn", "DPDM (accuracy sampler)")
MNIST = tuple(c for c in methods_page.COLUMNS if c.startswith("MNIST"))


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


def update(path: Path = README) -> bool:
    """Rewrite the file; whether anything changed."""
    before = path.read_text()
    after = updated(before, gather(None))
    if after != before:
        path.write_text(after)
    return after != before


def picture(gathered: Gathered) -> str:
    """Samples of a private generator, with the record and the statement they come from."""
    best = _best_runs(gathered)
    if best is None:
        return ""
    _, runs = best
    record = runs.records[0]
    folder = record.provenance["directory"].relative_to(REPOSITORY)
    seconds = float((record.metrics.get("training") or {}).get("seconds") or record.provenance["seconds"])
    proof = "proved" if record.privacy.get("rigorous") else "claimed"
    guarantee = f"({record.privacy['budget']:g}, {record.privacy['delta']:g})"
    return (
        f"![Digits from a generator trained under {guarantee}-differential privacy, one row per class]"
        f"({folder}/samples.png)\n\n"
        f"*Digits from a generator trained with {runs.row} under a {proved_words(proof)} {guarantee} guarantee: "
        f"{seconds:.0f} s of training on one {record.provenance['device']} ([record]({folder}/record.json), "
        f"[privacy statement]({folder}/privacy.md)).*"
    )


def proved_words(proof: str) -> str:
    """The word for the guarantee."""
    return {"proved": "proved", "claimed": "claimed, not proved,"}[proof]


def _best_runs(gathered: Gathered) -> tuple[SheetState, RunsOfCell] | None:
    """A rigorous run on MNIST with samples: the sketch's, else DP-SWD's, at the largest budget."""
    for paper in ("sketch", "dp_swd"):
        found = [
            (state, runs)
            for state in site.ordered(gathered)
            if state.sheet.paper == paper
            for runs in state.runs
            if runs.records and runs.profile == "paper" and _fits(runs)
        ]
        if found:
            return max(found, key=lambda pair: float(pair[1].records[0].privacy["budget"]))
    return None


def _fits(runs: RunsOfCell) -> bool:
    record = runs.records[0]
    sound = record.privacy.get("rigorous") and record.privacy.get("budget") is not None
    samples = record.provenance["directory"] / "samples.png"
    return bool(sound) and record.provenance["data"].get("name") == "mnist" and samples.exists()


def state(gathered: Gathered) -> str:
    """Every table and figure on record: cells within bounds, seeds, where it lies."""
    lines = ["| table | what | within bounds or better | seeds | where |", "|---|---|---|---|---|"]
    missing: dict[str, list[str]] = {}
    for one in site.ordered(gathered):
        facts = site.sheet_facts(one)
        if one.state == "not run yet":
            paper, _, name = facts["label"].partition(", ")
            missing.setdefault(paper, []).append(name)
            continue
        hits = facts["hits"] if one.state != "not comparable yet" else "not comparable yet"
        lines.append(f"| {facts['label']} | {facts['title']} | {hits} | {facts['seeds']} | {_where(one)} |")
    if missing:
        named = "; ".join(f"{paper}: {', '.join(names)}" for paper, names in missing.items())
        lines += ["", f"Not on record yet. {named}."]
    return "\n".join(lines)


def _where(one: SheetState) -> str:
    folder = f"results/reproduced/{one.sheet.paper}/{one.sheet.kind}_{one.sheet.name}"
    if (REPOSITORY / folder / "comparison.md").exists():
        return f"[comparison]({folder}/comparison.md)"
    files = [f for d in one.documents for f in d.files if f.suffix in (".md", ".png")]
    return f"[{files[0].suffix[1:]}]({files[0].relative_to(REPOSITORY)})" if files else "–"


def methods(gathered: Gathered) -> str:
    """MNIST at ε = 1 and 10: ours with a proof and from a table, and the best known of the published ones."""
    lines = [
        "| ε | method | " + " | ".join(c.split()[1] for c in MNIST) + " | source |",
        "|---" * (len(MNIST) + 3) + "|",
    ]
    for line in methods_page.all_lines(gathered):
        if not any(c in line.cells for c in MNIST) or line.epsilon == methods_page.NON_PRIVATE:
            continue
        if line.is_ours and (line.guarantee != "proved" or line.kind != "table"):
            continue
        if not line.is_ours and line.name not in SHOWN_PAPERS:
            continue
        name = f"**{line.name}**" if line.is_ours else line.name
        numbers = " | ".join(line.cells.get(c, (0, "–"))[1] for c in MNIST)
        lines.append(f"| {line.epsilon} | {name} | {numbers} | {line.source} |")
    return "\n".join(lines)


def checks(gathered: Gathered) -> str:
    """Claims by verdict, audits by outcome."""
    lines = ["| paper | claims that hold | conditional | false |", "|---|---|---|---|"]
    for paper in sorted({c["paper"] for c in gathered.claims}, key=site.paper_order):
        found = Counter(c["verdict"] for c in gathered.claims if c["paper"] == paper)
        lines.append(f"| {site.paper_name(paper)} | {found['holds']} | {found['conditional']} | {found['false']} |")
    lines += ["", "| audit | claimed ε | ε at least (95%) | with the noise off | verdict |", "|---|---|---|---|---|"]
    for audit in gathered.audits:
        name = site.audited_name(audit)
        off = audit["controls"]["positive"]["lower_bound"]
        verdict = "**refuted**" if audit["refuted"] else "not refuted"
        lines.append(
            f"| {name} | {audit['claimed_epsilon']:.3g} | {audit['lower_bound']:.3g} | {off:.3g} | {verdict} |"
        )
    return "\n".join(lines)


BLOCKS: dict[str, Callable[[Gathered], str]] = {
    "picture": picture,
    "state": state,
    "methods": methods,
    "checks": checks,
}
