"""The weight gradient of a convolution, one for each image: over all its copies and positions at once.

    g[i, o, c, y, x] = Σ_copies Σ_positions slope[position, o]·input[position + (y, x), c]

An ordinary weight gradient is one sum over the batch, which libraries do well. One for each image is a matrix product
of two tall matrices with a row for every copy and position, whose second one would have to be written out nine times
for a kernel of 3×3. Here it is read where it lies: a program has one image, one row of the kernel and a tile of the
channels, and keeps the sums of that row's taps side by side. Sums of several programs for one image are added up
afterwards, so that the result does not depend on which of them is first.
"""

# mypy: disable-error-code="no-untyped-def"
# Triton reads types off the arguments; only compile-time constants carry an annotation.

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

BLOCK, WIDEST = 64, 64  # positions at once; channels of a tile
WARPS, STAGES = 4, 3
PROGRAMS = 1024  # enough to keep every multiprocessor busy to the end


def conv_rows(inputs: Tensor, slopes: Tensor, rows: Tensor) -> None:
    """Fill `rows` (images, outputs, inputs, side, side), whose rows may lie apart, from images channels last.

    inputs (images·copies, channels, H, W), slopes likewise; the kernel keeps the size of the image, its side is 1 or 3.
    """
    images, outputs, channels, side, _ = rows.shape
    copies, (height, width) = len(inputs) // images, inputs.shape[2:]
    wide, tall = _tile(channels), _tile(outputs)
    tiles = -(-channels // wide) * -(-outputs // tall)
    parts = max(1, min(copies, PROGRAMS // max(1, images * side * tiles)))
    while copies % parts:
        parts -= 1
    numbers = outputs * channels * side * side
    target = rows if parts == 1 else rows.new_empty(images, parts, numbers)
    conv_rows_kernel[(side * tiles, parts, images)](
        inputs, slopes, target, target.stride(0), target.stride(1) if parts > 1 else 0, copies // parts,
        CHANNELS=channels, OUTPUTS=outputs, HEIGHT=height, WIDTH=width, SIDE=side,
        BLOCK=BLOCK, BLOCK_I=wide, BLOCK_O=tall, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    if parts > 1:
        rows.copy_(target.sum(1).view(rows.shape))


def _tile(channels: int) -> int:
    return int(min(WIDEST, max(16, triton.next_power_of_2(channels))))


@triton.jit
def _input_tile(inputs, place, live, channel, CHANNELS: tl.constexpr):
    known = live[:, None] & (channel < CHANNELS)[None, :]
    return tl.load(inputs + place[:, None] * CHANNELS + channel[None, :], mask=known, other=0.0)


@triton.jit
def conv_rows_kernel(
    inputs, slopes, target, image_stride, part_stride, copies,
    CHANNELS: tl.constexpr, OUTPUTS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, SIDE: tl.constexpr,
    BLOCK: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_O: tl.constexpr,
):  # fmt: skip
    """The taps of one row of the kernel, of one image, over `copies` of its copies."""
    down = tl.program_id(0) % SIDE
    tile = tl.program_id(0) // SIDE
    part, image = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    across = (CHANNELS + BLOCK_I - 1) // BLOCK_I
    channel = tile % across * BLOCK_I + tl.arange(0, BLOCK_I)
    output = tile // across * BLOCK_O + tl.arange(0, BLOCK_O)
    positions = copies * HEIGHT * WIDTH
    first = (image * tl.num_programs(1) + part) * positions
    step = down - SIDE // 2
    left = tl.zeros((BLOCK_O, BLOCK_I), tl.float32)
    middle = tl.zeros((BLOCK_O, BLOCK_I), tl.float32)
    right = tl.zeros((BLOCK_O, BLOCK_I), tl.float32)
    for start in range(0, positions, BLOCK):
        position = start + tl.arange(0, BLOCK)
        inside = position < positions
        column = position % WIDTH
        line = position // WIDTH % HEIGHT + step
        known = inside[:, None] & (output < OUTPUTS)[None, :]
        slope = tl.load(slopes + (first + position)[:, None] * OUTPUTS + output[None, :], mask=known, other=0.0)
        turned = tl.trans(slope)
        seen = inside & (line >= 0) & (line < HEIGHT)
        place = first + position + step * WIDTH
        value = _input_tile(inputs, place, seen, channel, CHANNELS)
        middle = tl.dot(turned, value, middle, input_precision="ieee")
        if SIDE == 3:
            value = _input_tile(inputs, place - 1, seen & (column > 0), channel, CHANNELS)
            left = tl.dot(turned, value, left, input_precision="ieee")
            value = _input_tile(inputs, place + 1, seen & (column < WIDTH - 1), channel, CHANNELS)
            right = tl.dot(turned, value, right, input_precision="ieee")
    weight = (output[:, None] * CHANNELS + channel[None, :]) * SIDE * SIDE + down * SIDE
    out = target + image * image_stride + part * part_stride + weight
    mine = (output < OUTPUTS)[:, None] & (channel < CHANNELS)[None, :]
    if SIDE == 3:
        tl.store(out, left, mask=mine)
        tl.store(out + 1, middle, mask=mine)
        tl.store(out + 2, right, mask=mine)
    else:
        tl.store(out, middle, mask=mine)
