"""Kummer's function and the moments against mpmath and quadrature; the accountants against plain sums."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpot.privacy.errors import InvalidParameter
from dpot.privacy.wdp.accountants import (
    BayesianAccountant,
    MomentsAccountant,
    WassersteinAccountant,
    pair_distances,
    wasserstein_loss,
)
from dpot.privacy.wdp.moments import log_absolute_moment, log_kummer, log_subsampled_moment, log_upper_mean


@pytest.mark.parametrize("order", [1, 1.5, 2, 3.3, 16, 17.5, 64, 200])
@pytest.mark.parametrize("x", [0, 1e-3, 0.5, 7, 50, 99.9, 100.1, 1e3, 1e8])
def test_kummer_against_mpmath(order, x):
    with mpmath.workdps(60):
        exact = mpmath.log(mpmath.hyp1f1(-mpmath.mpf(order) / 2, mpmath.mpf(1) / 2, -mpmath.mpf(x)))
    assert float(log_kummer(order, np.array([x]))[0]) == pytest.approx(float(exact), rel=1e-10, abs=1e-10)


@pytest.mark.parametrize(
    ("order", "mean", "variance"), [(1, 0, 2), (2, 3, 0.5), (3, 1, 1), (16, 0.7, 1.98), (7.3, 5, 0.1)]
)
def test_absolute_moment_against_quadrature(order, mean, variance):
    with mpmath.workdps(30):
        density = lambda z: abs(mean + mpmath.sqrt(variance) * z) ** order * mpmath.npdf(z)  # noqa: E731
        exact = mpmath.quad(density, [-40, -mean / math.sqrt(variance), 0, 5, 40])
    assert math.exp(float(log_absolute_moment(order, mean, variance))) == pytest.approx(float(exact), rel=1e-9)


def test_absolute_moment_without_noise_is_the_power_of_the_mean():
    logs = log_absolute_moment(5.0, [0.0, 2.0], 0.0)
    assert logs[0] == -math.inf
    assert math.exp(logs[1]) == pytest.approx(32)


@pytest.mark.parametrize("order", [0.5, 201, math.nan])
def test_orders_outside_are_refused(order):
    with pytest.raises(InvalidParameter, match="order"):
        log_absolute_moment(order, 1.0, 1.0)


@pytest.mark.parametrize(("order", "ratio", "rate"), [(1, 1.0, 0.5), (4, 0.3, 0.01), (16, 2.0, 0.001), (8, 1.5, 1.0)])
def test_subsampled_moment_is_the_integral(order, ratio, rate):
    """E_{x~N(0,1)} [((1-q) + q·N(r,1)/N(0,1))^{λ+1}], by mpmath."""
    with mpmath.workdps(25):

        def power(x):
            return ((1 - rate) + rate * mpmath.exp(ratio * x - ratio**2 / 2)) ** (order + 1) * mpmath.npdf(x)

        exact = mpmath.log(mpmath.quad(power, [-20, 0, 10, 20, 40, 60]))
    assert float(log_subsampled_moment(order, ratio, rate)) == pytest.approx(float(exact), rel=1e-8, abs=1e-12)


@given(st.lists(st.floats(-3, 3), min_size=3, max_size=20), st.floats(0.5, 0.999))
def test_upper_mean_is_the_textbook_bound(samples, confidence):
    values = np.exp(samples)
    n = len(values)
    plain = values.mean() + stats.t.ppf(confidence, n - 1) * values.std() / math.sqrt(n - 1)
    assert float(log_upper_mean(samples, confidence)) == pytest.approx(math.log(plain), abs=1e-9)


def test_upper_mean_does_not_overflow_and_needs_samples():
    assert 9e5 <= float(log_upper_mean([1e6, 9e5, 8e5], 0.99)) <= 1e6 + 10
    with pytest.raises(InvalidParameter, match="at least 3"):
        log_upper_mean([1.0, 2.0], 0.9)


def test_pair_distances_are_those_of_all_pairs():
    rows = np.random.default_rng(0).normal(size=(3, 6, 40)) + 1e4  # far from zero: must not cancel
    direct = [[np.linalg.norm(a - b) for a, b in itertools.combinations(step, 2)] for step in rows]
    np.testing.assert_allclose(pair_distances(rows), direct, rtol=1e-9)


def test_wasserstein_loss_of_one_step_by_monte_carlo():
    rng, q, noise, distances = np.random.default_rng(1), 0.2, 0.7, np.array([1.0, 4.0])
    spread = math.sqrt(2 - 2 * q + 2 * q**2) * noise
    drawn = q * distances[:, None] + spread * rng.normal(size=(2, 400_000))
    plain = (np.abs(drawn) ** 4).mean(1).sum() ** 0.25
    assert float(wasserstein_loss(4, distances, noise, q)) == pytest.approx(plain, rel=5e-3)


def test_many_steps_at_once_are_steps_one_by_one():
    rng = np.random.default_rng(2)
    distances, noise = rng.uniform(0, 3, (7, 10)), rng.uniform(0.5, 2, 7)
    for make in (lambda: WassersteinAccountant(16, 2.0), lambda: BayesianAccountant(7, 8)):
        together, apart = make(), make()
        together.accumulate(distances, noise, 0.05)
        for row, std in zip(distances, noise, strict=True):
            apart.accumulate(row, std, 0.05)
        np.testing.assert_allclose(together.history(1e-5), apart.history(1e-5), rtol=1e-12)


def test_moments_accountant_takes_the_best_order_and_bounds_the_rdp_of_a_library():
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    orders = range(1, 65)
    ours = MomentsAccountant(orders)
    ours.accumulate(np.full(500, 1.0), np.full(500, 1.1), 0.01)
    library = RdpAccountant([order + 1 for order in orders])
    library.compose(PoissonSampledDpEvent(0.01, GaussianDpEvent(1.1)), 500)
    curve = np.array([library._rdp[i] for i in range(len(orders))])
    plain = np.min(curve - math.log(1e-5) / np.array(orders))  # Mironov's conversion
    assert ours.history(1e-5)[-1] == pytest.approx(plain, rel=1e-9)
    alone = MomentsAccountant((16,))
    alone.accumulate(np.full(500, 1.0), np.full(500, 1.1), 0.01)
    assert alone.history(1e-5)[-1] >= ours.history(1e-5)[-1]


def test_bayesian_accountant_with_equal_pairs_is_the_moments_accountant():
    """No spread, nothing to estimate: only the confidence, taken off δ, remains."""
    bayesian, moments = BayesianAccountant(50, 4, confidence=1 - 1e-9), MomentsAccountant((4,))
    bayesian.accumulate(np.ones((50, 5)), np.full(50, 2.0), 0.1)
    moments.accumulate(np.ones(50), np.full(50, 2.0), 0.1)
    difference = bayesian.history(1e-5) - moments.history(1e-5)
    assert np.all(difference >= 0)
    assert np.all(difference < 1e-2)


def test_bayesian_accountant_refuses_more_steps_than_its_correction_and_a_spent_delta():
    accountant = BayesianAccountant(2, 4, confidence=0.9)
    accountant.accumulate(np.ones((3, 5)), np.ones(3), 0.1)
    with pytest.raises(InvalidParameter, match="Hölder"):
        accountant.history(1e-5)
    short = BayesianAccountant(2, 4, confidence=0.9)
    short.accumulate(np.ones((2, 5)), np.ones(2), 0.1)
    with pytest.raises(InvalidParameter, match="used up"):
        short.history(1e-5)


def test_nothing_accounted_is_said():
    with pytest.raises(InvalidParameter, match="no step"):
        WassersteinAccountant().history(1e-5)
