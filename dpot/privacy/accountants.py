"""Every accountant on the same event: what each says ε is at δ, or why it says nothing.

Ours: the Rényi curve of rdp.py with either conversion, and the exact Gaussian trade-off where it applies.
Libraries: autodp as the papers used it, dp-accounting's RDP and PLD. Papers: what the authors of DP-SWD and of
DP-Sinkhorn would have reported for the event, sound or not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from dpot.privacy.conversion import Conversion, delta_from_rdp, epsilon_from_rdp
from dpot.privacy.errors import PROBABILITY, InvalidParameter, UnsupportedEvent, number
from dpot.privacy.events import (
    Composed,
    DiscreteGaussian,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    NonPrivate,
    PoissonSampled,
    ProjectionGaussian,
    SelfComposed,
    StratifiedSampled,
)
from dpot.privacy.gaussian import gaussian_delta, gaussian_epsilon
from dpot.privacy.libraries import autodp_epsilon, dp_accounting_rdp_epsilon
from dpot.privacy.pld import composed_pld, pld_epsilon
from dpot.privacy.rdp import ORDERS, Pricing, as_gaussian, effective_noise_multiplier, rdp, rdp_on_grid
from dpot.privacy.sensitivity import Bound

# The orders of the accountant DP-Sinkhorn's authors ran, that of TensorFlow Privacy's tutorial.
DP_SINKHORN_ORDERS = np.array([1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0, 3.5, 4.0, 4.5, *range(5, 64), 128.0, 256.0, 512.0])


Way = Literal["rényi", "gaussian", "loss distribution"]  # how an ε was proved


class Account(NamedTuple):
    """What one accountant says: an ε, or the reason why it has none."""

    epsilon: float | None
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """{"epsilon": x} or {"reason": "..."}."""
        return {"reason": self.reason} if self.epsilon is None else {"epsilon": self.epsilon}


def composed(spending: Mapping[Event, int]) -> Event:
    """One event out of the releases and their counts."""
    parts = tuple(event if times == 1 else SelfComposed(event, times) for event, times in spending.items())
    return parts[0] if len(parts) == 1 else Composed(parts)


def own_epsilon(spending: Mapping[Event, int], delta: float, bound: Bound, conversion: Conversion) -> float:
    """The least ε our accountants prove (or, for an unsound bound, claim) for the releases at δ."""
    return own_epsilon_and_way(spending, delta, bound, conversion)[0]


def own_epsilon_and_way(
    spending: Mapping[Event, int], delta: float, bound: Bound, conversion: Conversion
) -> tuple[float, Way]:
    """The same, and the way that led to it.

    The Rényi curve always; for Gaussian noise alone the exact trade-off; for integer or Laplace noise without
    sampling the loss distribution, which is cheap there; with conversion="pld" also for Gaussian noise under Poisson
    sampling, where it takes a second. The least of valid bounds is one.
    """
    pricing = Pricing.of(bound, number("delta", delta, PROBABILITY))
    if not spending:
        return 0.0, "rényi"
    curve = sum(times * rdp_on_grid(event, pricing) for event, times in spending.items())
    found: list[tuple[float, Way]] = [(epsilon_from_rdp(ORDERS, curve, pricing.delta, conversion)[0], "rényi")]
    event = as_gaussian(composed(spending), pricing)
    atoms = [atom for atom, _ in event.atoms()]
    if all(isinstance(atom, Gaussian) for atom in atoms):
        found.append((_analytic(event, pricing.delta), "gaussian"))
    elif all(isinstance(atom, Gaussian | DiscreteGaussian | Laplace) for atom in atoms):
        found.append((pld_epsilon(event, pricing.delta), "loss distribution"))
    elif conversion == "pld" and all(_has_loss_distribution(atom) for atom in atoms):
        found.append((_pld_epsilon(event, pricing.delta), "loss distribution"))
    return min(found, key=lambda pair: pair[0])


def renyi_epsilon(spending: Mapping[Event, int], delta: float, bound: Bound, conversion: Conversion) -> float:
    """What the Rényi curve alone proves: cheap, and never less than own_epsilon."""
    pricing = Pricing.of(bound, number("delta", delta, PROBABILITY))
    curve = sum(times * rdp_on_grid(event, pricing) for event, times in spending.items())
    return epsilon_from_rdp(ORDERS, curve, pricing.delta, conversion)[0]


def _has_loss_distribution(atom: Event) -> bool:
    inside = atom.event if isinstance(atom, PoissonSampled) else atom
    return isinstance(inside, Gaussian)


@lru_cache(maxsize=64)
def _pld_epsilon(event: Event, delta: float) -> float:
    return pld_epsilon(event, delta)


def own_delta(spending: Mapping[Event, int], epsilon: float, bound: Bound, conversion: Conversion) -> float:
    """The least δ at ε, likewise; for sound bounds only, the others need δ to be priced at all."""
    pricing = Pricing.of(bound, 0.5)
    if pricing.failure is not None:
        raise InvalidParameter(f"with bound={bound} the price itself depends on delta; give delta")
    curve = sum(times * rdp_on_grid(event, pricing) for event, times in spending.items())
    best, _ = delta_from_rdp(ORDERS, curve, epsilon, conversion)
    event = as_gaussian(composed(spending), pricing)
    atoms = [atom for atom, _ in event.atoms()]
    z = effective_noise_multiplier(event)
    if z is not None:
        return min(best, gaussian_delta(z, epsilon))
    if all(isinstance(atom, Gaussian | DiscreteGaussian | Laplace) for atom in atoms):
        return min(best, float(composed_pld(event, min(max(best, 1e-30), 0.5)).get_delta_for_epsilon(epsilon)))
    return best


def _ours(conversion: Conversion) -> Callable[[Event, Pricing], float]:
    def epsilon(event: Event, pricing: Pricing) -> float:
        return epsilon_from_rdp(ORDERS, rdp(event, ORDERS, pricing), pricing.delta, conversion)[0]

    return epsilon


def _analytic_gaussian(event: Event, pricing: Pricing) -> float:
    return _analytic(as_gaussian(event, pricing), pricing.delta)


def _analytic(event: Event, delta: float) -> float:
    z = effective_noise_multiplier(event)
    if z is None:
        raise UnsupportedEvent("the exact trade-off is known for Gaussian noise without sampling only")
    return gaussian_epsilon(z, delta)


def _autodp(event: Event, pricing: Pricing) -> float:
    return autodp_epsilon(as_gaussian(event, pricing), pricing.delta, pricing.tight_sampling)


def _dp_accounting_rdp(event: Event, pricing: Pricing) -> float:
    return dp_accounting_rdp_epsilon(as_gaussian(event, pricing), pricing.delta)


def _dp_accounting_pld(event: Event, pricing: Pricing) -> float:
    return pld_epsilon(as_gaussian(event, pricing), pricing.delta)


def _dp_swd(bound: Bound) -> Callable[[Event, Pricing], float]:
    def epsilon(event: Event, pricing: Pricing) -> float:
        """Sensitivity outside δ/2, all of δ for the conversion, improved subsampling (what their code ran)."""
        for atom, _ in event.atoms():
            inside = atom.event if isinstance(atom, FixedSizeSampled | StratifiedSampled) else atom
            if not isinstance(inside, ProjectionGaussian):
                raise UnsupportedEvent("DP-SWD's accountant is for projections of all records or of fixed-size subsets")
        delta = pricing.delta if pricing.failure is None else 2 * pricing.failure
        as_coded = Pricing(bound, delta, failure=delta / 2)
        return epsilon_from_rdp(ORDERS, rdp(event, ORDERS, as_coded), delta, "mironov")[0]

    return epsilon


def _dp_sinkhorn(event: Event, pricing: Pricing) -> float:
    for atom, _ in event.atoms():
        inside = atom.event if isinstance(atom, PoissonSampled) else None
        if inside is None or effective_noise_multiplier(inside) is None:
            raise UnsupportedEvent("DP-Sinkhorn's accountant is for Gaussian noise under Poisson sampling")
    curve = rdp(event, DP_SINKHORN_ORDERS)
    return epsilon_from_rdp(DP_SINKHORN_ORDERS, curve, pricing.delta, "mironov")[0]


ACCOUNTANTS: dict[str, Callable[[Event, Pricing], float]] = {
    "dpot_rdp": _ours("mironov"),
    "dpot_rdp_tight": _ours("tight"),
    "analytic_gaussian": _analytic_gaussian,
    "autodp": _autodp,
    "dp_accounting_rdp": _dp_accounting_rdp,
    "dp_accounting_pld": _dp_accounting_pld,
    "paper_dp_swd": _dp_swd("coded"),
    "paper_dp_swd_clt": _dp_swd("clt"),
    "paper_dp_sinkhorn": _dp_sinkhorn,
}
# What reproduces a paper's own claim; never a guarantee.
PAPER_ACCOUNTANTS = ("paper_dp_swd", "paper_dp_swd_clt", "paper_dp_sinkhorn")


def accounts(
    event: Event, delta: float, bound: Bound = "exact", names: Sequence[str] | None = None
) -> dict[str, Account]:
    """Ask every accountant (or those named) for ε at δ."""
    pricing = Pricing.of(bound, number("delta", delta, PROBABILITY))
    unknown = set(names or ()) - set(ACCOUNTANTS)
    if unknown:
        raise InvalidParameter(f"no such accountant: {unknown.pop()}; choose from {', '.join(ACCOUNTANTS)}")
    return {name: _ask(ACCOUNTANTS[name], event, pricing) for name in names or ACCOUNTANTS}


@lru_cache(maxsize=256)  # seeds of one cell release the same
def _ask(accountant: Callable[[Event, Pricing], float], event: Event, pricing: Pricing) -> Account:
    if any(isinstance(atom, NonPrivate) for atom, _ in event.atoms()):
        return Account(None, "an access without noise: no finite ε covers it")
    try:
        epsilon = float(accountant(event, pricing))
    except UnsupportedEvent as error:
        return Account(None, str(error))
    except (MemoryError, OverflowError):  # a second opinion must not cost a finished run
        return Account(None, "the losses are too large for it")
    if not math.isfinite(epsilon):
        return Account(None, "no finite ε at this δ: the noise is too small for its orders")
    return Account(epsilon)
