"""From Rényi to (ε, δ), against dp-accounting and the exact Gaussian trade-off."""

import math

import numpy as np
import pytest
from dp_accounting.rdp.rdp_privacy_accountant import compute_delta, compute_epsilon

from dpot.privacy.conversion import conversion_cost, delta_from_rdp, epsilon_from_rdp
from dpot.privacy.errors import InvalidParameter
from dpot.privacy.gaussian import gaussian_delta, gaussian_epsilon

ORDERS = np.concatenate([np.arange(11, 100) / 10, np.arange(10, 500)])


@pytest.mark.parametrize("rho", [1e-3, 0.02, 0.5, 8.0])
@pytest.mark.parametrize("delta", [1e-10, 1e-5, 1e-2])
def test_tight_conversion_is_dp_accountings(rho: float, delta: float) -> None:
    curve = rho * ORDERS
    epsilon, order = epsilon_from_rdp(ORDERS, curve, delta, "tight")
    theirs, their_order = compute_epsilon(ORDERS, curve, delta)
    if theirs > 0:  # they also know that a tiny divergence is (0, δ)-DP
        assert epsilon == pytest.approx(theirs, rel=1e-12)
        assert order == their_order
    target = 1.5 * epsilon + 0.1
    their_delta = compute_delta(ORDERS, curve, target)[0]
    assert delta_from_rdp(ORDERS, curve, target, "tight")[0] == pytest.approx(their_delta, rel=1e-9)


@pytest.mark.parametrize("z", [0.4, 1.0, 5.0, 40.0])
def test_no_conversion_goes_below_the_exact_gaussian(z: float) -> None:
    curve = ORDERS / (2 * z * z)
    for delta in (1e-9, 1e-5, 1e-2):
        tight, mironov = (epsilon_from_rdp(ORDERS, curve, delta, c)[0] for c in ("tight", "mironov"))
        assert gaussian_epsilon(z, delta) - 1e-6 <= tight <= mironov
    for epsilon in (0.1, 1.0, 10.0):
        tight, mironov = (delta_from_rdp(ORDERS, curve, epsilon, c)[0] for c in ("tight", "mironov"))
        assert gaussian_delta(z, epsilon) <= tight * (1 + 1e-9)
        assert tight <= mironov * (1 + 1e-12)


@pytest.mark.parametrize("conversion", ["mironov", "tight"])
def test_epsilon_and_delta_are_inverse(conversion: str) -> None:
    curve = 0.3 * ORDERS
    epsilon, _ = epsilon_from_rdp(ORDERS, curve, 1e-5, conversion)
    assert delta_from_rdp(ORDERS, curve, epsilon, conversion)[0] == pytest.approx(1e-5, rel=1e-9)


def test_mironov_as_printed() -> None:
    assert conversion_cost([3.0], 1e-5)[0] == pytest.approx(math.log(1e5) / 2)
    assert epsilon_from_rdp([3.0], [0.7], 1e-5)[0] == pytest.approx(0.7 + math.log(1e5) / 2)


def test_an_infinite_curve_is_no_guarantee() -> None:
    assert epsilon_from_rdp([2.0, 3.0], [math.inf, math.inf], 1e-5)[0] == math.inf
    assert delta_from_rdp([2.0, 3.0], [math.inf, math.inf], 1.0)[0] == 1.0


@pytest.mark.parametrize(
    ("orders", "curve", "delta", "conversion"),
    [
        ([2.0], [1.0], 0.0, "mironov"),
        ([2.0], [1.0], 1.0, "mironov"),
        ([2.0], [1.0], math.nan, "mironov"),
        ([1.0], [1.0], 1e-5, "mironov"),
        ([0.5], [1.0], 1e-5, "mironov"),
        ([2.0], [-1.0], 1e-5, "mironov"),
        ([2.0], [math.nan], 1e-5, "mironov"),
        ([2.0, 3.0], [1.0], 1e-5, "mironov"),
        ([], [], 1e-5, "mironov"),
        ([2.0], [1.0], 1e-5, "loose"),
    ],
)
def test_bad_input_has_a_name(orders: list, curve: list, delta: float, conversion: str) -> None:
    with pytest.raises(InvalidParameter):
        epsilon_from_rdp(orders, curve, delta, conversion)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter):
        delta_from_rdp([2.0], [1.0], -1.0)
