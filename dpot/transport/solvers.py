"""The three steps of a Sinkhorn loss in plain torch: ground cost, dual potentials, envelope gradient.

These are the twins of the launches in kernels/sinkhorn.py, with the same signatures: the default on the CPU, in double
precision and for more than 256 points. None builds the n×m×d tensor of differences. All take batches: points (B, n, d),
costs (B, n, m), potentials (B, n).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor


@lru_cache(maxsize=32)
def scaled_identity(size: int, weight: float, device: torch.device, dtype: torch.dtype) -> Tensor:
    """weight·I, made once: its rows are the labels of joint points."""
    with torch.inference_mode(False):
        return torch.eye(size, device=device, dtype=dtype) * weight


class Potentials(NamedTuple):
    """A dual solution before and after the last (extrapolation) step, and its value Σ a_i f_i + Σ b_j g_j."""

    value: Tensor
    f_before: Tensor
    g_before: Tensor
    f: Tensor
    g: Tensor


def ground_cost(x: Tensor, y: Tensor, l2: float, l1: float) -> Tensor:
    """C_ij = l2·‖x_i - y_j‖² + l1·‖x_i - y_j‖₁ (DP-Sinkhorn's mixed cost with l2 = 1 and l1 = m)."""
    if l2 == 0:
        return l1 * torch.cdist(x, y, p=1)
    # The squared distance comes from one product. Shifting both clouds changes no distance but keeps the squares
    # small, so that less is lost when they cancel (images scaled to [-1, 1] are mostly background at -1).
    centre = y.mean(-2, keepdim=True)
    x_centred, y_centred = x - centre, y - centre
    squares = x_centred.square().sum(-1)[..., :, None] + y_centred.square().sum(-1)[..., None, :]
    cost = torch.baddbmm(squares, x_centred, y_centred.mT, beta=l2, alpha=-2 * l2).clamp_(min=0)
    return cost if l1 == 0 else cost.add_(torch.cdist(x, y, p=1), alpha=l1)


def annealed_potentials(
    cost: Tensor, temperatures: Sequence[float], log_a: Tensor | None = None, log_b: Tensor | None = None
) -> Potentials:
    """Symmetrised log-domain Sinkhorn along a list of temperatures ε_1..ε_T (Feydy 2020, Algorithm 3.5).

    With softmin_ε(C, h)_i = -ε log Σ_j exp(h_j - C_ij/ε):
        start        f ← softmin_{ε_1}(C, log b),  g ← softmin_{ε_1}(C^T, log a)
        each ε_t     f ← ½(f + softmin_{ε_t}(C, log b + g/ε_t)) and the same for g, both from the old pair
        last         f, g ← the same at ε_T without averaging (extrapolation)
    No convergence test: the number of operations depends on shapes and T only. log_a, log_b (B, n) and (B, m) are log
    weights, both given or both None for uniform ones.
    """
    step = _paired_softmin(cost, log_a, log_b)
    n, m = cost.shape[-2:]
    zeros = cost.new_zeros(*cost.shape[:-2], max(n, m))
    f, g = step(temperatures[0], zeros[..., :n], zeros[..., :m])
    for epsilon in temperatures:
        f_new, g_new = step(epsilon, f, g)
        f, g = (f + f_new) / 2, (g + g_new) / 2
    f_last, g_last = step(temperatures[-1], f, g)
    return Potentials(_dual_value(f_last, g_last, log_a, log_b), f, g, f_last, g_last)


def converged_potentials(
    cost: Tensor,
    temperatures: Sequence[float],
    log_a: Tensor | None = None,
    log_b: Tensor | None = None,
    *,
    tolerance: float,
    max_iterations: int,
) -> tuple[Potentials, float]:
    """Alternating Sinkhorn at ε = temperatures[-1] until the marginals hold; returns the remaining error too.

    The annealed schedule is only the start. Then f ← softmin(C, log b + g/ε), g ← softmin(C^T, log a + f/ε) in turn:
    each step makes one marginal exact, and the L1 error of the other is tested every ten iterations (which reads a
    value back from the device, so this solver cannot be captured in a CUDA graph).
    """
    epsilon, transposed = temperatures[-1], cost.mT.contiguous()
    g = annealed_potentials(cost, temperatures, log_a, log_b).g
    b, error = _weights(log_b, g), math.inf
    for iteration in range(max_iterations):
        f = _softmin(epsilon, cost, g, log_b)
        g_before, g = g, _softmin(epsilon, transposed, f, log_a)
        if iteration % 10 == 0 or iteration == max_iterations - 1:
            # the plan at (f, g_before) has columns b·exp((g_before - g)/ε)
            error = float((b * torch.expm1((g_before - g) / epsilon)).abs().sum(-1).max())
            if error <= tolerance:
                break
    f_last = _softmin(epsilon, cost, g, log_b)
    return Potentials(_dual_value(f_last, g, log_a, log_b), f, g, f_last, g), error


def converged_self_potentials(
    cost: Tensor, temperatures: Sequence[float], log_a: Tensor | None, *, tolerance: float, max_iterations: int
) -> tuple[Potentials, float]:
    """The same for a cloud against itself, f ← ½(f + softmin(C, log a + f/ε)): one potential serves both sides.

    Alternating steps would need thousands of iterations here; the averaged ones halve the error each time, since the
    eigenvalues of the plan's kernel lie between 0 and 1 (Feydy 2020, Section 3.3.3).
    """
    epsilon = temperatures[-1]
    f = annealed_potentials(cost, temperatures, log_a, log_a).f
    a, error = _weights(log_a, f), math.inf
    for iteration in range(max_iterations):
        f_new = _softmin(epsilon, cost, f, log_a)
        if iteration % 10 == 0 or iteration == max_iterations - 1:
            error = float((a * torch.expm1((f - f_new) / epsilon)).abs().sum(-1).max())
            if error <= tolerance:
                break
        f = (f + f_new) / 2
    f_last = _softmin(epsilon, cost, f, log_a)
    return Potentials(_dual_value(f_last, f_last, log_a, log_a), f, f, f_last, f_last), error


def envelope_gradient(
    x: Tensor,
    y: Tensor,
    cost: Tensor,
    f: Tensor,
    g_before: Tensor,
    epsilon: float,
    l2: float,
    l1: float,
    log_a: Tensor | None,
    log_b: Tensor | None,
    slope: Tensor,
) -> Tensor:
    """slope·Σ_j P_ij ∇_x c(x_i, y_j), with the plan P held fixed (envelope theorem; Feydy 2020, Eqs. 3.226-227).

    P_ij = a_i b_j exp((f_i + g_j - C_ij)/ε) is the softmax inside the last softmin, so its rows sum to a_i, and
    ∇_x c = 2·l2·(x_i - y_j) + l1·sign(x_i - y_j). The gradient in y is the same call with both sides swapped.
    """
    exponent = (f.unsqueeze(-1) + (g_before.unsqueeze(-2) - cost)).mul_(1 / epsilon)
    if log_b is not None:
        exponent.add_(log_b.unsqueeze(-2))
    plan = exponent.exp_()
    # f is rounded at its own scale, which ε divides: dividing by the sum makes the rows right to the last digits
    plan.mul_((_weights(log_a, f) * slope.unsqueeze(-1) / plan.sum(-1)).unsqueeze(-1))
    gradient = torch.zeros_like(x)
    if l2 != 0:
        gradient = torch.baddbmm(x * plan.sum(-1, keepdim=True), plan, y, beta=2 * l2, alpha=-2 * l2)
    if l1 != 0:
        # The backward pass of cdist sums P_ij·sign(x_i - y_j) without an n×m×d tensor. Its last argument, the
        # distances, is not read for p = 1: any tensor of that shape does.
        plan = plan.contiguous()
        signs = torch.ops.aten._cdist_backward(plan, x.contiguous(), y.contiguous(), 1.0, plan)
        gradient.add_(signs, alpha=l1)
    return gradient


def _paired_softmin(
    cost: Tensor, log_a: Tensor | None, log_b: Tensor | None
) -> Callable[[float, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """(ε, f, g) ↦ (softmin_ε(C, log b + g/ε), softmin_ε(C^T, log a + f/ε))."""
    n, m = cost.shape[-2:]
    if n == m and log_a is None and log_b is None:
        both = torch.stack((cost, cost.mT))  # one call for both directions: half the operations to dispatch

        def stacked(epsilon: float, f: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
            f_new, g_new = _softmin(epsilon, both, torch.stack((g, f)), None)
            return f_new, g_new

        return stacked
    transposed = cost.mT.contiguous()

    def separate(epsilon: float, f: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        return _softmin(epsilon, cost, g, log_b), _softmin(epsilon, transposed, f, log_a)

    return separate


def _softmin(epsilon: float, cost: Tensor, potential: Tensor, log_weights: Tensor | None) -> Tensor:
    """-ε log Σ_j w_j exp((potential_j - cost_ij)/ε) over the last axis.

    The difference is taken before the division: where it matters both are close, so it is exact, while C/ε alone
    would be rounded at the scale of 1e4 to 1e5.
    """
    if log_weights is None:
        exponent = (potential.unsqueeze(-2) - cost).mul_(1 / epsilon)
        # log-softmax is one fused pass; any one of its entries gives back the log-sum-exp
        log_sum = exponent[..., 0] - torch.log_softmax(exponent, -1)[..., 0]
        return (log_sum - math.log(cost.shape[-1])) * -epsilon
    exponent = (potential.unsqueeze(-2) - cost).mul_(1 / epsilon).add_(log_weights.unsqueeze(-2))
    return torch.logsumexp(exponent, -1) * -epsilon


def _dual_value(f: Tensor, g: Tensor, log_a: Tensor | None, log_b: Tensor | None) -> Tensor:
    return (_weights(log_a, f) * f).sum(-1) + (_weights(log_b, g) * g).sum(-1)


def _weights(log_weights: Tensor | None, potential: Tensor) -> Tensor:
    return torch.full_like(potential, 1 / potential.shape[-1]) if log_weights is None else log_weights.exp()
