"""The three accountants of the paper's Figures 2 and 4 and of Table 2, over arrays of steps × pairs of gradients.

Each keeps one number per step; the budgets after every step come out at once. None of them is a guarantee but the
moments accountant on a true sensitivity, and that one is looser than dpot's own (dpot/privacy/rdp.py).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dpot.privacy.errors import POSITIVE, PROBABILITY, InvalidParameter, number, whole
from dpot.privacy.wdp.budget import BayesianBudget, Beside, WassersteinBudget
from dpot.privacy.wdp.moments import (
    WASSERSTEIN_ORDER,
    Floats,
    log_absolute_moment,
    log_subsampled_moment,
    log_upper_mean,
)

log = logging.getLogger("dpot")


def pair_distances(gradients: ArrayLike) -> Floats:
    """‖g_i − g_j‖₂ for all i < j, of (..., n, d) gradients, in the order of itertools.combinations."""
    rows = np.asarray(gradients, dtype=np.float64)
    centred = rows - rows.mean(-2, keepdims=True)  # keeps the Gram matrix from cancelling
    return distances_of(centred @ centred.swapaxes(-1, -2))


def distances_of(gram: Floats) -> Floats:
    """The same from the inner products (..., n, n) of the gradients."""
    squares = np.diagonal(gram, axis1=-2, axis2=-1)
    i, j = np.triu_indices(gram.shape[-1], 1)
    return np.sqrt(np.maximum(squares[..., i] + squares[..., j] - 2 * gram[..., i, j], 0))


@dataclass
class WassersteinAccountant:
    """Theorems 1 to 3: loss_t = (Σ_pairs E|Z|^μ)^{1/μ},  Z ~ N(q·d_t, (2 − 2q + 2q²)·(noise)²);  Σ_t loss_t − ln δ/β.

    The sum over pairs stands in for the paper's infimum, as the authors ran it. False both ways
    (dpot/papers/wdp/claims.py): Z is the difference of *independent* draws, so the loss grows with the noise, and a
    mixture is not a sum.
    """

    order: float = 16.0
    beta: float = 1.0
    losses: list[Floats] = field(default_factory=list)

    def __post_init__(self) -> None:
        number("order", self.order, WASSERSTEIN_ORDER)
        number("beta", self.beta, POSITIVE)

    def accumulate(self, distances: ArrayLike, noise: ArrayLike, rate: float) -> None:
        """Steps with these pair distances (..., pairs) and noise standard deviations (...)."""
        self.losses.append(np.atleast_1d(wasserstein_loss(self.order, distances, noise, rate)))

    def history(self, delta: float) -> Floats:
        """What the paper prints as ε after each step."""
        return np.asarray(_running(self.losses) - math.log(number("delta", delta, PROBABILITY)) / self.beta)

    def budget(self, delta: float, beside: Beside) -> WassersteinBudget:
        """The budget after the last step, in its own type, with a warning."""
        log.warning("the Wasserstein accountant is for reproduction only: its budget is no ε and no guarantee")
        return WassersteinBudget(self.order, float(_running(self.losses)[-1]), beside, delta, self.beta)


def wasserstein_loss(order: float, distances: ArrayLike, noise: ArrayLike, rate: float) -> Floats:
    """(Σ_pairs E|Z|^μ)^{1/μ}, Z ~ N(q·d, (2−2q+2q²)σ²): Theorem 2's loss of a step, pairs along the last axis."""
    if not 0 <= rate <= 1:
        raise InvalidParameter(f"rate must lie in [0, 1], got {rate}")
    means = rate * np.asarray(distances, dtype=np.float64)
    variances = (2 - 2 * rate + 2 * rate**2) * np.asarray(noise, dtype=np.float64)[..., None] ** 2
    logs = log_absolute_moment(order, means, variances)
    return np.asarray(np.exp(special.logsumexp(logs, axis=-1) / order))


@dataclass
class MomentsAccountant:
    """Abadi et al. 2016 with chosen orders: ε = min_λ (Σ_t α_t(λ) − ln δ)/λ, from one sensitivity for all records.

    The paper allows λ = 16 only, which inflates it a thousandfold at small noise; give several orders to be fair.
    """

    orders: Sequence[int] = (16,)
    costs: list[Floats] = field(default_factory=list)  # (steps, orders)

    def __post_init__(self) -> None:
        if not self.orders:
            raise InvalidParameter("the moments accountant needs at least one order")
        for order in self.orders:
            whole("order", order)

    def accumulate(self, sensitivity: ArrayLike, noise: ArrayLike, rate: float) -> None:
        """Steps of this sensitivity and noise, number by number."""
        ratio = np.atleast_1d(np.asarray(sensitivity, dtype=np.float64) / np.asarray(noise, dtype=np.float64))
        self.costs.append(np.stack([log_subsampled_moment(order, ratio, rate) for order in self.orders], axis=-1))

    def history(self, delta: float) -> Floats:
        """ε after each step at the best of the orders."""
        spent = _running(self.costs) - math.log(number("delta", delta, PROBABILITY))
        return np.asarray((spent / np.asarray(self.orders)).min(-1))


@dataclass
class BayesianAccountant:
    """Triastcyn & Faltings 2020: the log moment averaged over sampled pairs, c_t = (1/T) log E[e^{T·α_t}].

    `steps`: T of the Hölder correction, all the steps there will be. `confidence`: of each step's estimate; what can
    fail over the steps is taken off δ.
    """

    steps: int
    order: int = 16
    confidence: float = 1 - 1e-16
    costs: list[Floats] = field(default_factory=list)

    def __post_init__(self) -> None:
        whole("steps", self.steps)
        whole("order", self.order)
        number("confidence", self.confidence, PROBABILITY)

    def accumulate(self, distances: ArrayLike, noise: ArrayLike, rate: float) -> None:
        """Steps with these pair distances (..., pairs) and noise standard deviations (...)."""
        ratio = np.asarray(distances, dtype=np.float64) / np.asarray(noise, dtype=np.float64)[..., None]
        samples = self.steps * log_subsampled_moment(self.order, ratio, rate)
        self.costs.append(np.atleast_1d(log_upper_mean(samples, self.confidence) / self.steps))

    def history(self, delta: float) -> Floats:
        """ε_μ after each step."""
        spent = _running(self.costs)
        if len(spent) > self.steps:
            raise InvalidParameter(f"{len(spent)} steps were accounted with a Hölder correction for {self.steps}")
        failing = 1 - self.confidence ** np.arange(1, len(spent) + 1)
        left = number("delta", delta, PROBABILITY) - failing
        if (left <= 0).any():
            raise InvalidParameter(f"δ = {delta:g} is all used up by a confidence of {self.confidence} per step")
        return np.asarray((spent - np.log(left)) / self.order)

    def budget(self, delta: float, beside: Beside) -> BayesianBudget:
        """The budget after the last step, in its own type."""
        return BayesianBudget(self.order, float(self.history(delta)[-1]), delta, self.confidence, beside)


def _running(parts: Sequence[Floats]) -> Floats:
    if not parts:
        raise InvalidParameter("no step has been accounted yet")
    return np.cumsum(np.concatenate(parts), axis=0)
