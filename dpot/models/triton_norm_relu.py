"""Device code of ReLU(batch norm), leaky or not, in Triton: a launch for the sums and one for the values, each way.

Images lie channels last: `rows` pixels of all images, each with CHANNELS numbers.
"""

# mypy: disable-error-code="no-untyped-def"
# Triton reads types off the arguments; only compile-time constants carry an annotation.

from __future__ import annotations

import triton
import triton.language as tl


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
