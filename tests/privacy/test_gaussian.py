"""The exact Gaussian trade-off, against mpmath and dp-accounting."""

import math

import mpmath
import pytest
from dp_accounting import get_epsilon_gaussian, get_sigma_gaussian

from dpot.privacy.errors import InvalidParameter
from dpot.privacy.gaussian import gaussian_delta, gaussian_epsilon, gaussian_noise_multiplier


def by_mpmath(z: float, epsilon: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        s, e = mpmath.mpf(z), mpmath.mpf(epsilon)
        return mpmath.ncdf(1 / (2 * s) - e * s) - mpmath.exp(e) * mpmath.ncdf(-1 / (2 * s) - e * s)


@pytest.mark.parametrize("z", [0.05, 0.5, 1.0, 3.73, 50.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 10.0])
def test_delta_against_mpmath(z: float, epsilon: float) -> None:
    reference = by_mpmath(z, epsilon)
    if reference > 1e-200:
        assert abs(gaussian_delta(z, epsilon) / reference - 1) < 1e-9


@pytest.mark.parametrize("z", [0.3, 1.0, 7.0, 100.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.01])
def test_epsilon_is_the_least_private_one(z: float, delta: float) -> None:
    epsilon = gaussian_epsilon(z, delta)
    assert epsilon == pytest.approx(get_epsilon_gaussian(z, delta), rel=1e-9, abs=1e-9)
    assert by_mpmath(z, epsilon) <= delta * (1 + 1e-9)
    if epsilon > 0:
        assert by_mpmath(z, epsilon * (1 - 1e-6)) > delta


def test_noise_of_the_sketch() -> None:
    """noise/sensitivity .5 at (10, 1e-5) and 3.73 at (1, 1e-5)."""
    assert gaussian_noise_multiplier(10.0, 1e-5) == pytest.approx(0.5, abs=5e-4)
    assert gaussian_noise_multiplier(1.0, 1e-5) == pytest.approx(3.73, abs=5e-3)
    for epsilon, delta in [(0.01, 1e-6), (3.0, 1e-3), (30.0, 1e-9)]:
        z = gaussian_noise_multiplier(epsilon, delta)
        assert z == pytest.approx(get_sigma_gaussian(epsilon, delta), rel=1e-9)
        assert gaussian_delta(z, epsilon) <= delta


def test_huge_noise_costs_nothing() -> None:
    assert gaussian_epsilon(1e6, 1e-5) == 0.0


@pytest.mark.parametrize(("z", "delta"), [(0.0, 0.1), (-1.0, 0.1), (math.nan, 0.1), (1.0, 0.0), (1.0, 1.0)])
def test_bad_input_has_a_name(z: float, delta: float) -> None:
    with pytest.raises(InvalidParameter):
        gaussian_epsilon(z, delta)
    with pytest.raises(InvalidParameter):
        gaussian_noise_multiplier(-1.0, 1e-5)
    with pytest.raises(InvalidParameter):
        gaussian_delta(1.0, math.nan)
