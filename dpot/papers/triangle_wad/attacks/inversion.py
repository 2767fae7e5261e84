"""TriangleWad inverted: η_i = (1 - t)·x_i + t·γ_π(i), so x_i follows from η, t and γ once π is known.

π is an optimal matching between x and γ. It is no secret: points on a geodesic stay matched to its end (cyclical
monotonicity), so transport between η and γ finds the same π, and for images any wrong partner gives pixels out of
range.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dpot.transport.exact import Measure, exact_plan

CHUNK = 64


def subtracted(eta: Tensor, gamma: Tensor, t: float) -> Tensor:
    """(η_i - t·γ_i)/(1 - t), γ row by row as it came: exact for a constant γ, which needs no matching.

    For random γ this is the attack TriangleWad is defended against in its paper. The rows do not belong together, so it
    looks harmless.
    """
    return (eta - t * gamma) / (1 - t)


def resolved(eta: Measure, gamma: Measure, t: float, p: float = 2.0) -> Tensor:
    """Solve the transport between η and γ again, then subtract each point's partner (or mean of partners)."""
    plan = exact_plan(eta.points, gamma.points, p, eta.weights, gamma.weights)
    row, column = plan.nonzero(as_tuple=True)
    shares = plan[row, column] / plan.sum(1)[row]
    partners = torch.zeros_like(eta.points).index_add_(0, row, shares.unsqueeze(1) * gamma.points[column])
    return subtracted(eta.points, partners, t)


def range_matched(eta: Tensor, gamma: Tensor, t: float, low: float = -1.0, high: float = 1.0) -> Tensor:
    """For each η_i the γ_j that leaves the values in [low, high]: needs no transport, only the range of a pixel."""
    guesses = []
    for part in eta.split(CHUNK):
        best = torch.full((len(part),), float("inf"), dtype=eta.dtype)
        found = torch.empty_like(part)
        for candidate in gamma:
            guess = subtracted(part, candidate, t)
            outside = (guess - guess.clamp(low, high)).square().sum(1)
            better = outside < best
            best = torch.where(better, outside, best)
            found[better] = guess[better]
        guesses.append(found)
    return torch.cat(guesses)


def gamma_of_insider(own: Tensor, own_eta: Tensor, t: float) -> Tensor:
    """The "secret" γ from a party's own data and own message: γ_π = (η_ν - (1 - t)·ν)/t.

    With equal sizes that is all of γ, in the order of ν. Whoever takes part, or whose data are known, breaks the other
    side: `resolved(η_μ, γ, t)`.
    """
    return (own_eta - (1 - t) * own) / t
