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
    return image[None, :], (inside // COLUMNS)[None, :], (inside % COLUMNS)[None, :], (flat < total)[None, :]


@triton.jit
def conv_pool_kernel(
    x, weight, bias, pooled, winner, total,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, PADDING: tl.constexpr, K: tl.constexpr, CHANNELS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHANNEL_STEP: tl.constexpr, CELL_STEP: tl.constexpr,
    BLOCK: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """pooled = max(0, the largest of the four convolutions of a cell); winner = which of them it was, 4 for none.

    The four share the (K+1)² pixels of the cell's neighbourhood, each of which is read once. Of equal ones the first
    wins, as in torch.
    """
    image, row, column, live = _places(tl.program_id(0) * BLOCK, total, BLOCK, ROWS, COLUMNS)
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
    # NaN compares as neither, and so is passed on
    tl.store(pooled + out, tl.where(best <= 0, 0.0, best), mask=mine & live)
    tl.store(winner + out, tl.where(best <= 0, 4, which).to(tl.int8), mask=mine & live)


@triton.jit
def conv_pool_gradient_kernel(
    x, slope, winner, partial, total, steps,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, PADDING: tl.constexpr, K: tl.constexpr, CHANNELS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHANNEL_STEP: tl.constexpr, CELL_STEP: tl.constexpr,
    BLOCK: tl.constexpr, TAPS: tl.constexpr,
):  # fmt: skip
    """partial[p, channel, :] = Σ slope·(window of the winner, then a 1 for the bias) over `steps` blocks of cells."""
    program, channel = tl.program_id(0), tl.program_id(1)
    tap = tl.arange(0, TAPS)[:, None]
    is_pixel = tap < K * K
    total_of = tl.zeros((TAPS, BLOCK), tl.float32)
    for step in range(steps):
        image, row, column, live = _places((program * steps + step) * BLOCK, total, BLOCK, ROWS, COLUMNS)
        cell = image * (CHANNELS * ROWS * COLUMNS) + channel * CHANNEL_STEP + (row * COLUMNS + column) * CELL_STEP
        which = tl.load(winner + cell, mask=live, other=4).to(tl.int32)
        won = live & (which < 4)
        gradient = tl.load(slope + cell, mask=won, other=0.0)
        down = 2 * row + which // 2 - PADDING + tap // K
        across = 2 * column + which % 2 - PADDING + tap % K
        here = won & is_pixel
        if PADDING:
            here = here & (down >= 0) & (down < HEIGHT) & (across >= 0) & (across < WIDTH)
        pixel = tl.load(x + image * (HEIGHT * WIDTH) + down * WIDTH + across, mask=here, other=0.0)
        total_of += gradient * tl.where(is_pixel, pixel, 1.0)
    out = partial + (program * CHANNELS + channel) * TAPS + tl.arange(0, TAPS)
    tl.store(out, tl.sum(total_of, axis=1))
