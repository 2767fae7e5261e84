"""The exact Rényi divergence of random projections, against mpmath, closed forms and simulation."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from dpot.privacy.errors import InvalidParameter
from dpot.privacy.projection import log_kummer, projection_rdp


def by_mpmath(d: int, k: int, sigma: float, alpha: float) -> mpmath.mpf:
    with mpmath.workdps(50):
        a, s = mpmath.mpf(alpha), mpmath.mpf(sigma)
        x = a * (a - 1) / (2 * s * s)
        return k / (a - 1) * mpmath.log(mpmath.hyp1f1(mpmath.mpf(1) / 2, mpmath.mpf(d) / 2, x, maxterms=10**7))


@pytest.mark.parametrize("d", [2, 3, 4, 5, 49, 784, 8192, 100_000])
def test_relative_error_over_the_whole_range(d: int) -> None:
    orders = [1.01, 1.3, 2.0, 7.3, 64.0, 512.0]
    for sigma in (0.05, 0.3, 0.776, 4.0, 100.0):
        for k in (1, 100_000):
            found = projection_rdp(d, k, sigma, orders)
            for alpha, value in zip(orders, found, strict=True):
                assert abs(value / by_mpmath(d, k, sigma, alpha) - 1) < 1e-10, (d, k, sigma, alpha)


@settings(max_examples=60, deadline=None)
@given(
    d=st.integers(2, 100_000),
    k=st.integers(1, 100_000),
    sigma=st.floats(0.05, 100),
    alpha=st.floats(1.01, 512),
)
def test_relative_error_at_random_points(d: int, k: int, sigma: float, alpha: float) -> None:
    value = projection_rdp(d, k, sigma, [alpha])[0]
    assert abs(value / by_mpmath(d, k, sigma, alpha) - 1) < 1e-10


@pytest.mark.parametrize("d", [120, 784, 100_000])
def test_no_seam_where_series_meets_quadrature(d: int) -> None:
    """Both sides of the switch at x = d/4 agree with mpmath, so that they agree with each other."""
    for x in (d / 4 * (1 - 1e-12), d / 4 * (1 + 1e-12)):
        with mpmath.workdps(40):
            reference = mpmath.log(mpmath.hyp1f1(mpmath.mpf(1) / 2, mpmath.mpf(d) / 2, mpmath.mpf(x)))
        assert abs(log_kummer(d, [x])[0] / reference - 1) < 1e-13


def test_closed_forms_in_low_dimensions() -> None:
    x = np.geomspace(1e-8, 1e6, 60)
    np.testing.assert_allclose(log_kummer(1, x), x, rtol=1e-14)  # the sphere of R¹ is two points
    # d = 2: 1F1(1/2; 1; x) = e^{x/2}·I₀(x/2); compared where log I₀ does not cancel
    large = x[x > 1]
    np.testing.assert_allclose(log_kummer(2, large), large + np.log(special.ive(0, large / 2)), rtol=1e-12)
    # d = 3: 1F1(1/2; 3/2; x) = e^x·D(√x)/√x with Dawson's function D
    np.testing.assert_allclose(
        log_kummer(3, large), large + np.log(special.dawsn(np.sqrt(large)) / np.sqrt(large)), rtol=1e-12
    )


def test_simulated_moment() -> None:
    """E_U exp(α(α-1)‖zᵀU‖²/2σ²) over real directions on the sphere."""
    rng = np.random.default_rng(1)
    d, k, sigma, alpha = 12, 6, 1.3, 3.0
    u = rng.standard_normal((60_000, d, k))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    z = rng.standard_normal(d)
    z /= np.linalg.norm(z)
    sample = np.exp(alpha * (alpha - 1) / (2 * sigma**2) * ((z @ u) ** 2).sum(axis=1))
    error = sample.std() / math.sqrt(len(sample))
    moment = math.exp((alpha - 1) * projection_rdp(d, k, sigma, [alpha])[0])
    assert abs(sample.mean() - moment) < 4 * error
    assert error / moment < 0.01  # or the comparison says nothing


def test_reference_value_for_mnist() -> None:
    """d = 784, k = 1000, σ = 1, α = 4: 2.5715 ± .0006 by simulation."""
    assert projection_rdp(784, 1000, 1.0, [4.0])[0] == pytest.approx(2.5707, abs=5e-4)


def test_limits_and_monotonicity() -> None:
    assert projection_rdp(784, 10, 1.0, [math.inf])[0] == math.inf
    orders = np.linspace(1.01, 300, 400)
    curve = projection_rdp(30, 7, 0.9, orders)
    assert np.all(np.diff(curve) > 0)
    assert np.all(projection_rdp(30, 7, 1.1, orders) < curve)
    assert np.all(projection_rdp(31, 7, 0.9, orders) < curve)
    assert np.all(projection_rdp(30, 8, 0.9, orders) > curve)
    np.testing.assert_allclose(projection_rdp(30, 7, 1.8, orders, diameter=2.0), curve, rtol=1e-14)
    # mean sensitivity k/d below (Jensen), worst case k above
    gaussian = orders / (2 * 0.9**2)
    assert np.all(curve >= gaussian * 7 / 30)
    assert np.all(curve <= gaussian * 7)


def test_absurdly_small_noise_is_still_bounded_from_above() -> None:
    value = projection_rdp(100, 1, 1e-9, [2.0])[0]
    assert value == pytest.approx(1e18, rel=1e-6)


@pytest.mark.parametrize(
    "arguments",
    [
        (0, 1, 1.0, [2.0]),
        (10, 0, 1.0, [2.0]),
        (10, 1.5, 1.0, [2.0]),
        (10, 1, 0.0, [2.0]),
        (10, 1, math.nan, [2.0]),
        (10, 1, math.inf, [2.0]),
        (10, 1, 1.0, [1.0]),
        (10, 1, 1.0, [0.5]),
        (10, 1, 1.0, [math.nan]),
        (10, 1, 1.0, [2.0], 0.0),
    ],
)
def test_bad_input_has_a_name(arguments: tuple) -> None:
    with pytest.raises(InvalidParameter):
        projection_rdp(*arguments)
    with pytest.raises(InvalidParameter):
        log_kummer(10, [-1.0])
