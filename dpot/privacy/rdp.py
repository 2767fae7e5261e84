"""Our accountant: the Rényi curve of any event, on a fixed grid of orders.

Curves add up over releases and convert to (ε, δ) in conversion.py. Every value is an upper bound valid under the
event's own adjacency and sampler; what has no proved bound is refused with the reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpot.privacy import subsampling
from dpot.privacy.errors import InvalidParameter, UnsupportedEvent
from dpot.privacy.events import (
    AdaptiveSequence,
    Composed,
    DiscreteGaussian,
    Event,
    Gaussian,
    Laplace,
    NonPrivate,
    PoissonSampled,
    ProjectionGaussian,
    Sampled,
    SelfComposed,
)
from dpot.privacy.projection import checked_orders, projection_rdp
from dpot.privacy.sensitivity import BOUNDS, SOUND_BOUNDS, Bound, squared_sensitivity
from dpot.privacy.ternary import projection_ternary_moments

Floats = NDArray[np.float64]

# Tenths to 12, where large ε have their best order; then integers, which sampling without replacement needs;
# sparse above 64, where ε < 1 has its best order and neighbours hardly differ.
ORDERS: Floats = np.concatenate(
    [
        [1.01, 1.02, 1.05],
        np.arange(11, 121) / 10.0,
        np.arange(13, 65),
        np.unique(np.round(64 * 1.08 ** np.arange(1, 37))),
    ]
)
FEW_ORDERS: Floats = ORDERS[ORDERS <= 64]
# Below this noise multiplier an integrand reaches so far that quadrature would not pay: ε is in the thousands.
_QUADRATURE_FROM = 0.05


@dataclass(frozen=True)
class Pricing:
    """How projections are bounded, and which δ is left for the conversion.

    `failure` is the probability outside which the sensitivity bound holds; `tight_sampling` uses Theorem 27 of
    Wang et al. 2019 for Gaussian noise under sampling without replacement, instead of Theorem 9. Projections
    are under Theorem 9 there, or, with bound="sharp", under the bound of ternary.py.
    """

    bound: Bound
    delta: float
    failure: float | None = None
    tight_sampling: bool = True

    @classmethod
    def of(cls, bound: Bound, delta: float) -> Pricing:
        """The δ shares of each bound: all for the conversion where nothing can fail, else as DP-SWD did.

        As printed, the bound fails with δ/2 and the conversion has δ/2. As coded, the bound fails with δ/2, and the
        conversion has all of δ again, with Theorem 27 for the subsampling.
        """
        if bound not in BOUNDS:
            raise InvalidParameter(f"bound must be one of {', '.join(BOUNDS)}, got {bound!r}")
        if bound in SOUND_BOUNDS:
            return cls(bound, delta)
        if bound == "coded":
            return cls(bound, delta, failure=delta / 2)
        return cls(bound, delta / 2, failure=delta / 2, tight_sampling=False)


EXACT = Pricing("exact", delta=0.5)


def rdp(event: Event, orders: ArrayLike = ORDERS, pricing: Pricing = EXACT) -> Floats:
    """ε(α) of the event at each order; by default projections are priced exactly."""
    alpha = checked_orders(orders)
    total = np.zeros_like(alpha)
    for atom, times in as_gaussian(event, pricing).atoms():
        total += times * _release_rdp(atom, alpha, pricing)
    return total


@lru_cache(maxsize=1024)
def rdp_on_grid(event: Event, pricing: Pricing) -> Floats:
    """The curve on ORDERS, computed once for each event."""
    curve = rdp(event, ORDERS, pricing)
    curve.flags.writeable = False
    return curve


def as_gaussian(event: Event, pricing: Pricing) -> Event:
    """The event with every projection seen as a Gaussian mechanism of bounded sensitivity, unless exact."""
    if pricing.bound in ("exact", "sharp"):
        return event
    if isinstance(event, ProjectionGaussian):
        square = squared_sensitivity(pricing.bound, event.dimension, event.projections, pricing.failure)
        return Gaussian(event.sigma / (event.diameter * math.sqrt(square)), event.adjacency)
    if isinstance(event, Sampled | SelfComposed):
        return replace(event, event=as_gaussian(event.event, pricing))  # type: ignore[type-var]
    if isinstance(event, Composed | AdaptiveSequence):
        return replace(event, events=tuple(as_gaussian(inner, pricing) for inner in event.events))
    return event


def effective_noise_multiplier(event: Event) -> float | None:
    """z of the one Gaussian mechanism a composition of unsampled ones amounts to: 1/z² = Σ 1/z_i²."""
    inverse_square = 0.0
    for atom, times in event.atoms():
        if not isinstance(atom, Gaussian):
            return None
        inverse_square += times / atom.noise_multiplier**2
    return 1 / math.sqrt(inverse_square)


def _release_rdp(event: Event, orders: Floats, pricing: Pricing) -> Floats:
    if isinstance(event, NonPrivate):
        return np.full_like(orders, np.inf)
    if isinstance(event, Sampled):
        return _sampled_rdp(event, orders, pricing)
    if isinstance(event, AdaptiveSequence):
        return _adaptive_rdp(event, orders, pricing)
    return _mechanism_rdp(event, orders)


def _mechanism_rdp(event: Event, orders: Floats) -> Floats:
    """Closed forms, at finite orders and at infinity."""
    if isinstance(event, Gaussian):
        return orders * (0.5 / event.noise_multiplier**2)
    if isinstance(event, DiscreteGaussian):
        # Canonne, Kamath & Steinke 2020, Theorem 14: no more than the continuous Gaussian's
        return orders * (0.5 * event.coordinates * (event.sensitivity / event.sigma) ** 2)
    if isinstance(event, ProjectionGaussian):
        return projection_rdp(event.dimension, event.projections, event.sigma, orders, event.diameter)
    if isinstance(event, Laplace):
        return _laplace_rdp(1 / event.noise_multiplier, orders)
    raise UnsupportedEvent(f"no Rényi curve is known for {type(event).__name__}")


def _laplace_rdp(pure: float, orders: Floats) -> Floats:
    """Mironov 2017, Proposition 6: log(α/(2α-1)·e^{(α-1)/b} + (α-1)/(2α-1)·e^{-α/b})/(α-1), written as

    1/b + log1p((α-1)/(2α-1)·(e^{-(2α-1)/b} - 1))/(α-1); 1/b at infinity, and never more.
    """
    with np.errstate(invalid="ignore"):
        share = (orders - 1) / (2 * orders - 1)
        finite = pure + np.log1p(share * np.expm1(-(2 * orders - 1) * pure)) / (orders - 1)
    return np.where(np.isinf(orders), pure, np.maximum(finite, 0.0))


def _base_rdp(event: Event, orders: Floats) -> Floats:
    total = np.zeros_like(orders)
    for atom, times in event.atoms():
        total += times * _mechanism_rdp(atom, orders)
    return total


def _sampled_rdp(event: Sampled, orders: Floats, pricing: Pricing) -> Floats:
    """At integers by the sums of subsampling.py, between them on the chord of the CGF, which is convex."""
    base, rate = event.event, event.rate  # type: ignore[attr-defined]
    if rate == 1:
        return _base_rdp(base, orders)
    result = np.full_like(orders, np.inf)
    result[np.isinf(orders)] = _base_rdp(base, np.array([np.inf]))[0]
    finite = np.isfinite(orders)
    alpha = orders[finite]
    if not alpha.size:
        return result
    below = np.floor(alpha).astype(np.int64)
    integers = np.unique(np.concatenate([below, below + 1, [2]]))
    integers = integers[integers >= 2]
    cgf = np.zeros(int(integers.max()) + 1)
    moments = np.arange(2.0, len(cgf))
    cgf[2:] = (moments - 1) * _base_rdp(base, moments)
    z = effective_noise_multiplier(base)
    if isinstance(event, PoissonSampled):
        if any(not isinstance(atom, Gaussian | ProjectionGaussian) for atom, _ in base.atoms()):
            raise UnsupportedEvent("under Poisson sampling only Gaussian noise has a Rényi bound here")
        sampled = subsampling.poisson_cgf(cgf, rate, integers)
    else:
        pure = float(_base_rdp(base, np.array([np.inf]))[0])
        even = _ternary_moments(base, pricing, int(integers.max()))
        sampled = subsampling.fixed_size_cgf(cgf, rate, integers, pure=pure, even=even)
    every = np.zeros_like(cgf)  # at order 1 the CGF is 0
    every[integers] = sampled
    chord = every[below] + (alpha - below) * (every[np.minimum(below + 1, len(every) - 1)] - every[below])
    between = alpha != below
    if isinstance(event, PoissonSampled) and z and z >= _QUADRATURE_FROM and np.any(between):
        chord[between] = subsampling.poisson_gaussian_cgf(z, rate, alpha[between])
    result[finite] = chord / (alpha - 1)
    return result


def _ternary_moments(base: Event, pricing: Pricing, largest: int) -> Floats | None:
    """What sharpens Theorem 9, where it is proved and wanted."""
    z = effective_noise_multiplier(base)
    if z is not None:
        wanted = pricing.tight_sampling and z >= _QUADRATURE_FROM
        return subsampling.gaussian_ternary_moments(z, largest) if wanted else None
    atoms = list(base.atoms())
    first = atoms[0][0]
    alike = all(isinstance(a, ProjectionGaussian) and replace(a, projections=1) == _one(first) for a, _ in atoms)
    if pricing.bound != "sharp" or not alike or not isinstance(first, ProjectionGaussian):
        return None
    directions = sum(times * atom.projections for atom, times in atoms)  # type: ignore[attr-defined]
    return projection_ternary_moments(first.dimension, directions, first.sigma, first.diameter, largest)


def _one(event: Event) -> Event:
    return replace(event, projections=1) if isinstance(event, ProjectionGaussian) else event


def _adaptive_rdp(event: AdaptiveSequence, orders: Floats, pricing: Pricing) -> Floats:
    """The filter's budget at its order, which bounds every smaller order; nothing above it."""
    fixed = np.array([event.order])
    total = sum(times * _release_rdp(a, fixed, pricing)[0] for e in event.events for a, times in e.atoms())
    if total > event.budget * (1 + 1e-12):
        raise UnsupportedEvent(
            f"these events sum up to {total:.6g} at order {event.order:g}, more than the filter's {event.budget:g}"
        )
    return np.where(orders <= event.order, event.budget, np.inf)
