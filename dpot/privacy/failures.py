"""What the failures of samplers cost: their probability is taken off δ before anything is calibrated or priced.

A draw fails if it is not the one that is accounted: a batch drawn without replacement repeats a record, or a Poisson
batch has more records than there is room for. Whether this happens does not depend on the records. Let p be the
probability that it happens in a run, P' the law of what runs, and P its law where no draw fails. If P is
(ε, δ)-private, then

    P'(D ∈ S) ≤ (1 - p)·P(D ∈ S) + p ≤ e^ε·(1 - p)·P(D' ∈ S) + δ + p ≤ e^ε·P'(D' ∈ S) + δ + p,

because neighbours fail alike. Without failures,

- a batch drawn without replacement is exactly uniform (dpot/training/samplers.py);
- a Poisson batch is one of at most m records. Given the other records of the batch, the changed one is in it with
  probability q, as in any Poisson batch, or, where they fill the batch, with probability 0. The others have the same
  law for both neighbours, and the divergence grows with q. So it is at most that of Poisson sampling.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def failure_of(facts: Mapping[str, Any]) -> float:
    """The probability that one draw of a sampler fails, by its facts."""
    return float(facts.get("failure", 0.0)) + float(facts.get("overflow", 0.0))
