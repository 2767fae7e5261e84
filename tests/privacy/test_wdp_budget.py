"""A WDP budget is not an ε: whatever would take it for one is refused; the printed formulas have their values."""

import math
import operator

import numpy as np
import pytest

from dpot.privacy.budget import Budget
from dpot.privacy.errors import InvalidParameter
from dpot.privacy.events import Adjacency, Gaussian, PoissonSampled
from dpot.privacy.wdp.budget import BayesianBudget, Beside, ClaimedEpsilon, WassersteinBudget
from dpot.privacy.wdp.formulas import (
    additive_noise,
    dp_from_wdp,
    gaussian_as_printed,
    laplace_as_printed,
    rdp_gaussian,
    rdp_laplace,
    tail_budget,
    wdp_from_dp,
    wdp_from_rdp,
)

NONE = Beside.none("the sensitivity is not bounded")
BUDGETS = [
    WassersteinBudget(16, 1.5, NONE, 1e-10, 32),
    BayesianBudget(16, 0.9, 1e-10, 1 - 1e-16, NONE),
    ClaimedEpsilon(2.0, "Proposition 11", NONE),
]
ARITHMETIC = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
]


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda b: type(b).__name__)
@pytest.mark.parametrize(
    "number", [1.0, 2, np.float64(1.0), np.array([1.0, 2.0])], ids=["float", "int", "numpy", "array"]
)
@pytest.mark.parametrize("operation", ARITHMETIC, ids=lambda o: o.__name__)
def test_no_arithmetic_or_comparison_with_an_epsilon(budget, number, operation):
    for pair in ((budget, number), (number, budget)):
        with pytest.raises(TypeError, match=r"not an ε"):
            operation(*pair)


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda b: type(b).__name__)
def test_no_conversion_to_a_number(budget):
    for convert in (
        float,
        int,
        math.exp,
        lambda b: b == 1.0,
        lambda b: f"{b:.3f}",
        lambda b: sum([b]),
        lambda b: max(b, 1.0),
    ):
        with pytest.raises(TypeError, match=r"not an ε"):
            convert(budget)
    with pytest.raises(InvalidParameter):
        Budget(epsilon=budget)  # nor can one be given where a budget for ε is wanted


def test_kinds_do_not_mix_and_terms_must_agree():
    wasserstein, bayesian, _ = BUDGETS
    with pytest.raises(TypeError, match="compare"):
        assert wasserstein < bayesian
    with pytest.raises(TypeError, match="different terms"):
        assert wasserstein < WassersteinBudget(2, 1.5, NONE, 1e-10, 32)
    assert wasserstein < WassersteinBudget(16, 1.6, NONE, 1e-10, 32)
    assert wasserstein == WassersteinBudget(16, 1.5, NONE, 1e-10, 32)


def test_no_budget_without_the_epsilon_beside_it():
    with pytest.raises(TypeError):
        WassersteinBudget(16, 1.5)
    with pytest.raises(InvalidParameter, match="why it has none"):
        Beside({}, 1e-5)


def test_printing_prints_the_epsilon_of_the_same_run():
    event = PoissonSampled(Gaussian(1.0, Adjacency.ADD_REMOVE), 0.01)
    beside = Beside.of({event: 100}, 1e-5)
    text = str(WassersteinBudget(16, 1.5, beside, 1e-10, 32))
    assert "RDP ε = " in text
    assert "PLD ε = " in text
    assert "not an ε" in text
    assert "0.7196" in text  # the floor
    assert beside.epsilons["dp_accounting_pld"] <= beside.epsilons["dpot_rdp_tight"]
    assert f"PLD ε = {beside.epsilons['dp_accounting_pld']:.4g}" in text
    assert "RDP ε" in str(gaussian_as_printed(1, 5.0))  # without a tail
    assert "no (ε, δ) guarantee exists: the sensitivity is not bounded" in str(BUDGETS[0])
    assert "epsilon" not in {k for k in WassersteinBudget(16, 1.5, beside).to_dict() if k != "beside"}


def test_rdp_columns_against_the_divergence_itself():
    """D_α by quadrature, for Laplace also at α = 1."""
    x = np.linspace(-60, 61, 2_000_001)
    for scale in (1.0, 3.0):
        p, q = -np.abs(x) / scale - np.log(2 * scale), -np.abs(x - 1) / scale - np.log(2 * scale)
        for order in (1.5, 2.0, 7.0):
            exact = np.log(np.trapezoid(np.exp(order * p + (1 - order) * q), x)) / (order - 1)
            assert float(rdp_laplace(order, scale)) == pytest.approx(exact, rel=1e-5)
        assert float(rdp_laplace(1.0, scale)) == pytest.approx(np.trapezoid(np.exp(p) * (p - q), x), rel=1e-5)
    assert float(rdp_gaussian(3.0, 2.0)) == pytest.approx(3 / 8)


@pytest.mark.parametrize(
    ("delta", "values"),
    [
        (1e-10, (33.026, 12.303, 10.461)),
        (1e-8, (28.421, 11.842, 10.368)),
        (1e-5, (21.513, 11.151, 10.230)),
        (1e-3, (16.908, 10.691, 10.138)),
    ],
)
def test_figure_3_values(delta, values):
    np.testing.assert_allclose(tail_budget(10.0, delta, [1, 10, 50]), values, rtol=1e-4)


def test_propositions_as_printed():
    assert wdp_from_dp(1, 1.0).distance == pytest.approx(0.927, rel=0.01)
    assert wdp_from_rdp(1, 2.0, 1.0).distance == pytest.approx(math.sqrt(0.5))
    four = additive_noise(1, 4.0, NONE)
    assert four.distance == 4.0
    assert dp_from_wdp(four, 1.0).claimed == pytest.approx(2.0)
    assert laplace_as_printed(1, 1.0).distance == pytest.approx(0.4289, rel=1e-3)
    assert gaussian_as_printed(1, 5.0).distance == pytest.approx(0.1)
    assert gaussian_as_printed(1, 5.0).beside.epsilons["dp_accounting_pld"] > 0
