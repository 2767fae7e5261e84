"""The random-projection Gaussian mechanism (DP-SWD, Algorithm 1): its exact Rényi divergence.

One row of X moves by z, ‖z‖ ≤ s; the columns u_j of U are iid uniform on the sphere of R^d. U has the same law
under both data sets and is part of the release, so that for every real α > 1

    E_Q[(P/Q)^α] = E_U exp(α(α-1)‖zᵀU‖²/2σ²) = 1F1(1/2; d/2; x)^k,    x = α(α-1)s²/2σ²,

because ‖zᵀU‖² is a sum of k independent s²·Beta(1/2, (d-1)/2). It grows with ‖z‖ and is attained at ‖z‖ = s:

    ε(α) = k/(α-1) · log 1F1(1/2; d/2; x).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpot.privacy.errors import ORDER, POSITIVE, InvalidParameter, number, whole

Floats = NDArray[np.float64]

# Above this, 1F1 ≤ e^x (a Beta variable is at most 1) is returned: an upper bound whose relative distance from
# the value is below 1e-6 for d ≤ 1e5; the float64 quadrature below has lost its peak long before 1e30.
_HUGE = 1e13
_SERIES_TERMS = 128
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_NEGLIGIBLE = 42.0  # e^-42 of the peak: below the rounding of a sum of 64 terms
_HALVINGS = 26  # finds the edge to 1% of the peak's width at x = 1e13


def projection_rdp(dimension: int, projections: int, sigma: float, orders: ArrayLike, diameter: float = 1.0) -> Floats:
    """ε(α) = k/(α-1) · log 1F1(1/2; d/2; α(α-1)s²/2σ²) at each order; ∞ at α = ∞."""
    d, k = whole("dimension", dimension), whole("projections", projections)
    sigma, diameter = number("sigma", sigma, POSITIVE), number("diameter", diameter, POSITIVE)
    alpha = checked_orders(orders)
    result = np.full(alpha.shape, np.inf)
    finite = np.isfinite(alpha)
    a = alpha[finite]
    result[finite] = k * log_kummer(d, 0.5 * a * (a - 1) * (diameter / sigma) ** 2) / (a - 1)
    return result


def checked_orders(orders: ArrayLike) -> Floats:
    """Orders as an array, each more than 1; infinity is an order."""
    alpha = np.asarray(orders, dtype=np.float64)
    if not np.all(alpha > 1):
        bad = alpha[~(alpha > 1)].flat[0]
        raise InvalidParameter(f"every order must be {ORDER.describe()}, got {bad}")
    return alpha


def log_kummer(dimension: int, x: ArrayLike) -> Floats:
    """log 1F1(1/2; d/2; x) for x ≥ 0, to a relative error of 1e-13.

    Up to max(d/4, 30) by the power series: its terms are positive and M-1 is summed by itself, so that
    neither a sum nor a tiny logarithm cancels. Beyond, by quadrature of the integral it stands for,

        1F1(1/2; d/2; x) = ∫ e^{x sin²θ} cos^{d-2}θ dθ / ∫ cos^{d-2}θ dθ    over θ in [0, π/2],

    whose integrand is entire with one peak. Both integrals are taken in the same way, on the part where the
    integrand is above e^-42 of its peak.
    """
    values = np.asarray(x, dtype=np.float64)
    if not np.all(values >= 0):
        raise InvalidParameter("the argument of 1F1 must be at least 0")
    if dimension == 1:  # the sphere of R¹ is {-1, 1}: the projection changes nothing
        return values.copy()
    result = values.copy()  # what is left alone below is infinite or huge
    series = values <= max(dimension / 4, 30.0)
    result[series] = _by_series(dimension, values[series])
    middle = ~series & (values < _HUGE)
    if np.any(middle):
        result[middle] = _log_integral(values[middle], dimension - 2.0) - _log_normaliser(dimension)
    return result


@lru_cache(maxsize=256)
def _log_normaliser(dimension: int) -> float:
    return float(_log_integral(np.zeros(1), dimension - 2.0)[0])


def _by_series(dimension: int, x: Floats) -> Floats:
    """log(1 + Σ_n (1/2)_n/(d/2)_n x^n/n!): 128 terms are enough to x = 30 (d = 2) and x = d/4."""
    n = np.arange(_SERIES_TERMS)
    ratios = (n + 0.5) / ((n + dimension / 2) * (n + 1.0))
    result: Floats = np.log1p(np.cumprod(x[:, None] * ratios, axis=1).sum(axis=1))
    return result


def _log_integral(x: Floats, power: float) -> Floats:
    """log ∫ exp(x sin²θ + power·log cos θ) dθ over [0, π/2], for each x."""
    # d/dθ of the exponent vanishes at θ = 0 and where cos²θ = power/2x; it has one peak.
    with np.errstate(divide="ignore", invalid="ignore"):
        peak = np.where(2 * x > power, np.arccos(np.sqrt(np.minimum(power / (2 * x), 1.0))), 0.0)
    top = _exponent(x, power, peak)
    low, high = _where_negligible(x, power, peak, top)
    half = 0.5 * (high - low)
    theta = (low + half)[:, None] + half[:, None] * _NODES
    inside = (np.exp(_exponent(x[:, None], power, theta) - top[:, None]) * _WEIGHTS).sum(axis=1)
    result: Floats = top + np.log(half * inside)
    return result


def _exponent(x: Floats, power: float, theta: Floats) -> Floats:
    square = np.sin(theta) ** 2
    if power == 0:
        return x * square
    # log1p keeps its digits near θ = 0, where all the mass is unless x > power/2 makes the result large
    with np.errstate(divide="ignore"):
        result: Floats = x * square + 0.5 * power * np.log1p(-np.minimum(square, 1.0))
    return result


def _where_negligible(x: Floats, power: float, peak: Floats, top: Floats) -> Floats:
    """On each side of the peak: where the integrand has fallen to e^-42 of it, or the end of [0, π/2]."""
    inside = np.stack([peak, peak])
    outside = np.stack([np.zeros_like(peak), np.full_like(peak, np.pi / 2)])
    for _ in range(_HALVINGS):
        middle = 0.5 * (inside + outside)
        above = _exponent(x, power, middle) > top - _NEGLIGIBLE
        inside, outside = np.where(above, middle, inside), np.where(above, outside, middle)
    return outside
