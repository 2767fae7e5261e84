"""How far one record moves its k projections: bounds on ‖zᵀU‖², ‖z‖ = 1 (DP-SWD, Section 3).

‖zᵀU‖² is a sum of k independent Beta(1/2, (d-1)/2) variables: mean k/d, variance k·v_d with
v_d = 2(d-1)/(d²(d+2)). The bounds below hold outside an event of probability `failure`, except the worst case,
which always holds, and the central limit theorem, which is no bound at all. The exact RDP (projection.py)
needs none of them.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpot.privacy.errors import PROBABILITY, InvalidParameter, number, whole

Bound = Literal["exact", "sharp", "bernstein", "clt", "coded", "worst"]
BOUNDS: tuple[Bound, ...] = get_args(Bound)
SOUND_BOUNDS: tuple[Bound, ...] = ("exact", "sharp", "worst")

WHY: dict[Bound, str] = {
    "exact": "the Rényi divergence of the joint release of directions and noisy projections is computed "
    "exactly by averaging over the directions; nothing is bounded with high probability only",
    "sharp": "as exact, and under sampling without replacement with this project's own bound on the moments of "
    "three neighbours (proof sketch in dpot/privacy/ternary.py; not published, not reviewed by others)",
    "worst": "no direction stretches a row: ‖zᵀU‖² ≤ k·‖z‖² always",
    "bernstein": "DP-SWD Lemma 2 (Bernstein): ‖zᵀU‖² stays below the bound except with probability δ/2 at "
    "*one* release and for one pair of records; the paper counts that failure once for all releases",
    "clt": "DP-SWD's central-limit approximation of ‖zᵀU‖²: an approximation, not a bound",
    "coded": "the formula of the DP-SWD authors' code, where the variance term of Lemma 2 counts k twice; "
    "larger than Lemma 2, with the same failure probability counted once",
}


def beta_variance(dimension: int) -> float:
    """v_d = 2(d-1)/(d²(d+2)): the variance of the squared projection of a unit vector on one direction."""
    return 2.0 * (dimension - 1) / (dimension**2 * (dimension + 2.0))


def squared_sensitivity(bound: Bound, dimension: int, projections: int, failure: float | None = None) -> float:
    """The bound w(k, failure) on ‖zᵀU‖² by its name; "exact" and "sharp" need none and are refused.

    bernstein: k/d + (2/3)·ln(1/f) + √(2k·v_d·ln(1/f))        (DP-SWD, Lemma 2 and Equation 6)
    coded:     k/d + (2/3)·ln(1/f) + √(2k·(k·v_d)·ln(1/f))    (what the authors' accountant was given)
    clt:       k/d + Φ⁻¹(1-f)·√(k·v_d)
    worst:     k
    """
    d, k = whole("dimension", dimension), whole("projections", projections)
    if bound == "worst":
        return float(k)
    if bound not in BOUNDS or bound in ("exact", "sharp"):
        raise InvalidParameter(f"{bound} is not a bound on the sensitivity; choose bernstein, clt, coded or worst")
    f = number("failure", failure, PROBABILITY)
    if bound == "clt":
        return k / d - special.ndtri(f) * math.sqrt(k * beta_variance(d))
    variance = k * beta_variance(d) * (k if bound == "coded" else 1)
    return k / d + 2 / 3 * math.log(1 / f) + math.sqrt(2 * variance * math.log(1 / f))


def sample_squared_sensitivity(
    dimension: int, projections: int, draws: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draws of ‖zᵀU‖², ‖z‖ = 1: sums of k independent Beta(1/2, (d-1)/2)."""
    d, k = whole("dimension", dimension), whole("projections", projections)
    total = np.zeros(whole("draws", draws))
    if d == 1:
        return total + k
    for _ in range(k):  # one direction at a time: k can be 1e5
        total += rng.beta(0.5, 0.5 * (d - 1), size=len(total))
    return total
