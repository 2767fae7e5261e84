"""ReLU(max-pool(convolution)) of images of one channel, channels dropped: a launch forwards, one backwards.

A convolution of one channel is too thin for the library's tensor cores, and its output, four times as large as what
the pooling leaves of it, goes through memory for bias, pooling, ReLU and all of them again on the way back. Here it
never exists: only the pooled values do, and which of four each one was. The gradient with respect to the images is not
made.
"""

# mypy: disable-error-code="no-untyped-def"
# Triton reads types off the arguments; only compile-time constants carry an annotation.

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, BLOCK_C = 128, 8  # cells and channels a program works on at once
BLOCK_BACK, BLOCK_C_BACK = 64, 32  # and on the way back,
PROGRAMS = 256  # where so many at most share the cells
LAST = torch.channels_last


def fused(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    factor: Tensor | None = None,
    padding: int = 0,
    channels_last: bool = False,
) -> Tensor:
    """ReLU(max-pool by 2(convolution))·factor, with gradients for weight and bias; factor is (N, channels, 1, 1)."""
    result: Tensor = _ConvPool.apply(x.contiguous(), weight, bias, factor, padding, channels_last)
    return result


class _ConvPool(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, factor: Tensor | None, padding: int, channels_last: bool
    ) -> Tensor:
        ctx.layout = LAST if channels_last else torch.contiguous_format
        ctx.sizes = _sizes(x, weight, padding)
        shape = (len(x), ctx.sizes["CHANNELS"], ctx.sizes["ROWS"], ctx.sizes["COLUMNS"])
        pooled, winner = (
            torch.empty(shape, dtype=dtype, device=x.device, memory_format=ctx.layout)
            for dtype in (x.dtype, torch.int8)
        )
        ctx.sizes |= {"CHANNEL_STEP": pooled.stride(1), "CELL_STEP": pooled.stride(3), "FACTOR": factor is not None}
        ctx.total = len(x) * shape[2] * shape[3]
        grid = (_blocks(ctx.total, BLOCK), _blocks(shape[1], BLOCK_C))
        conv_pool_kernel[grid](
            x, weight.contiguous(), bias, bias if factor is None else factor, pooled, winner, ctx.total,
            **ctx.sizes, BLOCK=BLOCK, BLOCK_C=BLOCK_C,
        )  # fmt: skip
        ctx.save_for_backward(x, winner, factor)
        return pooled

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[None, Tensor, Tensor, None, None, None]:
        x, winner, factor = ctx.saved_tensors
        slope, channels, kernel = slopes[0].contiguous(memory_format=ctx.layout), ctx.sizes["CHANNELS"], ctx.sizes["K"]
        pixels = max(16, 1 << ((kernel + 1) ** 2 - 1).bit_length())  # a power of two; 16 make a matrix
        blocks = _blocks(ctx.total, BLOCK_BACK)
        programs = min(blocks, PROGRAMS)
        partial = x.new_empty(programs * 4, channels, kernel * kernel + 1)
        conv_pool_gradient_kernel[programs, _blocks(channels, BLOCK_C_BACK)](
            x, slope, slope if factor is None else factor, winner, partial, ctx.total, _blocks(blocks, programs),
            **ctx.sizes, BLOCK=BLOCK_BACK, BLOCK_C=BLOCK_C_BACK, PIXELS=pixels,
        )  # fmt: skip
        found = partial.sum(0)
        of_weight = found[:, :-1].reshape(channels, 1, kernel, kernel)
        return None, of_weight, found[:, -1].clone(), None, None, None


def _sizes(x: Tensor, weight: Tensor, padding: int) -> dict[str, int]:
    """What the kernels are compiled for."""
    (_, _, height, width), (channels, _, kernel, _) = x.shape, weight.shape
    rows, columns = ((side + 2 * padding - kernel + 1) // 2 for side in (height, width))
    sizes = {"HEIGHT": height, "WIDTH": width, "PADDING": padding, "K": kernel, "CHANNELS": channels}
    return sizes | {"ROWS": rows, "COLUMNS": columns}


def _blocks(n: int, size: int) -> int:
    return -(-n // size)


@triton.jit
def _places(first, total, BLOCK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Of BLOCK pooled positions of all images in a row: image, row and column, and whether they exist."""
    flat = first + tl.arange(0, BLOCK)
    inside = flat % (ROWS * COLUMNS)
    image = (flat // (ROWS * COLUMNS)).to(tl.int64)
    return image, inside // COLUMNS, inside % COLUMNS, flat < total


@triton.jit
def conv_pool_kernel(
    x, weight, bias, factor, pooled, winner, total,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, PADDING: tl.constexpr, K: tl.constexpr, CHANNELS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHANNEL_STEP: tl.constexpr, CELL_STEP: tl.constexpr,
    FACTOR: tl.constexpr, BLOCK: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """pooled = max(0, the largest of a cell's four convolutions)·factor; winner = which of them it was, 4 for none.

    The four share the (K+1)² pixels of the cell's neighbourhood, each of which is read once. Of equal ones the first
    wins, as in torch.
    """
    image, row, column, live = _places(tl.program_id(0) * BLOCK, total, BLOCK, ROWS, COLUMNS)
    image, row, column, live = image[None, :], row[None, :], column[None, :], live[None, :]
    channel = (tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C))[:, None]
    mine = channel < CHANNELS
    top, left = 2 * row - PADDING, 2 * column - PADDING
    corner = x + image * (HEIGHT * WIDTH) + top * WIDTH + left
    filters = weight + channel * (K * K)
    upper_left = tl.zeros((BLOCK_C, BLOCK), tl.float32)
    upper_right = tl.zeros((BLOCK_C, BLOCK), tl.float32)
    lower_left = tl.zeros((BLOCK_C, BLOCK), tl.float32)
    lower_right = tl.zeros((BLOCK_C, BLOCK), tl.float32)
    for i in tl.static_range(K + 1):
        for j in tl.static_range(K + 1):
            here = live
            if PADDING:  # without it a window never leaves the image
                here = here & (top + i >= 0) & (top + i < HEIGHT) & (left + j >= 0) & (left + j < WIDTH)
            pixel = tl.load(corner + i * WIDTH + j, mask=here, other=0.0)
            if i < K and j < K:
                upper_left += tl.load(filters + i * K + j, mask=mine, other=0.0) * pixel
            if i < K and j > 0:
                upper_right += tl.load(filters + i * K + j - 1, mask=mine, other=0.0) * pixel
            if i > 0 and j < K:
                lower_left += tl.load(filters + (i - 1) * K + j, mask=mine, other=0.0) * pixel
            if i > 0 and j > 0:
                lower_right += tl.load(filters + (i - 1) * K + j - 1, mask=mine, other=0.0) * pixel
    best = upper_left
    which = tl.zeros((BLOCK_C, BLOCK), tl.int32)
    which = tl.where(upper_right > best, 1, which)
    best = tl.where(upper_right > best, upper_right, best)
    which = tl.where(lower_left > best, 2, which)
    best = tl.where(lower_left > best, lower_left, best)
    which = tl.where(lower_right > best, 3, which)
    best = tl.where(lower_right > best, lower_right, best) + tl.load(bias + channel, mask=mine, other=0.0)
    out = image * (CHANNELS * ROWS * COLUMNS) + channel * CHANNEL_STEP + (row * COLUMNS + column) * CELL_STEP
    tl.store(winner + out, tl.where(best <= 0, 4, which).to(tl.int8), mask=mine & live)
    best = tl.where(best <= 0, 0.0, best)  # NaN compares as neither, and so is passed on
    if FACTOR:
        best *= tl.load(factor + image * CHANNELS + channel, mask=mine & live, other=0.0)
    tl.store(pooled + out, best, mask=mine & live)


@triton.jit
def conv_pool_gradient_kernel(
    x, slope, factor, winner, partial, total, steps,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, PADDING: tl.constexpr, K: tl.constexpr, CHANNELS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHANNEL_STEP: tl.constexpr, CELL_STEP: tl.constexpr,
    FACTOR: tl.constexpr, BLOCK: tl.constexpr, BLOCK_C: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """partial[p, w, channel, :] = Σ slope·(window w of the cell, then a 1 for the bias) over the cells where w won.

    All the biases' share is put with the first window. The slopes of many channels are read at once, and a cell's
    (K+1)² pixels once for its four windows: the sums are products of two matrices, one for each window.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    channel = (tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C))[None, :]
    pixel = tl.arange(0, PIXELS)[None, :]
    across, down = pixel % (K + 1), pixel // (K + 1)
    upper_left = tl.zeros((BLOCK_C, PIXELS), tl.float32)
    upper_right = tl.zeros((BLOCK_C, PIXELS), tl.float32)
    lower_left = tl.zeros((BLOCK_C, PIXELS), tl.float32)
    lower_right = tl.zeros((BLOCK_C, PIXELS), tl.float32)
    of_bias = tl.zeros((BLOCK, BLOCK_C), tl.float32)
    for step in range(steps):
        image, row, column, live = _places((program + step * programs) * BLOCK, total, BLOCK, ROWS, COLUMNS)
        image, row, column, live = image[:, None], row[:, None], column[:, None], live[:, None]
        cell = image * (CHANNELS * ROWS * COLUMNS) + channel * CHANNEL_STEP + (row * COLUMNS + column) * CELL_STEP
        mine = live & (channel < CHANNELS)
        which = tl.load(winner + cell, mask=mine, other=4).to(tl.int32)
        gradient = tl.load(slope + cell, mask=mine & (which < 4), other=0.0)
        if FACTOR:
            gradient *= tl.load(factor + image * CHANNELS + channel, mask=mine, other=0.0)
        of_bias += gradient
        top, left = 2 * row - PADDING, 2 * column - PADDING
        here = live & (down <= K)
        if PADDING:
            here = here & (top + down >= 0) & (top + down < HEIGHT) & (left + across >= 0) & (left + across < WIDTH)
        seen = tl.load(x + image * (HEIGHT * WIDTH) + (top + down) * WIDTH + left + across, mask=here, other=0.0)
        upper_left = _won(which, 0, gradient, seen, upper_left)
        upper_right = _won(which, 1, gradient, seen, upper_right)
        lower_left = _won(which, 2, gradient, seen, lower_left)
        lower_right = _won(which, 3, gradient, seen, lower_right)
    _keep(partial, program, 0, upper_left, K, CHANNELS, BLOCK_C, PIXELS)
    _keep(partial, program, 1, upper_right, K, CHANNELS, BLOCK_C, PIXELS)
    _keep(partial, program, 2, lower_left, K, CHANNELS, BLOCK_C, PIXELS)
    _keep(partial, program, 3, lower_right, K, CHANNELS, BLOCK_C, PIXELS)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    biases = tl.sum(of_bias, axis=0)
    for window in tl.static_range(4):
        place = ((program * 4 + window) * CHANNELS + channel) * (K * K + 1) + K * K
        tl.store(partial + place, biases if window == 0 else tl.zeros_like(biases), mask=channel < CHANNELS)


@triton.jit
def _won(which, window: tl.constexpr, gradient, seen, found):
    """Add the slopes of cells that this window won, times the pixels seen there."""
    return tl.dot(tl.trans(tl.where(which == window, gradient, 0.0)), seen, found, input_precision="tf32x3")


@triton.jit
def _keep(
    partial, program, window: tl.constexpr, found, K: tl.constexpr, CHANNELS: tl.constexpr, BLOCK_C: tl.constexpr,
    PIXELS: tl.constexpr,
):  # fmt: skip
    """Of a cell's pixels those in the window, at the places of the weights they were multiplied with."""
    channel = (tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C))[:, None]
    pixel = tl.arange(0, PIXELS)[None, :]
    i, j = pixel // (K + 1) - window // 2, pixel % (K + 1) - window % 2
    inside = (i >= 0) & (i < K) & (j >= 0) & (j < K)
    place = ((program * 4 + window) * CHANNELS + channel) * (K * K + 1) + i * K + j
    tl.store(partial + place, found, mask=inside & (channel < CHANNELS))
