"""The Gaussian mechanism without sampling, exactly (Balle & Wang 2018, Theorem 8).

    δ(ε) = Φ(1/2z - εz) - e^ε·Φ(-1/2z - εz),    z = σ / sensitivity.

Gaussian mechanisms compose to one with 1/z² = Σ 1/z_i², so that a sequence of them is exact too.
"""

from __future__ import annotations

import math

from scipy import optimize, special

from dpot.privacy.errors import POSITIVE, PROBABILITY, InvalidParameter, number


def gaussian_delta(noise_multiplier: float, epsilon: float) -> float:
    """δ(ε) of the Gaussian mechanism."""
    z = number("noise_multiplier", noise_multiplier, POSITIVE)
    return math.exp(_log_delta(z, _checked_epsilon(epsilon)))


def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """The least ε ≥ 0 with δ(ε) ≤ δ."""
    z = number("noise_multiplier", noise_multiplier, POSITIVE)
    target = math.log(number("delta", delta, PROBABILITY))
    if _log_delta(z, 0.0) <= target:
        return 0.0
    # Mironov's conversion of the RDP curve α/2z² at its best order is an upper bound.
    high = 0.5 / z**2 + math.sqrt(-2 * target) / z
    return _on_the_safe_side(lambda e: _log_delta(z, e) - target, 0.0, high)


def gaussian_noise_multiplier(epsilon: float, delta: float) -> float:
    """The least z with δ(ε) ≤ δ: "analytic Gaussian" calibration."""
    e = _checked_epsilon(epsilon)
    target = math.log(number("delta", delta, PROBABILITY))
    low = high = 1.0
    while _log_delta(high, e) > target:
        high *= 2
    while _log_delta(low, e) <= target:
        low /= 2
    return _on_the_safe_side(lambda z: _log_delta(z, e) - target, low, high)


def _log_delta(z: float, epsilon: float) -> float:
    """log δ(ε), without cancellation: log Φ(a) + log(1 - e^{ε + log Φ(b) - log Φ(a)})."""
    a, b = 0.5 / z - epsilon * z, -0.5 / z - epsilon * z
    log_a, log_b = float(special.log_ndtr(a)), epsilon + float(special.log_ndtr(b))
    return log_a + math.log(-math.expm1(log_b - log_a)) if log_b < log_a else -math.inf


def _on_the_safe_side(gap, low: float, high: float) -> float:  # type: ignore[no-untyped-def]
    """The root of a decreasing function, moved up until the function is not positive there."""
    root = float(optimize.brentq(gap, low, high, xtol=1e-14, rtol=1e-14))
    step = 1e-14 * max(root, 1e-6)
    while gap(root) > 0:
        root, step = root + step, 2 * step
    return root


def _checked_epsilon(epsilon: float) -> float:
    if not (epsilon >= 0 and math.isfinite(epsilon)):
        raise InvalidParameter(f"epsilon must be at least 0 and finite, got {epsilon}")
    return float(epsilon)
