"""The moments behind the accountants, in logarithms and for whole arrays at once.

Wasserstein: E|Z|^μ of a Gaussian (WDP, Lemma 1). Moments and Bayesian: the log moment of the subsampled Gaussian
mechanism (Abadi et al. 2016; Triastcyn & Faltings 2020), and the upper confidence bound of its mean.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from dpot.privacy.errors import InvalidParameter, number
from dpot.ranges import Range

Floats = NDArray[np.float64]

WASSERSTEIN_ORDER = Range(at_least=1, at_most=200)
_FAR = 100.0  # beyond it the expansion at infinity is exact to rounding, before it the series at zero is
_TAIL_TERMS = 30


def log_kummer(order: float, x: ArrayLike) -> Floats:
    """log ₁F₁(-μ/2; 1/2; -x) for x ≥ 0: Kummer's function as it stands in WDP's Lemma 1.

    Summed as written, the series alternates and cancels unless μ is even. Near zero Kummer's transformation
    ₁F₁(a; b; -x) = e^{-x} ₁F₁(b-a; b; x) makes every term positive; far out, and for even μ everywhere, the
    expansion at infinity  Γ(½)/Γ((μ+1)/2) · x^{μ/2} · Σ_k (-μ/2)_k (½-μ/2)_k / (k! x^k)  is used, which for even μ
    ends by itself.
    """
    mu = number("order", order, WASSERSTEIN_ORDER)
    at = np.asarray(x, dtype=np.float64)
    result = np.empty_like(at)
    far = at > _FAR
    near = at[~far]
    with np.errstate(over="ignore"):
        result[~far] = np.log(special.hyp1f1((mu + 1) / 2, 0.5, near)) - near
    if far.any():
        result[far] = _log_kummer_far(mu, at[far])
    return result


def _log_kummer_far(mu: float, x: Floats) -> Floats:
    term = np.ones_like(x)
    total = term.copy()
    for k in range(math.ceil(mu / 2) + _TAIL_TERMS):
        term = term * ((k - mu / 2) * (k + 0.5 - mu / 2) / (k + 1)) / x
        total += term
    lead = special.gammaln(0.5) - special.gammaln((mu + 1) / 2)
    return np.asarray(lead + mu / 2 * np.log(x) + np.log(total))


def log_absolute_moment(order: float, mean: ArrayLike, variance: ArrayLike) -> Floats:
    """log E|Z|^μ for Z ~ N(mean, variance):  (2v)^{μ/2} Γ((μ+1)/2)/√π · ₁F₁(-μ/2; 1/2; -m²/2v)  (Lemma 1)."""
    mu = number("order", order, WASSERSTEIN_ORDER)
    m, v = np.broadcast_arrays(np.abs(np.asarray(mean, dtype=np.float64)), np.asarray(variance, dtype=np.float64))
    if (v < 0).any() or not np.isfinite(m).all():
        raise InvalidParameter("a mean must be finite and a variance at least 0")
    with np.errstate(divide="ignore", invalid="ignore"):
        noiseless = mu * np.log(m)
        x = np.where(v > 0, m**2 / (2 * np.where(v > 0, v, 1)), 0)
        scale = mu / 2 * np.log(2 * np.where(v > 0, v, 1)) + special.gammaln((mu + 1) / 2) - 0.5 * math.log(math.pi)
        noisy = scale + log_kummer(mu, x)
    return np.where(v > 0, noisy, noiseless)


def log_subsampled_moment(order: int, ratio: ArrayLike, rate: float) -> Floats:
    """log E_k exp(k(k-1)/2 · r²), k ~ Binomial(λ+1, q): λ·D_{λ+1} of the subsampled Gaussian, r = distance/noise.

    The direction (1-q)N(0) + qN(r) against N(0), which for Gaussian noise is the larger one.
    """
    if not 0 < rate <= 1:
        raise InvalidParameter(f"rate must be more than 0 and at most 1, got {rate}")
    k = np.arange(order + 2)
    weights = stats.binom.logpmf(k, order + 1, rate)
    terms = 0.5 * k * (k - 1) * np.asarray(ratio, dtype=np.float64)[..., None] ** 2
    terms += weights
    top = terms.max(-1, keepdims=True)  # logsumexp by hand: this is the inner loop of every composition
    terms -= top
    return np.asarray(np.log(np.exp(terms, out=terms).sum(-1)) + top[..., 0])


def log_upper_mean(samples: ArrayLike, confidence: float) -> Floats:
    """log of an upper confidence bound of E[e^X] from samples of X (last axis), by Student's t.

    mean + t_{n-1}(confidence) · std / √(n-1), the std with 1/n (Triastcyn & Faltings 2020, Section 5), in logarithms:
    e^X overflows. Valid for samples that are independent and whose mean is normal; pairs of the same gradients are
    not independent, and with a Hölder exponent of T the mean is that of its largest sample.
    """
    x = np.asarray(samples, dtype=np.float64)
    n = x.shape[-1]
    if n < 3:
        raise InvalidParameter(f"a confidence bound needs at least 3 samples, got {n}")
    top = x.max(axis=-1, keepdims=True)
    scaled = np.exp(x - top)
    bound = scaled.mean(-1) + stats.t.ppf(confidence, n - 1) * scaled.std(-1) / math.sqrt(n - 1)
    return np.asarray(np.log(bound) + top[..., 0])
