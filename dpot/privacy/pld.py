"""Privacy loss distributions by dp-accounting: the tightest ε where they apply.

The library builds and convolves the distributions; what is decided here is the discretisation, the mass that may
be truncated, and a composition that does not stumble over its count.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING

from dpot.privacy.errors import UnsupportedEvent
from dpot.privacy.events import (
    AdaptiveSequence,
    DiscreteGaussian,
    Event,
    Gaussian,
    Laplace,
    PoissonSampled,
    ProjectionGaussian,
    Sampled,
)
from dpot.privacy.rdp import effective_noise_multiplier

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

_COARSEST = 2e-4
_FINEST = 4e-6
_POINTS = 5e6  # the most a single loss distribution may be cut into
_HARDLY_ANY = 0.14  # a noise multiplier whose losses are in the tens and more
_FEW_POINTS = 2e5  # enough for those
_PER_DEVIATION = 24  # cells per standard deviation of one release's loss: ε is then exact to about 1e-4


def pld_epsilon(event: Event, delta: float, discretisation: float | None = None) -> float:
    """ε at δ, from above (pessimistic estimate)."""
    epsilon = composed_pld(event, delta, discretisation).get_epsilon_for_delta(delta)
    return float(epsilon)


def composed_pld(event: Event, delta: float, discretisation: float | None = None) -> PrivacyLossDistribution:
    """The loss distribution of all releases; what has none is refused with the reason."""
    atoms = _merged(event)
    interval = discretisation or _common_interval(atoms)
    # Truncated mass counts as infinite loss. A millionth of δ, spread over the releases, does not show.
    log_mass = math.log(delta * 1e-6 / sum(atoms.values()))
    parts = [_self_compose(_single(atom, interval, log_mass), times) for atom, times in atoms.items()]
    return reduce(lambda left, right: left.compose(right), parts)


def default_discretisation(event: Event) -> float:
    """The cell width chosen for the event unless told otherwise."""
    return _common_interval(_merged(event))


def _merged(event: Event) -> dict[Event, int]:
    """The releases with their counts; unsampled Gaussians as the one they amount to."""
    atoms: dict[Event, int] = {}
    gaussians: list[tuple[Gaussian, int]] = []
    for atom, times in event.atoms():
        _refuse_unpriced(atom)
        if isinstance(atom, Gaussian):
            gaussians.append((atom, times))
        else:
            atoms[atom] = atoms.get(atom, 0) + times
    if gaussians:
        z = 1 / math.sqrt(sum(times / g.noise_multiplier**2 for g, times in gaussians))
        atoms[Gaussian(z, gaussians[0][0].adjacency)] = 1
    return atoms


def _refuse_unpriced(atom: Event) -> None:
    if isinstance(atom, AdaptiveSequence):
        raise UnsupportedEvent("PLD composes releases whose noise is fixed in advance; here it was chosen on the way")
    if isinstance(atom, Sampled) and not isinstance(atom, PoissonSampled):
        raise UnsupportedEvent("PLD has no bound for sampling without replacement; use an RDP accountant there")
    inside = atom.event if isinstance(atom, PoissonSampled) else atom
    if any(isinstance(part, ProjectionGaussian) for part, _ in inside.atoms()):
        raise UnsupportedEvent("PLD knows no random projections: dp-accounting has no such mechanism")
    if isinstance(atom, PoissonSampled):
        simple = effective_noise_multiplier(inside) is not None or isinstance(inside, Laplace)
        if not simple:
            raise UnsupportedEvent("PLD prices Gaussian or Laplace noise under Poisson sampling, nothing else")
    elif not isinstance(atom, Gaussian | Laplace | DiscreteGaussian):
        raise UnsupportedEvent(f"PLD does not know {type(atom).__name__}")


def _common_interval(atoms: dict[Event, int]) -> float:
    """One width for all: the finest, unless a release with hardly any noise decides ε by itself."""
    widths = [_interval(atom, times) for atom, times in atoms.items()]
    return max(widths) if max(widths) > _COARSEST else min(widths)


def _interval(atom: Event, times: int) -> float:
    """The width of a cell: a fraction of the loss's standard deviation, within what memory and time allow.

    With hardly any noise the losses alone are what counts: the cells are then as wide as all of them together ask for.

    Under Poisson sampling that deviation is about q·√(e^{1/z²}-1): with T in the millions and z large, a fixed
    1e-4 would be as wide as the losses themselves and overstate ε by several per cent.
    """
    if isinstance(atom, PoissonSampled):
        z = effective_noise_multiplier(atom.event)
        if z is None:
            return _COARSEST
        if z < _HARDLY_ANY:
            return max(_COARSEST, times * _reach(z) / _FEW_POINTS)
        deviation = atom.rate * math.sqrt(math.expm1(1 / z**2))
        return min(_COARSEST, max(_FINEST, deviation / _PER_DEVIATION))
    if isinstance(atom, Gaussian):
        return max(_COARSEST, _reach(atom.noise_multiplier) / _POINTS)
    return _COARSEST


def _reach(noise_multiplier: float) -> float:
    """How large the loss of a Gaussian may be, but for what is truncated."""
    return 0.5 / noise_multiplier**2 + 12 / noise_multiplier


def _single(atom: Event, interval: float, log_mass: float) -> PrivacyLossDistribution:
    from dp_accounting.pld import privacy_loss_distribution as library

    rate = atom.rate if isinstance(atom, PoissonSampled) else 1.0
    inside = atom.event if isinstance(atom, PoissonSampled) else atom
    if isinstance(inside, DiscreteGaussian):
        one = library.from_discrete_gaussian_mechanism(
            inside.sigma,
            sensitivity=inside.sensitivity,
            value_discretization_interval=interval,
            use_connect_dots=True,  # off by default there, and then ε grows with every composition
        )
        return _self_compose(one, inside.coordinates)
    if isinstance(inside, Laplace):
        return library.from_laplace_mechanism(
            inside.noise_multiplier, value_discretization_interval=interval, sampling_prob=rate
        )
    z = effective_noise_multiplier(inside)
    assert z is not None
    return library.from_gaussian_mechanism(
        z, value_discretization_interval=interval, sampling_prob=rate, log_mass_truncation_bound=log_mass
    )


def _self_compose(single: PrivacyLossDistribution, times: int) -> PrivacyLossDistribution:
    """times-fold composition.

    dp-accounting 0.6 raises the size of a small distribution to the power of the count to see whether it
    stays small: with millions of releases that integer alone takes many seconds. Sixteen at a time is dense,
    and a dense one is convolved at once.
    """
    many, rest = divmod(times, 16)
    if many <= 1:
        return single.self_compose(times)
    composed = single.self_compose(16).self_compose(many)
    return composed.compose(single.self_compose(rest)) if rest else composed
