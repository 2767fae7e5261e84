"""Table 1, Figure 3 and Propositions 7 to 11 of the paper, as printed; and what holds instead.

The functions on arrays are for tables and plots. Those that return a budget return it in its own type, with the ε of
the same mechanism beside it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dpot.privacy.errors import ORDER, POSITIVE, PROBABILITY, number
from dpot.privacy.events import Gaussian, Laplace
from dpot.privacy.wdp.budget import Beside, ClaimedEpsilon, WassersteinBudget
from dpot.privacy.wdp.moments import WASSERSTEIN_ORDER, Floats

# Table 1: Rényi budgets at sensitivity 1 (Mironov 2017), Wasserstein budgets as the paper has them


def rdp_laplace(order: ArrayLike, scale: float) -> Floats:
    """D_α of the Laplace mechanism at sensitivity 1; at α = 1 the KL divergence 1/λ + e^{-1/λ} − 1."""
    alpha, t = np.asarray(order, dtype=np.float64), 1 / number("scale", scale, POSITIVE)
    at = np.where(alpha == 1, 2.0, alpha)
    above = np.logaddexp(np.log(at / (2 * at - 1)) + (at - 1) * t, np.log((at - 1) / (2 * at - 1)) - at * t) / (at - 1)
    return np.where(alpha == 1, t + math.exp(-t) - 1, above)


def rdp_gaussian(order: ArrayLike, sigma: float) -> Floats:
    """D_α = α/(2σ²) at sensitivity 1."""
    return np.asarray(np.asarray(order, dtype=np.float64) / (2 * number("sigma", sigma, POSITIVE) ** 2))


def wdp_laplace(order: ArrayLike, scale: float, sensitivity: float = 1.0) -> Floats:
    """½Δ(√(2[1/λ + e^{-1/λ} − 1]))^{1/μ} (Proposition 7; false: the distance is Δ for every μ)."""
    t = 1 / number("scale", scale, POSITIVE)
    root = math.sqrt(2 * (t + math.expm1(-t)))
    return np.asarray(0.5 * sensitivity * root ** (1 / np.asarray(order, dtype=np.float64)))


def wdp_gaussian(order: ArrayLike, sigma: float, sensitivity: float = 1.0) -> Floats:
    """½(Δ/σ)^{1/μ} (Proposition 8; false: the distance is Δ for every μ and σ)."""
    ratio = number("sensitivity", sensitivity, POSITIVE) / number("sigma", sigma, POSITIVE)
    return np.asarray(0.5 * ratio ** (1 / np.asarray(order, dtype=np.float64)))


# Theorem 1 and what the paper makes of it


def tail_budget(distance: ArrayLike, delta: ArrayLike, beta: ArrayLike) -> Floats:
    """W − ln δ/β (Theorem 1, Figure 3): falls with β, which is free, to W itself."""
    return np.asarray(np.asarray(distance, dtype=np.float64) - np.log(delta) / np.asarray(beta, dtype=np.float64))


def attack_success(epsilon: ArrayLike) -> Floats:
    """P(A) = 1/(1 + e^{-ε}): the brackets of Table 2."""
    return np.asarray(1 / (1 + np.exp(-np.asarray(epsilon, dtype=np.float64))))


# budgets in their own type: as printed


def laplace_as_printed(order: float, scale: float, sensitivity: float = 1.0, delta: float = 1e-5) -> WassersteinBudget:
    """Proposition 7, with the ε of the same mechanism."""
    beside = Beside.of({Laplace(scale / sensitivity): 1}, delta)
    return WassersteinBudget(_order(order), float(wdp_laplace(order, scale, sensitivity)), beside)


def gaussian_as_printed(order: float, sigma: float, sensitivity: float = 1.0, delta: float = 1e-5) -> WassersteinBudget:
    """Proposition 8, with the ε of the same mechanism."""
    beside = Beside.of({Gaussian(sigma / sensitivity): 1}, delta)
    return WassersteinBudget(_order(order), float(wdp_gaussian(order, sigma, sensitivity)), beside)


def wdp_from_dp(order: float, epsilon: float, sensitivity: float = 1.0) -> WassersteinBudget:
    """½Δ(2ε(e^ε − 1))^{1/(2μ)} (Proposition 9, false)."""
    epsilon = number("epsilon", epsilon, POSITIVE)
    value = 0.5 * sensitivity * (2 * epsilon * math.expm1(epsilon)) ** (1 / (2 * _order(order)))
    return WassersteinBudget(order, value, Beside({"DP (given)": epsilon}, 0.0))


def wdp_from_rdp(order: float, alpha: float, epsilon: float, sensitivity: float = 1.0) -> WassersteinBudget:
    """½Δ(2ε)^{1/(2μ)} (Proposition 10, false); α does not enter."""
    alpha, epsilon = number("alpha", alpha, ORDER), number("epsilon", epsilon, POSITIVE)
    value = 0.5 * sensitivity * (2 * epsilon) ** (1 / (2 * _order(order)))
    delta = 1e-5
    beside = Beside({f"RDP of order {alpha:g}, converted:": epsilon - math.log(delta) / (alpha - 1)}, delta)
    return WassersteinBudget(order, value, beside)


def dp_from_wdp(budget: WassersteinBudget, lipschitz: float) -> ClaimedEpsilon:
    """L·W^{μ/(μ+1)} (Proposition 11 at α → ∞, false), L the Lipschitz constant of the log density."""
    mu = budget.order
    value = number("lipschitz", lipschitz, POSITIVE) * budget.distance ** (mu / (mu + 1))
    return ClaimedEpsilon(value, "Proposition 11", budget.beside)


# and what holds


def additive_noise(order: float, sensitivity: float, beside: Beside) -> WassersteinBudget:
    """Additive noise of any law is exactly (μ, Δ)-WDP for every μ.

    f(D) + V and f(D') + V are translates of each other: the translation transports one into the other at cost Δ, and
    W_μ ≥ W_1 ≥ the distance of the means = Δ. The noise does not enter.
    """
    return WassersteinBudget(_order(order), number("sensitivity", sensitivity, POSITIVE), beside)


def rdp_after_gaussian(alpha: ArrayLike, w_infinity: float, noise: float) -> Floats:
    """D_α(P * N(0, s²) ‖ Q * N(0, s²)) ≤ α·W_∞(P, Q)²/(2s²): noise *after* a mechanism of small W_∞ gives privacy.

    Couple P and Q within W_∞, use joint quasi-convexity of D_α over the coupling, and D_α of two Gaussians.
    """
    w, s = number("w_infinity", w_infinity, POSITIVE), number("noise", noise, POSITIVE)
    return np.asarray(np.asarray(alpha, dtype=np.float64) * w**2 / (2 * s**2))


def kl_after_gaussian(w_2: float, noise: float) -> float:
    """KL(P * N(0, s²) ‖ Q * N(0, s²)) ≤ W_2(P, Q)²/(2s²): joint convexity of KL over the optimal coupling."""
    return number("w_2", w_2, POSITIVE) ** 2 / (2 * number("noise", noise, POSITIVE) ** 2)


def floor(delta: float, beta: float) -> float:
    """−ln δ/β: no setting of the noise brings the paper's formula below it."""
    return -math.log(number("delta", delta, PROBABILITY)) / number("beta", beta, POSITIVE)


def _order(order: float) -> float:
    return number("order", order, WASSERSTEIN_ORDER)
