"""ReLU(batch norm), leaky or not: a launch for the sums and one for the values, each way, half of torch's passes.

As layers of torch they and the sums of gradients around them were 3.0 of the 6.7 ms of a step of the sketch's first
fit on an H200; here they are 1.4 of 5.1. Images lie channels last: `rows` pixels of all images, each with CHANNELS
numbers.
"""

# mypy: disable-error-code="no-untyped-def"
# Triton reads types off the arguments; only compile-time constants carry an annotation.

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

BLOCK, BLOCK_C = 64, 64  # pixels and channels a program works on at once
PROGRAMS = 1024  # how many add up
TILE = {"BLOCK": BLOCK, "BLOCK_C": BLOCK_C, "num_warps": 8}


def fused(x: Tensor, norm: nn.BatchNorm2d, leak: float = 0.0) -> tuple[Tensor, Tensor]:
    """The same by our kernels, for a norm in training with weights and running statistics, on images channels last."""
    moved = (norm.running_mean, norm.running_var, norm.num_batches_tracked)
    y, same = _NormReLU.apply(x, norm.weight, norm.bias, norm.eps, norm.momentum, leak, *moved)
    return y, same


class _NormReLU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, momentum: float, leak: float, *moved: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.rows, ctx.eps, ctx.leak = x.numel() // x.shape[1], eps, leak
        if ctx.rows < 2:
            raise ValueError(f"a batch norm needs more than one value per channel in training, got {tuple(x.shape)}")
        every, some, steps = _grids(ctx.rows, x.shape[1])
        partial = x.new_empty(2 * x.shape[1], some[0], dtype=torch.float32)
        sums_kernel[some](x, partial, ctx.rows, steps, CHANNELS=x.shape[1], **TILE)
        sums, y = partial.sum(1), torch.empty_like(x)
        norm_relu_kernel[every](
            x, y, sums, weight, bias, *moved, ctx.rows, eps, momentum, leak, CHANNELS=x.shape[1], **TILE
        )
        ctx.save_for_backward(x, sums, weight, bias)
        ctx.set_materialize_grads(False)
        return y, x

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor | None) -> tuple[Tensor | None, ...]:
        x, sums, weight, bias = ctx.saved_tensors
        slope, beside = (None if one is None else one.contiguous(memory_format=torch.channels_last) for one in slopes)
        if slope is None:
            return beside, *(None,) * 8
        channels = x.shape[1]
        every, some, steps = _grids(ctx.rows, channels)
        partial = x.new_empty(2 * channels, some[0], dtype=torch.float32)
        slope_sums_kernel[some](
            x, slope, sums, weight, bias, partial, ctx.rows, ctx.eps, ctx.leak, steps, CHANNELS=channels, **TILE
        )
        of_both, found = partial.sum(1), torch.empty_like(x)
        norm_relu_slope_kernel[every](
            x, slope, found if beside is None else beside, found, sums, of_both, weight, bias, ctx.rows, ctx.eps,
            ctx.leak, CHANNELS=channels, BESIDE=beside is not None, **TILE,
        )  # fmt: skip
        return found, of_both[channels:], of_both[:channels], *(None,) * 6


def _grids(rows: int, channels: int) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Programs for every tile; programs that share the tiles, and how many each takes."""
    blocks, groups = -(-rows // BLOCK), -(-channels // BLOCK_C)
    sharing = min(blocks, max(1, PROGRAMS // groups))
    return (blocks, groups), (sharing, groups), -(-blocks // sharing)


@triton.jit
def _tile(block, rows, CHANNELS: tl.constexpr, BLOCK: tl.constexpr, BLOCK_C: tl.constexpr):
    """Of a block of pixels: where their numbers lie, which of them exist, and the channels."""
    row = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    live = (row < rows)[:, None] & (channel < CHANNELS)[None, :]
    return row[:, None] * CHANNELS + channel[None, :], live, channel


@triton.jit
def _norm(x, sums, weight, bias, channel, rows, eps, CHANNELS: tl.constexpr):
    """By channel: mean and variance, 1/deviation, weight and bias. sums are of the distances from the first pixel."""
    mine = channel < CHANNELS
    distance = tl.load(sums + channel, mask=mine, other=0.0) / rows
    square = tl.load(sums + CHANNELS + channel, mask=mine, other=0.0) / rows
    mean = tl.load(x + channel, mask=mine, other=0.0).to(tl.float32) + distance
    # of equal numbers rounding may leave less than nothing; NaN compares as neither, and so is passed on
    variance = square - distance * distance
    variance = tl.where(variance < 0, 0.0, variance)
    scale, offset = tl.load(weight + channel, mask=mine, other=0.0), tl.load(bias + channel, mask=mine, other=0.0)
    return mean, variance, 1 / tl.sqrt(variance + eps), scale, offset


@triton.jit
def sums_kernel(
    x, partial, rows, steps,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """partial[:, p] = Σ d and Σ d² over every p-th block of pixels, d the distance from the first pixel of all."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    total = tl.zeros((BLOCK, BLOCK_C), tl.float32)
    squares = tl.zeros((BLOCK, BLOCK_C), tl.float32)
    for step in range(steps):
        place, live, channel = _tile(program + step * programs, rows, CHANNELS, BLOCK, BLOCK_C)
        first = tl.load(x + channel, mask=channel < CHANNELS, other=0.0).to(tl.float32)
        distance = tl.load(x + place, mask=live, other=0.0).to(tl.float32) - first[None, :]
        distance = tl.where(live, distance, 0.0)
        total += distance
        squares += distance * distance
    _keep(partial, total, squares, CHANNELS, BLOCK_C)


@triton.jit
def _keep(partial, first, second, CHANNELS: tl.constexpr, BLOCK_C: tl.constexpr):
    """What the programs found for a channel lies side by side: it is added up faster than a column is."""
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    programs = tl.num_programs(0)
    out = partial + channel * programs + tl.program_id(0)
    tl.store(out, tl.sum(first, axis=0), mask=channel < CHANNELS)
    tl.store(out + CHANNELS * programs, tl.sum(second, axis=0), mask=channel < CHANNELS)


@triton.jit
def norm_relu_kernel(
    x, y, sums, weight, bias, running_mean, running_variance, batches, rows, eps, momentum, leak,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """y = z or leak·z below zero, z = weight·(x − mean)/deviation + bias; the first program moves mean and variance."""
    place, live, channel = _tile(tl.program_id(0), rows, CHANNELS, BLOCK, BLOCK_C)
    mean, variance, inverse, scale, offset = _norm(x, sums, weight, bias, channel, rows, eps, CHANNELS)
    if tl.program_id(0) == 0:
        mine = channel < CHANNELS
        before = tl.load(running_mean + channel, mask=mine, other=0.0)
        tl.store(running_mean + channel, before + momentum * (mean - before), mask=mine)
        before = tl.load(running_variance + channel, mask=mine, other=0.0)
        unbiased = variance * (rows / (rows - 1))
        tl.store(running_variance + channel, before + momentum * (unbiased - before), mask=mine)
        if tl.program_id(1) == 0:
            tl.store(batches, tl.load(batches) + 1)
    value = tl.load(x + place, mask=live, other=0.0).to(tl.float32)
    value = (value - mean[None, :]) * inverse[None, :] * scale[None, :] + offset[None, :]
    tl.store(y + place, tl.where(value <= 0, leak * value, value).to(y.dtype.element_ty), mask=live)


@triton.jit
def _slope(x, slope, place, live, mean, inverse, scale, offset, leak):
    """Of a tile: the normalised values, and the slopes behind the ReLU."""
    value = tl.load(x + place, mask=live, other=0.0).to(tl.float32)
    normal = (value - mean[None, :]) * inverse[None, :]
    gradient = tl.load(slope + place, mask=live, other=0.0).to(tl.float32)
    shut = normal * scale[None, :] + offset[None, :] <= 0
    return tl.where(live, normal, 0.0), tl.where(shut, leak * gradient, gradient)


@triton.jit
def slope_sums_kernel(
    x, slope, sums, weight, bias, partial, rows, eps, leak, steps,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """partial[:, p] = Σ slope and Σ slope·normalised over every p-th block of pixels: gradients of bias and weight."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    mean, _, inverse, scale, offset = _norm(x, sums, weight, bias, channel, rows, eps, CHANNELS)
    of_bias = tl.zeros((BLOCK, BLOCK_C), tl.float32)
    of_weight = tl.zeros((BLOCK, BLOCK_C), tl.float32)
    for step in range(steps):
        place, live, channel = _tile(program + step * programs, rows, CHANNELS, BLOCK, BLOCK_C)
        normal, gradient = _slope(x, slope, place, live, mean, inverse, scale, offset, leak)
        of_bias += gradient
        of_weight += gradient * normal
    _keep(partial, of_bias, of_weight, CHANNELS, BLOCK_C)


@triton.jit
def norm_relu_slope_kernel(
    x, slope, beside, found, sums, slope_sums, weight, bias, rows, eps, leak,
    CHANNELS: tl.constexpr, BESIDE: tl.constexpr, BLOCK: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """found = the gradient of x, plus the one that came past the norm where there is one."""
    place, live, channel = _tile(tl.program_id(0), rows, CHANNELS, BLOCK, BLOCK_C)
    mean, _, inverse, scale, offset = _norm(x, sums, weight, bias, channel, rows, eps, CHANNELS)
    mine = channel < CHANNELS
    of_bias = tl.load(slope_sums + channel, mask=mine, other=0.0) / rows
    of_weight = tl.load(slope_sums + CHANNELS + channel, mask=mine, other=0.0) / rows
    normal, gradient = _slope(x, slope, place, live, mean, inverse, scale, offset, leak)
    gradient = (scale * inverse)[None, :] * (gradient - of_bias[None, :] - normal * of_weight[None, :])
    if BESIDE:
        gradient += tl.load(beside + place, mask=live, other=0.0).to(tl.float32)
    tl.store(found + place, gradient.to(found.dtype.element_ty), mask=live)
