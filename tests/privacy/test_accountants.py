"""All accountants on the same events: agreement, refusals with reasons, and never below the truth."""

import math

import numpy as np
import pytest

from dpot.privacy.accountants import ACCOUNTANTS, PAPER_ACCOUNTANTS, accounts, own_delta, own_epsilon
from dpot.privacy.errors import InvalidParameter, UnsupportedEvent
from dpot.privacy.events import (
    AdaptiveSequence,
    Adjacency,
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
from dpot.privacy.libraries import autodp_epsilon
from dpot.privacy.pld import pld_epsilon
from dpot.privacy.rdp import ORDERS, rdp

ADD, LABEL = Adjacency.ADD_REMOVE, Adjacency.REPLACE_KEEPING_LABEL
FAST = [name for name in ACCOUNTANTS if name != "dp_accounting_pld"]


def epsilons(event: Event, delta: float = 1e-5, **keywords: object) -> dict[str, float]:
    return {name: a.epsilon for name, a in accounts(event, delta, **keywords).items() if a.epsilon is not None}  # type: ignore[arg-type]


@pytest.mark.parametrize("z", [0.35, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("times", [1, 40])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_gaussian_never_below_the_exact_value(z: float, times: int, delta: float) -> None:
    event = SelfComposed(Gaussian(z), times)
    exact = gaussian_epsilon(z / math.sqrt(times), delta)
    found = epsilons(event, delta, names=FAST)
    assert set(found) == {"dpot_rdp", "dpot_rdp_tight", "analytic_gaussian", "autodp", "dp_accounting_rdp"}
    assert min(found.values()) >= exact - 1e-6
    assert found["analytic_gaussian"] == pytest.approx(exact, rel=1e-9)
    assert own_epsilon({Gaussian(z): times}, delta, "exact", "mironov") == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize(("z", "delta"), [(0.5, 1e-5), (3.73, 1e-6)])
def test_pld_is_tight_and_from_above(z: float, delta: float) -> None:
    exact = gaussian_epsilon(z, delta)
    assert exact - 1e-6 <= pld_epsilon(Gaussian(z), delta) <= exact * (1 + 1e-4)


@pytest.mark.parametrize(
    ("rate", "z", "times", "pld", "tight"),
    [(0.01, 1.0, 5000, 4.202, 4.589), (0.0683, 2.5, 3000, 7.457, 8.040), (0.0017, 0.6, 60_000, 8.399, 9.331)],
)
def test_poisson_sampling(rate: float, z: float, times: int, pld: float, tight: float) -> None:
    """Values measured with dp-accounting and, for PLD, bracketed by prv-accountant; δ = 1e-5."""
    found = epsilons(SelfComposed(PoissonSampled(Gaussian(z, ADD), rate), times))
    assert found["dp_accounting_pld"] == pytest.approx(pld, rel=2e-3)
    assert found["dp_accounting_rdp"] == pytest.approx(tight, rel=2e-3)
    assert found["dpot_rdp_tight"] == pytest.approx(tight, rel=2e-3)
    assert found["dpot_rdp_tight"] <= found["dp_accounting_rdp"] * (1 + 1e-9)
    assert found["dp_accounting_pld"] < found["dpot_rdp_tight"] < found["dpot_rdp"] <= found["paper_dp_sinkhorn"]


@pytest.mark.parametrize(
    ("rate", "z", "times", "autodp", "library"),
    [(0.01, 1.0, 5000, 9.55, 8.80), (0.0683, 2.5, 3000, 21.2, 19.6), (0.0017, 0.6, 60_000, 15.3, 14.4)],
)
def test_sampling_without_replacement(rate: float, z: float, times: int, autodp: float, library: float) -> None:
    event = SelfComposed(FixedSizeSampled(Gaussian(z), round(rate * 10_000), 10_000), times)
    found = epsilons(event)
    assert autodp_epsilon(event, 1e-5, tight_sampling=False) == pytest.approx(autodp, rel=5e-3)
    assert found["dp_accounting_rdp"] == pytest.approx(library, rel=5e-3)
    assert found["dpot_rdp"] == pytest.approx(found["autodp"], rel=1e-5)
    assert found["dpot_rdp_tight"] <= found["dp_accounting_rdp"] * (1 + 1e-9)
    assert found["dpot_rdp_tight"] == pytest.approx(found["dp_accounting_rdp"], rel=1e-3)


def test_projections_agree_with_autodp() -> None:
    """autodp's Theorem 9 on the exact curve, and on the curve of the coded bound, is what we compute."""
    event = SelfComposed(FixedSizeSampled(ProjectionGaussian(784, 200, 0.9), 128, 10_000), 4000)
    found = epsilons(event)
    assert found["autodp"] == pytest.approx(found["dpot_rdp"], rel=1e-5)
    coarse = SelfComposed(FixedSizeSampled(ProjectionGaussian(784, 200, 5.0), 128, 10_000), 4000)
    found = epsilons(coarse, bound="coded")
    assert found["autodp"] == pytest.approx(found["dpot_rdp"], rel=1e-5)
    assert found["paper_dp_swd"] == pytest.approx(found["dpot_rdp"], rel=1e-12)
    assert found["dp_accounting_rdp"] == pytest.approx(found["dpot_rdp_tight"], rel=1e-5)


def test_bounds_are_ordered() -> None:
    event = {FixedSizeSampled(ProjectionGaussian(784, 200, 3.0), 128, 10_000): 7900}
    cost = {b: own_epsilon(event, 1e-5, b, "mironov") for b in ("sharp", "exact", "clt", "bernstein", "coded", "worst")}  # type: ignore[arg-type]
    assert list(cost.values()) == sorted(cost.values())


def test_every_refusal_has_its_reason() -> None:
    cases: list[tuple[Event, str, str]] = [
        (FixedSizeSampled(Gaussian(1.0), 1, 10), "dp_accounting_pld", "without replacement"),
        (StratifiedSampled(Gaussian(1.0, LABEL), (1,), (9,)), "dp_accounting_pld", "without replacement"),
        (ProjectionGaussian(10, 2, 1.0), "dp_accounting_pld", "projections"),
        (ProjectionGaussian(10, 2, 1.0), "dp_accounting_rdp", "projections"),
        (FixedSizeSampled(ProjectionGaussian(10, 2, 1.0), 1, 10), "dp_accounting_rdp", "projections"),
        (PoissonSampled(Gaussian(1.0, ADD), 0.1), "analytic_gaussian", "without sampling"),
        (PoissonSampled(Laplace(1.0, ADD), 0.1), "dpot_rdp", "Gaussian"),
        (PoissonSampled(DiscreteGaussian(1.0, 1, 1, ADD), 0.1), "dp_accounting_pld", "Gaussian or Laplace"),
        (Gaussian(1.0), "paper_dp_swd", "projections"),
        (Gaussian(1.0), "paper_dp_sinkhorn", "Poisson"),
        (AdaptiveSequence((Gaussian(1.0),), 4.0, 2.0), "dp_accounting_pld", "fixed in advance"),
        (AdaptiveSequence((Gaussian(1.0),), 4.0, 2.0), "dp_accounting_rdp", "fixed in advance"),
        (AdaptiveSequence((Gaussian(1.0),), 4.0, 2.0), "autodp", "fixed in advance"),
        (NonPrivate(), "dpot_rdp", "without noise"),
    ]
    for event, name, word in cases:
        account = accounts(event, 1e-5, names=[name])[name]
        assert account.epsilon is None
        assert word in (account.reason or ""), (event, name, account)
        assert account.to_dict() == {"reason": account.reason}


def test_pld_prices_laplace_and_counts() -> None:
    """Pure ε of one Laplace release, and a discrete Gaussian nearly like the continuous one."""
    assert pld_epsilon(Laplace(2.0), 1e-9) == pytest.approx(0.5, rel=1e-3)
    assert pld_epsilon(PoissonSampled(Laplace(2.0, ADD), 0.1), 1e-9) < 0.5
    discrete = pld_epsilon(DiscreteGaussian(50.0, 1, 2000), 1e-5)
    assert discrete == pytest.approx(gaussian_epsilon(50 / math.sqrt(2000), 1e-5), rel=1e-3)
    assert own_epsilon({DiscreteGaussian(50.0, 1, 2000): 1}, 1e-5, "exact", "mironov") == pytest.approx(discrete)
    mixed = Composed((Gaussian(2.0), DiscreteGaussian(40.0, 2, 100)))
    z = 1 / math.sqrt(1 / 4 + 100 * 4 / 1600)
    assert pld_epsilon(mixed, 1e-5) == pytest.approx(gaussian_epsilon(z, 1e-5), rel=1e-3)


def test_pld_needs_fine_cells_where_losses_are_small() -> None:
    """z = 5.818, T = 3,446,400: ε = 1.000; cells of 1e-4 say 1.043."""
    event = SelfComposed(PoissonSampled(Gaussian(5.818, ADD), 1 / 1200), 3_446_400)
    assert pld_epsilon(event, 1e-5) == pytest.approx(1.0, abs=2e-3)
    assert pld_epsilon(event, 1e-5, discretisation=1e-4) > 1.03


@pytest.mark.parametrize(("z", "rate"), [(0.13, 0.3), (0.05, 0.05), (0.01, 0.3), (0.002, 0.05)])
def test_pld_copes_with_hardly_any_noise(z: float, rate: float) -> None:
    """One sampled release, by the exact δ_q(ε) = q·δ(log(1 + (e^ε - 1)/q)) of Poisson sampling."""
    exact = gaussian_epsilon(z, 1e-5 / rate) + math.log(rate)
    assert exact <= pld_epsilon(PoissonSampled(Gaussian(z, "add-remove"), rate), 1e-5) <= exact * 1.001


def test_pld_takes_wide_cells_where_one_release_decides() -> None:
    """Beside a release that is worth ε > 1000 another one, of a usual noise, adds little, and must not cost memory."""
    loud = PoissonSampled(Gaussian(0.01, "add-remove"), 0.3)
    both = Composed((loud, SelfComposed(PoissonSampled(Gaussian(1.1, "add-remove"), 0.01), 100)))
    alone = pld_epsilon(loud, 1e-5)
    assert alone <= pld_epsilon(both, 1e-5) <= alone * 1.01


def test_an_accountant_that_cannot_cope_says_so_and_fails_nobody() -> None:
    found = accounts(SelfComposed(PoissonSampled(Gaussian(1e-6, "add-remove"), 0.05), 3), 1e-5)
    assert found["dp_accounting_pld"].epsilon is None
    assert found["dp_accounting_pld"].reason
    assert found["dpot_rdp_tight"].epsilon is not None


def test_laplace_curve_is_mironovs() -> None:
    """Proposition 6 written out, and the pure ε as its limit."""
    b, alpha = 1.7, 3.0
    written = math.log(
        alpha / (2 * alpha - 1) * math.exp((alpha - 1) / b) + (alpha - 1) / (2 * alpha - 1) * math.exp(-alpha / b)
    )
    assert rdp(Laplace(b), [alpha])[0] == pytest.approx(written / (alpha - 1), rel=1e-12)
    assert rdp(Laplace(b), [math.inf])[0] == pytest.approx(1 / b)
    assert np.all(np.diff(rdp(Laplace(b))) > 0)
    assert rdp(Laplace(1e6), [1.01])[0] >= 0


def test_adaptive_noise_is_worth_the_budget_of_its_filter() -> None:
    """Not the sum that was reached: where a sequence ends depends on the answers."""
    parts = (Gaussian(2.0), Gaussian(4.0))
    reached = 8 / 2 * (1 / 4 + 1 / 16)  # α/2·Σ 1/z² at the order 8
    chosen = rdp(AdaptiveSequence(parts, 8.0, budget=3.0))
    assert np.all(chosen[ORDERS <= 8.0] == 3.0)
    assert np.all(np.isinf(chosen[ORDERS > 8.0]))
    assert np.all(rdp(AdaptiveSequence(parts, 8.0, budget=reached))[ORDERS <= 8.0] == reached)
    with pytest.raises(UnsupportedEvent, match="more than the filter"):
        rdp(AdaptiveSequence(parts, 8.0, budget=1.2))


def test_delta_of_epsilon() -> None:
    assert own_delta({Gaussian(1.0): 2}, 3.0, "exact", "tight") == pytest.approx(gaussian_delta(1 / math.sqrt(2), 3.0))
    event = {FixedSizeSampled(ProjectionGaussian(784, 200, 1.0), 128, 10_000): 500}
    epsilon = own_epsilon(event, 1e-6, "exact", "tight")
    assert own_delta(event, epsilon, "exact", "tight") == pytest.approx(1e-6, rel=1e-6)
    with pytest.raises(InvalidParameter):
        own_delta(event, 1.0, "clt", "tight")


def test_paper_accountants_are_marked_and_unknown_ones_refused() -> None:
    assert set(PAPER_ACCOUNTANTS) <= set(ACCOUNTANTS)
    with pytest.raises(InvalidParameter):
        accounts(Gaussian(1.0), 1e-5, names=["gdp"])
    for delta in (0.0, 1.0, math.nan):
        with pytest.raises(InvalidParameter):
            accounts(Gaussian(1.0), delta)
    with pytest.raises(InvalidParameter):
        accounts(Gaussian(1.0), 1e-5, bound="guess")  # type: ignore[arg-type]
