"""Device code of ReLU(max-pool(convolution)) on images of one channel, in Triton: a launch forwards, one backwards."""

# mypy: disable-error-code="no-untyped-def"
# Triton reads types off the arguments; only compile-time constants carry an annotation.

from __future__ import annotations

import triton
import triton.language as tl


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
