"""Figures 2 and 4: three accountants over synthetic heavy-tailed gradients, all steps × pairs at once.

Each step draws 50 gradients of 1000 Weibull(½) coordinates; C is a quantile of their norms, the noise is σC. The
moments accountant is given the sensitivity 2C, the other two the distances of all 1225 pairs. With clipping (Figure 4)
the pairs are of gradients clipped to C; without (Figure 2) as they come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dpot.privacy.events import Adjacency, Gaussian, PoissonSampled, SelfComposed
from dpot.privacy.pld import pld_epsilon
from dpot.privacy.wdp.accountants import BayesianAccountant, MomentsAccountant, WassersteinAccountant, distances_of
from dpot.privacy.wdp.moments import Floats

ALL_ORDERS = tuple(range(1, 65))


@dataclass(frozen=True)
class Setting:
    """The paper's; `order` is λ of the moments and Bayesian accountants and μ of the Wasserstein one."""

    steps: int = 100
    sigma: float = 0.2
    rate: float = 1e-3
    order: int = 16
    beta: float = 1.0
    delta: float = 1e-5
    gradients: int = 50
    dimension: int = 1000
    shape: float = 0.5
    quantiles: tuple[float, ...] = (0.05, 0.50, 0.75, 0.99)


def synthetic_gram(setting: Setting, seed: int) -> Floats:
    """(steps, n, n): the inner products of the drawn gradients, all that norms, clipping and distances need.

    Weibull draws follow the seed: a figure, not noise.
    """
    rng = np.random.default_rng(seed)
    gradients = rng.weibull(setting.shape, (setting.steps, setting.gradients, setting.dimension))
    return np.asarray(gradients @ gradients.swapaxes(-1, -2))


def compose(gram: Floats, quantile: float, clipped: bool, setting: Setting) -> dict[str, Floats]:
    """What each accountant prints after every step, for one quantile."""
    norms = np.sqrt(np.diagonal(gram, axis1=-2, axis2=-1))
    bound = np.quantile(norms, quantile, axis=1)
    factors = np.minimum(1, bound[:, None] / norms) if clipped else np.ones_like(norms)
    return account(distances_of(gram * factors[:, :, None] * factors[:, None, :]), bound, setting)


def account(distances: Floats, bound: Floats, setting: Setting) -> dict[str, Floats]:
    """The three accountants on (steps, pairs) distances with noise σC."""
    noise = setting.sigma * bound
    moments = MomentsAccountant((setting.order,))
    moments.accumulate(2 * bound, noise, setting.rate)
    bayesian = BayesianAccountant(len(distances), setting.order)
    bayesian.accumulate(distances, noise, setting.rate)
    wasserstein = WassersteinAccountant(setting.order, setting.beta)
    wasserstein.accumulate(distances, noise, setting.rate)
    return {
        "moments": moments.history(setting.delta),
        "bayesian": bayesian.history(setting.delta),
        "wasserstein": wasserstein.history(setting.delta),
    }


def curves(clipped: bool, seeds: Sequence[int], setting: Setting | None = None) -> dict[str, Any]:
    """Mean and spread over the seeds of every curve, and beside them what the same releases are really worth."""
    setting = setting or Setting()
    runs: dict[float, list[dict[str, Floats]]] = {quantile: [] for quantile in setting.quantiles}
    for seed in seeds:
        gram = synthetic_gram(setting, seed)
        for quantile in setting.quantiles:
            runs[quantile].append(compose(gram, quantile, clipped, setting))
    panels = []
    for quantile, found in runs.items():
        stacked = {name: np.stack([one[name] for one in found]) for name in found[0]}
        panels.append(
            {
                "quantile": quantile,
                "curves": {name: values.mean(0).tolist() for name, values in stacked.items()},
                "last": {name: values[:, -1].tolist() for name, values in stacked.items()},
            }
        )
    return {
        "setting": asdict(setting),
        "clipped": clipped,
        "seeds": list(seeds),
        "panels": panels,
        "beside": worth(setting),
    }


def worth(setting: Setting) -> dict[str, Any]:
    """The moments accountant at its best order, and PLD's ε, for sensitivity 2C under noise σC: whatever C is."""
    best = MomentsAccountant(ALL_ORDERS)
    best.accumulate(np.full(setting.steps, 2.0), np.full(setting.steps, setting.sigma), setting.rate)
    one = MomentsAccountant((1,))
    one.accumulate(np.full(setting.steps, 2.0), np.full(setting.steps, setting.sigma), setting.rate)
    event = PoissonSampled(Gaussian(setting.sigma / 2, Adjacency.ADD_REMOVE), setting.rate)
    # a cell of 0.01 is fine enough for an ε above 100 and twenty times as fast as the default
    pld = pld_epsilon(SelfComposed(event, setting.steps), setting.delta, discretisation=0.01)
    return {
        "moments_at_order_1": float(one.history(setting.delta)[-1]),
        "moments_at_best_order": float(best.history(setting.delta)[-1]),
        "pld": pld,
        "delta": setting.delta,
    }
