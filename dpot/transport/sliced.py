"""Sliced Wasserstein distances: project on k directions, sort, compare.

For empirical measures μ = Σ a_i δ_{x_i}, ν = Σ b_j δ_{y_j} and directions u_1..u_k,

    SW_q^q(μ, ν) = (1/k) Σ_l W_q^q(u_l#μ, u_l#ν),   W_q^q(μ', ν') = ∫_0^1 |F_μ'^{-1}(t) - F_ν'^{-1}(t)|^q dt

(Bonneel et al. 2015; DP-SWD). Projections are kept as (k, n), one direction per row, so that the sort runs along
contiguous memory: a sort along the first axis of an (n, k) matrix first transposes it, twice.

Equal sizes without weights take one product, one sort per side and one difference; value and gradient come out of
the same pass and a side that needs no gradient gets none. On a GPU rows of up to 512 points are sorted, compared and
scattered back in a single kernel (kernels/sliced.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dpot import kernels
from dpot.errors import UsageError
from dpot.transport.checks import check_order, check_pair, normalised_weights

KERNEL_LIMIT = 512  # points a row; a bitonic network needs log² n rounds, and at 1000 a radix sort wins on an H200


def project(x: Tensor, directions: Tensor) -> Tensor:
    """Projections ⟨u_l, x_i⟩ of x (n, d) as (k, n), or of x (classes, n, d) as (k, classes, n)."""
    if directions.ndim != 2 or directions.shape[-1] != x.shape[-1]:
        raise UsageError(
            f"directions {tuple(directions.shape)} do not fit points of dimension {x.shape[-1]}: give (k, d)"
        )
    flat = x.reshape(-1, x.shape[-1])
    return (directions @ flat.T).view(directions.shape[0], *x.shape[:-1])


def noisy_projections(x: Tensor, directions: Tensor, sigma: float, generator: torch.Generator) -> Tensor:
    """XU + σV of `project`'s shape, V of independent standard normal entries: a product that starts from the noise.

    For the side that is not private: V has single precision, and nothing is accounted.
    """
    flat = x.reshape(-1, x.shape[-1])
    noise = directions.new_empty(directions.shape[0], flat.shape[0]).normal_(0.0, sigma, generator=generator)
    return noise.addmm_(directions, flat.T).view(directions.shape[0], *x.shape[:-1])


def wasserstein_1d(
    x: Tensor, y: Tensor, q: float = 2.0, x_weights: Tensor | None = None, y_weights: Tensor | None = None
) -> Tensor:
    """W_q^q of one-dimensional measures along the last axis: (..., n) against (..., m) gives (...).

    Equal sizes, no weights: (1/n) Σ_i |x_(i) - y_(i)|^q on the order statistics; d/dx_(i) is
    (q/n) |x_(i) - y_(i)|^{q-1} sign(x_(i) - y_(i)), scattered back through the sorting permutation.
    Otherwise the quantile functions are merged (Peyré & Cuturi 2019, Remark 2.30). Weights are scaled to sum to 1;
    they are (n,) or have the shape of the values.
    """
    check_order(q)
    if x.shape[:-1] != y.shape[:-1]:
        raise UsageError(f"x {tuple(x.shape)} and y {tuple(y.shape)} may differ in their last axis only")
    if x.shape[-1] == 0 or y.shape[-1] == 0:
        raise UsageError("a measure without points has no Wasserstein distance: give at least one point")
    if x_weights is None and y_weights is None and x.shape[-1] == y.shape[-1]:
        return _EqualSizes.apply(x, y, float(q))
    return _merged_quantiles(x, y, q, x_weights, y_weights)


def sliced_wasserstein_power(
    x: Tensor,
    y: Tensor,
    directions: Tensor,
    q: float = 2.0,
    x_weights: Tensor | None = None,
    y_weights: Tensor | None = None,
) -> Tensor:
    """SW_q^q between x and y along the given directions (k, d): the mean over directions of W_q^q.

    Clouds (n, d), (m, d) give a scalar. Clouds (classes, n, d), (classes, m, d) give one value per class, with one
    product and one sort for all classes together. It is q-th power, smooth where the distance is not: use it as loss.
    """
    return _per_direction(x, y, directions, q, x_weights, y_weights).mean(0)


def sliced_wasserstein(
    x: Tensor,
    y: Tensor,
    directions: Tensor,
    q: float = 2.0,
    x_weights: Tensor | None = None,
    y_weights: Tensor | None = None,
) -> Tensor:
    """SW_q = (SW_q^q)^{1/q}, a distance; its gradient at equality is defined as zero."""
    return _root(sliced_wasserstein_power(x, y, directions, q, x_weights, y_weights), q)


def gaussian_smoothed_sliced_wasserstein_power(
    x: Tensor,
    y: Tensor,
    directions: Tensor,
    sigma: float,
    q: float = 2.0,
    noise: tuple[Tensor, Tensor] | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """G_σSW_q^q: the sliced distance between noisy projections XU + σV and YU + σV' (DP-SWD, Algorithm 1).

    V, V' have independent standard normal entries. They are `noise`, a pair shaped like the projections, (k, n) and
    (k, m), or are drawn here with `generator`. In expectation over V this compares the projected laws convolved with
    N(0, σ²). Nothing is accounted here: which side is private, and the ε of it, is the caller's business.
    """
    if sigma < 0:
        raise UsageError(f"sigma={sigma} must not be negative")
    check_pair(x, y)
    projected_x, projected_y = project(x, directions), project(y, directions)
    if noise is None:
        noise = (
            torch.empty_like(projected_x).normal_(generator=generator),
            torch.empty_like(projected_y).normal_(generator=generator),
        )
    for drawn, projected in zip(noise, (projected_x, projected_y), strict=True):
        if drawn.shape != projected.shape:
            raise UsageError(f"noise {tuple(drawn.shape)} must be shaped as projections {tuple(projected.shape)}")
    noisy_x = torch.add(projected_x, noise[0], alpha=sigma)
    noisy_y = torch.add(projected_y, noise[1], alpha=sigma)
    return wasserstein_1d(noisy_x, noisy_y, q).mean(0)


def max_sliced_wasserstein(x: Tensor, y: Tensor, directions: Tensor, q: float = 2.0) -> Tensor:
    """max_l W_q(u_l#μ, u_l#ν) over the given directions (Deshpande et al. 2019)."""
    return _root(_per_direction(x, y, directions, q, None, None).amax(0), q)


def steepest_direction(x: Tensor, y: Tensor, directions: Tensor, q: float = 2.0, steps: int = 20) -> Tensor:
    """A direction (1, d) that locally maximises W_q^q: the best of `directions`, improved by gradient ascent.

    Each step moves to the normalised gradient, u ← ∇/‖∇‖ with ∇ = ∂W_q^q(u#μ, u#ν)/∂u; for q = 2 and a fixed
    matching that is a power iteration. The matching changes along the way, so the value may fall, and the best
    iterate is kept: a heuristic for max-sliced Wasserstein (Deshpande et al. 2019), not a certified maximum.
    """
    x, y = x.detach(), y.detach()
    values = _per_direction(x, y, directions, q, None, None)
    best = directions[values.argmax().view(1)]
    best_value, current = values.max(), best
    for _ in range(steps):
        with torch.enable_grad():
            current = current.detach().requires_grad_()
            value = _per_direction(x, y, current, q, None, None).sum()
            (slope,) = torch.autograd.grad(value, current)
        current = torch.nn.functional.normalize(slope, dim=-1)
        value = _per_direction(x, y, current, q, None, None).sum()
        best = torch.where(value > best_value, current, best)
        best_value = torch.maximum(value, best_value)
    return best.detach()


def projected_wasserstein_power(x: Tensor, y: Tensor, directions: Tensor, q: float = 2.0) -> Tensor:
    """PW_q^q: couplings sorted along each direction, costed in the full space (Rowland et al. 2019).

    (1/(k n)) Σ_l Σ_i ‖x_{σ_l(i)} - y_{τ_l(i)}‖^q for equal sizes, where σ_l, τ_l sort the projections on u_l. Each
    coupling is admissible, so SW_q ≤ W_q ≤ PW_q.
    """
    check_order(q)
    check_pair(x, y, dims=(2,))
    if x.shape != y.shape:
        raise UsageError(f"projected Wasserstein needs equal sizes, not {x.shape[0]} and {y.shape[0]} points")
    distances = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    order_x = project(x.detach(), directions).argsort(-1)
    order_y = project(y.detach(), directions).argsort(-1)
    return distances[order_x, order_y].pow(q).mean()


def _per_direction(
    x: Tensor, y: Tensor, directions: Tensor, q: float, x_weights: Tensor | None, y_weights: Tensor | None
) -> Tensor:
    check_pair(x, y)
    if x_weights is not None:
        x_weights = normalised_weights(x_weights, x, "x_weights")
    if y_weights is not None:
        y_weights = normalised_weights(y_weights, y, "y_weights")
    return wasserstein_1d(project(x, directions), project(y, directions), q, x_weights, y_weights)


def _root(power: Tensor, q: float) -> Tensor:
    if q == 1:
        return power
    positive = power > 0
    return torch.where(positive, torch.where(positive, power, 1.0) ** (1 / q), 0.0)


def fits_kernel(x: Tensor, y: Tensor) -> bool:
    """Whether the fused sort takes these rows (..., n)."""
    return kernels.run_on(x) and x.dtype == torch.float32 and x.shape == y.shape and x.shape[-1] <= KERNEL_LIMIT


class _EqualSizes(torch.autograd.Function):
    """Rows of n against rows of n: value and both gradients in one pass, nothing kept but the gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, q: float) -> Tensor:
        needs_x, needs_y = ctx.needs_input_grad[:2]
        way = kernels.sliced.sorted_difference if fits_kernel(x, y) else sorted_difference
        value, grad_x, grad_y = way(x, y, q, needs_x, needs_y)
        ctx.save_for_backward(grad_x, grad_y)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        grad_x, grad_y = ctx.saved_tensors
        slope = slope.unsqueeze(-1)
        return (
            None if grad_x is None else grad_x * slope,
            None if grad_y is None else grad_y * slope,
            None,
        )


def sorted_difference(
    x: Tensor, y: Tensor, q: float, needs_x: bool, needs_y: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """W_q^q per row in plain torch, and its gradients where they are asked for."""
    n = x.shape[-1]
    sorted_x, order_x = _sorted(x, needs_x)
    sorted_y, order_y = _sorted(y, needs_y)
    difference = sorted_x.sub_(sorted_y)
    if q == 2:
        value = difference.square().mean(-1)
    else:
        value = torch.linalg.vector_norm(difference, q, dim=-1) ** q / n
    if not (needs_x or needs_y):
        return value, None, None
    if q == 1:
        slope = difference.sign_().div_(n)
    elif q == 2:
        slope = difference.mul_(2 / n)
    else:
        slope = difference.abs().pow_(q - 1).mul_(difference.sign_()).mul_(q / n)
    grad_x = torch.empty_like(x).scatter_(-1, order_x, slope) if needs_x else None
    grad_y = torch.empty_like(y).scatter_(-1, order_y, slope.neg()) if needs_y else None
    return value, grad_x, grad_y


def _sorted(values: Tensor, needs_order: bool) -> tuple[Tensor, Tensor]:
    """Values sorted along the last axis, and their order where it is needed."""
    if needs_order or values.device.type != "cpu" or values.element_size() < 4:
        return torch.sort(values, -1)
    # torch always sorts pairs of value and index; numpy sorts values alone, several times as fast
    return torch.from_numpy(np.sort(values.numpy(), axis=-1)), values.new_empty(0, dtype=torch.long)


def _merged_quantiles(x: Tensor, y: Tensor, q: float, x_weights: Tensor | None, y_weights: Tensor | None) -> Tensor:
    """∫|F_x^{-1} - F_y^{-1}|^q on the union of both sides' jump levels; n + m pieces, some of length zero."""
    n, m = x.shape[-1], y.shape[-1]
    sorted_x, order_x = x.sort(-1)
    sorted_y, order_y = y.sort(-1)
    if x_weights is None and y_weights is None:
        # the levels i/n and j/m in units of 1/(nm): exact integers, the same for every row
        levels_x = torch.arange(1, n + 1, device=x.device) * m
        levels_y = torch.arange(1, m + 1, device=x.device) * n
        levels = torch.cat((levels_x, levels_y)).sort().values
        length = torch.diff(levels, prepend=levels.new_zeros(1)).to(x.dtype) / (n * m)
        quantile_x = sorted_x.index_select(-1, torch.searchsorted(levels_x, levels))
        quantile_y = sorted_y.index_select(-1, torch.searchsorted(levels_y, levels))
    else:
        cumulated_x = _cumulated(x_weights, order_x, x)
        cumulated_y = _cumulated(y_weights, order_y, y)
        merged = torch.cat((cumulated_x, cumulated_y), -1).sort(-1).values
        length = torch.diff(merged, prepend=torch.zeros_like(merged[..., :1]))
        at_x = torch.searchsorted(cumulated_x.detach(), merged.detach()).clamp_(max=n - 1)
        at_y = torch.searchsorted(cumulated_y.detach(), merged.detach()).clamp_(max=m - 1)
        quantile_x, quantile_y = sorted_x.gather(-1, at_x), sorted_y.gather(-1, at_y)
    difference = (quantile_x - quantile_y).abs()
    return (length * (difference if q == 1 else difference**q)).sum(-1)


def _cumulated(weights: Tensor | None, order: Tensor, values: Tensor) -> Tensor:
    """Cumulated weights in sorted order, ending at 1 exactly so that rounding leaves no sliver unmatched."""
    if weights is None:
        n = values.shape[-1]
        levels = torch.arange(1, n + 1, device=values.device, dtype=values.dtype) / n
        return levels.expand(values.shape).contiguous()
    cumulated = weights.expand(values.shape).gather(-1, order).cumsum(-1)
    return cumulated / cumulated[..., -1:]
