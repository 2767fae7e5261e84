"""What a checked claim is: a sentence of a paper and a function that finds out whether it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["holds", "conditional", "false", "not checkable"]
Whose = Literal["paper", "another paper", "dpot"]  # dpot: added here, as what holds instead


@dataclass(frozen=True)
class Finding:
    """The outcome of a check: a verdict, and the numbers it rests on, computed just now."""

    verdict: Verdict
    evidence: str


@dataclass(frozen=True)
class Claim:
    """One claim of a paper: where it stands, the claim in a sentence, and its check (seconds, no data, fixed seeds)."""

    name: str  # "Proposition 7", "Theorem 1", "Table 4"
    claim: str
    check: Callable[[], Finding]
    whose: Whose = "paper"  # only the paper's own are counted for or against it
