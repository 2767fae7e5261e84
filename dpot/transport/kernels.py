"""Launching the Triton kernels: which problems they take, block sizes, and nothing else.

Each function here has a plain-torch twin of the same signature in solvers.py (Sinkhorn) or sliced.py (sorting), which
is used on the CPU, in double precision, for larger problems and where Triton is not installed. Importing this module
needs neither Triton nor a GPU. All launches have fixed shapes and read nothing back, so they can be captured in a CUDA
graph, provided one call of the same shape went before (it compiles, and fills the cache of temperatures).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from dpot.precision import has_triton
from dpot.transport.solvers import Potentials, device_constants

SINKHORN_LIMIT = 256  # points a side; above, the twin's large matrix operations fill the GPU by themselves
TILE = 8192  # entries of the cost matrix that 16 warps hold in registers (compiled for sm_90: 126 of 128, no spill)
ENTRIES = 512  # of them, that a warp holds
POINTS = {"BLOCK_I": 8, "BLOCK_J": 16, "BLOCK_D": 64, "num_warps": 4}  # of a tile of costs, and of gradients
SORT_LIMIT = 512  # points a row; a bitonic network needs log² n rounds, and at 1000 a radix sort wins on an H200


def fits_sinkhorn(x: Tensor, y: Tensor) -> bool:
    """Whether the fused Sinkhorn takes these clouds (B, n, d), (B, m, d)."""
    small = max(x.shape[-2], y.shape[-2]) <= SINKHORN_LIMIT
    return x.is_cuda and x.dtype == torch.float32 and small and has_triton()


def fits_sort(x: Tensor, y: Tensor) -> bool:
    """Whether the fused sort takes these rows (..., n)."""
    return x.is_cuda and x.dtype == torch.float32 and x.shape == y.shape and x.shape[-1] <= SORT_LIMIT and has_triton()


def ground_cost(x: Tensor, y: Tensor, l2: float, l1: float) -> Tensor:
    """C_ij = l2·‖x_i - y_j‖² + l1·‖x_i - y_j‖₁ by differences, without the n×m×d tensor (twin: solvers.ground_cost)."""
    from dpot.transport.triton_sinkhorn import ground_cost_kernel

    x, y = _rows_contiguous(x), _rows_contiguous(y)
    (batch, n, d), m = x.shape, y.shape[1]
    cost = x.new_empty(batch, n, m)
    ground_cost_kernel[_tiles(n, POINTS["BLOCK_I"]), _tiles(m, POINTS["BLOCK_J"]), batch](
        x, y, cost, x.stride(0), y.stride(0), n, m, d, float(l2), float(l1), **POINTS
    )
    return cost


def annealed_potentials(
    cost: Tensor, temperatures: Sequence[float], log_a: Tensor | None = None, log_b: Tensor | None = None
) -> Potentials:
    """Every step of the annealed Sinkhorn in one launch (twin: solvers.annealed_potentials)."""
    from dpot.transport.triton_sinkhorn import annealed_resident_kernel, annealed_streamed_kernel

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
    return Potentials(value, f_before, g_before, f, g)


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
    """slope·Σ_j P_ij ∇_x c(x_i, y_j), the plan recomputed tile by tile (twin: solvers.envelope_gradient)."""
    from dpot.transport.triton_sinkhorn import envelope_gradient_kernel

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


def sorted_difference(
    x: Tensor, y: Tensor, q: float, needs_x: bool, needs_y: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """W_q^q per row and its gradients, one program per row (twin: sliced.sorted_difference)."""
    from dpot.transport.triton_sliced import sorted_difference_kernel

    x, y = x.contiguous(), y.contiguous()
    n = x.shape[-1]
    value = x.new_empty(x.shape[:-1])
    grad_x = torch.empty_like(x) if needs_x else None
    grad_y = torch.empty_like(y) if needs_y else None
    block = _block(n)
    sorted_difference_kernel[value.numel(),](
        x, y, value, x if grad_x is None else grad_x, y if grad_y is None else grad_y, n, float(q), 1 / n,
        int(q) if q in (1, 2) else 0, needs_x, needs_y, block, num_warps=max(1, min(8, block // 128)),
    )  # fmt: skip
    return value, grad_x, grad_y


def _rows_contiguous(points: Tensor) -> Tensor:
    """The points with contiguous rows; a batch that repeats one cloud (stride 0) is left as it is."""
    return points if points.stride()[1:] == (points.shape[2], 1) else points.contiguous()


def _tiles(size: int, block: int) -> int:
    return -(-size // block)


def _block(size: int) -> int:
    """The power of two that holds `size` points, at least 16."""
    return max(16, 1 << (size - 1).bit_length())
