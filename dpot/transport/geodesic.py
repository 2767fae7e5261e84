"""Points on Wasserstein geodesics, what a distance through a third measure γ is worth, and scores of single points.

    η_μ(t) = ((1 - t)·x + t·γ)#π,  π an optimal plan between μ and γ          (FedWad, TriangleWad)

For a γ that is one point, W_p(η_μ, η_ν) = (1 - t)·W_p(μ, ν) for every p and t: both clouds are shrunk towards the same
place. For any other γ, with s_p(γ) = (E‖γ - γ̄‖^p)^{1/p},

    |W_p(η_μ, η_ν) - (1 - t)·W_p(μ, ν)| ≤ 2t·s_p(γ).

Proof: move the γ-part of every point of η_μ to the mean γ̄. That costs at most t·s_p(γ) (for a conditional mean in place
of γ: by Jensen), and the same for η_ν. What is left are two clouds shrunk towards γ̄, at distance (1 - t)·W_p(μ, ν).
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from dpot.errors import UsageError
from dpot.transport.exact import Measure, barycentric_interpolation, exact_wasserstein, interpolating_measure
from dpot.transport.sinkhorn import annealed_temperatures, bounding_box_diameter
from dpot.transport.solvers import annealed_potentials, ground_cost

Support = Literal["barycentric", "mccann"]
Scale = Literal["right", "printed"]


def measure(points: Tensor, weights: Tensor | None = None) -> Measure:
    """Points with weights that sum to 1; uniform ones unless given."""
    if weights is None:
        return Measure(points, points.new_full((len(points),), 1 / len(points)))
    return Measure(points, weights / weights.sum())


def wasserstein(x: Measure, y: Measure, p: float = 2.0) -> float:
    """W_p between two weighted clouds, exactly (POT); the root is taken."""
    return float(exact_wasserstein(x.points, y.points, p, x.weights, y.weights))


def interpolate(x: Measure, y: Measure, t: float, p: float = 2.0, support: Support = "barycentric") -> Measure:
    """The measure at t between x (t = 0) and y (t = 1): on the n points of x, or McCann's on n + m - 1."""
    between = interpolating_measure if support == "mccann" else barycentric_interpolation
    return between(x.points, y.points, t, p, x.weights, y.weights)


def scaled_back(distance: float, t: float, p: float, scale: Scale) -> float:
    """From W_p(η_μ, η_ν) to W_p(μ, ν): divided by 1 - t, or by t^p as TriangleWad prints it.

    The two agree at t = ½ and p = 1 only. The printed rule shrinks by how much of γ was mixed in, the measures shrink
    by how much of the data is left.
    """
    if not 0 < t < 1:
        raise UsageError(f"t={t} must lie between 0 and 1, both excluded")
    return distance / ((1 - t) if scale == "right" else t**p)


def spread(x: Measure, p: float = 2.0) -> float:
    """s_p = (E‖x - x̄‖^p)^{1/p}: how far a measure is from a single point."""
    centre = x.weights @ x.points
    return float((x.weights @ (x.points - centre).norm(dim=1) ** p) ** (1 / p))


def triangle_error_bound(t: float, gamma: Measure, p: float = 2.0) -> float:
    """The most that W_p(η_μ, η_ν)/(1 - t) can differ from W_p(μ, ν): 2t/(1 - t)·s_p(γ)."""
    return 2 * t / (1 - t) * spread(gamma, p)


def sinkhorn_potential(x: Measure, y: Measure, blur: float, scaling: float = 0.9) -> Tensor:
    """The debiased dual potential f_xy - f_xx on the points of x, for the cost ½‖x - y‖² at temperature blur²."""
    diameter = max(bounding_box_diameter(x.points, y.points), 2 * blur)
    temperatures = annealed_temperatures(diameter, blur, power=2, scaling=scaling)

    def potential(other: Measure) -> Tensor:
        cost = ground_cost(x.points.unsqueeze(0), other.points.unsqueeze(0), 0.5, 0.0)
        logs = x.weights.log().unsqueeze(0), other.weights.log().unsqueeze(0)
        return annealed_potentials(cost, temperatures, *logs).f.squeeze(0)

    return potential(y) - potential(x)


def calibrated_gradients(x: Measure, y: Measure, blur: float = 0.1**0.5) -> Tensor:
    """How the distance to y grows when mass moves to x_i: f_i - mean of the other f_j (LAVA, Just et al. 2023).

    f is a dual potential. The exact dual is not unique, and which one a solver gives decides the scores; the debiased
    entropic one is unique up to a constant and smooth. Large values are points that do not belong.
    """
    if len(x.points) < 2:
        raise UsageError("one point cannot be scored beside others: give at least 2")
    f = sinkhorn_potential(x, y, blur)
    others = (f.sum() - f) / (len(f) - 1)
    return f - others
