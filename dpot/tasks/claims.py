"""`task=claims`: every claim of the papers that can be checked by a computation, checked now.

The checks live in dpot/papers/PAPER/claims.py, each with its list CLAIMS. What is found is printed and kept under
output_root/claims/PAPER.json, from where the report takes it.
"""

from __future__ import annotations

import importlib
import json
import time
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import dpot.papers
from dpot.config import unknown
from dpot.disk import write_atomically
from dpot.papers.claims import Claim
from dpot.record import provenance
from dpot.tasks.base import Answer, Task

STYLE = {"holds": "green", "conditional": "yellow", "false": "red", "not checkable": "dim"}


class Claims(Task):
    """Check the claims of one paper (paper=) or of all."""

    def run(self, cfg: DictConfig) -> Answer:
        """Run the checks and answer with verdicts and evidence."""
        known = collected()
        if cfg.paper is not None and cfg.paper not in known:
            raise unknown("paper", cfg.paper, list(known))
        papers = [cfg.paper] if cfg.paper is not None else list(known)
        found = []
        for paper in papers:
            checked = [checked_claim(paper, claim) for claim in known[paper]]
            path = Path(cfg.output_root) / "claims" / f"{paper}.json"
            kept = {"paper": paper, "claims": checked, "provenance": provenance(cfg)}
            write_atomically(path, json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
            found += checked
        return Answer({"claims": found}, lambda console: _show(console, found))


def collected() -> dict[str, list[Claim]]:
    """The claims of every paper that has some, by its name."""
    root = Path(dpot.papers.__file__).parent
    folders = sorted(path.parent.name for path in root.glob("*/claims.py"))
    return {paper: importlib.import_module(f"dpot.papers.{paper}.claims").CLAIMS for paper in folders}


def checked_claim(paper: str, claim: Claim) -> dict[str, Any]:
    """The claim with what its check found, and how long that took."""
    started = time.monotonic()
    finding = claim.check()
    return {
        "paper": paper,
        "name": claim.name,
        "claim": claim.claim,
        "whose": claim.whose,
        "verdict": finding.verdict,
        "evidence": finding.evidence,
        "seconds": round(time.monotonic() - started, 2),
    }


def _show(console: Console, claims: list[dict[str, Any]]) -> None:
    table = Table(title="Claims, checked just now", title_justify="left", show_lines=True)
    for name in ("paper", "where", "claim", "verdict", "evidence"):
        table.add_column(name, overflow="fold")
    for c in claims:
        style = STYLE[c["verdict"]]
        verdict = f"[{style}]{c['verdict']}[/{style}]"
        table.add_row(c["paper"], escape(c["name"]), escape(c["claim"]), verdict, escape(c["evidence"]))
    console.print(table)
