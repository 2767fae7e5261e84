"""DP-SWD's figures: the law of the sensitivity, and distances of samples against those of the populations."""

import pytest

from dpot.papers.computed import Context
from dpot.papers.dp_swd.figures import figure_1, figure_2, figure_7
from dpot.profiles import Profile

CONTEXT = Context(Profile("smoke"))


def test_figures_show_the_law():
    one = figure_1(3000)
    assert sum(one.numbers["counts"]) == 3000
    assert one.numbers["mean"] == pytest.approx(200 / 784, rel=0.01)
    assert one.numbers["largest"] < one.numbers["bounds"]["bernstein"]
    assert one.numbers["bounds"]["clt"] < one.numbers["bounds"]["bernstein"]
    seven = figure_7(20_000)
    assert sum(seven.numbers["counts"]) == 20_000
    assert seven.numbers["kolmogorov_smirnov_p"] > 1e-3
    assert seven.numbers["deviation"] == pytest.approx(seven.numbers["expected_deviation"], rel=0.05)
    assert all(figure.pictures[""].startswith(b"\x89PNG") for figure in (one, seven))


def test_large_samples_have_the_distance_of_the_populations_with_and_without_noise():
    figure = figure_2(CONTEXT, projections=60, sizes=[10_000], sigmas=[0.0, 1.0], places=3, draws=1)
    for curve in figure.numbers["curves"]:
        far = curve["points"][-1]
        assert far["c"] == 1
        assert far["mean"] == pytest.approx(1, abs=0.2)  # c², from 60 directions of five dimensions
        assert curve["points"][0]["mean"] < 0.15
    assert figure.pictures[""].startswith(b"\x89PNG\r\n\x1a\n")


def test_noise_hides_small_distances_of_small_samples():
    plain, noisy = figure_2(CONTEXT, sizes=[100], sigmas=[0.0, 3.0], places=2, draws=3).numbers["curves"]
    assert noisy["points"][0]["mean"] > 2 * plain["points"][0]["mean"]
