"""Entropic transport costs and Sinkhorn divergences, with the gradient in envelope form.

    W_ε(μ, ν) = min_P ⟨P, C⟩ + ε KL(P | a⊗b) = max_{f,g} Σ a_i f_i + Σ b_j g_j   (at the optimum)

on the cost C_ij = l2·‖x_i - y_j‖² + l1·‖x_i - y_j‖₁. Two ways to solve it, as a value of `schedule`:

- a list of temperatures, `annealed_temperatures(...)`: the fixed number of symmetrised steps that DP-Sinkhorn takes.
  Its plan is far from converged, and that is the method: the loss is the dual value after those steps.
- `Converged(epsilon)`: as many steps as the marginals need.

Conventions. DP-Sinkhorn's cost is l2 = 1, l1 = m, with ε = blur^power, power 1 on digits and 2 on CelebA. geomloss'
own cost for p = 2 is ½‖x - y‖²: give l2 = ½, power = 2 to match `SamplesLoss("sinkhorn", p=2)`. The diameter from
which annealing starts is a number given by the caller: for privacy, and to capture the loss in a CUDA graph, it must
not be read from the data. `bounding_box_diameter` measures it where that is allowed, as geomloss does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dpot import kernels
from dpot.errors import UsageError
from dpot.transport import solvers
from dpot.transport.checks import check_pair, normalised_weights


@dataclass(frozen=True)
class Converged:
    """Solve at temperature ε until the marginals' L1 error is at most `tolerance` (float32 reaches about 1e-4).

    It reads the error back from the device: not for CUDA graphs. Annealing, from the largest cost, only speeds up the
    start.
    """

    epsilon: float
    tolerance: float = 1e-6
    max_iterations: int = 10_000


Schedule = Sequence[float] | Converged
KERNEL_LIMIT = 256  # points a side; above, large matrix operations fill a GPU by themselves


def annealed_temperatures(diameter: float, blur: float, power: float = 1.0, scaling: float = 0.5) -> tuple[float, ...]:
    """ε-scaling: D^p, then D^p·s^{p·i} for i = 0, 1, .. while above blur^p, then blur^p (Feydy 2020, Section 3.3.3).

    The diameter appears twice, as in geomloss. DP-Sinkhorn on MNIST: D ≤ √(4·784 + 15²·10) = 73.4, blur .05, power 1
    give 13 temperatures; CelebA with blur 5, power 2 gives 7.
    """
    for name, value in (("diameter", diameter), ("blur", blur), ("power", power)):
        if not (0 < value < math.inf):
            raise UsageError(f"{name}={value} must be positive and finite")
    if not 0 < scaling < 1:
        raise UsageError(f"scaling={scaling} must lie strictly between 0 and 1")
    start, stop, step = (power * math.log(value) for value in (diameter, blur, scaling))
    count = max(0, math.ceil((stop - start) / step))
    return (diameter**power, *(math.exp(start + i * step) for i in range(count)), blur**power)


def bounding_box_diameter(x: Tensor, y: Tensor) -> float:
    """Length of the diagonal of the smallest box that holds both clouds. Reads the data: see the module's note."""
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        raise UsageError("the diameter cannot be measured inside a CUDA graph: give it as a number")
    clouds = torch.cat((x.detach().flatten(0, -2), y.detach().flatten(0, -2)))
    return float((clouds.amax(0) - clouds.amin(0)).norm())


def joint_points(images: Tensor, labels: Tensor, classes: int, weight: float = 15.0) -> Tensor:
    """[x, w·onehot(label)]: images flattened, labels joined to them in the cost (DP-Sinkhorn, w = 15)."""
    if labels.shape != images.shape[:1]:
        raise UsageError(f"labels {tuple(labels.shape)} must hold one label for each of {images.shape[0]} images")
    one_hot = solvers.scaled_identity(classes, weight, labels.device, images.dtype).index_select(0, labels)
    return torch.cat((images.flatten(1), one_hot), 1)


def sinkhorn_cost(
    x: Tensor,
    y: Tensor,
    schedule: Schedule,
    l2: float = 1.0,
    l1: float = 0.0,
    x_weights: Tensor | None = None,
    y_weights: Tensor | None = None,
) -> Tensor:
    """W_ε(x, y) = Σ a_i f_i + Σ b_j g_j: DP-Sinkhorn's loss without debiasing.

    (n, d) and (m, d) give a scalar, (batch, n, d) and (batch, m, d) one value each, solved together. The gradient
    holds the plan of the last step fixed: ∂W/∂x_i = Σ_j P_ij ∇_x c(x_i, y_j). Weights default to uniform and are
    scaled to sum to 1; a point of weight 0 takes no part, which pads batches of varying size to a fixed one.
    """
    check_pair(x, y)
    _check_schedule(schedule)
    if l2 < 0 or l1 < 0 or l2 + l1 == 0:
        raise UsageError(f"the cost needs non-negative weights, one of them positive, not l2={l2}, l1={l1}")
    log_a = log_b = None
    if x_weights is not None or y_weights is not None:
        log_a = _log_weights(x_weights, x, "x_weights")
        log_b = _log_weights(y_weights, y, "y_weights")
    itself = x is y and x_weights is y_weights
    if x.ndim == 3:
        return _EnvelopeCost.apply(x, y, log_a, log_b, schedule, float(l2), float(l1), itself)
    if log_a is not None and log_b is not None:
        log_a, log_b = log_a.unsqueeze(0), log_b.unsqueeze(0)
    batch = (x.unsqueeze(0), y.unsqueeze(0), log_a, log_b)
    return _EnvelopeCost.apply(*batch, schedule, float(l2), float(l1), itself).squeeze(0)


def sinkhorn_divergence(x: Tensor, y: Tensor, schedule: Schedule, l2: float = 1.0, l1: float = 0.0) -> Tensor:
    """Debiased S_ε(x, y) = W_ε(x, y) - ½W_ε(x, x) - ½W_ε(y, y) (Feydy et al. 2019); zero at equality.

    As in geomloss. The form 2W(x, y) - W(x, x) - W(y, y) of DP-Sinkhorn (after Genevay et al. 2018) is twice this.
    """
    return _combine(((x, y, 1.0), (x, x, -0.5), (y, y, -0.5)), schedule, l2, l1)


def fresh_rows(n: int, fraction: float) -> int:
    """How many rows a semi-debiased batch of n draws afresh: ⌊p·n⌋, as DP-Sinkhorn's code rounds."""
    if not 0 <= fraction <= 1:
        raise UsageError(f"the debiasing fraction p={fraction} must lie between 0 and 1")
    return int(fraction * n)


def semi_debiased_sinkhorn(
    generated: Tensor,
    fresh: Tensor | None,
    real: Tensor,
    schedule: Schedule,
    l2: float = 1.0,
    l1: float = 0.0,
) -> Tensor:
    """2·W_ε(X, Y) - W_ε(X, X'), X' the last n rows of [X; fresh] (DP-Sinkhorn, semi-debiased loss).

    X is the generated batch of n, `fresh` holds n' = p·n rows generated again (`fresh_rows`; None for p = 0): X' keeps
    n - n' rows of X. p = 1 makes X' independent of X, unbiased but noisy; p = 0 compares X with itself. The term
    W(Y, Y) of the full loss does not depend on the generator and is left out, and W(X, X') touches no real row: only
    the gradient of 2·W(X, Y), `sinkhorn_cost(X, Y)` on its own, needs sanitising.
    """
    renewed = 0 if fresh is None else fresh.shape[0]
    if renewed > generated.shape[0]:
        raise UsageError(f"{renewed} fresh rows for a batch of {generated.shape[0]}: at most as many as generated")
    partner = generated if fresh is None else torch.cat((generated[renewed:], fresh))
    return _combine(((generated, real, 2.0), (generated, partner, -1.0)), schedule, l2, l1)


def padded_debiased(
    points: Tensor,
    count: int,
    real: Tensor,
    schedule: Sequence[float],
    l2: float = 1.0,
    l1: float = 0.0,
    padding: Tensor | None = None,
    log_weights: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """2·W_ε(X, Y) - W_ε(X, X') as `semi_debiased_sinkhorn` has it, both problems solved together, annealed.

    points: X, that is `count` rows, and the fresh rows; X' is the last `count` of them. padding: rows that bring X' to
    the size of Y. log_weights: of X in both problems, (2, count), and of Y and X', (2, rows of Y), normalised; needed
    where there is padding, whose weight is 0.
    """
    extra = 0 if padding is None else len(padding)
    if len(real) != count + extra or (extra and log_weights is None):
        raise UsageError(f"{len(real)} real rows: give {len(real) - count} rows of padding, and weights")
    loss: Tensor = _PaddedDebiased.apply(points, count, real, padding, log_weights, schedule, float(l2), float(l1))
    return loss


def _combine(terms: Sequence[tuple[Tensor, Tensor, float]], schedule: Schedule, l2: float, l1: float) -> Tensor:
    """Σ coefficient·W(x, y); annealed problems of one shape go in one batch, that is in one launch on a GPU."""
    for x, y, _ in terms:
        check_pair(x, y, dims=(2,))
    if len({(x.shape, y.shape) for x, y, _ in terms}) == 1 and not isinstance(schedule, Converged):
        x = torch.stack([x for x, _, _ in terms])
        y = torch.stack([y for _, y, _ in terms])
        coefficients = kernels.device_constants(tuple(c for _, _, c in terms), x.device, x.dtype)
        return sinkhorn_cost(x, y, schedule, l2, l1) @ coefficients
    return torch.stack([c * sinkhorn_cost(x, y, schedule, l2, l1) for x, y, c in terms]).sum()


def fits_kernel(x: Tensor, y: Tensor) -> bool:
    """Whether the fused Sinkhorn takes these clouds (B, n, d), (B, m, d)."""
    return kernels.run_on(x) and x.dtype == torch.float32 and max(x.shape[-2], y.shape[-2]) <= KERNEL_LIMIT


class _EnvelopeCost(torch.autograd.Function):
    """Dual value of a batch of problems; backward differentiates the cost under the plan of the last step."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        y: Tensor,
        log_a: Tensor | None,
        log_b: Tensor | None,
        schedule: Schedule,
        l2: float,
        l1: float,
        itself: bool,
    ) -> Tensor:
        ways = kernels.sinkhorn if fits_kernel(x, y) and not isinstance(schedule, Converged) else solvers
        cost = ways.ground_cost(x, y, l2, l1)
        if isinstance(schedule, Converged):
            solution = _converge(cost, schedule, log_a, log_b, itself)
            epsilon = schedule.epsilon
        else:
            solution = ways.annealed_potentials(cost, schedule, log_a, log_b)
            epsilon = schedule[-1]
        value, *potentials = solution
        ctx.save_for_backward(x, y, log_a, log_b, cost, *potentials)
        ctx.ways, ctx.constants = ways, (epsilon, l2, l1)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, y, log_a, log_b, cost, f_before, g_before, f, g = ctx.saved_tensors
        gradient = ctx.ways.envelope_gradient
        grad_x = grad_y = None
        if ctx.needs_input_grad[0]:
            grad_x = gradient(x, y, cost, f, g_before, *ctx.constants, log_a, log_b, slope)
        if ctx.needs_input_grad[1]:
            grad_y = gradient(y, x, cost.mT, g, f_before, *ctx.constants, log_b, log_a, slope)
        return grad_x, grad_y, *(None,) * 6


class _PaddedDebiased(torch.autograd.Function):
    """Backward asks for the gradients that are used: of the left points, and of X' alone of the right ones."""

    @staticmethod
    def forward(
        ctx: Any,
        points: Tensor,
        count: int,
        real: Tensor,
        padding: Tensor | None,
        log_weights: tuple[Tensor, Tensor] | None,
        schedule: Sequence[float],
        l2: float,
        l1: float,
    ) -> Tensor:
        x = points[:count].expand(2, count, -1)
        right = [real, points[-count:]] if padding is None else [real, points[-count:], padding]
        y = torch.cat(right).view(2, len(real), -1)
        ways = kernels.sinkhorn if fits_kernel(x, y) else solvers
        cost = ways.ground_cost(x, y, l2, l1)
        log_a, log_b = log_weights or (None, None)
        value, *potentials = ways.annealed_potentials(cost, schedule, log_a, log_b)
        ctx.save_for_backward(x, y, log_a, log_b, cost, *potentials)
        ctx.ways, ctx.constants, ctx.renewed = ways, (schedule[-1], l2, l1), len(points) - count
        return value @ _twice_less_once(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, y, log_a, log_b, cost, f_before, g_before, f, g = ctx.saved_tensors
        count, slopes = x.shape[1], slope * _twice_less_once(x)
        left = ctx.ways.envelope_gradient(x, y, cost, f, g_before, *ctx.constants, log_a, log_b, slopes)
        if ctx.renewed:
            again = slice(1, None), slice(None, count)  # X' in its problem
            own = None if log_a is None else log_a[1:]
            others = None if log_b is None else log_b[again]
            (right,) = ctx.ways.envelope_gradient(
                y[again], x[1:], cost.mT[again], g[again], f_before[1:], *ctx.constants, others, own, slopes[1:]
            )
        else:  # X' is X, and its plan symmetric
            right = left[1]
        kept = count - ctx.renewed  # rows of X that X' begins with
        gradient = torch.cat([left[0] + left[1], right[kept:]])
        gradient[ctx.renewed : count].add_(right[:kept])
        return gradient, *(None,) * 7


def _twice_less_once(like: Tensor) -> Tensor:
    return kernels.device_constants((2.0, -1.0), like.device, like.dtype)


def _converge(
    cost: Tensor, rule: Converged, log_a: Tensor | None, log_b: Tensor | None, itself: bool
) -> solvers.Potentials:
    temperatures = annealed_temperatures(max(float(cost.max()), rule.epsilon), rule.epsilon)
    limits: dict[str, Any] = {"tolerance": rule.tolerance, "max_iterations": rule.max_iterations}
    if itself:
        solution, error = solvers.converged_self_potentials(cost, temperatures, log_a, **limits)
    else:
        solution, error = solvers.converged_potentials(cost, temperatures, log_a, log_b, **limits)
    if not error <= rule.tolerance:
        raise UsageError(
            f"Sinkhorn stopped after {rule.max_iterations} iterations with marginal error {error:.1e} > "
            f"{rule.tolerance:.1e}: raise epsilon, tolerance or max_iterations"
        )
    return solution


def _check_schedule(schedule: Schedule) -> None:
    temperatures = (schedule.epsilon,) if isinstance(schedule, Converged) else tuple(schedule)
    if not temperatures or not all(0 < epsilon < math.inf for epsilon in temperatures):
        raise UsageError(f"temperatures must be positive and at least one, not {temperatures}")


def _log_weights(weights: Tensor | None, points: Tensor, name: str) -> Tensor:
    shape = points.shape[:-1]
    if weights is None:
        return points.new_full(shape, -math.log(points.shape[-2]))
    return normalised_weights(weights.detach(), points, name).log().to(points.dtype).expand(shape)
