"""Our events in the words of autodp and of dp-accounting's RDP accountant."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from dpot.privacy.errors import UnsupportedEvent
from dpot.privacy.events import (
    AdaptiveSequence,
    DiscreteGaussian,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    PoissonSampled,
    ProjectionGaussian,
    Sampled,
    StratifiedSampled,
)
from dpot.privacy.rdp import effective_noise_multiplier, rdp

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent

_ADAPTIVE = "it composes releases whose noise is fixed in advance; here it was chosen on the way"


def autodp_epsilon(event: Event, delta: float, tight_sampling: bool = True) -> float:
    """ε by autodp's analytical moments accountant, the one DP-SWD's authors ran.

    Gaussian noise under sampling without replacement takes its improved bound (Theorem 27) if asked; for other
    mechanisms, projections included, the general one (Theorem 9) is used on their Rényi curve.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from autodp import rdp_acct

        accountant = rdp_acct.anaRDPacct()
        samplers = {type(atom) for atom, _ in event.atoms() if isinstance(atom, Sampled) and _rate(atom) < 1}
        if PoissonSampled in samplers and len(samplers) > 1:
            raise UnsupportedEvent("autodp cannot mix Poisson sampling with sampling without replacement")
        for atom, times in event.atoms():
            if isinstance(atom, AdaptiveSequence):
                raise UnsupportedEvent(_ADAPTIVE)
            inside = atom.event if isinstance(atom, Sampled) else atom
            curve = _scalar_curve(inside)
            if not isinstance(atom, Sampled) or _rate(atom) == 1:
                accountant.compose_mechanism(curve, coeff=times)
            elif isinstance(atom, PoissonSampled):
                if effective_noise_multiplier(inside) is None:
                    raise UnsupportedEvent("autodp's Poisson bound is used for Gaussian noise only")
                accountant.compose_poisson_subsampled_mechanisms(curve, atom.rate, coeff=times)
            else:
                improved = tight_sampling and effective_noise_multiplier(inside) is not None
                accountant.compose_subsampled_mechanism(curve, _rate(atom), coeff=times, improved_bound_flag=improved)
        return float(accountant.get_eps(delta))


def _scalar_curve(event: Event) -> Callable[[float], float]:
    """The Rényi curve as the function of one order that autodp wants; at order 1 the limit from above."""
    z = effective_noise_multiplier(event)
    if z is not None:
        return lambda alpha: alpha * 0.5 / z**2

    @cache
    def curve(alpha: float) -> float:
        return float(rdp(event, np.array([max(float(alpha), 1 + 1e-9)]))[0])

    return curve


def _rate(event: Sampled) -> float:
    assert isinstance(event, PoissonSampled | FixedSizeSampled | StratifiedSampled)
    return event.rate


def dp_accounting_rdp_epsilon(event: Event, delta: float) -> float:
    """ε by dp-accounting's RDP accountant with its default orders."""
    import dp_accounting as library
    from dp_accounting.rdp import RdpAccountant

    logging.getLogger("absl").setLevel(logging.ERROR)  # it warns of each order it leaves out, which only loosens ε
    relations = library.NeighboringRelation
    without_replacement = any(isinstance(atom, FixedSizeSampled | StratifiedSampled) for atom, _ in event.atoms())
    relation = relations.REPLACE_ONE if without_replacement else relations.ADD_OR_REMOVE_ONE
    accountant = RdpAccountant(neighboring_relation=relation)
    for atom, times in event.atoms():
        accountant.compose(_translated(atom), times)
    return float(accountant.get_epsilon(delta))


def _translated(event: Event) -> DpEvent:
    """The event as dp-accounting describes it. Sensitivities are those under our event's own adjacency."""
    import dp_accounting as library

    if isinstance(event, Gaussian):
        return library.GaussianDpEvent(event.noise_multiplier)
    if isinstance(event, Laplace):
        return library.LaplaceDpEvent(event.noise_multiplier)
    if isinstance(event, DiscreteGaussian):
        return library.ZCDpEvent(0.5 * event.coordinates * (event.sensitivity / event.sigma) ** 2)
    if isinstance(event, AdaptiveSequence):
        raise UnsupportedEvent(_ADAPTIVE)
    if isinstance(event, ProjectionGaussian):
        raise UnsupportedEvent("dp-accounting knows no random projections")
    if isinstance(event, PoissonSampled | FixedSizeSampled | StratifiedSampled):
        z = effective_noise_multiplier(event.event)
        if z is None:
            if any(isinstance(atom, ProjectionGaussian) for atom, _ in event.event.atoms()):
                raise UnsupportedEvent("dp-accounting knows no random projections")
            raise UnsupportedEvent("dp-accounting's RDP accountant samples Gaussian noise only")
        inside = library.GaussianDpEvent(z)
        if isinstance(event, PoissonSampled):
            return library.PoissonSampledDpEvent(event.rate, inside)
        batch, population = _sizes(event)
        return library.SampledWithoutReplacementDpEvent(population, batch, inside)
    raise UnsupportedEvent(f"dp-accounting does not know {type(event).__name__}")


def _sizes(event: FixedSizeSampled | StratifiedSampled) -> tuple[int, int]:
    """Batch and population, of the worst class where there are classes."""
    if isinstance(event, FixedSizeSampled):
        return event.batch, event.population
    pairs = list(zip(event.batches, event.class_sizes, strict=True))
    return pairs[int(np.argmax([b / n for b, n in pairs]))]
