"""DP-Sinkhorn's claims (Cao, Bie, Vahdat, Fidler & Kreis, NeurIPS 2021), each found out by a computation."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch
from scipy import integrate, stats

from dpot.methods.generate.dp_cgan import summed_doubt
from dpot.models.cgan_mlp import layers
from dpot.papers.claims import Claim, Finding
from dpot.papers.dp_sinkhorn.accounting import RUNS
from dpot.privacy.accountants import accounts
from dpot.privacy.events import Adjacency, Gaussian, PoissonSampled, SelfComposed
from dpot.training.clipped_sum import clipped_sum
from dpot.training.sanitise import clip_rows
from dpot.transport.sinkhorn import annealed_temperatures, semi_debiased_sinkhorn, sinkhorn_cost


def sensitivity_of_clipped_rows() -> Finding:
    """n rows clipped to Δ each: how far apart two such blocks can be."""
    n, d, clip = 50, 64, 0.5
    bound = 2 * clip * math.sqrt(n)
    random = torch.Generator().manual_seed(0)
    moves = [
        float((clip_rows(torch.randn(n, d, generator=random) * 100, clip) - clip_rows(g, clip)).norm())
        for g in (torch.randn(n, d, generator=random) * 100 for _ in range(200))
    ]
    ones = torch.ones(n, d)
    extreme = float((clip_rows(ones, clip) - clip_rows(-ones, clip)).norm())
    holds = max(*moves, extreme) <= bound * (1 + 1e-6) and extreme >= bound * (1 - 1e-4)
    return Finding(
        "holds" if holds else "false",
        f"n = {n}, Δ = {clip}: bound 2Δ√n = {bound:.4f}; attained by opposite blocks, {extreme:.4f}; "
        f"200 random pairs move by at most {max(moves):.4f}",
    )


def renyi_divergence_of_a_step() -> Finding:
    """ε(α) = 2αn/σ² for noise Δσ: quadrature of the Rényi integral along the line that joins the two means."""
    n, sigma = 4, 20.0
    shift = 2 * math.sqrt(n) / sigma  # in units of the noise
    worst = 0.0
    for alpha in (1.5, 2.0, 8.0, 32.0):

        def moment(x: float, alpha: float = alpha) -> float:
            return math.exp(alpha * stats.norm.logpdf(x, shift) + (1 - alpha) * stats.norm.logpdf(x))

        centre = alpha * shift
        value, _ = integrate.quad(moment, centre - 40, centre + 40, points=[centre], limit=400)
        worst = max(worst, abs(math.log(value) / (alpha - 1) / (2 * alpha * n / sigma**2) - 1))
    return Finding(
        "holds" if worst < 1e-6 else "false",
        f"relative error {worst:.1e} at orders 1.5, 2, 8, 32 (n = {n}, σ = {sigma:g})",
    )


def runs_stay_below_epsilon_10() -> Finding:
    """ε at the authors' number of steps, by their accountant and by ours."""
    names = ("paper_dp_sinkhorn", "dpot_rdp_tight")
    found = {}
    for run in RUNS[:3]:
        asked = accounts(SelfComposed(run.release(run.noise_multiplier), run.steps), run.delta, names=names)
        found[run.row] = [asked[name].epsilon or math.inf for name in names]
    text = "; ".join(f"{row} {theirs:.4f} by theirs, {ours:.3f} by ours" for row, (theirs, ours) in found.items())
    return Finding(
        "holds" if max(ours for _, ours in found.values()) <= 10 else "false",
        f"{text}. Their loop stops one epoch late by its own accountant, early by a tighter one",
    )


def batch_size_is_not_revealed() -> Finding:
    """The code releases n rows of gradient for a Poisson batch of n: the number of rows is released without noise."""
    law = stats.binom(60_000, 1 / 1200)
    other = stats.binom(60_001, 1 / 1200)
    counts = np.arange(0, 200)
    ratio = float(np.max(np.abs(other.logpmf(counts) - law.logpmf(counts))))
    return Finding(
        "conditional" if ratio > 0 else "holds",
        f"with a fixed n nothing is revealed; with n = |Y|, as coded, one record changes P(n) by up to e^{ratio:.3f} "
        "for n < 200 at each of 3.4 million steps, which the ε does not count",
    )


def fresh_rows_take_bias() -> Finding:
    """A generator x = s·z at s = 1 and data of the same Gaussian law: the ideal derivative along s is 0."""
    n, repetitions = 30, 400
    schedule = annealed_temperatures(10.0, 0.5, 1.0)
    random = torch.Generator().manual_seed(0)
    slopes: dict[str, list[float]] = {"none": [], "p = 0": [], "p = 0.4": [], "p = 1": []}
    for _ in range(repetitions):
        z, y, fresh = (torch.randn(n, 2, generator=random) for _ in range(3))
        for name, found in slopes.items():
            scale = torch.ones((), requires_grad=True)
            if name == "none":
                loss = 2 * sinkhorn_cost(scale * z, y, schedule)
            else:
                rows = scale * fresh[: int(float(name.split()[-1]) * n)]
                loss = semi_debiased_sinkhorn(scale * z, rows, y, schedule)
            (slope,) = torch.autograd.grad(loss, scale)
            found.append(float(slope))
    bias = {name: float(np.mean(found)) for name, found in slopes.items()}
    spread = {name: float(np.std(found)) for name, found in slopes.items()}
    error = max(spread.values()) / math.sqrt(repetitions)
    sizes = [abs(value) for value in bias.values()]
    falls = all(later < earlier for earlier, later in pairwise(sizes)) and sizes[-1] + 4 * error < sizes[0]
    text = "; ".join(f"{name}: {bias[name]:+.3f} ± {spread[name]:.3f}" for name in slopes)
    return Finding(
        "holds" if falls else "false",
        f"derivative along the scale of a generator that is right already, n = {n}, mean ± standard deviation: {text}",
    )


def gs_wgan_has_epsilon_10() -> Finding:
    """GS-WGAN, a row of Table 1: 20,000 steps, one discriminator in 1000, 32 noisy rows that share its one draw."""
    rows, steps, noise, rate = 32, 20_000, 1.07, 1e-3
    apart = SelfComposed(PoissonSampled(Gaussian(noise, Adjacency.ADD_REMOVE), rate), rows * steps)
    jointly = SelfComposed(PoissonSampled(Gaussian(noise / math.sqrt(rows), Adjacency.ADD_REMOVE), rate), steps)
    name = "dp_accounting_pld"
    separate = accounts(apart, 1e-5, names=[name])[name].epsilon or math.inf
    joint = accounts(jointly, 1e-5, names=[name])[name].epsilon or math.inf
    return Finding(
        "false" if joint > 10 else "holds",
        f"PLD at δ = 1e-5: {separate:.2f} if each of the {rows} rows is drawn by itself, {joint:.0f} as the rows "
        "share a draw",
    )


def dp_cgan_accounts_for_its_noise() -> Finding:
    """DP-CGAN, a row of Table 1, by its public code: four tensors, each clipped to C by itself, noise σC on each.

    Its accountant is told σC for the noise multiplier, as if a record moved the tensors by 1. How far one does is found
    for a white image that the discriminator, as it begins but for its last bias, takes for a generated one.
    """
    steps, noise, clip, rate, name = 30_300, 1.12, 1.1, 0.01, "dp_accounting_pld"
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        judge = layers(794, 128, 1)
    torch.nn.init.constant_(judge.get_parameter("2.bias"), -5.0)
    white = torch.cat([torch.ones(1, 784), torch.eye(10)[:1]], 1)
    parts = clipped_sum(judge, summed_doubt, clip, white, torch.ones(1, 1), each_tensor=True)
    moved = math.sqrt(sum(float(part.square().sum()) for part in parts.values()))

    def worth(multiplier: float) -> float:
        run = SelfComposed(PoissonSampled(Gaussian(multiplier, Adjacency.ADD_REMOVE), rate), steps)
        return accounts(run, 1e-5, names=[name])[name].epsilon or math.inf

    return Finding(
        "false" if moved > 1 else "holds",
        f"a record moves the four tensors by {moved:.2f} together, where 1 is accounted: over {steps:,} steps ε is "
        f"{worth(noise * clip):.2f} by PLD as accounted, {worth(noise * clip / moved):.0f} for that move at each of "
        f"them, {worth(noise / 2):.0f} for the bound of 2C; batches are shuffled, not drawn as the accountant assumes, "
        "and the generator is given their labels as they are",
    )


CLAIMS = [
    Claim("Theorem 4.1", "n rows clipped to Δ have sensitivity 2Δ√n.", sensitivity_of_clipped_rows),
    Claim("Theorem 4.1", "A step with noise Δσ has Rényi divergence 2αn/σ².", renyi_divergence_of_a_step),
    Claim("Accounting", "The runs stay within ε = 10.", runs_stay_below_epsilon_10),
    Claim("Algorithm 1", "Only the noisy gradient depends on the private batch.", batch_size_is_not_revealed),
    Claim(
        "Figure 4c",
        "Debiasing, the more with the share p of fresh rows, takes bias from the gradient.",
        fresh_rows_take_bias,
    ),
    Claim("Table 1", "GS-WGAN's row was made under (10, 1e-5)-DP.", gs_wgan_has_epsilon_10, "another paper"),
    Claim("Table 1", "DP-CGAN's public code accounts for its noise.", dp_cgan_accounts_for_its_noise, "another paper"),
]
