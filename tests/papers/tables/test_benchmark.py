"""The benchmark of private tables: its sets, how cells become rows, and the parts of AIM and MST that are our own."""

import math

import numpy as np
import pytest

from dpot.papers.tables import sets
from dpot.papers.tables.benchmark import averaged, judged
from dpot.papers.tables.peers import _aligned, _Fit, rho_of


def test_a_set_is_binned_and_back():
    table = sets.load("digits")
    assert table.sizes[-1] == 10
    codes = table.binned(table.train)
    assert (codes.max(0) < table.sizes).all()
    assert (codes.min(0) >= 0).all()
    again = table.unbinned(codes, np.random.default_rng(0))
    assert (again[table.columns] == table.train[table.columns]).all().all()  # whole numbers in bins of width 1
    wine = sets.load("wine")
    binned = wine.binned(wine.train)
    assert np.array_equal(wine.binned(wine.unbinned(binned, np.random.default_rng(0))), binned)


def test_the_real_table_is_at_distance_zero():
    table = sets.load("wine")
    found = judged(table, table.train)
    assert found["tv1"] == found["tv2"] == found["tv3"] == found["queries"] == 0
    assert found["lr_auc"] > 0.99


def test_seeds_are_averaged():
    cells = [{"set": "adult", "method": "sketch", "epsilon": 1.0, "seed": s, "tv1": 0.1 * (s + 1)} for s in range(2)]
    (row,) = averaged(cells)
    assert (row["seeds"], row["tv1"]) == (2, pytest.approx(0.15))
    assert row["tv1_std"] == pytest.approx(0.1 / math.sqrt(2))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 1e-6), (1.0, 1e-9), (10.0, 1e-5)])
def test_rho_is_worth_epsilon_by_the_best_order(epsilon, delta):
    """ε = min over α of ρα + log(1 - 1/α) - log(δα)/(α - 1) (Canonne, Kamath & Steinke 2020, Proposition 12)."""
    rho = rho_of(epsilon, delta)
    alpha = 1 + np.geomspace(1e-2, 1e4, 100_000)
    found = (rho * alpha + np.log1p(-1 / alpha) - np.log(delta * alpha) / (alpha - 1)).min()
    assert found == pytest.approx(epsilon, rel=1e-3)


def test_a_marginal_of_a_chain_by_elimination():
    """p(a, c) of a chain a - b - c is Σ_b p(a) p(b | a) p(c | b)."""
    random = np.random.default_rng(0)
    first, second = random.random((2, 3)), random.random((3, 4))
    fit = _Fit.__new__(_Fit)
    fit.table = type("Table", (), {"sizes": [2, 3, 4], "codes": np.zeros(100)})()

    class Factor:
        def __init__(self, names, values):
            self.domain, self.values = type("Domain", (), {"attributes": names}), np.log(values)

    tables = {0: Factor(("c0", "c1"), first), 1: Factor(("c1", "c2"), second)}
    model = type("Model", (), {"potentials": type("Potentials", (), {"tables": tables})})
    expected = first @ second
    assert fit.marginal(model, (0, 2)) == pytest.approx((100 * expected / expected.sum()).ravel())
    assert _aligned((("c1", "c0"), first.T), ("c0", "c2", "c1")).shape == (2, 1, 3)
