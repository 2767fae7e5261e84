"""Amplification by subsampling: against plain sums, quadrature, the libraries, simulation, and true divergences."""

import math
import warnings

import mpmath
import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant as library

from dpot.privacy.events import (
    Adjacency,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    PoissonSampled,
    ProjectionGaussian,
    SelfComposed,
    StratifiedSampled,
)
from dpot.privacy.projection import projection_rdp
from dpot.privacy.rdp import ORDERS, Pricing, rdp

ADD = Adjacency.ADD_REMOVE
LABEL = Adjacency.REPLACE_KEEPING_LABEL
THEOREM_9 = Pricing("exact", 0.5, tight_sampling=False)
SHARP = Pricing("sharp", 0.5)
PROJECTIONS = [(784, 200, 0.748, 128, 10_000), (50, 100, 2.734, 32, 497), (30, 5, 0.6, 1, 7), (3, 2, 8.0, 5, 50)]


def theorem_9(d: int, k: int, sigma: float, gamma: float, alpha: int) -> float:
    """Wang, Balle & Kasiviswanathan 2019, Theorem 9, written out for ε(∞) = ∞ in high precision."""
    with mpmath.workdps(60):
        rho = [mpmath.mpf(0)] * 2 + [mpmath.mpf(projection_rdp(d, k, sigma, [j])[0]) for j in range(2, alpha + 1)]
        g = mpmath.mpf(gamma)
        second = min(4 * (mpmath.exp(rho[2]) - 1), 2 * mpmath.exp(rho[2]))
        total = 1 + g**2 * mpmath.binomial(alpha, 2) * second
        for j in range(3, alpha + 1):
            total += 2 * g**j * mpmath.binomial(alpha, j) * mpmath.exp((j - 1) * rho[j])
        return float(min(mpmath.log(total) / (alpha - 1), rho[alpha]))


@pytest.mark.parametrize(("d", "k", "sigma", "batch", "population"), PROJECTIONS)
def test_theorem_9_written_out(d: int, k: int, sigma: float, batch: int, population: int) -> None:
    orders = [2.0, 3.0, 4.0, 11.0, 40.0]
    found = rdp(FixedSizeSampled(ProjectionGaussian(d, k, sigma), batch, population), orders)
    for alpha, value in zip(orders, found, strict=True):
        assert value == pytest.approx(theorem_9(d, k, sigma, batch / population, int(alpha)), rel=1e-11)


def test_between_integers_on_the_chord_of_the_cgf() -> None:
    event = FixedSizeSampled(ProjectionGaussian(50, 100, 2.7), 32, 497)
    two, mid, three, below = rdp(event, [2.0, 2.3, 3.0, 1.4])
    assert mid == pytest.approx((0.7 * 1 * two + 0.3 * 2 * three) / 1.3, rel=1e-12)
    assert below == pytest.approx(two, rel=1e-12)


@pytest.mark.parametrize(("rate", "z"), [(0.01, 1.0), (0.0683, 2.5), (0.0017, 0.6), (0.3, 5.0)])
def test_gaussian_without_replacement_is_dp_accountings(rate: float, z: float) -> None:
    """Both are Theorem 27; where the mechanism's own curve is smaller we take it."""
    population = 10_000
    orders = np.array([2.0, 2.5, 3.0, 7.0, 30.0, 60.0])
    found = rdp(FixedSizeSampled(Gaussian(z), round(rate * population), population), orders)
    theirs = library._compute_rdp_sample_wor_gaussian(rate, z, orders)
    np.testing.assert_allclose(found, np.minimum(theirs, orders / (2 * z * z)), rtol=1e-9)


@pytest.mark.parametrize("improved", [False, True])
def test_autodp_has_the_same_curve(improved: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from autodp import rdp_acct

        accountant = rdp_acct.anaRDPacct()
        accountant.compose_subsampled_mechanism(lambda a: a / (2 * 1.3**2), 0.02, improved_bound_flag=improved)
        orders = np.array([2.0, 3.0, 4.5, 12.0, 31.0])
        theirs = accountant.get_rdp(orders)
    pricing = Pricing("exact", 0.5, tight_sampling=improved)
    found = rdp(FixedSizeSampled(Gaussian(1.3), 20, 1000), orders, pricing)
    np.testing.assert_allclose(found, theirs, rtol=1e-8)


def test_pure_guarantee_enters_theorem_9() -> None:
    """Laplace noise has a finite ε(∞), which autodp uses too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from autodp import rdp_acct, rdp_bank

        accountant = rdp_acct.anaRDPacct()
        accountant.compose_subsampled_mechanism(lambda a: rdp_bank.RDP_laplace({"b": 5.0}, a), 0.1)
        theirs = accountant.get_rdp([2.0, 3.0, 8.0])
    found = rdp(FixedSizeSampled(Laplace(5.0), 10, 100), [2.0, 3.0, 8.0])
    np.testing.assert_allclose(found, theirs, rtol=1e-8)


def test_all_records_is_no_sampling() -> None:
    orders = [1.5, 2.0, 9.0]
    base = ProjectionGaussian(20, 4, 1.0)
    np.testing.assert_allclose(rdp(FixedSizeSampled(base, 9, 9), orders), rdp(base, orders), rtol=1e-13)
    gaussian = Gaussian(2.0, ADD)
    np.testing.assert_allclose(rdp(PoissonSampled(gaussian, 1.0), orders), rdp(gaussian, orders), rtol=1e-13)


def test_classes_are_priced_by_the_worst_of_them() -> None:
    base = ProjectionGaussian(784, 100, 0.8, 1.0, LABEL)
    stratified = rdp(StratifiedSampled(base, (10, 10, 5), (5421, 6742, 5000)))
    np.testing.assert_allclose(stratified, rdp(FixedSizeSampled(base, 10, 5421)), rtol=1e-13)


@pytest.mark.parametrize(("rate", "z"), [(1 / 1200, 1.1), (0.01, 30.0), (0.3, 0.3), (1e-5, 0.7)])
def test_poisson_gaussian_at_every_order(rate: float, z: float) -> None:
    """Against adaptive quadrature of E_Q(P/Q)^α in 30 digits, integer orders or not."""
    orders = [1.01, 2.4, 3.0, 11.9]
    found = rdp(PoissonSampled(Gaussian(z, ADD), rate), orders)
    with mpmath.workdps(30):
        s, q = 1 / mpmath.mpf(z), mpmath.mpf(rate)
        for alpha, value in zip(orders, found, strict=True):
            a = mpmath.mpf(alpha)
            top = float(a * s)
            points = sorted([-25, -5, 0, 5, top - 5, top, top + 5, top + 25])
            moment = mpmath.quad(
                lambda x, a=a: mpmath.npdf(x) * ((1 - q) + q * mpmath.exp(s * x - s * s / 2)) ** a, points
            )
            assert abs(value / (mpmath.log(moment) / (a - 1)) - 1) < 1e-10


def test_poisson_gaussian_is_dp_accountings_at_integers() -> None:
    orders = np.array([2.0, 3.0, 17.0, 128.0, 512.0])
    for rate, z in [(0.01, 1.0), (0.2, 4.0), (1e-4, 0.5)]:
        theirs = library._compute_rdp_poisson_subsampled_gaussian(rate, z, orders)
        np.testing.assert_allclose(rdp(PoissonSampled(Gaussian(z, ADD), rate), orders), theirs, rtol=1e-7)


def test_poisson_projection_integrates_over_the_directions() -> None:
    """E_U A_α(q, σ/‖zᵀU‖), with the sampled-Gaussian moment of dp-accounting at every draw of ‖zᵀU‖."""
    rng = np.random.default_rng(0)
    d, k, sigma, rate, alpha = 10, 4, 1.8, 0.1, 4
    u = rng.standard_normal((4000, d, k))
    square = ((u / np.linalg.norm(u, axis=1, keepdims=True))[:, 0] ** 2).sum(axis=1)
    moments = np.array([math.exp(library._compute_log_a_int(rate, sigma / math.sqrt(s), alpha)) for s in square])
    value = rdp(PoissonSampled(ProjectionGaussian(d, k, sigma, 1.0, ADD), rate), [float(alpha)])[0]
    error = moments.std() / math.sqrt(len(moments))
    assert abs(math.exp((alpha - 1) * value) - moments.mean()) < 4 * error
    assert error < 0.05 * (moments.mean() - 1)


def test_poisson_projection_by_running_the_mechanism() -> None:
    """Draw directions and noise, weigh the likelihood ratio of the whole release: no formula in between."""
    rng = np.random.default_rng(3)
    d, k, sigma, rate, alpha, n = 6, 3, 1.1, 0.25, 3.0, 400_000
    u = rng.standard_normal((n, d, k))
    projected = (u / np.linalg.norm(u, axis=1, keepdims=True))[:, 0]  # zᵀU for z = e₁
    noise = sigma * rng.standard_normal((n, k))  # the release without the record
    log_ratio = ((noise * projected).sum(axis=1) - 0.5 * (projected**2).sum(axis=1)) / sigma**2
    powers = (1 - rate + rate * np.exp(log_ratio)) ** alpha
    value = rdp(PoissonSampled(ProjectionGaussian(d, k, sigma, 1.0, ADD), rate), [alpha])[0]
    error = powers.std() / math.sqrt(n)
    assert abs(math.exp((alpha - 1) * value) - powers.mean()) < 4 * error


def test_tiny_rates_do_not_cancel() -> None:
    """At q = 1e-9 the moment is 1 + 1e-18·...: ε(2) = q²(e^{1/z²}-1) to all digits."""
    value = rdp(PoissonSampled(Gaussian(1.0, ADD), 1e-9), [2.0])[0]
    assert value == pytest.approx(1e-18 * math.expm1(1.0), rel=1e-9)
    value = rdp(FixedSizeSampled(ProjectionGaussian(5, 1, 1.0), 1, 10**9), [2.0])[0]
    assert value == pytest.approx(4e-18 * math.expm1(projection_rdp(5, 1, 1.0, [2.0])[0]), rel=1e-9)


def true_divergence(alpha: float, sigma: float, gamma: float, a: float, b: float, rest: float) -> float:
    """D_α of γN(a)+(1-γ)N(rest) from γN(b)+(1-γ)N(rest) on the line, by a fine sum."""
    x = np.linspace(-12 - 4 * alpha / sigma, 12 + 4 * alpha / sigma, 40_001) * sigma

    def density(mean: float) -> np.ndarray:
        return np.exp(-((x - mean) ** 2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))

    p, q = (gamma * density(m) + (1 - gamma) * density(rest) for m in (a, b))
    kept = (q > 1e-290) & (p > 0)
    return math.log(np.sum(q[kept] * (p[kept] / q[kept]) ** alpha) * (x[1] - x[0])) / (alpha - 1)


@pytest.mark.parametrize("sigma", [0.7, 2.0, 15.0])
@pytest.mark.parametrize(("batch", "population"), [(1, 2), (1, 10), (3, 40)])
def test_no_bound_is_below_a_true_divergence(sigma: float, batch: int, population: int) -> None:
    """Records on a line with diameter 1: the subsampled release on real neighbours, for three mutual neighbours."""
    gamma = batch / population
    gaussian = FixedSizeSampled(Gaussian(sigma), batch, population)
    projected = FixedSizeSampled(ProjectionGaussian(1, 1, sigma), batch, population)
    for alpha in (2.0, 3.0, 5.0, 8.0, 2.5):
        true = max(
            true_divergence(alpha, sigma, gamma, *triple)
            for triple in [(1, 0, 0), (0, 1, 0), (0.5, -0.5, 0), (1, 0, 0.5), (0, 1, 0.3)]
        )
        for event, pricing in [(gaussian, THEOREM_9), (gaussian, SHARP), (projected, SHARP), (projected, THEOREM_9)]:
            assert rdp(event, [alpha], pricing)[0] >= true * (1 - 1e-6)


def test_theorem_27_covers_a_triangle_in_the_plane() -> None:
    """Three mutual neighbours at 60° are worse than any pair on a line: E_R|P-Q|²/R² = 2e^{1/σ²} - 2e^{1/2σ²}."""
    sigma, gamma = 1.0, 0.2
    axis = np.linspace(-9, 12, 700)
    x, y = np.meshgrid(axis, axis)
    cell = (axis[1] - axis[0]) ** 2

    def density(a: float, b: float) -> np.ndarray:
        return np.exp(-((x - a) ** 2 + (y - b) ** 2) / (2 * sigma**2)) / (2 * math.pi * sigma**2)

    rest = density(0, 0)
    p = gamma * density(1, 0) + (1 - gamma) * rest
    q = gamma * density(0.5, math.sqrt(0.75)) + (1 - gamma) * rest
    for alpha in (2.0, 3.0, 4.0):
        true = math.log(np.sum(q * (p / q) ** alpha) * cell) / (alpha - 1)
        assert rdp(FixedSizeSampled(Gaussian(sigma), 20, 100), [alpha])[0] >= true


@pytest.mark.parametrize("event", [PoissonSampled(Gaussian(1.2, ADD), 0.03), FixedSizeSampled(Gaussian(1.2), 3, 100)])
def test_curves_grow_with_the_order(event: object) -> None:
    curve = rdp(event)  # type: ignore[arg-type]
    assert len(curve) == len(ORDERS)
    assert np.all(np.diff(curve) >= -1e-12 * curve[1:])


def test_composition_inside_a_sample_is_one_mechanism() -> None:
    """Two Gaussians on the same sample are one with 1/z² added up."""
    twice = PoissonSampled(SelfComposed(Gaussian(2.0, ADD), 4), 0.02)
    np.testing.assert_allclose(rdp(twice), rdp(PoissonSampled(Gaussian(1.0, ADD), 0.02)), rtol=1e-9)
