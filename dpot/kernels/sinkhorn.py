"""The Sinkhorn loss of small problems: costs, all annealed steps and the envelope gradient, a launch each.

One program solves one problem: all annealed iterations happen inside a single launch. Up to 64×128 the cost matrix
stays in registers; up to 256×256 it is read row tile by row tile from the cache. Softmins subtract the smallest entry
before the division by ε, f = min_j z_j - ε log Σ_j exp((min z - z_j)/ε) with z_j = C_ij - g_j - ε log b_j, which keeps
the digits that C/ε would lose in single precision. Padding carries the log weight -1e30: finite, so that no inf - inf
can arise, and heavy enough that its exponential is zero. Signatures are those of the twins in transport/solvers.py.
"""

# mypy: disable-error-code="no-untyped-def"
# Triton reads types off the arguments; only compile-time constants carry an annotation.

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from dpot.kernels import device_constants

TILE = 8192  # entries of the cost matrix that 16 warps hold in registers (compiled for sm_90: 126 of 128, no spill)
ENTRIES = 512  # of them, that a warp holds
POINTS = {"BLOCK_I": 8, "BLOCK_J": 16, "BLOCK_D": 64, "num_warps": 4}  # of a tile of costs, and of gradients


def ground_cost(x: Tensor, y: Tensor, l2: float, l1: float) -> Tensor:
    """C_ij = l2·‖x_i - y_j‖² + l1·‖x_i - y_j‖₁ by differences, without the n×m×d tensor."""
    x, y = _rows_contiguous(x), _rows_contiguous(y)
    (batch, n, d), m = x.shape, y.shape[1]
    cost = x.new_empty(batch, n, m)
    ground_cost_kernel[_tiles(n, POINTS["BLOCK_I"]), _tiles(m, POINTS["BLOCK_J"]), batch](
        x, y, cost, x.stride(0), y.stride(0), n, m, d, float(l2), float(l1), **POINTS
    )
    return cost


def annealed_potentials(
    cost: Tensor, temperatures: Sequence[float], log_a: Tensor | None = None, log_b: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Value and potentials before and after the last step, in the order of solvers.Potentials; one launch for all."""
    cost = cost.contiguous()
    batch, n, m = cost.shape
    # the start shares the first temperature: (ε_1, ε_1, ε_2, .., ε_T)
    schedule = device_constants((temperatures[0], *temperatures), cost.device, torch.float32)
    value = cost.new_empty(batch)
    f_before, f = cost.new_empty(batch, n), cost.new_empty(batch, n)
    g_before, g = cost.new_empty(batch, m), cost.new_empty(batch, m)
    weighted = log_a is not None and log_b is not None
    arguments = (
        cost, schedule, log_a.contiguous() if log_a is not None else cost,
        log_b.contiguous() if log_b is not None else cost, value, f_before, g_before, f, g,
        schedule.numel(), n, m, -math.log(n), -math.log(m), weighted,
    )  # fmt: skip
    rows, columns = _block(n), _block(m)
    if rows * columns <= TILE:
        warps = max(4, rows * columns // ENTRIES)
        annealed_resident_kernel[batch,](*arguments, rows, columns, num_warps=warps)
    else:
        f_before.zero_()  # from where it starts
        annealed_streamed_kernel[batch,](*arguments, TILE // columns, columns, num_warps=16)
    return value, f_before, g_before, f, g


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
    """slope·Σ_j P_ij ∇_x c(x_i, y_j), the plan recomputed tile by tile."""
    x, y = _rows_contiguous(x), _rows_contiguous(y)
    (batch, n, d), m = x.shape, y.shape[1]
    gradient = torch.empty_like(x, memory_format=torch.contiguous_format)
    weighted = log_a is not None and log_b is not None
    envelope_gradient_kernel[_tiles(n, POINTS["BLOCK_I"]), _tiles(d, POINTS["BLOCK_D"]), batch](
        x, y, cost, f, g_before,
        log_a.contiguous() if log_a is not None else cost, log_b.contiguous() if log_b is not None else cost,
        slope, gradient,
        x.stride(0), y.stride(0), cost.stride(1), cost.stride(2), slope.stride(0), n, m, d,
        float(epsilon), float(l2), float(l1), -math.log(n), -math.log(m), weighted, **POINTS,
    )  # fmt: skip
    return gradient


def _rows_contiguous(points: Tensor) -> Tensor:
    """The points with contiguous rows; a batch that repeats one cloud (stride 0) is left as it is."""
    return points if points.stride()[1:] == (points.shape[2], 1) else points.contiguous()


def _tiles(size: int, block: int) -> int:
    return -(-size // block)


def _block(size: int) -> int:
    """The power of two that holds `size` points, at least 16."""
    return max(16, 1 << (size - 1).bit_length())


@triton.jit
def ground_cost_kernel(
    x, y, cost, x_batch, y_batch, n, m, d, l2, l1,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """cost[b, i, j] = Σ_k l2·(x_ik - y_jk)² + l1·|x_ik - y_jk|, one (i, j) tile per program."""
    b = tl.program_id(2)
    i = tl.program_id(0) * BLOCK_I + tl.arange(0, BLOCK_I)
    j = tl.program_id(1) * BLOCK_J + tl.arange(0, BLOCK_J)
    # a three-dimensional accumulator, summed over its last axis once at the end rather than at every step
    total = tl.zeros((BLOCK_I, BLOCK_J, BLOCK_D), tl.float32)
    for start in range(0, d, BLOCK_D):
        k = start + tl.arange(0, BLOCK_D)
        x_tile = tl.load(
            x + b * x_batch + i[:, None] * d + k[None, :], mask=(i < n)[:, None] & (k < d)[None, :], other=0.0
        )
        y_tile = tl.load(
            y + b * y_batch + j[:, None] * d + k[None, :], mask=(j < m)[:, None] & (k < d)[None, :], other=0.0
        )
        difference = x_tile[:, None, :] - y_tile[None, :, :]
        total += l2 * difference * difference + l1 * tl.abs(difference)
    inside = (i < n)[:, None] & (j < m)[None, :]
    tl.store(cost + b * n * m + i[:, None] * m + j[None, :], tl.sum(total, axis=2), mask=inside)


@triton.jit
def _log_weights(log_weights, index, count, uniform, WEIGHTED: tl.constexpr):
    """Log weights of the points `index`: loaded, or the same for all; -1e30 beyond the last point."""
    if WEIGHTED:
        loaded = tl.load(log_weights + index, mask=index < count, other=-1e30)
        result = tl.maximum(loaded, -1e30)
    else:
        result = tl.where(index < count, uniform, -1e30)
    return result


@triton.jit
def _softmin_rows(cost, shift, epsilon):
    """-ε log Σ_j exp((shift_j - cost_ij)/ε)."""
    z = cost - shift[None, :]
    low = tl.min(z, axis=1)
    scale = 1.4426950408889634 / epsilon  # log2(e)/ε: the hardware's exponential has base 2
    return low - epsilon * tl.log(tl.sum(tl.exp2((low[:, None] - z) * scale), axis=1))


@triton.jit
def _softmin_columns(cost, shift, epsilon):
    """-ε log Σ_i exp((shift_i - cost_ij)/ε)."""
    z = cost - shift[:, None]
    low = tl.min(z, axis=0)
    scale = 1.4426950408889634 / epsilon
    return low - epsilon * tl.log(tl.sum(tl.exp2((low[None, :] - z) * scale), axis=0))


@triton.jit
def annealed_resident_kernel(
    cost, temperatures, log_a, log_b, value, f_before, g_before, f_last, g_last,
    steps, n, m, uniform_a, uniform_b,
    WEIGHTED: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """All steps of one problem with its cost matrix in registers; temperatures = (ε_1, ε_1, ε_2, .., ε_T)."""
    b = tl.program_id(0)
    i = tl.arange(0, BLOCK_N)
    j = tl.arange(0, BLOCK_M)
    inside = (i < n)[:, None] & (j < m)[None, :]
    c = tl.load(cost + b * n * m + i[:, None] * m + j[None, :], mask=inside, other=0.0)
    weight_a = _log_weights(log_a + b * n, i, n, uniform_a, WEIGHTED)
    weight_b = _log_weights(log_b + b * m, j, m, uniform_b, WEIGHTED)
    epsilon = tl.load(temperatures)
    f = _softmin_rows(c, epsilon * weight_b, epsilon)
    g = _softmin_columns(c, epsilon * weight_a, epsilon)
    for t in range(1, steps):
        epsilon = tl.load(temperatures + t)
        f_new = _softmin_rows(c, g + epsilon * weight_b, epsilon)
        g_new = _softmin_columns(c, f + epsilon * weight_a, epsilon)
        f = 0.5 * (f + f_new)
        g = 0.5 * (g + g_new)
    epsilon = tl.load(temperatures + steps - 1)
    f_new = _softmin_rows(c, g + epsilon * weight_b, epsilon)
    g_new = _softmin_columns(c, f + epsilon * weight_a, epsilon)
    tl.store(f_before + b * n + i, f, mask=i < n)
    tl.store(g_before + b * m + j, g, mask=j < m)
    tl.store(f_last + b * n + i, f_new, mask=i < n)
    tl.store(g_last + b * m + j, g_new, mask=j < m)
    total = tl.sum(tl.exp(weight_a) * f_new, axis=0) + tl.sum(tl.exp(weight_b) * g_new, axis=0)
    tl.store(value + b, total)


@triton.jit
def _sweep(
    cost, log_a, f_read, f_write, shift, epsilon, keep, n, m, uniform_a,
    WEIGHTED: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """One step over all row tiles: writes keep·f + (1 - keep)·softmin to f_write, returns the column softmin.

    Whole rows lie in a tile, columns do not: their minimum and sum are carried from tile to tile and rescaled.
    """
    j = tl.arange(0, BLOCK_M)
    scale = 1.4426950408889634 / epsilon
    low = tl.full((BLOCK_M,), 1e38, tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, n, BLOCK_I):
        i = start + tl.arange(0, BLOCK_I)
        inside = (i < n)[:, None] & (j < m)[None, :]
        c = tl.load(cost + i[:, None] * m + j[None, :], mask=inside, other=0.0)
        f = tl.load(f_read + i, mask=i < n, other=0.0)
        f_new = _softmin_rows(c, shift, epsilon)
        tl.store(f_write + i, keep * f + (1.0 - keep) * f_new, mask=i < n)
        z = c - (f + epsilon * _log_weights(log_a, i, n, uniform_a, WEIGHTED))[:, None]
        lower = tl.minimum(low, tl.min(z, axis=0))
        total = total * tl.exp2((lower - low) * scale)
        total += tl.sum(tl.exp2((lower[None, :] - z) * scale), axis=0)
        low = lower
    # the next sweep reads potentials that other threads of this program have just written
    tl.debug_barrier()
    return low - epsilon * tl.log(total)


@triton.jit
def annealed_streamed_kernel(
    cost, temperatures, log_a, log_b, value, f_before, g_before, f_last, g_last,
    steps, n, m, uniform_a, uniform_b,
    WEIGHTED: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """All steps of one problem whose cost matrix does not fit in registers; f_before starts at zero."""
    b = tl.program_id(0)
    cost += b * n * m
    log_a += b * n
    f_before += b * n
    f_last += b * n
    j = tl.arange(0, BLOCK_M)
    weight_b = _log_weights(log_b + b * m, j, m, uniform_b, WEIGHTED)
    epsilon = tl.load(temperatures)
    g = _sweep(
        cost, log_a, f_before, f_before, epsilon * weight_b, epsilon, 0.0, n, m, uniform_a,
        WEIGHTED, BLOCK_I, BLOCK_M,
    )  # fmt: skip
    for t in range(1, steps):
        epsilon = tl.load(temperatures + t)
        g_new = _sweep(
            cost, log_a, f_before, f_before, g + epsilon * weight_b, epsilon, 0.5, n, m, uniform_a,
            WEIGHTED, BLOCK_I, BLOCK_M,
        )  # fmt: skip
        g = 0.5 * (g + g_new)
    epsilon = tl.load(temperatures + steps - 1)
    g_new = _sweep(
        cost, log_a, f_before, f_last, g + epsilon * weight_b, epsilon, 0.0, n, m, uniform_a,
        WEIGHTED, BLOCK_I, BLOCK_M,
    )  # fmt: skip
    tl.store(g_before + b * m + j, g, mask=j < m)
    tl.store(g_last + b * m + j, g_new, mask=j < m)
    total = tl.sum(tl.exp(weight_b) * g_new, axis=0)
    for start in range(0, n, BLOCK_I):
        i = start + tl.arange(0, BLOCK_I)
        f = tl.load(f_last + i, mask=i < n, other=0.0)
        total += tl.sum(tl.exp(_log_weights(log_a, i, n, uniform_a, WEIGHTED)) * f, axis=0)
    tl.store(value + b, total)


@triton.jit
def envelope_gradient_kernel(
    x, y, cost, f, g, log_a, log_b, slope, gradient,
    x_batch, y_batch, cost_i, cost_j, slope_batch, n, m, d, epsilon, l2, l1, uniform_a, uniform_b,
    WEIGHTED: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """gradient[b, i, k] = slope_b Σ_j P_ij (2·l2·(x_ik - y_jk) + l1·sign(x_ik - y_jk)), one (i, k) tile per program."""
    b = tl.program_id(2)
    i = tl.program_id(0) * BLOCK_I + tl.arange(0, BLOCK_I)
    k = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    tile = (i < n)[:, None] & (k < d)[None, :]
    x_tile = tl.load(x + b * x_batch + i[:, None] * d + k[None, :], mask=tile, other=0.0)
    f_tile = tl.load(f + b * n + i, mask=i < n, other=0.0)
    total = tl.zeros((BLOCK_I, BLOCK_J, BLOCK_D), tl.float32)
    mass = tl.zeros((BLOCK_I, BLOCK_J), tl.float32)
    for start in range(0, m, BLOCK_J):
        j = start + tl.arange(0, BLOCK_J)
        inside = (i < n)[:, None] & (j < m)[None, :]
        c = tl.load(cost + b * n * m + i[:, None] * cost_i + j[None, :] * cost_j, mask=inside, other=0.0)
        g_tile = tl.load(g + b * m + j, mask=j < m, other=0.0)
        weight_b = _log_weights(log_b + b * m, j, m, uniform_b, WEIGHTED)
        exponent = (f_tile[:, None] + (g_tile[None, :] - c)) / epsilon + weight_b[None, :]
        plan = tl.where(inside, tl.exp(exponent), 0.0)
        mass += plan
        y_tile = tl.load(
            y + b * y_batch + j[:, None] * d + k[None, :], mask=(j < m)[:, None] & (k < d)[None, :], other=0.0
        )
        difference = x_tile[:, None, :] - y_tile[None, :, :]
        sign = tl.where(difference > 0, 1.0, tl.where(difference < 0, -1.0, 0.0))
        total += plan[:, :, None] * (2.0 * l2 * difference + l1 * sign)
    weight_a = _log_weights(log_a + b * n, i, n, uniform_a, WEIGHTED)
    # f is rounded at its own scale, which ε divides: dividing by the sum makes the rows right to the last digits
    scale = tl.exp(weight_a) * tl.load(slope + b * slope_batch) / tl.sum(mass, axis=1)
    result = tl.sum(total, axis=1) * scale[:, None]
    tl.store(gradient + b * n * d + i[:, None] * d + k[None, :], result, mask=tile)
