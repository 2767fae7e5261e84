"""FedWad inverted: in the end γ lies on the geodesic between μ and ν, and two of its points give a geodesic."""

from __future__ import annotations

import torch
from torch import Tensor

from dpot.errors import UsageError
from dpot.transport.exact import Measure, exact_plan


def partners(gamma: Measure, own: Measure, p: float = 2.0) -> Tensor:
    """n·P(γ, ν)·ν: for each point of γ the mean of the attacker's points it is matched to."""
    plan = exact_plan(gamma.points, own.points, p, gamma.weights, own.weights)
    row, column = plan.nonzero(as_tuple=True)
    shares = plan[row, column] / plan.sum(1)[row]
    return torch.zeros_like(gamma.points).index_add_(0, row, shares.unsqueeze(1) * own.points[column])


def extrapolated(gamma: Measure, own: Measure, t: float, p: float = 2.0) -> Tensor:
    """x = (γ - t·nP(γ, ν)ν)/(1 - t) for γ at t between μ (t = 0) and the attacker's ν (t = 1) (TriangleWad, Eq. 5).

    t is W(μ, γ)/(W(μ, γ) + W(γ, ν)): the two numbers that FedWad's parties exchange in the end.
    """
    if not 0 <= t < 1:
        raise UsageError(f"t={t} must lie in [0, 1): at 1 γ is the attacker's own data")
    return (gamma.points - t * partners(gamma, own, p)) / (1 - t)


def closed_form(gamma: Measure, own: Measure, p: float = 2.0) -> Tensor:
    """2γ - nP(γ, ν)ν: the same for γ in the middle, which is where t = ½ leads."""
    return extrapolated(gamma, own, 0.5, p)
