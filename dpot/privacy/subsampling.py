"""Amplification by subsampling, for Rényi differential privacy.

Everything is a sum over the moments j = 2..α of the mechanism inside, taken in the log domain for all orders at
once. `cgf[j]` is (j-1)·ε(j), the log of the j-th moment of P/Q under Q; index 0 and 1 are 0.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOMENTS = 128  # beyond this many, Theorem 27 falls back on the moments of Theorem 9


def fixed_size_cgf(cgf: Floats, rate: float, orders: Ints, *, pure: float, even: Floats | None = None) -> Floats:
    """CGF of a mechanism on a uniform subset of fixed size (Wang, Balle & Kasiviswanathan 2019, Theorem 9).

    For integer α ≥ 2, with γ the rate and ε(∞) the pure guarantee of the mechanism (∞ for Gaussian noise),

        (α-1)ε'(α) ≤ log(1 + γ²·C(α,2)·min{4(e^{ε(2)}-1), e^{ε(2)}·min{2, (e^{ε(∞)}-1)²}}
                           + Σ_{j≥3} γ^j·C(α,j)·e^{(j-1)ε(j)}·min{2, (e^{ε(∞)}-1)^j}).

    `even` are logs of bounds b_l on the moments |P₁-Q₁|^l over R^{l-1} of three mutual neighbours, for
    l = 0, 2, 4, ... (index l/2). Where they are given, the j-th moment is bounded by √(b_{2⌊j/2⌋}·b_{2⌈j/2⌉}) too:
    with 4·E(P/Q-1)^l that is Theorem 27, whose worst pair ternary.py shows not to be needed.

    Sampling never hurts: the divergence is jointly quasi-convex and the subsets can be coupled, so that the
    mechanism's own CGF is a bound as well.
    """
    j = np.arange(2, int(orders.max()) + 1)
    log_pure = _log_expm1(pure)
    terms = cgf[j] + np.minimum(math.log(2), j * log_pure)
    second = min(math.log(4) + _log_expm1(cgf[2]), cgf[2] + min(math.log(2), 2 * log_pure))
    if even is not None:
        known = j[j <= 2 * (len(even) - 1)]
        terms[: len(known)] = np.minimum(terms[: len(known)], 0.5 * (even[known // 2] + even[(known + 1) // 2]))
    terms[0] = second
    log_sum = _log_sum(terms + j * math.log(rate), orders)
    return np.minimum(np.logaddexp(0.0, log_sum), cgf[orders])


def poisson_cgf(cgf: Floats, rate: float, orders: Ints) -> Floats:
    """CGF of a Gaussian mechanism under Poisson sampling, at integer orders (Mironov, Talwar & Zhang 2019).

        E_Q[(P/Q)^α] = Σ_j C(α,j)·(1-q)^{α-j}·q^j·e^{(j-1)ε(j)}

    with P = (1-q)·N(0, σ²) + q·N(v, σ²) and Q = N(0, σ²), the worse of the two directions.

    It is also right for random projections. Given U, the release is such a pair with sensitivity ‖zᵀU‖, and U
    has one law whether the record is there or not, so that the moment is the mean over U of the conditional
    ones. Only the exponentials e^{j(j-1)‖zᵀU‖²/2σ²} depend on U; their mean over the law of ‖zᵀU‖² (a sum of
    k Beta(1/2, (d-1)/2)) is the moment 1F1(1/2; d/2; j(j-1)/2σ²)^k of the mechanism without sampling, which
    is what `cgf` holds. The other direction is smaller for each U, hence on average; the conditional moment
    grows with ‖z‖, so the largest norm is the worst case. Subtracting Σ_j C(α,j)(1-q)^{α-j}q^j = 1 leaves
    positive terms e^{cgf}-1, so that nothing cancels when q is tiny.
    """
    j = np.arange(2, int(orders.max()) + 1)
    terms = _log_expm1(cgf[j]) + j * (math.log(rate) - math.log1p(-rate))
    log_sum = _log_sum(terms, orders) + orders * math.log1p(-rate)
    result: Floats = np.logaddexp(0.0, log_sum)
    return result


def poisson_gaussian_cgf(noise_multiplier: float, rate: float, orders: Floats) -> Floats:
    """CGF of the Gaussian mechanism under Poisson sampling at any real order, by quadrature.

        E_Q[(P/Q)^α] - 1 = E_{x~N(0,1)} ψ(q·(e^{sx-s²/2} - 1)),   ψ(y) = (1+y)^α - 1 - αy ≥ 0,   s = 1/z:

    the subtracted part has mean 0, and what is left is positive. The integrand is analytic within π·z of the
    real line, where the trapezoidal rule converges like e^{-2π²z/h}.
    """
    s = 1.0 / noise_multiplier
    step = min(0.1, 0.5 * noise_multiplier)
    x = np.arange(-13.0, float(orders.max()) * s + 13.0, step)
    exponent = s * x - 0.5 * s * s
    # log(1+y), where y = q(e^v - 1) can overflow as a number but not as a logarithm
    log1p_y = np.where(
        exponent < 30,
        np.log1p(rate * np.expm1(np.minimum(exponent, 30.0))),
        np.logaddexp(math.log1p(-rate), math.log(rate) + exponent),
    )
    y = rate * np.expm1(np.minimum(exponent, 700.0))
    log_weight = -0.5 * x * x - 0.5 * math.log(2 * math.pi) + math.log(step)
    result: Floats = np.logaddexp(0.0, _log_sum_exp(_log_psi(orders[:, None], y, log1p_y) + log_weight))
    return result


def _log_psi(alpha: Floats, y: Floats, log1p_y: Floats) -> Floats:
    """log((1+y)^α - 1 - αy), by the binomial series where the three terms cancel."""
    power = alpha * log1p_y
    small = np.abs(y) * alpha < 0.02  # the terms from y^9 on are below 1e-13 of the first
    short = np.where(small, y, 0.0)
    series = sum(special.binom(alpha, n) * short**n for n in range(2, 9))
    direct = np.expm1(np.minimum(power, 600.0)) - alpha * np.minimum(y, 1e270)
    with np.errstate(divide="ignore"):
        moderate = np.log(np.where(small, series, np.maximum(direct, 0.0)))
    result: Floats = np.where(power > 600.0, power, moderate)
    return result


def gaussian_ternary_moments(noise_multiplier: float, largest: int) -> Floats:
    """log(4·E_Q(P/Q-1)^l) of the Gaussian mechanism for l = 0, 2, 4, ..., as far as `largest` (Theorem 27).

    P/Q = e^{sx-s²/2} under x ~ N(0,1). As alternating sums of moments (Wang et al. 2019, Theorem 27) they
    cancel; for even l the integrand is positive, and entire: the trapezoidal rule converges fast. The theorem
    asks for a pair of neighbours that is the worst for every moment, which the Gaussian mechanism has.
    """
    s = 1.0 / noise_multiplier
    even = np.arange(0, min(largest + 1, _MOMENTS) + 1, 2)
    step = 0.1
    x = np.arange(-13.0, float(even[-1]) * s + 13.0, step)
    exponent = s * x - 0.5 * s * s
    with np.errstate(divide="ignore"):
        size = np.where(exponent < 30, np.log(np.abs(np.expm1(np.minimum(exponent, 30.0)))), exponent)
    log_weight = -0.5 * x * x - 0.5 * math.log(2 * math.pi) + math.log(step)
    return math.log(4) + _log_sum_exp(even[:, None] * np.maximum(size, -700.0) + log_weight)


def _log_sum(terms: Floats, orders: Ints) -> Floats:
    """log Σ_{j=2..α} C(α,j)·e^{terms[j-2]} for each integer order α."""
    return _log_sum_exp(terms[None, :] + _log_binomials(tuple(int(a) for a in orders)))


def _log_sum_exp(every: Floats) -> Floats:
    """log Σ e^x over each row; scipy's does the same with more care and five times the time."""
    top = every.max(axis=1)
    with np.errstate(invalid="ignore"):
        result: Floats = top + np.log(np.exp(every - top[:, None]).sum(axis=1))
    return np.where(np.isinf(top), top, result)


@lru_cache(maxsize=16)
def _log_binomials(orders: tuple[int, ...]) -> Floats:
    """log C(α, j) for each order and j = 2..max; -∞ where j > α."""
    alpha = np.array(orders, dtype=np.float64)[:, None]
    j = np.arange(2, max(orders) + 1, dtype=np.float64)[None, :]
    left = np.maximum(alpha - j, 0.0)
    logs = special.gammaln(alpha + 1) - special.gammaln(j + 1) - special.gammaln(left + 1)
    result: Floats = np.where(j <= alpha, logs, -np.inf)
    result.flags.writeable = False
    return result


def _log_expm1(x: Floats | float) -> Floats:
    """log(e^x - 1), for x ≥ 0 of any size; -∞ at 0."""
    with np.errstate(divide="ignore"):
        result: Floats = np.where(np.asarray(x) > 30, x, np.log(np.expm1(np.minimum(x, 30.0))))
    return result
