"""A sharper bound for projections under sampling without replacement, for small ε.

Theorem 9 of Wang et al. 2019 multiplies the j-th moment by 2 however weak the mechanism is, so that its bound does
not vanish with growing noise: below ε of about 1 the noise it asks for explodes. Their Theorem 27 does vanish, but
asks for a property (the worst triple is a worst pair) that is not proved for projections. The bound here needs no
such property. Sketch of the proof, for integer α ≥ 2:

1. Let P, Q be the subsampled releases on neighbours. Both are mixtures γ·P₁ + (1-γ)·R and γ·Q₁ + (1-γ)·R, so
   P - Q = γ(P₁ - Q₁) and E_Q(P/Q)^α = 1 + Σ_{j≥2} C(α,j)·γ^j·∫(P₁-Q₁)^j Q^{1-j}.
2. ∫|P-Q|^j R^{1-j} is jointly convex in (P, Q, R). Q is a mixture of Q₁ and R; P₁, Q₁ and R are mixtures over the
   other members of the subset and over the record that takes the place of the changed one; coupling these leaves
   the largest value over three mutual neighbours P, Q, R of the mechanism without sampling.
3. That value is at most 4·χ_j, where χ_j is the largest E_R|P/R-1|^j over pairs. For the densities p, q, r at a point:
   where r is not between p and q, |p-q| ≤ max(|p-r|, |q-r|), so |p-q|^j·r^{1-j} ≤ |p-r|^j·r^{1-j} + |q-r|^j·r^{1-j};
   where r is between them, r ≥ min(p, q), so |p-q|^j·r^{1-j} ≤ |p-q|^j·min(p, q)^{1-j}, which is at most
   |p-q|^j·p^{1-j} + |p-q|^j·q^{1-j}. The sum of all four terms is a bound everywhere, and each of them integrates to
   at most χ_j. (So the 4 of Theorem 27 needs no worst triple.)
4. Given U, P/R is L_t = e^{√t·x - t/2}, x ~ N(0,1), t = ‖zᵀU‖²/σ²: a martingale in t, so E|L_t-1|^j grows with t
   and with ‖z‖. The worst pair has ‖z‖ equal to the diameter, for every j.
5. For even l, E(L_t-1)^l = Σ_i (-1)^{l-i}·C(l,i)·e^{C(i,2)t} = Σ_n C(l,2)^n·e_{n,l}·t^n/n! with 0 ≤ e_{n,l} ≤ 1
   (finite differences of C(i,2)^n, whose binomial expansion has coefficients ≥ 0).
6. u₁² ≤_cx g₁²/d for a uniform u on the sphere and a Gaussian vector g, as E[g₁² | g/‖g‖] = d·u₁² (Jensen): every
   moment of ‖zᵀU‖²/s² is at most that of χ²_k/d, i.e. E tⁿ/n! ≤ (2s²/dσ²)ⁿ·Γ(n+k/2)/(Γ(k/2)·n!).
7. For odd j, E|P/R-1|^j ≤ √(E(P/R-1)^{j-1}·E(P/R-1)^{j+1}) (Cauchy-Schwarz).
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]

_MOMENTS = 128
_TERMS = 1024


def projection_ternary_moments(
    dimension: int, projections: int, sigma: float, diameter: float = 1.0, largest: int = _MOMENTS
) -> Floats:
    """log(4·E(P/R-1)^l), from above, for l = 0, 2, 4, ... as far as `largest`; ∞ where the series is not done."""
    even = np.arange(0, min(largest + 1, _MOMENTS) + 1, 2)
    n = np.arange(_TERMS)
    pairs = 0.5 * even * (even - 1.0)  # C(l,2): how fast the l-th moment grows with t
    log_moment = special.gammaln(n + projections / 2) - special.gammaln(projections / 2) - special.gammaln(n + 1)
    log_scale = math.log(2 * (diameter / sigma) ** 2 / dimension)
    with np.errstate(divide="ignore"):
        log_terms = _log_expansion()[:, even] + (log_moment + n * log_scale)[:, None]
        log_terms[:, 1:] += n[:, None] * np.log(pairs[1:])
    top = log_terms.max(axis=0)
    result = math.log(4) + top + np.log(np.exp(log_terms - top).sum(axis=0))
    result[0] = 0.0
    # With e ≤ 1 the n-th term is followed by one rho·(n + k/2)/(n + 1) times as large. From the last one kept on this
    # is at most `ratio`: it falls with n where k ≥ 2, and grows to rho where k = 1.
    rho = pairs * math.exp(log_scale)
    ratio = rho * max(1.0, (_TERMS - 1 + projections / 2) / _TERMS)
    last = log_moment[-1] + (_TERMS - 1) * (log_scale + np.log(np.maximum(pairs, 1e-300)))
    with np.errstate(divide="ignore", invalid="ignore"):
        log_tail = math.log(4) + last + np.log(ratio / (1 - ratio))
        result[1:] = np.where(ratio[1:] < 0.99, np.logaddexp(result[1:], log_tail[1:]), np.inf)
    return result


@cache
def _log_expansion() -> Floats:
    """log e_{n,m}: the m-th finite difference of i ↦ C(i,2)^n at 0, divided by C(m,2)^n.

    C(i,2)·C(i,m) = C(m,2)·C(i,m) + m(m+1)·C(i,m+1) + C(m+2,2)·C(i,m+2) gives, for the undivided differences,
    c_{n+1,m} = C(m,2)·(c_{n,m} + 2c_{n,m-1} + c_{n,m-2}).
    """
    m = np.arange(_MOMENTS + 1.0)
    pairs = 0.5 * m * (m - 1)
    table = np.zeros((_TERMS, _MOMENTS + 1))
    table[0, 0] = 1.0  # the constant 1 has no differences
    one, two = np.zeros_like(m), np.zeros_like(m)
    with np.errstate(divide="ignore", invalid="ignore"):
        one[3:], two[4:] = pairs[2:-1] / pairs[3:], pairs[2:-2] / pairs[4:]
    table[1, 2] = 1.0  # C(i,2) itself
    for n in range(1, _TERMS - 1):
        here = table[n]
        table[n + 1, 2:] = here[2:]
        table[n + 1, 3:] += 2 * one[3:] ** n * here[2:-1]
        table[n + 1, 4:] += two[4:] ** n * here[2:-2]
    with np.errstate(divide="ignore"):
        return np.log(np.minimum(table, 1.0))
