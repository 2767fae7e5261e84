"""From Rényi to approximate differential privacy, and back.

Two conversions stand side by side: Mironov 2017 (Proposition 3), which the papers used,

    ε = ε(α) + log(1/δ)/(α-1),

and the tighter one of Canonne, Kamath & Steinke 2020 (Proposition 12),

    ε = ε(α) + log(1-1/α) - log(δα)/(α-1).

"pld" is the second, and beside it the distribution of the loss, where there is one (accountants.py).
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpot.privacy.errors import PROBABILITY, InvalidParameter, number
from dpot.privacy.projection import checked_orders

Conversion = Literal["mironov", "tight", "pld"]
Floats = NDArray[np.float64]


def conversion_cost(orders: ArrayLike, delta: float, conversion: Conversion = "mironov") -> Floats:
    """What each order adds to its RDP: ε = ε(α) + cost(α, δ)."""
    alpha = checked_orders(orders)
    log_delta = math.log(number("delta", delta, PROBABILITY))
    cost: Floats = (_gain(alpha, conversion) - log_delta) / (alpha - 1)
    return cost


def epsilon_from_rdp(
    orders: ArrayLike, rdp: ArrayLike, delta: float, conversion: Conversion = "mironov"
) -> tuple[float, float]:
    """The least ε over the orders at δ, and the order that gives it; ε is ∞ if the curve is."""
    alpha, curve = _checked(orders, rdp)
    every = curve + conversion_cost(alpha, delta, conversion)
    best = int(np.argmin(every))
    return max(0.0, float(every[best])), float(alpha[best])


def delta_from_rdp(
    orders: ArrayLike, rdp: ArrayLike, epsilon: float, conversion: Conversion = "mironov"
) -> tuple[float, float]:
    """The least δ over the orders at ε, and the order that gives it; never more than 1."""
    alpha, curve = _checked(orders, rdp)
    if not epsilon >= 0:
        raise InvalidParameter(f"epsilon must be at least 0, got {epsilon}")
    every = (alpha - 1) * (curve - epsilon) + _gain(alpha, conversion)
    best = int(np.argmin(every))
    return math.exp(min(0.0, float(every[best]))), float(alpha[best])


def _gain(alpha: Floats, conversion: Conversion) -> Floats:
    """What a conversion adds to log 1/δ: 0 (Mironov), or (α-1)·log(1-1/α) - log α, which is negative."""
    if conversion == "mironov":
        return np.zeros_like(alpha)
    if conversion in ("tight", "pld"):
        gain: Floats = (alpha - 1) * np.log1p(-1 / alpha) - np.log(alpha)
        return gain
    raise InvalidParameter(f"conversion must be mironov, tight or pld, got {conversion!r}")


def _checked(orders: ArrayLike, rdp: ArrayLike) -> tuple[Floats, Floats]:
    alpha, curve = checked_orders(orders), np.asarray(rdp, dtype=np.float64)
    if alpha.shape != curve.shape or alpha.size == 0 or not np.all(np.isfinite(alpha)):
        raise InvalidParameter("one RDP value is needed for each finite order")
    if not np.all(curve >= 0):
        raise InvalidParameter(f"an RDP value must be at least 0, got {curve[~(curve >= 0)].flat[0]}")
    return alpha, curve
