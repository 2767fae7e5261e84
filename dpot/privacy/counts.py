"""Whole numbers counted from private records, released once with whole-number noise.

Adding discrete Gaussian noise to integers leaves no low-order bits to attack, and it is worth what continuous noise of
nearly the same size is worth:

Let y = x + N(0, σ₁²·I) be the Gaussian mechanism on an integer vector x, and let w be y rounded at random: w_i is an
integer, drawn with weights exp(-(w_i - y_i)²/2s²). As w is made from y alone, it is as private as y. By Poisson
summation the weights of all integers add up to √(2π)·s·(1 ± η) whatever y_i, with η = 2·exp(-2π²s²)·(1 + tiny), so

    P(w_i - x_i = m) = ∫ φ(y; σ₁²)·φ(m - y; s²) dy / (1 ± η) = φ(m; σ₁² + s²) / (1 ± η),

and the discrete Gaussian of variance σ₁² + s² has the same probabilities up to another such factor. With s² = 4,
η ≈ 1e-34 per coordinate and 1e-27 for ten million of them: less than the rounding of any ε and δ here. So noise of
variance (z·Δ)² + 4 has the (ε, δ) of the Gaussian mechanism with noise multiplier z, and that is what is charged.
"""

from __future__ import annotations

import math

from dpot.privacy.discrete import LARGEST_DEVIATION
from dpot.privacy.errors import POSITIVE, InvalidParameter, number

ROUNDING_VARIANCE = 4  # s² above


def count_deviation(sensitivity: float, noise_multiplier: float) -> float:
    """σ of the noise that makes counts of this L2 sensitivity as private as Gaussian(noise_multiplier)."""
    scale = number("noise_multiplier", noise_multiplier, POSITIVE) * number("sensitivity", sensitivity, POSITIVE)
    return math.sqrt(scale**2 + ROUNDING_VARIANCE)


def check_drawable(deviation: float, what: str) -> None:
    """Refuse noise that is too large to be drawn exactly; to be asked before anything is charged."""
    if deviation > LARGEST_DEVIATION:
        raise InvalidParameter(
            f"{what}: the noise on its counts would have a standard deviation of {deviation:.3g}, and exact noise is "
            f"drawn up to {LARGEST_DEVIATION:.3g}: raise privacy.epsilon"
        )
