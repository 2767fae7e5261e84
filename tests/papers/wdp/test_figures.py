"""WDP's tables and figures: the values of the reference computation, and what is drawn from them."""

import numpy as np
import pytest

from dpot.papers.computed import Context
from dpot.papers.wdp.figures import figure_1, figure_3, figure_4, table_1
from dpot.papers.wdp.table_2 import SETTINGS, budgets
from dpot.privacy.wdp.formulas import attack_success, floor
from dpot.profiles import Profile

# to 1%
GRID = {
    1: ([0.368, 0.619, 0.853, 0.929], [0.429, 0.463, 0.485, 0.492], [0.5, 1, 2.5, 5], [0.5, 0.5, 0.5, 0.5]),
    2: (
        [0.107, 0.200, 0.355, 0.429],
        [0.231, 0.340, 0.428, 0.463],
        [0.125, 0.25, 0.625, 1.25],
        [0.25, 0.354, 0.435, 0.467],
    ),
    3: (
        [0.050, 0.097, 0.196, 0.262],
        [0.158, 0.281, 0.397, 0.446],
        [0.056, 0.111, 0.278, 0.556],
        [0.167, 0.289, 0.401, 0.448],
    ),
    5: ([0.019, 0.037, 0.084, 0.131], [0.097, 0.220, 0.360, 0.424], [0.02, 0.04, 0.1, 0.2], [0.1, 0.224, 0.362, 0.426]),
}


@pytest.mark.parametrize("row", table_1().numbers["rows"], ids=lambda r: f"{r['scale']:g}-{r['order']:g}")
def test_table_1_and_figure_1_to_one_per_cent(row):
    at = [1, 2, 5, 10].index(row["order"])
    for name, values in zip(
        ("RDP Laplace", "WDP Laplace", "RDP Gaussian", "WDP Gaussian"), GRID[row["scale"]], strict=True
    ):
        # three printed decimals: half a unit in the last place on top of the 1%
        assert row[name] == pytest.approx(values[at], rel=0.01, abs=5e-4)


def test_table_2_least_budgets_floor_and_attacks():
    least = {name: training.least(1e-5) for name, training in SETTINGS.items()}
    assert least["MNIST"] == pytest.approx(63.5, rel=0.01)
    assert least["CIFAR-10"] == pytest.approx(12.99, rel=0.01)
    assert least["SVHN"] == pytest.approx(8.10, rel=0.01)
    assert floor(1e-10, 32) == pytest.approx(0.7196, rel=1e-3)
    np.testing.assert_allclose(attack_success([2.9, 5.0, 2.2]), [0.948, 0.993, 0.900], atol=5e-4)


def test_figures_are_drawn_with_their_data():
    assert all(figure().pictures[""].startswith(b"\x89PNG") for figure in (figure_1, figure_3))
    composition = figure_4(seeds=1)
    panels = composition.numbers["panels"]
    assert [panel["quantile"] for panel in panels] == [0.05, 0.5, 0.75, 0.99]
    assert all(len(panel["curves"]["wasserstein"]) == 100 for panel in panels)
    assert [row["quantile"] for row in composition.tables[0].rows] == [0.05, 0.5, 0.75, 0.99]


def test_table_2_sets_the_printed_budgets_beside_the_records():
    rows = {row["row"]: row for row in budgets(Context(Profile("smoke"))).numbers["rows"]}
    assert set(rows) == set(SETTINGS)
    assert rows["MNIST"]["WDP printed"] == 0.76
    assert not rows["CIFAR-10"]["reachable"]
    assert rows["MNIST"]["least 1e-5"] == pytest.approx(63.5, rel=0.01)
