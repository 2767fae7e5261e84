"""A convolution to a few channels: a launch each way.

Images lie channels last: `pixels` of all images, each with CHANNELS numbers; so does the weight. Results and their
slopes are whole images, one channel after the other.
"""

# mypy: disable-error-code="no-untyped-def"
# Triton reads types off the arguments; only compile-time constants carry an annotation.

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

PIXELS = 64  # that a program works on


def narrow_conv(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The same by our kernels, in single precision whatever the precision of x, which lies channels last."""
    result: Tensor = _NarrowConv.apply(x, weight, bias)
    return result


class _NarrowConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        weight = weight.contiguous(memory_format=torch.channels_last)
        count, channels, height, width = x.shape
        outputs, _, kernel, _ = weight.shape
        sizes = {"HEIGHT": height, "WIDTH": width, "CHANNELS": channels, "OUT": outputs, "KERNEL": kernel}
        ctx.sizes = sizes | {"BLOCK": PIXELS, "BLOCK_C": _power_of_two(channels), "num_warps": 8}
        ctx.pixels = count * height * width
        y = torch.empty(count, outputs, height, width, device=x.device)
        narrow_conv_kernel[-(-ctx.pixels // PIXELS),](x, weight, bias, y, ctx.pixels, **ctx.sizes)
        ctx.save_for_backward(x, weight)
        return y

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        outputs, channels, kernel, _ = weight.shape
        programs = -(-ctx.pixels // PIXELS)
        found = torch.empty_like(x)
        partial = torch.empty(programs, weight.numel() + outputs, device=x.device)
        narrow_conv_slope_kernel[programs,](
            x, weight, slopes[0].contiguous(), found, partial, ctx.pixels, TAPS=_power_of_two(outputs * kernel**2),
            PRECISION="tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee", **ctx.sizes,
        )  # fmt: skip
        of_weight, of_bias = partial.sum(0).split([weight.numel(), outputs])
        return found, of_weight.view(outputs, kernel, kernel, channels).permute(0, 3, 1, 2), of_bias


def _power_of_two(size: int) -> int:
    """That holds so many, and not less than products of tiles need."""
    return max(16, 1 << (size - 1).bit_length())


@triton.jit
def narrow_conv_kernel(
    x, weight, bias, y, pixels,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, OUT: tl.constexpr, KERNEL: tl.constexpr,
    BLOCK: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """y = the convolution of x, with zeros around it, for a block of pixels."""
    pixel, channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, BLOCK_C)
    mine, exists = pixel < pixels, channel < CHANNELS
    image, row, column = pixel // (HEIGHT * WIDTH), pixel // WIDTH % HEIGHT, pixel % WIDTH
    for o in tl.static_range(OUT):
        total = tl.zeros((BLOCK, BLOCK_C), tl.float32)
        for tap in range(KERNEL * KERNEL):
            down, right = tap // KERNEL - KERNEL // 2, tap % KERNEL - KERNEL // 2
            inside = (row + down >= 0) & (row + down < HEIGHT) & (column + right >= 0) & (column + right < WIDTH)
            place = (pixel + down * WIDTH + right)[:, None] * CHANNELS + channel[None, :]
            tile = tl.load(x + place, mask=(mine & inside)[:, None] & exists[None, :], other=0.0).to(tl.float32)
            at = (o * KERNEL * KERNEL + tap) * CHANNELS + channel
            total += tile * tl.load(weight + at, mask=exists, other=0.0)[None, :]
        own = y + (image * OUT + o) * (HEIGHT * WIDTH) + row * WIDTH + column
        tl.store(own, tl.sum(total, axis=1) + tl.load(bias + o), mask=mine)


@triton.jit
def narrow_conv_slope_kernel(
    x, weight, slope, found, partial, pixels,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, OUT: tl.constexpr, KERNEL: tl.constexpr,
    BLOCK: tl.constexpr, BLOCK_C: tl.constexpr, TAPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """found = the gradient of x; partial[p] = what a block of pixels adds to those of weight, then of bias.

    Both are products with one matrix: the slopes of the pixels that each tap has made of a pixel.
    """
    pixel, channel, tap = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, BLOCK_C), tl.arange(0, TAPS)
    taps: tl.constexpr = OUT * KERNEL * KERNEL
    mine, exists, real = pixel < pixels, channel < CHANNELS, tap < taps
    image, row, column = pixel // (HEIGHT * WIDTH), pixel // WIDTH % HEIGHT, pixel % WIDTH
    down = row[:, None] + KERNEL // 2 - (tap // KERNEL % KERNEL)[None, :]
    right = column[:, None] + KERNEL // 2 - (tap % KERNEL)[None, :]
    inside = (down >= 0) & (down < HEIGHT) & (right >= 0) & (right < WIDTH) & mine[:, None] & real[None, :]
    made = (image[:, None] * OUT + (tap // (KERNEL * KERNEL))[None, :]) * (HEIGHT * WIDTH) + down * WIDTH + right
    slopes = tl.load(slope + made, mask=inside, other=0.0)
    at, of_taps = tap[:, None] * CHANNELS + channel[None, :], real[:, None] & exists[None, :]
    weights = tl.load(weight + at, mask=of_taps, other=0.0)
    gradient = tl.dot(slopes, weights, input_precision=PRECISION)
    place, live = pixel[:, None] * CHANNELS + channel[None, :], mine[:, None] & exists[None, :]
    values = tl.load(x + place, mask=live, other=0.0).to(tl.float32)
    tl.store(found + place, gradient.to(found.dtype.element_ty), mask=live)
    partial += tl.program_id(0) * (taps * CHANNELS + OUT)
    tl.store(partial + at, tl.dot(tl.trans(slopes), values, input_precision=PRECISION), mask=of_taps)
    is_centre = real & (tap % (KERNEL * KERNEL) == KERNEL * KERNEL // 2)
    tl.store(partial + taps * CHANNELS + tap // (KERNEL * KERNEL), tl.sum(slopes, axis=0), mask=is_centre)
