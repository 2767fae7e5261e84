"""Lower bounds on ε from repetitions: exact intervals, mechanisms whose ε is known, and no false alarms."""

import math

import numpy as np
import pytest
from scipy import stats

from dpot.privacy import audit
from dpot.privacy.errors import InvalidParameter, UnsupportedEvent
from dpot.privacy.events import Adjacency, Gaussian, NonPrivate, PoissonSampled, ProjectionGaussian
from dpot.privacy.gaussian import gaussian_epsilon

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(("hits", "trials"), [(0, 50), (3, 50), (50, 50), (700, 1000)])
def test_the_interval_is_the_exact_binomial_one(hits, trials):
    """At its ends what was counted, or more of it, has exactly the level's probability."""
    low, high = audit.interval(hits, trials, 0.025)
    assert hits == 0 or stats.binom.sf(hits - 1, trials, low) == pytest.approx(0.025)
    assert hits == trials or stats.binom.cdf(hits, trials, high) == pytest.approx(0.025)


def randomised_response(epsilon, count):
    """Tells the truth with odds e^ε : 1, of D (0) and of D' (1): its ε is attained by a single threshold."""
    true = RNG.random((2, count)) < 1 / (1 + math.exp(-epsilon))
    return np.where(true[0], 0.0, 1.0), np.where(true[1], 1.0, 0.0)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_randomised_response_is_found_out_nearly_and_never_beyond(epsilon):
    told = audit.tell_apart(*randomised_response(epsilon, 20_000), delta=0.0)
    assert 0.9 * epsilon < told.epsilon < epsilon


def test_a_gaussian_is_bounded_from_below_and_nearly_reached_if_it_is_known_to_be_one():
    mu = 0.72
    told = audit.tell_apart(RNG.standard_normal(40_000), RNG.standard_normal(40_000) + mu, 1e-5)
    true = gaussian_epsilon(1 / mu, 1e-5)
    assert 1 < told.epsilon < true
    assert 0.9 * true < told.gaussian < true


def test_nothing_is_found_where_nothing_is():
    found = audit.false_alarms(RNG.standard_normal(8000), 1e-5, 0.95, RNG, repetitions=20)
    assert found["passed"]
    assert found["lower_bound"] < 0.1


def test_both_ways_round_count():
    """A release that shows the absence of a record for certain, now and then, and its presence never."""
    without = (RNG.random(5000) < 0.1) * -1.0
    told = audit.tell_apart(without, np.zeros(5000), 0.0)
    assert told.epsilon > math.log(0.08 / 0.002)


def test_a_perfect_record_reaches_what_the_noise_allows():
    for event, least in [
        (Gaussian(1.39), 1.2),
        (PoissonSampled(Gaussian(1.214, Adjacency.ADD_REMOVE), 0.5), 0.8),
        (ProjectionGaussian(16, 50, 2.8), 0.8),
    ]:
        told = audit.tell_apart(*audit.perfect_scores([event], 40_000, np.random.default_rng(1)), 1e-5)
        assert least < told.epsilon < 3


def test_a_release_without_noise_cannot_be_judged():
    with pytest.raises(UnsupportedEvent, match="cannot judge"):
        audit.noise_over_sensitivity(NonPrivate("nothing"))


@pytest.mark.parametrize(("count", "delta"), [(10, 0.0), (500, 1.0)])
def test_what_makes_no_sense_is_refused(count, delta):
    with pytest.raises(InvalidParameter):
        audit.tell_apart(np.zeros(count), np.zeros(count), delta)
