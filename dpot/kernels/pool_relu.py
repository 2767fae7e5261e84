"""Max-pooling, bias, ReLU and a factor by channel behind a convolution: a launch each way."""

# mypy: disable-error-code="no-untyped-def"
# Triton reads types off the arguments; only compile-time constants carry an annotation.

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, BLOCK_C = 32, 64  # cells and channels a program works on at once
PROGRAMS = 512  # at most, on the way back
LAST = torch.channels_last


def fused(x: Tensor, bias: Tensor, factor: Tensor | None, halves: bool = True) -> Tensor:
    """ReLU(max-pool by 2(x) + bias)·factor by our kernels, of images channels last; factor has no gradient.

    halves: what an odd edge leaves of a cell is one.
    """
    result: Tensor = _PoolReLU.apply(x, bias, factor, halves)
    return result


class _PoolReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, factor: Tensor | None, halves: bool) -> Tensor:
        count, channels, height, width = ctx.shape = x.shape
        rows, columns = ((side + halves) // 2 for side in (height, width))
        pooled, winner = (
            torch.empty((count, channels, rows, columns), dtype=dtype, device=x.device, memory_format=LAST)
            for dtype in (x.dtype, torch.int8)
        )
        ctx.total, ctx.covered = count * rows * columns, 2 * rows >= height and 2 * columns >= width
        ctx.sizes = {"HEIGHT": height, "WIDTH": width, "ROWS": rows, "COLUMNS": columns, "CHANNELS": channels}
        ctx.sizes |= {"FACTOR": factor is not None, "BLOCK": BLOCK, "BLOCK_C": BLOCK_C}
        grid = (-(-ctx.total // BLOCK), -(-channels // BLOCK_C))
        pool_relu_kernel[grid](x, bias, bias if factor is None else factor, pooled, winner, ctx.total, **ctx.sizes)
        ctx.save_for_backward(winner, factor)
        return pooled

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor, None, None]:
        winner, factor = ctx.saved_tensors
        slope, channels = slopes[0].contiguous(memory_format=LAST), ctx.shape[1]
        found = torch.empty(ctx.shape, dtype=slope.dtype, device=slope.device, memory_format=LAST)
        if not ctx.covered:
            found.zero_()  # at an odd edge that is in no cell
        blocks, groups = -(-ctx.total // BLOCK), -(-channels // BLOCK_C)
        programs = min(blocks, max(1, PROGRAMS // groups))
        partial = slope.new_empty(programs, channels)
        pool_relu_slope_kernel[programs, groups](
            slope, slope if factor is None else factor, winner, found, partial, ctx.total, -(-blocks // programs),
            **ctx.sizes,
        )  # fmt: skip
        return found, partial.sum(0), None, None


@triton.jit
def _cells(
    block, total, ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
    BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Of a block of pooled cells: number, image, first row and column of pixels, channels, and which of them exist."""
    cell = block * BLOCK + tl.arange(0, BLOCK)
    image = (cell // (ROWS * COLUMNS)).to(tl.int64)
    row = 2 * (cell % (ROWS * COLUMNS) // COLUMNS)
    column = 2 * (cell % COLUMNS)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    live = (cell < total)[:, None] & (channel < CHANNELS)[None, :]
    return cell.to(tl.int64), image, row, column, channel, live


@triton.jit
def pool_relu_kernel(
    x, bias, factor, pooled, winner, total,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHANNELS: tl.constexpr,
    FACTOR: tl.constexpr, BLOCK: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """pooled = max(0, the largest of a cell's pixels + bias)·factor; winner = which of the four it was, 4 for none.

    All are channels last; cells at an odd border are smaller. Of equal pixels the first wins, as in torch.
    """
    cell, image, row, column, channel, live = _cells(tl.program_id(0), total, ROWS, COLUMNS, CHANNELS, BLOCK, BLOCK_C)
    corner = ((image * HEIGHT + row) * WIDTH + column)[:, None] * CHANNELS + channel[None, :]
    best = tl.load(x + corner, mask=live, other=0.0)
    which = tl.zeros((BLOCK, BLOCK_C), tl.int32)
    for other in tl.static_range(1, 4):
        here = live & ((row + other // 2 < HEIGHT) & (column + other % 2 < WIDTH))[:, None]
        value = tl.load(x + corner + (other // 2 * WIDTH + other % 2) * CHANNELS, mask=here, other=float("-inf"))
        larger = (value > best) | (value != value)
        which = tl.where(larger, other, which)
        best = tl.where(larger, value, best)
    best += tl.load(bias + channel, mask=channel < CHANNELS, other=0.0)[None, :]
    which = tl.where(best <= 0, 4, which)
    best = tl.where(best <= 0, 0.0, best)  # NaN compares as neither, and so is passed on
    if FACTOR:
        best *= tl.load(factor + image[:, None] * CHANNELS + channel[None, :], mask=live, other=0.0)
    out = cell[:, None] * CHANNELS + channel[None, :]
    tl.store(pooled + out, best, mask=live)
    tl.store(winner + out, which.to(tl.int8), mask=live)


@triton.jit
def pool_relu_slope_kernel(
    slope, factor, winner, found, partial, total, steps,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHANNELS: tl.constexpr,
    FACTOR: tl.constexpr, BLOCK: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """found = the slope at each cell's winner, zero at its other pixels; partial[p] = their sum by channel.

    Pixels in no cell stay as they are.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    summed = tl.zeros((BLOCK, BLOCK_C), tl.float32)
    for step in range(steps):
        cell, image, row, column, channel, live = _cells(
            program + step * programs, total, ROWS, COLUMNS, CHANNELS, BLOCK, BLOCK_C
        )
        place = cell[:, None] * CHANNELS + channel[None, :]
        which = tl.load(winner + place, mask=live, other=4).to(tl.int32)
        gradient = tl.load(slope + place, mask=live & (which < 4), other=0.0)
        if FACTOR:
            gradient *= tl.load(factor + image[:, None] * CHANNELS + channel[None, :], mask=live, other=0.0)
        summed += gradient
        corner = ((image * HEIGHT + row) * WIDTH + column)[:, None] * CHANNELS + channel[None, :]
        for one in tl.static_range(4):
            here = live & ((row + one // 2 < HEIGHT) & (column + one % 2 < WIDTH))[:, None]
            place = corner + (one // 2 * WIDTH + one % 2) * CHANNELS
            tl.store(found + place, tl.where(which == one, gradient, 0.0), mask=here)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    tl.store(partial + program * CHANNELS + channel, tl.sum(summed, axis=0), mask=channel < CHANNELS)
