"""Auditing a claimed ε from the outside: repeat a mechanism on two neighbouring data sets, and tell them apart.

Somebody sees what a mechanism released, a number of times on D and as often on D', and gives every outcome a score. For
any threshold let α be the chance that an outcome of D exceeds it, and β' the same of D'. Under (ε, δ)-DP

    β' ≤ e^ε·α + δ    and    1 - α ≤ e^ε·(1 - β') + δ,

so that ε ≥ log((β' - δ)/α), and the same the other way round. α and β' are known by counting, up to an interval
(Clopper & Pearson 1934) that holds with the stated confidence whatever the mechanism. The threshold and the way round
are chosen on the first quarter of the outcomes, and the bound is taken from the others: it holds whatever the scores
are, so that a weak score gives a weak bound, never a false one. The strongest score is the likelihood ratio.

`gaussian` is a second bound, under an assumption: that the trade-off between the two errors is that of two normal
distributions a distance μ apart (Dong, Roth & Su 2022). Then every threshold speaks for the whole curve, and
ε follows from μ by the exact formula. For sampled and composed mechanisms this holds nearly, not exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpot.privacy.errors import InvalidParameter, UnsupportedEvent
from dpot.privacy.events import DiscreteGaussian, Event, Gaussian, ProjectionGaussian, Sampled
from dpot.privacy.gaussian import gaussian_epsilon

Floats = NDArray[np.float64]
PILOT = 0.25  # of the outcomes choose the threshold
THRESHOLDS = 120
FEWEST = 100  # outcomes


@dataclass(frozen=True)
class Told:
    """How well two neighbours were told apart: `positives` of D' and `false` of D, out of `trials` each."""

    epsilon: float  # at least, with the confidence
    gaussian: float  # at least, were the trade-off a Gaussian's
    trials: int
    positives: int
    false: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able data."""
        return asdict(self)


def interval(hits: Any, trials: int, level: float) -> tuple[Any, Any]:
    """Clopper & Pearson: below the first and above the second number with probability `level` at most, each."""
    hits = np.asarray(hits, dtype=np.float64)
    with np.errstate(all="ignore"):
        low = np.where(hits > 0, special.betaincinv(np.maximum(hits, 1e-9), trials - hits + 1, level), 0.0)
        high = np.where(hits < trials, special.betaincinv(hits + 1, np.maximum(trials - hits, 1e-9), 1 - level), 1.0)
    return low, high


def tell_apart(without: Floats, present: Floats, delta: float, confidence: float = 0.95) -> Told:
    """The lower bounds on ε that the scores of D (without) and of D' (present) give."""
    if not 0 < confidence < 1 or not 0 <= delta < 1:
        raise InvalidParameter(f"confidence={confidence} must lie between 0 and 1 and delta={delta} in [0, 1)")
    if len(without) != len(present) or len(without) < FEWEST:
        raise InvalidParameter(f"{len(without)} and {len(present)} scores: give {FEWEST} or more, as many of each")
    level = (1 - confidence) / 2
    pilot = int(PILOT * len(without))
    trials = len(without) - pilot
    ways = [(without, present), (-present, -without)]  # the second: what speaks against the record
    chosen: list[tuple[float, int, float]] = []
    mus: list[tuple[float, int, float]] = []
    for way, (first, second) in enumerate(ways):
        at = np.unique(np.quantile(np.concatenate([first[:pilot], second[:pilot]]), np.linspace(0, 1, THRESHOLDS)))
        beyond = [pilot - np.searchsorted(np.sort(x[:pilot]), at) for x in (first, second)]
        found = _log_ratio(beyond[0], beyond[1], pilot, delta, level)
        mu = _shift(beyond[0], beyond[1], pilot, level)
        chosen.append((float(found.max()), way, float(at[found.argmax()])))
        mus.append((float(mu.max()), way, float(at[mu.argmax()])))

    def counted(pick: tuple[float, int, float]) -> tuple[int, int]:
        first, second = ways[pick[1]]
        return int((first[pilot:] >= pick[2]).sum()), int((second[pilot:] >= pick[2]).sum())

    false, positives = counted(max(chosen))
    moved = float(_shift(*counted(max(mus)), trials, level))
    return Told(
        epsilon=max(0.0, float(_log_ratio(false, positives, trials, delta, level))),
        gaussian=gaussian_epsilon(1 / moved, delta) if moved > 0 and delta > 0 else 0.0,
        trials=trials,
        positives=positives,
        false=false,
    )


def _log_ratio(false: Any, positives: Any, trials: int, delta: float, level: float) -> Any:
    low, high = interval(positives, trials, level)[0], interval(false, trials, level)[1]
    return np.log(np.maximum(low - delta, 1e-300) / high)


def _shift(false: Any, positives: Any, trials: int, level: float) -> Any:
    """μ at least, were both normal with the same variance: Φ⁻¹(β') - Φ⁻¹(α)."""
    low, high = interval(positives, trials, level)[0], interval(false, trials, level)[1]
    return np.where((low > 0) & (high < 1), special.ndtri(low) - special.ndtri(high), -np.inf)


def false_alarms(
    scores: Floats, delta: float, confidence: float, rng: np.random.Generator, repetitions: int = 200
) -> dict[str, Any]:
    """The null control: outcomes of one data set, dealt into two halves at random, many times over.

    The halves have ε = 0, so a bound above 0 is a false alarm and must be as rare as the confidence says. `passed`
    leaves room for five standard errors of the repetitions.
    """
    found = []
    for _ in range(repetitions):
        dealt = rng.permutation(scores)
        half = len(dealt) // 2
        found.append(tell_apart(dealt[:half], dealt[half : 2 * half], delta, confidence).epsilon)
    rate, level = float(np.mean(np.array(found) > 0)), 1 - confidence
    allowed = level + 5 * math.sqrt(level * (1 - level) / repetitions)
    return {
        "lower_bound": max(found),
        "false_alarms": rate,
        "allowed": allowed,
        "repetitions": repetitions,
        "passed": rate <= allowed,
    }


def perfect_scores(events: Sequence[Event], count: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Scores of D and of D' for a record that moves every release by all of its stated sensitivity, the others none.

    Simulated from the events alone: with probability q the release is N(1, z²) instead of N(0, z²), in a direction that
    is known. What an audit of these releases can reach, and what it falls short of where one record moves less.
    """
    both = []
    for present in (False, True):
        total = np.zeros(count)
        for event in events:
            inside, rate = (event.event, event.rate) if isinstance(event, Sampled) else (event, 1.0)  # type: ignore[attr-defined]
            moved = _moves(inside, count, rng)  # in standard deviations of the noise
            seen = rng.standard_normal(count) + (moved * (rng.random(count) < rate) if present else 0.0)
            total += np.log1p(rate * np.expm1(np.minimum(moved * seen - moved**2 / 2, 700)))
        both.append(total)
    return both[0], both[1]


def noise_over_sensitivity(event: Event) -> float:
    """The noise multiplier that the ledger entered."""
    inside = event.event if isinstance(event, Sampled) else event
    if isinstance(inside, Gaussian):
        return inside.noise_multiplier
    if isinstance(inside, ProjectionGaussian):
        return inside.sigma / inside.diameter
    if isinstance(inside, DiscreteGaussian):
        return inside.sigma / (inside.sensitivity * math.sqrt(inside.coordinates))
    raise UnsupportedEvent(f"an audit cannot judge the noise of {type(inside).__name__}")


def _moves(event: Event, count: int, rng: np.random.Generator) -> Floats:
    """How far the release moves; for projections the root of a sum of k variables Beta(1/2, (d-1)/2)."""
    whole: Floats = np.full(count, 1 / noise_over_sensitivity(event))
    if isinstance(event, ProjectionGaussian) and event.dimension > 1:
        shares = rng.beta(0.5, (event.dimension - 1) / 2, (count, event.projections))
        whole = whole * np.sqrt(shares.sum(1))
    return whole
