"""The sharper subsampling bound for projections: its moments from above, and what it buys."""

import math

import mpmath
import numpy as np
import pytest

from dpot.privacy import ternary
from dpot.privacy.events import FixedSizeSampled, ProjectionGaussian, SelfComposed
from dpot.privacy.rdp import Pricing, rdp
from dpot.privacy.ternary import projection_ternary_moments

SHARP = Pricing("sharp", 0.5)


def central_moment(d: int, k: int, sigma: float, order: int) -> mpmath.mpf:
    """E(P/R-1)^l as the alternating sum of the exact moments, in 300 digits."""
    with mpmath.workdps(300):
        terms = []
        for i in range(order + 1):
            x = mpmath.mpf(i * (i - 1)) / (2 * mpmath.mpf(sigma) ** 2)
            moment = mpmath.hyp1f1(mpmath.mpf(1) / 2, mpmath.mpf(d) / 2, x) ** k
            terms.append((-1) ** (order - i) * mpmath.binomial(order, i) * moment)
        return mpmath.fsum(terms)


@pytest.mark.parametrize(("d", "k", "sigma"), [(784, 200, 5.7), (50, 100, 20.0), (784, 200, 1.0), (10, 1, 8.0)])
def test_moments_are_bounded_from_above_and_closely(d: int, k: int, sigma: float) -> None:
    found = projection_ternary_moments(d, k, sigma)
    for order in (2, 4, 10, 20, 40):
        excess = found[order // 2] - math.log(4) - float(mpmath.log(central_moment(d, k, sigma, order)))
        assert excess >= -1e-9
        if order <= 10 and d >= 50:  # the Gaussian that bounds the sphere's moments is far off in few dimensions
            assert excess < 0.05


def test_the_tail_of_the_series_is_taken_from_above(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many directions the terms shrink slowly at first. Cut off early, what is left out must still be covered."""
    whole = projection_ternary_moments(784, 4000, 0.95, largest=2)
    few = ternary._log_expansion()[:12]
    monkeypatch.setattr(ternary, "_log_expansion", lambda: few)
    monkeypatch.setattr(ternary, "_TERMS", 12)
    assert np.all(projection_ternary_moments(784, 4000, 0.95, largest=2) >= whole)


@pytest.mark.parametrize("order", [2, 3, 4, 7, 16])
def test_three_neighbours_are_bounded_by_four_pairs(order: int) -> None:
    """Point 3 of the proof, at every point: the densities of three neighbours can have any ratios."""
    p, q, r = np.exp(np.random.default_rng(0).normal(0, 2, (3, 200_000)))
    pairs = np.abs(p - r) ** order + np.abs(q - r) ** order
    bound = pairs * r ** (1.0 - order) + np.abs(p - q) ** order * (p ** (1.0 - order) + q ** (1.0 - order))
    assert np.all(np.abs(p - q) ** order * r ** (1.0 - order) <= bound * (1 + 1e-12))


@pytest.mark.parametrize(("distance", "order"), [(0.5, 3), (1.0, 4), (2.0, 6)])
def test_gaussian_triples_stay_below_four_times_the_worst_pair(distance: float, order: int) -> None:
    """Three Gaussians in the plane, at most so far apart, by quadrature."""
    step = 0.1
    x, y = np.meshgrid(*[np.arange(-9.0, 9.0 + order * distance, step)] * 2, indexing="ij")

    def moment(*means: tuple[float, float]) -> float:
        p, q, r = (-0.5 * ((x - a) ** 2 + (y - b) ** 2) for a, b in means)
        with np.errstate(divide="ignore"):
            logs = order * np.log(np.abs(np.exp(p) - np.exp(q))) + (1 - order) * r
        return float(np.exp(logs).sum() * step**2 / (2 * math.pi))

    corner, middle = (distance, 0.0), (0.5 * distance, 0.0)
    high = (0.5 * distance, math.sqrt(0.75) * distance)
    pair = moment(corner, (0.0, 0.0), (0.0, 0.0))
    exact = sum(
        (-1) ** (order - i) * math.comb(order, i) * math.exp(i * (i - 1) / 2 * distance**2) for i in range(order + 1)
    )
    assert pair == pytest.approx(exact, rel=1e-6) if order % 2 == 0 else pair >= exact
    for triple in ((corner, high, (0.0, 0.0)), (corner, (0.0, 0.0), middle), (corner, middle, (0.0, 0.0))):
        assert moment(*triple) <= 4 * pair


def test_diameter_scales_like_noise() -> None:
    np.testing.assert_allclose(
        projection_ternary_moments(50, 7, 6.0, diameter=2.0), projection_ternary_moments(50, 7, 3.0), rtol=1e-12
    )


@pytest.mark.parametrize("sigma", [0.7, 3.0, 30.0, 300.0])
def test_never_worse_than_theorem_9(sigma: float) -> None:
    event = FixedSizeSampled(ProjectionGaussian(784, 200, sigma), 128, 10_000)
    assert np.all(rdp(event, pricing=SHARP) <= rdp(event) * (1 + 1e-12))


def test_vanishes_with_the_noise_where_theorem_9_does_not() -> None:
    """With small sensitivity s² = k/dσ², the true order of the subsampled divergence is γ²s²."""
    order, gamma = [64.0], 128 / 10_000
    sharp = [
        rdp(FixedSizeSampled(ProjectionGaussian(784, 200, s), 128, 10_000), order, SHARP)[0] for s in (50.0, 500.0)
    ]
    general = [rdp(FixedSizeSampled(ProjectionGaussian(784, 200, s), 128, 10_000), order)[0] for s in (50.0, 500.0)]
    assert sharp[0] / sharp[1] == pytest.approx(100, rel=0.05)
    assert sharp[1] == pytest.approx(2 * order[0] * gamma**2 * 200 / 784 / 500**2, rel=0.1)
    assert general[1] > 5 * sharp[1]


def test_releases_on_one_sample_count_as_more_directions() -> None:
    one = FixedSizeSampled(ProjectionGaussian(100, 60, 4.0), 10, 1000)
    three = FixedSizeSampled(SelfComposed(ProjectionGaussian(100, 20, 4.0), 3), 10, 1000)
    np.testing.assert_allclose(rdp(three, pricing=SHARP), rdp(one, pricing=SHARP), rtol=1e-10)
