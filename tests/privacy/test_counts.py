"""Noisy counts: the claim that discrete noise of variance (zΔ)² + 4 is worth the Gaussian mechanism, by numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dpot.privacy.counts import ROUNDING_VARIANCE, count_deviation
from dpot.privacy.errors import InvalidParameter
from dpot.privacy.gaussian import gaussian_delta
from dpot.privacy.noise import NoiseSource

mpmath.mp.dps = 60


def weights_of_all_integers(y: mpmath.mpf, s2: int) -> mpmath.mpf:
    """Σ_w exp(-(w - y)²/2s²)."""
    return mpmath.fsum(mpmath.exp(-((w - y) ** 2) / (2 * s2)) for w in range(-60, 61))


def test_rounding_weights_add_up_to_the_integral() -> None:
    """Poisson summation: √(2π)s·(1 ± η) with η = 2·exp(-2π²s²)·(1 + tiny), the same for every y."""
    s2 = ROUNDING_VARIANCE
    whole = mpmath.sqrt(2 * mpmath.pi * s2)
    eta = 2 * mpmath.exp(-2 * mpmath.pi**2 * s2) * (1 + mpmath.mpf(10) ** -20)
    off = [abs(weights_of_all_integers(mpmath.mpf(y) / 16, s2) / whole - 1) for y in range(17)]
    assert max(off) <= eta
    assert max(off) >= eta * 0.99  # y = 0 attains it: the bound is not idle
    assert eta < 1e-33


def test_random_rounding_of_a_gaussian_is_the_discrete_gaussian() -> None:
    """P(w = m) = ∫ φ(y; σ₁²)·exp(-(m-y)²/2s²)/Σ dy equals the discrete Gaussian of variance σ₁² + s², to 1e-30."""
    s2 = ROUNDING_VARIANCE
    var_1 = mpmath.mpf(9) / 4
    total = var_1 + s2
    normaliser = mpmath.fsum(mpmath.exp(-(mpmath.mpf(m) ** 2) / (2 * total)) for m in range(-150, 151))
    # the trapezoidal rule converges geometrically for such integrands
    step = mpmath.mpf(1) / 4
    nodes = [k * step for k in range(-100, 101)]
    mass = [
        mpmath.exp(-(y**2) / (2 * var_1)) / mpmath.sqrt(2 * mpmath.pi * var_1) / weights_of_all_integers(y, s2) * step
        for y in nodes
    ]
    for m in (0, 1, 5):
        rounded = mpmath.fsum(p * mpmath.exp(-((m - y) ** 2) / (2 * s2)) for p, y in zip(mass, nodes, strict=True))
        exact = mpmath.exp(-(mpmath.mpf(m) ** 2) / (2 * total)) / normaliser
        assert abs(rounded / exact - 1) < 1e-30


@pytest.mark.parametrize(("sensitivity", "multiplier"), [(1, 0.5), (3, 1.0), (10, 0.3)])
def test_privacy_profile_is_within_the_gaussian_mechanisms(sensitivity: int, multiplier: float) -> None:
    """δ(ε) of the discrete noise, summed over the integers, never exceeds that of the event that is charged."""
    variance = (sensitivity * multiplier) ** 2 + ROUNDING_VARIANCE
    m = np.arange(-4000, 4001)
    log_p = -(m**2) / (2 * variance)
    log_p -= np.log(np.exp(log_p).sum())
    loss = (log_p - (-((m - sensitivity) ** 2) / (2 * variance) + log_p.max())).astype(float)
    for epsilon in (0.1, 0.5, 1.0, 3.0):
        delta = np.sum(np.exp(log_p) * -np.expm1(np.minimum(epsilon - loss, 0)))
        assert delta <= gaussian_delta(multiplier, epsilon) * (1 + 1e-9)


def test_noise_has_the_variance_that_was_promised() -> None:
    sigma = count_deviation(math.sqrt(2) * 256, 0.8)
    noise = NoiseSource().discrete_gaussian((200, 200), sigma).double()
    wanted = 2 * 256**2 * 0.64 + ROUNDING_VARIANCE
    assert abs(float(noise.var()) / wanted - 1) < 5 * math.sqrt(2 / 40_000)
    assert abs(float(noise.mean())) < 5 * math.sqrt(wanted / 40_000)


def test_the_variance_drawn_is_not_below_the_one_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Fraction] = []

    def spy(count: int, variance: Fraction, words: object) -> np.ndarray:
        asked.append(Fraction(variance))
        return np.zeros(count, np.int64)

    monkeypatch.setattr("dpot.privacy.noise.discrete_gaussian", spy)
    for sensitivity, multiplier in ((1.0, 1 / 3), (math.sqrt(2) * 256, 0.7), (1e4, 5.5)):
        NoiseSource().discrete_gaussian((1,), count_deviation(sensitivity, multiplier))
        exact = (Fraction(sensitivity) * Fraction(multiplier)) ** 2 + ROUNDING_VARIANCE
        assert asked[-1] >= exact * (1 - Fraction(1, 10**12))


def test_refused() -> None:
    for sensitivity, multiplier in ((1.0, 0.0), (0.0, 1.0), (-1.0, 1.0)):
        with pytest.raises(InvalidParameter):
            count_deviation(sensitivity, multiplier)
