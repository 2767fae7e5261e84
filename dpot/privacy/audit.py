"""Auditing a claimed ε from the outside: one run, many canaries, a lower bound with confidence.

Each of m canaries is put in or left out by a fair coin; the mechanism runs once; somebody who sees what it released
(and nothing of the coins) guesses r of the coins and has v right. Under (ε, δ)-DP, with W ~ Binomial(r, q) and
q = e^ε/(1+e^ε),

    P(at least v right) ≤ P(W ≥ v) + 2mδ · max_{1≤i≤v} P(v > W ≥ v-i) / i

(Steinke, Nasr & Jagielski 2023, Theorem 5.2). The largest ε that makes v right answers improbable is a lower bound on
the ε of the mechanism. It holds whatever the guesser does, so a weak one gives a weak bound, never a false one.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from dpot.privacy.errors import InvalidParameter

LARGEST = 60.0  # e^60 : 1 in favour; nothing a test of this kind could tell from infinity


def p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float = 0.0) -> float:
    """How probable `correct` right guesses or more are, at most, if the mechanism is (ε, δ)-DP."""
    if not 0 <= correct <= guesses <= canaries:
        raise InvalidParameter(f"{correct} right of {guesses} guesses about {canaries} canaries: not possible")
    if epsilon < 0 or not 0 <= delta < 1:
        raise InvalidParameter(f"epsilon={epsilon} must not be negative and delta={delta} lie in [0, 1)")
    if correct == 0:
        return 1.0
    odds = 1 / (1 + math.exp(-epsilon))
    tail = float(special.bdtrc(correct - 1, guesses, odds))
    if delta == 0:
        return tail
    i = np.arange(1, correct + 1)
    lower = np.where(i < correct, special.bdtr(np.maximum(correct - 1 - i, 0), guesses, odds), 0.0)
    below = special.bdtr(correct - 1, guesses, odds) - lower  # P(v > W ≥ v-i)
    return min(tail + 2 * canaries * delta * float(np.max(below / i)), 1.0)


def lower_bound(canaries: int, guesses: int, correct: int, delta: float = 0.0, confidence: float = 0.95) -> float:
    """The ε that the guesses refute: with probability `confidence` or more the mechanism's ε is not below it."""
    if not 0 < confidence < 1:
        raise InvalidParameter(f"confidence={confidence} must lie between 0 and 1")
    level = 1 - confidence

    def excess(epsilon: float) -> float:
        return p_value(canaries, guesses, correct, epsilon, delta) - level

    if excess(0.0) > 0:
        return 0.0
    # p grows with ε until δ's part takes over; the first crossing is the bound
    grid = np.linspace(0, LARGEST, 601)
    first = next((i for i, e in enumerate(grid) if excess(float(e)) > 0), None)
    if first is None:
        return LARGEST
    return float(optimize.brentq(excess, grid[first - 1], grid[first], xtol=1e-9))


def best_bound(canaries: int, guesses: int, delta: float = 0.0, confidence: float = 0.95) -> float:
    """What the bound would be if every guess were right: an ε above it cannot be refuted with these canaries."""
    return lower_bound(canaries, guesses, guesses, delta, confidence)


@dataclass(frozen=True)
class OneRun:
    """The outcome of a one-run audit."""

    canaries: int
    guesses: int
    correct: int
    delta: float
    confidence: float
    lower_bound: float

    @classmethod
    def of(
        cls, scores: NDArray[np.float64], included: NDArray[np.bool_], guesses: int, delta: float, confidence: float
    ) -> OneRun:
        """Guess "in" for the highest scores and "out" for the lowest, as many of each; abstain between.

        The number of guesses is fixed beforehand: to choose it by the outcome would be to test many times.
        """
        half = guesses // 2
        order = np.argsort(scores, kind="stable")
        correct = int((~included[order[:half]]).sum() + included[order[len(order) - half :]].sum())
        bound = lower_bound(len(scores), 2 * half, correct, delta, confidence)
        return cls(len(scores), 2 * half, correct, delta, confidence, bound)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able data."""
        return asdict(self)


def false_alarms(
    scores: NDArray[np.float64],
    guesses: int,
    delta: float,
    confidence: float,
    rng: np.random.Generator,
    repetitions: int = 2000,
) -> dict[str, Any]:
    """The null control: the same scores against coins the mechanism never saw, many times over.

    Such coins have ε = 0, so a bound above 0 is a false alarm and must be as rare as the confidence says. `passed`
    leaves room for five standard errors of the repetitions, so that it fails by chance once in a million.
    """
    half = guesses // 2
    order = np.argsort(scores, kind="stable")
    coins = rng.random((repetitions, len(scores))) < 0.5
    correct = (~coins[:, order[:half]]).sum(1) + coins[:, order[len(order) - half :]].sum(1)
    bounds = {int(v): lower_bound(len(scores), 2 * half, int(v), delta, confidence) for v in np.unique(correct)}
    found = np.array([bounds[int(v)] for v in correct])
    rate, level = float((found > 0).mean()), 1 - confidence
    allowed = level + 5 * math.sqrt(level * (1 - level) / repetitions)
    return {
        "lower_bound": float(np.median(found)),
        "false_alarms": rate,
        "allowed": allowed,
        "repetitions": repetitions,
        "passed": rate <= allowed,
    }
