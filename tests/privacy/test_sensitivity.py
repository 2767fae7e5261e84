"""Bounds on the squared sensitivity of projections, against the law they bound."""

import math

import numpy as np
import pytest
from scipy import stats

from dpot.privacy.errors import InvalidParameter
from dpot.privacy.sensitivity import beta_variance, sample_squared_sensitivity, squared_sensitivity


@pytest.mark.parametrize("d", [2, 5, 50, 784, 8192])
def test_variance_is_that_of_the_beta_law(d: int) -> None:
    assert beta_variance(d) == pytest.approx(stats.beta(0.5, (d - 1) / 2).var(), rel=1e-12)


def test_equation_6_as_printed() -> None:
    """DP-SWD, Equation 6: k/d + (2/3)·ln(1/δ) + (2/d)·√(k·(d-1)/(d+2)·ln(1/δ))."""
    for d, k, delta in [(784, 200, 5e-6), (50, 100, 5e-4), (8192, 2000, 5e-7)]:
        log = math.log(1 / delta)
        printed = k / d + 2 / 3 * log + 2 / d * math.sqrt(k * (d - 1) / (d + 2) * log)
        assert squared_sensitivity("bernstein", d, k, delta) == pytest.approx(printed, rel=1e-12)


def test_coded_variant_counts_k_twice() -> None:
    d, k, delta = 784, 200, 5e-6
    terms = k / d + 2 / 3 * math.log(1 / delta)
    bernstein = squared_sensitivity("bernstein", d, k, delta) - terms
    assert squared_sensitivity("coded", d, k, delta) - terms == pytest.approx(math.sqrt(k) * bernstein, rel=1e-12)
    assert squared_sensitivity("coded", d, 1, delta) == squared_sensitivity("bernstein", d, 1, delta)


def test_clt_is_a_normal_quantile() -> None:
    law = stats.norm(200 / 784, math.sqrt(200 * stats.beta(0.5, 783 / 2).var()))
    assert squared_sensitivity("clt", 784, 200, 1e-5) == pytest.approx(law.isf(1e-5), rel=1e-10)


def test_bernstein_holds_and_clt_does_not() -> None:
    """Draws exceed the Bernstein bound no more often than allowed; few projections exceed the CLT more often."""
    rng = np.random.default_rng(0)
    draws = sample_squared_sensitivity(20, 3, 400_000, rng)
    assert np.mean(draws > squared_sensitivity("bernstein", 20, 3, 0.01)) <= 0.01
    assert np.mean(draws > squared_sensitivity("clt", 20, 3, 0.001)) > 0.002
    assert draws.max() <= squared_sensitivity("worst", 20, 3)


def test_draws_have_the_law_of_projections() -> None:
    rng = np.random.default_rng(0)
    draws = sample_squared_sensitivity(5, 1, 20_000, rng)
    u = rng.standard_normal((20_000, 5))
    real = u[:, 0] ** 2 / (u**2).sum(axis=1)
    assert stats.ks_2samp(draws, real).pvalue > 1e-3
    assert np.all(sample_squared_sensitivity(1, 4, 10, rng) == 4)


@pytest.mark.parametrize(
    ("bound", "d", "k", "failure"),
    [
        ("bernstein", 0, 1, 0.1),
        ("bernstein", 5, 0, 0.1),
        ("bernstein", 5, 1, 0.0),
        ("clt", 5, 1, 1.0),
        ("clt", 5, 1, math.nan),
        ("clt", 5, 1, None),
        ("exact", 5, 1, 0.1),
        ("sharp", 5, 1, 0.1),
        ("guess", 5, 1, 0.1),
    ],
)
def test_bad_input_has_a_name(bound: str, d: int, k: int, failure: float) -> None:
    with pytest.raises(InvalidParameter):
        squared_sensitivity(bound, d, k, failure)  # type: ignore[arg-type]
