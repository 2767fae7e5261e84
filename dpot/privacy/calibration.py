"""Whichever is missing: the noise, ε, δ or the number of releases.

A mechanism to calibrate is a function from σ to the event of one release. ε falls with σ, and what comes back
always keeps the target: the search ends on the private side of the root.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache, lru_cache

import numpy as np
from scipy import optimize

from dpot.privacy.accountants import own_delta, own_epsilon
from dpot.privacy.budget import Budget
from dpot.privacy.conversion import Conversion, Floats, conversion_cost, epsilon_from_rdp
from dpot.privacy.errors import POSITIVE, PROBABILITY, CalibrationFailed, number, whole
from dpot.privacy.events import DiscreteGaussian, Event, Gaussian, Laplace, SelfComposed
from dpot.privacy.pld import composed_pld, default_discretisation
from dpot.privacy.rdp import FEW_ORDERS, ORDERS, Pricing, rdp, rdp_on_grid
from dpot.privacy.sensitivity import Bound

Release = Callable[[float], Event]

_SMALLEST, _LARGEST = 1e-9, 1e7  # noise outside this is a slip of units
_LONGEST = math.log(16)  # step of a bracket: far below the answer an accountant has numbers too large to compute
_LOUD = 100.0  # beyond, a loss distribution of Laplace noise takes minutes and gains nothing over ε = 1/σ
_TOLERANCE = 1e-9  # of log σ
_HAIR = 1 + 5e-9  # more noise than was found: what the failures of samplers take off δ is less than this gives back
_MOST_STEPS = 1e12


def find_epsilon(event: Event, steps: int, budget: Budget) -> float:
    """ε at the budget's δ after `steps` releases."""
    delta = number("delta", budget.delta, PROBABILITY)
    return own_epsilon({event: whole("steps", steps)}, delta, *_terms(budget))


def find_delta(event: Event, steps: int, budget: Budget) -> float:
    """δ at the budget's ε after `steps` releases.

    With a bound that holds with high probability the price itself depends on δ, and δ is searched for.
    """
    epsilon, spending = number("epsilon", budget.epsilon, POSITIVE), {event: whole("steps", steps)}
    if Pricing.of(budget.bound, 0.5).failure is None:
        return own_delta(spending, epsilon, *_terms(budget))

    def gap(log_delta: float) -> float:
        return own_epsilon(spending, math.exp(log_delta), *_terms(budget)) - epsilon

    return math.exp(private_root(gap, math.log(1e-30), math.log(0.99), "delta"))


def find_sigma(release: Release, steps: int, budget: Budget, pricing: Pricing | None = None) -> float:
    """The least σ that keeps (ε, δ) over `steps` releases, to a relative 1e-8 (1e-5 for integer and
    Laplace noise) on the private side.

    Most targets have their best order below 64, where a curve costs a tenth; the others take the whole grid.
    `pricing` replaces the budget's own, for what a paper did otherwise.
    """
    epsilon, steps = number("epsilon", budget.epsilon, POSITIVE), whole("steps", steps)
    terms = pricing or budget.pricing

    def own(sigma: float) -> float:
        return own_epsilon({release(sigma): steps}, number("delta", budget.delta, PROBABILITY), *_terms(budget))

    def by_curve(sigma: float) -> float:
        event = release(sigma)
        value, order = _epsilon_on(True, event, steps, terms, budget)
        return value if order < FEW_ORDERS[-4] else _epsilon_on(False, event, steps, terms, budget)[0]

    kinds = {type(atom) for atom, _ in release(1.0).atoms()}
    if kinds == {Gaussian}:
        return least_sigma(own, epsilon)
    sigma = least_sigma(by_curve, epsilon) * _HAIR
    if Laplace in kinds and epsilon > _LOUD:
        return sigma
    if kinds <= {Gaussian, DiscreteGaussian, Laplace}:
        # integer and Laplace noise: the loss distribution, dear but tighter, settles what the curve bracketed
        gap = cache(lambda log_sigma: own(math.exp(log_sigma)) - epsilon)
        low, high = math.log(sigma) - 0.2, math.log(sigma)
        while gap(low) <= 0:
            low, high = low - 0.4, low
        return math.exp(private_root(gap, low, high, "sigma", 1e-5))
    return sigma


def least_sigma(spent: Callable[[float], float], epsilon: float) -> float:
    """The least σ with spent(σ) ≤ ε, for any accountant whose ε falls with σ."""

    @cache
    def gap(log_sigma: float) -> float:
        return math.log(max(spent(math.exp(log_sigma)), 1e-300) / epsilon)

    return math.exp(private_root(gap, *_bracket(gap), "sigma"))


def _terms(budget: Budget) -> tuple[Bound, Conversion]:
    return budget.bound, budget.conversion


def _epsilon_on(few: bool, event: Event, steps: int, pricing: Pricing, budget: Budget) -> tuple[float, float]:
    orders = FEW_ORDERS if few else ORDERS
    return epsilon_from_rdp(orders, steps * _curve(few, event, pricing), pricing.delta, budget.conversion)


@lru_cache(maxsize=1024)
def _curve(few: bool, event: Event, pricing: Pricing) -> Floats:
    """Kept, for the same noise is calibrated many times in an audit, and for every seed of a cell."""
    return rdp(event, FEW_ORDERS if few else ORDERS, pricing)


def find_steps(
    event: Event,
    budget: Budget,
    spending: Mapping[Event, int] | None = None,
    left: Callable[[int], float] | None = None,
) -> int:
    """The most releases of the event that (ε, δ) allows, after what is already spent; 0 if not one.

    left: what of δ is left after so many, where each of them takes some off it.
    """
    epsilon, delta = number("epsilon", budget.epsilon, POSITIVE), number("delta", budget.delta, PROBABILITY)
    pricing, before = budget.pricing, dict(spending or {})

    def kept(steps: int) -> bool:
        after = {**before, event: before.get(event, 0) + steps}
        own = delta if left is None else left(steps)
        return own > 0 and own_epsilon(after, own, *_terms(budget)) <= epsilon

    if not kept(1):
        return 0
    # At each order ε is linear in the number of releases, which gives the Rényi answer in closed form.
    price = rdp_on_grid(event, pricing)
    spent = sum((n * rdp_on_grid(e, pricing) for e, n in before.items()), np.zeros_like(price))
    room = epsilon - spent - conversion_cost(ORDERS, pricing.delta, budget.conversion)
    most = float(np.max(room / np.maximum(price, 1e-300)))
    if most > _MOST_STEPS:
        raise CalibrationFailed(f"more than {_MOST_STEPS:g} steps are allowed: the noise is out of proportion")
    low, high = 1, max(2, math.floor(most) + 1)
    while kept(high):  # where an accountant tighter than the curve applies
        low, high = high, 2 * high
    low = max(low, math.floor(most) - 1) if math.floor(most) > 2 and kept(math.floor(most) - 1) else low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if kept(middle) else (low, middle)
    return low


def find_sigma_by_pld(release: Release, steps: int, epsilon: float, delta: float) -> float:
    """The least σ by the loss distribution, to a relative 5e-5 on the private side.

    A loss distribution costs seconds, so few are computed. The Rényi curve brackets the answer from above; coarse
    discretisations, which overstate δ by an amount that grows with the square of their width, bring it near; one or
    two fine ones settle it. What is solved for is δ at ε: its logarithm is smooth in log σ, and reading it off needs
    no search.
    """
    delta, epsilon = number("delta", delta, PROBABILITY), number("epsilon", epsilon, POSITIVE)
    upper = math.log(find_sigma(release, steps, Budget(epsilon, delta, conversion="tight")))
    fine = default_discretisation(release(math.exp(upper)))

    @cache
    def gap(log_sigma: float, width: int) -> float:
        event = SelfComposed(release(math.exp(log_sigma)), steps)
        found = float(composed_pld(event, delta, width * fine).get_delta_for_epsilon(epsilon))
        return math.log(max(found, 1e-300) / delta)

    near, slope = _secant(lambda s: gap(s, 8), upper - 0.05, upper - 0.03)
    by_square = (gap(near, 8) - gap(near, 4)) / (8**2 - 4**2)
    here = near - (gap(near, 4) - (4**2 - 1) * by_square) / slope + 2e-5
    value = gap(here, 1)
    for _ in range(8):
        if -5e-5 <= value / abs(slope) <= 0:
            return math.exp(here)
        there = min(here - value / slope + 5e-6, upper)
        other = gap(there, 1)
        slope = (other - value) / (there - here) if there != here else slope
        here, value = there, other
    return math.exp(upper)


def _secant(gap: Callable[[float], float], here: float, there: float) -> tuple[float, float]:
    """Near a root of a smooth decreasing function, and its slope there."""
    value, other = gap(here), gap(there)
    for _ in range(10):
        slope = (other - value) / (there - here)
        if not slope < 0:
            raise CalibrationFailed("δ does not fall with the noise; the target is out of reach")
        root = there - max(-0.5, min(0.5, other / slope))
        here, value, there, other = there, other, root, gap(root)
        if abs(other) < 0.05:
            return there, (other - value) / (there - here)
    raise CalibrationFailed("no sigma was found by the loss distribution; use the Rényi accountant")


def _bracket(gap: Callable[[float], float]) -> tuple[float, float]:
    """log σ around the root, by growing steps from σ = 1."""
    here, value, step = 0.0, gap(0.0), math.log(2)
    while math.log(_SMALLEST) < here < math.log(_LARGEST):
        there = here + math.copysign(step, value)
        other = gap(there)
        if (other > 0) != (value > 0):
            return min(here, there), max(here, there)
        here, value, step = there, other, min(2 * step, _LONGEST)
    if value > 0:
        raise CalibrationFailed(
            f"no sigma up to {_LARGEST:g} keeps this budget: epsilon is smaller than this accountant can certify "
            "(for sampled projections privacy.bound=sharp reaches lower, and privacy.conversion=tight than mironov)"
        )
    raise CalibrationFailed(f"even a sigma of {_SMALLEST:g} keeps this budget: it is too large to ask for noise")


def private_root(
    gap: Callable[[float], float], low: float, high: float, what: str, tolerance: float = _TOLERANCE
) -> float:
    """The root of a decreasing function between low and high, moved up until the function is not positive."""
    if gap(high) > 0:
        raise CalibrationFailed(f"no {what} keeps this budget")
    if gap(low) <= 0:
        return low
    root = float(optimize.brentq(gap, low, high, xtol=tolerance, rtol=1e-12))
    step = tolerance
    while gap(root) > 0:
        root, step = root + step, 2 * step
    return root
