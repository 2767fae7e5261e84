"""The one-run audit: exact binomial tails, closed forms, and mechanisms whose ε is known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpot.privacy import audit
from dpot.privacy.errors import InvalidParameter


@given(st.integers(1, 200), st.data(), st.floats(0, 5))
def test_without_delta_it_is_the_binomial_tail(guesses, data, epsilon):
    correct = data.draw(st.integers(0, guesses))
    odds = math.exp(epsilon) / (1 + math.exp(epsilon))
    exact = sum(math.comb(guesses, i) * odds**i * (1 - odds) ** (guesses - i) for i in range(correct, guesses + 1))
    assert audit.p_value(guesses, guesses, correct, epsilon) == pytest.approx(min(exact, 1), rel=1e-9, abs=1e-300)


@given(st.integers(2, 500), st.floats(0.5, 0.999))
def test_all_right_has_a_closed_form(guesses, confidence):
    """q^r = 1 - confidence, so ε = logit((1 - confidence)^(1/r))."""
    q = (1 - confidence) ** (1 / guesses)
    expected = max(0.0, math.log(q / (1 - q)))
    assert audit.best_bound(guesses, guesses, 0.0, confidence) == pytest.approx(expected, abs=1e-6)


@given(st.integers(1, 40), st.data(), st.floats(0, 4), st.floats(1e-8, 1e-2))
def test_delta_enters_by_the_worst_window(canaries, data, epsilon, delta):
    guesses = data.draw(st.integers(1, canaries))
    correct = data.draw(st.integers(1, guesses))
    law = stats.binom(guesses, 1 / (1 + math.exp(-epsilon)))
    windows = [(law.cdf(correct - 1) - law.cdf(correct - i - 1)) / i for i in range(1, correct + 1)]
    expected = min(1.0, law.sf(correct - 1) + 2 * canaries * delta * max(windows))
    assert audit.p_value(canaries, guesses, correct, epsilon, delta) == pytest.approx(expected, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("delta", [1e-3, 1e-2, 0.1])
def test_a_mechanism_that_shows_all_with_probability_delta_is_allowed_for(delta):
    """It is (0, δ)-DP, and all m guesses are right with probability δ + (1-δ)/2^m."""
    for m in (1, 5, 30):
        assert audit.p_value(m, m, m, 0.0, delta) >= delta + (1 - delta) * 2.0**-m


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_randomised_response_is_bounded_from_below_and_nearly_met(epsilon):
    rng = np.random.default_rng(7)
    bounds = []
    for _ in range(300):
        coins = rng.random(2000) < 0.5
        told = np.where(rng.random(2000) < 1 / (1 + math.exp(-epsilon)), coins, ~coins)
        scores = told + 1e-6 * rng.random(2000)  # ties broken at random
        bounds.append(audit.OneRun.of(scores.astype(float), coins, 1000, 0.0, 0.95).lower_bound)
    false = np.mean(np.array(bounds) > epsilon)
    assert false <= 0.05 + 5 * math.sqrt(0.05 * 0.95 / 300)
    assert np.median(bounds) > epsilon - 0.25  # 1.6 standard errors of a logit from 1000 guesses


def test_more_right_guesses_never_lower_the_bound_and_delta_never_raises_it():
    bounds = [audit.lower_bound(200, 100, v, 1e-5) for v in range(101)]
    assert bounds == sorted(bounds)
    assert bounds[50] == 0.0
    assert audit.lower_bound(200, 100, 90, 1e-3) < audit.lower_bound(200, 100, 90, 0.0)


def test_coins_that_were_never_seen_give_no_alarm():
    rng = np.random.default_rng(3)
    outcome = audit.false_alarms(rng.normal(size=400), 200, 1e-5, 0.95, rng)
    assert outcome["passed"]
    assert outcome["lower_bound"] == 0.0
    assert outcome["false_alarms"] > 0  # the test is at its level, not deaf


@pytest.mark.parametrize("wrong", [(10, 11, 5), (10, 5, 6), (10, 5, -1)])
def test_impossible_counts_are_refused(wrong):
    with pytest.raises(InvalidParameter):
        audit.p_value(*wrong, 1.0)
