"""What the failures of samplers cost: they are taken off δ before anything is calibrated or priced.

A draw fails independently of the records and of all answers. Over a run let a draw fail with probability p, and let the
draws, where none fails, be exactly those that are accounted. Then, with P' what runs and P what is accounted,

    P'(D ∈ S) ≤ P(D ∈ S, no failure) + p ≤ e^ε·P(D' ∈ S, no failure) + δ + p ≤ e^ε·P'(D' ∈ S) + δ + p,

because neighbours fail alike. So p comes off δ. A sampler whose law is only within a total variation v of the accounted
one (Poisson batches of bounded size) costs more: P'(D) ≤ P(D) + v and P(D') ≤ P'(D') + v give δ + (1 + e^ε)·v.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Failures:
    """Of all draws together: the probability that one fails, and the total variation from the accounted law."""

    failure: float = 0.0
    variation: float = 0.0

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Failures:
        """Those of one draw of a sampler, by its facts."""
        return cls(float(facts.get("failure", 0.0)), float(facts.get("overflow", 0.0)))

    def times(self, count: int) -> Failures:
        """Those of so many draws."""
        return Failures(count * self.failure, count * self.variation)

    def __add__(self, other: Failures) -> Failures:
        return Failures(self.failure + other.failure, self.variation + other.variation)

    def cost(self, epsilon: float) -> float:
        """What comes off δ at this ε."""
        if not self.variation:
            return self.failure
        return self.failure + self.variation * (1 + math.exp(epsilon)) if epsilon < 700 else math.inf
