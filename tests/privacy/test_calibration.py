"""Whichever of σ, ε, δ and the number of steps is missing: found on the private side, and closely."""

import math

import mpmath
import pytest

from dpot.privacy.budget import Budget
from dpot.privacy.calibration import (
    Release,
    find_delta,
    find_epsilon,
    find_sigma,
    find_sigma_by_pld,
    find_steps,
    least_sigma,
)
from dpot.privacy.errors import CalibrationFailed, InvalidParameter
from dpot.privacy.events import (
    Adjacency,
    DiscreteGaussian,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    NonPrivate,
    PoissonSampled,
    ProjectionGaussian,
    SelfComposed,
)
from dpot.privacy.gaussian import gaussian_noise_multiplier
from dpot.privacy.pld import pld_epsilon
from dpot.privacy.sensitivity import BOUNDS

ADD = Adjacency.ADD_REMOVE


def mnist(sigma: float) -> Event:
    return FixedSizeSampled(ProjectionGaussian(784, 1000, sigma), 100, 60_000)


def poisson(z: float) -> Event:
    return PoissonSampled(Gaussian(z, ADD), 0.01)


RELEASES: list[Release] = [mnist, poisson, Gaussian, lambda s: FixedSizeSampled(Gaussian(s), 10, 1000)]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("conversion", ["mironov", "tight"])
@pytest.mark.parametrize(("epsilon", "delta"), [(10.0, 1e-5), (2.0, 1e-6), (40.0, 1e-3)])
def test_sigma_is_the_least_that_keeps_the_budget(
    release: Release, conversion: str, epsilon: float, delta: float
) -> None:
    budget = Budget(epsilon, delta, conversion=conversion)  # type: ignore[arg-type]
    sigma = find_sigma(release, 3000, budget)
    assert find_epsilon(release(sigma), 3000, budget) <= epsilon
    assert find_epsilon(release(sigma * (1 - 1e-5)), 3000, budget) > epsilon


@pytest.mark.parametrize("bound", BOUNDS)
def test_all_four_unknowns_fit_together(bound: str) -> None:
    budget = Budget(10.0, 1e-5, bound=bound)  # type: ignore[arg-type]
    steps = 60_100
    event = mnist(find_sigma(mnist, steps, budget))
    assert find_epsilon(event, steps, budget) == pytest.approx(10.0, rel=1e-6)
    assert find_delta(event, steps, Budget(10.0, None, bound=bound)) == pytest.approx(1e-5, rel=1e-4)  # type: ignore[arg-type]
    assert find_steps(event, budget) == steps


def test_steps_stop_right_before_the_budget() -> None:
    budget = Budget(3.0, 1e-5)
    for event in (mnist(2.0), poisson(1.0), Gaussian(20.0)):
        steps = find_steps(event, budget)
        assert find_epsilon(event, steps, budget) <= 3.0 < find_epsilon(event, steps + 1, budget)
    assert find_steps(Gaussian(0.2), budget) == 0
    assert find_steps(NonPrivate(), budget) == 0
    before = {poisson(1.0): 100}
    assert find_steps(poisson(1.0), budget, before) == find_steps(poisson(1.0), budget) - 100


def test_gaussian_noise_is_the_analytic_one() -> None:
    assert find_sigma(Gaussian, 1, Budget(1.0, 1e-5)) == pytest.approx(gaussian_noise_multiplier(1.0, 1e-5), rel=1e-7)
    assert find_sigma(Gaussian, 4, Budget(1.0, 1e-5)) == pytest.approx(
        2 * gaussian_noise_multiplier(1.0, 1e-5), rel=1e-7
    )


def test_integer_and_laplace_noise_use_the_loss_distribution() -> None:
    sigma = find_sigma(lambda s: DiscreteGaussian(s, 1, 200), 1, Budget(2.0, 1e-5))
    assert sigma == pytest.approx(math.sqrt(200) * gaussian_noise_multiplier(2.0, 1e-5), rel=1e-3)
    scale = find_sigma(Laplace, 1, Budget(1.0, 1e-9))
    assert scale == pytest.approx(1.0, rel=1e-3)


def test_small_epsilon_needs_high_orders() -> None:
    """The best order lies beyond the short grid; the answer must not."""
    budget = Budget(0.15, 1e-5, conversion="tight", bound="sharp")
    sigma = find_sigma(mnist, 1000, budget)
    assert find_epsilon(mnist(sigma), 1000, budget) == pytest.approx(0.15, rel=1e-6)


@pytest.mark.parametrize(("rate", "steps", "epsilon"), [(0.01, 2000, 2.0), (0.05, 500, 6.0)])
def test_pld_calibration(rate: float, steps: int, epsilon: float) -> None:
    def release(z: float) -> Event:
        return PoissonSampled(Gaussian(z, ADD), rate)

    sigma = find_sigma_by_pld(release, steps, epsilon, 1e-5)
    assert pld_epsilon(SelfComposed(release(sigma), steps), 1e-5) <= epsilon * (1 + 1e-9)
    assert pld_epsilon(SelfComposed(release(sigma * 0.9995), steps), 1e-5) > epsilon
    assert sigma < find_sigma(release, steps, Budget(epsilon, 1e-5, conversion="tight"))


def test_any_accountant_can_be_inverted() -> None:
    assert least_sigma(lambda s: 6.0 / s, 3.0) == pytest.approx(2.0, rel=1e-7)


def test_what_cannot_be_reached_has_a_name() -> None:
    with pytest.raises(CalibrationFailed):
        find_sigma(mnist, 10**6, Budget(1e-4, 1e-5))
    with pytest.raises(CalibrationFailed):
        find_steps(Gaussian(1e9), Budget(10.0, 1e-5))


@pytest.mark.parametrize("steps", [0, -1, 1.5, math.nan])
def test_bad_input_has_a_name(steps: float) -> None:
    with pytest.raises(InvalidParameter):
        find_sigma(mnist, steps, Budget())  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter):
        find_epsilon(mnist(1.0), 1, Budget(1.0, None))
    for arguments in [(0.0, 1e-5), (-1.0, 1e-5), (math.nan, 1e-5), (1.0, 0.0), (1.0, 1.0), (math.inf, 1e-5)]:
        with pytest.raises(InvalidParameter):
            Budget(*arguments)
    for wrong in ({"bound": "guess"}, {"conversion": "loose"}, {"mode": "brave"}):
        with pytest.raises(InvalidParameter):
            Budget(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("epsilon", [1e3, 1e4, 1e6, 1e8])
@pytest.mark.parametrize("steps", [1, 100])
def test_a_large_budget_has_the_noise_of_the_closed_form(epsilon: float, steps: int) -> None:
    """δ(ε) = Φ(1/2z - εz) - e^ε·Φ(-1/2z - εz) (Balle & Wang 2018), with z = σ/√steps, to 60 digits."""
    delta = 1e-5

    def exact(sigma: float) -> mpmath.mpf:
        with mpmath.workdps(60):
            z, e = mpmath.mpf(sigma) / mpmath.sqrt(steps), mpmath.mpf(epsilon)
            tail = lambda x: mpmath.erfc(-x / mpmath.sqrt(2)) / 2  # noqa: E731
            return tail(1 / (2 * z) - e * z) - mpmath.exp(e) * tail(-1 / (2 * z) - e * z)

    sigma = find_sigma(Gaussian, steps, Budget(epsilon, delta))
    assert exact(sigma) <= delta
    assert exact(sigma * (1 - 1e-6)) > delta


def test_large_budgets_are_found_for_other_noise_too() -> None:
    assert find_sigma(Laplace, 1, Budget(1e4, 1e-5)) == pytest.approx(1e-4, rel=1e-3)
    sampled = find_sigma(poisson, 1000, Budget(1e4, 1e-5))
    assert find_epsilon(poisson(sampled), 1000, Budget(None, 1e-5)) <= 1e4
    assert find_epsilon(poisson(sampled * (1 - 1e-6)), 1000, Budget(None, 1e-5)) > 1e4


def test_a_budget_out_of_reach_says_in_which_direction() -> None:
    with pytest.raises(CalibrationFailed, match="too large to ask for noise"):
        least_sigma(lambda sigma: 0.0, 1.0)
    with pytest.raises(CalibrationFailed, match="no sigma up to"):
        least_sigma(lambda sigma: 2.0, 1.0)
