"""SiLU(group norm(x + shift)) of images that lie channels last: one launch each way.

Torch's own group norm wants channels first and single precision, so that a network in bfloat16 that keeps its channels
last is copied and converted around every norm. A program has the positions of one image and up to BLOCK_C channels,
which hold whole groups; it reads them twice, the second time from a cache. Backwards it leaves the gradients of weight,
bias and shift of every image by itself: who wants one gradient per image adds up its copies, everybody else all.
"""

# mypy: disable-error-code="no-untyped-def"
# Triton reads types off the arguments; only compile-time constants carry an annotation.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, WARPS = 64, 4  # positions at once
MOST_CHANNELS = 64  # of a program


def forward(
    x: Tensor, shift: Tensor | None, weight: Tensor, bias: Tensor, group: int, eps: float, act: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """(values, means, 1/deviations), the last two (images, groups); `group` channels, a power of 2, are one group."""
    images, channels, height, width = x.shape
    y = torch.empty_like(x, memory_format=torch.channels_last)
    mean = x.new_empty(images, channels // group, dtype=torch.float32)
    inverse = torch.empty_like(mean)
    norm_kernel[(images, -(-channels // MOST_CHANNELS))](
        x, x if shift is None else shift, weight, bias, y, mean, inverse, height * width, eps,
        CHANNELS=channels, GROUP=group, SHIFT=shift is not None, ACT=act, **_tile(channels, group),
    )  # fmt: skip
    return y, mean, inverse


def backward(
    x: Tensor, shift: Tensor | None, weight: Tensor, bias: Tensor, mean: Tensor, inverse: Tensor, slope: Tensor,
    group: int, act: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The gradient of x, and of weight, bias and shift by image: (3, images, channels)."""
    images, channels, height, width = x.shape
    found = torch.empty_like(x, memory_format=torch.channels_last)
    sums = x.new_empty(3, images, channels, dtype=torch.float32)
    norm_slope_kernel[(images, -(-channels // MOST_CHANNELS))](
        x, x if shift is None else shift, weight, bias, mean, inverse, slope, found, sums, height * width,
        CHANNELS=channels, GROUP=group, SHIFT=shift is not None, ACT=act, **_tile(channels, group),
    )  # fmt: skip
    return found, sums


def _tile(channels: int, group: int) -> dict[str, int]:
    width = min(MOST_CHANNELS, triton.next_power_of_2(channels))
    return {"BLOCK": BLOCK, "BLOCK_C": width, "GROUPS": width // group, "num_warps": WARPS}


@triton.jit
def _by_group(values, GROUPS: tl.constexpr, GROUP: tl.constexpr):
    """The sums of a group's channels."""
    return tl.sum(tl.reshape(values, (GROUPS, GROUP)), axis=1)


@triton.jit
def _by_channel(values, GROUPS: tl.constexpr, GROUP: tl.constexpr):
    """A group's number, for each of its channels."""
    return tl.reshape(tl.broadcast_to(values[:, None], (GROUPS, GROUP)), (GROUPS * GROUP,))


@triton.jit
def norm_kernel(
    x, shift, weight, bias, y, mean, inverse, positions, eps,
    CHANNELS: tl.constexpr, GROUP: tl.constexpr, SHIFT: tl.constexpr, ACT: tl.constexpr,
    BLOCK: tl.constexpr, BLOCK_C: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """y = act(weight·(x + shift − mean)/deviation + bias) of one image."""
    image = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    mine = channel < CHANNELS
    begin = image * positions * CHANNELS
    moved = tl.zeros((BLOCK_C,), tl.float32)
    if SHIFT:
        moved = tl.load(shift + image * CHANNELS + channel, mask=mine, other=0.0).to(tl.float32)
    total = tl.zeros((BLOCK, BLOCK_C), tl.float32)
    squares = tl.zeros((BLOCK, BLOCK_C), tl.float32)
    for start in range(0, positions, BLOCK):
        row = start + tl.arange(0, BLOCK)
        live = (row < positions)[:, None] & mine[None, :]
        place = begin + row[:, None] * CHANNELS + channel[None, :]
        value = tl.load(x + place, mask=live, other=0.0).to(tl.float32) + moved[None, :]
        value = tl.where(live, value, 0.0)
        total += value
        squares += value * value
    count = positions * GROUP
    centre = _by_group(tl.sum(total, axis=0), GROUPS, GROUP) / count
    variance = _by_group(tl.sum(squares, axis=0), GROUPS, GROUP) / count - centre * centre
    variance = tl.where(variance < 0, 0.0, variance)  # rounding; a NaN compares as neither, and is passed on
    scale = 1 / tl.sqrt(variance + eps)
    group = tl.program_id(1) * GROUPS + tl.arange(0, GROUPS)
    kept = image * (CHANNELS // GROUP) + group
    tl.store(mean + kept, centre, mask=group < CHANNELS // GROUP)
    tl.store(inverse + kept, scale, mask=group < CHANNELS // GROUP)
    factor = _by_channel(scale, GROUPS, GROUP) * tl.load(weight + channel, mask=mine, other=0.0)
    offset = tl.load(bias + channel, mask=mine, other=0.0) + (moved - _by_channel(centre, GROUPS, GROUP)) * factor
    for start in range(0, positions, BLOCK):
        row = start + tl.arange(0, BLOCK)
        live = (row < positions)[:, None] & mine[None, :]
        place = begin + row[:, None] * CHANNELS + channel[None, :]
        value = tl.load(x + place, mask=live, other=0.0).to(tl.float32) * factor[None, :] + offset[None, :]
        if ACT:
            value = value * tl.sigmoid(value)
        tl.store(y + place, value.to(y.dtype.element_ty), mask=live)


@triton.jit
def _slopes(x, slope, place, live, moved, centre, scale, factor, offset, ACT: tl.constexpr):
    """Of a tile: the normalised values, and the gradient in front of the activation."""
    normal = (tl.load(x + place, mask=live, other=0.0).to(tl.float32) + moved - centre) * scale
    gradient = tl.load(slope + place, mask=live, other=0.0).to(tl.float32)
    if ACT:
        value = normal * factor + offset
        gate = tl.sigmoid(value)
        gradient = gradient * gate * (1 + value * (1 - gate))
    return tl.where(live, normal, 0.0), tl.where(live, gradient, 0.0)


@triton.jit
def norm_slope_kernel(
    x, shift, weight, bias, mean, inverse, slope, found, sums, positions,
    CHANNELS: tl.constexpr, GROUP: tl.constexpr, SHIFT: tl.constexpr, ACT: tl.constexpr,
    BLOCK: tl.constexpr, BLOCK_C: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """found = the gradient of x of one image; sums = those of weight, bias and shift."""
    image = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    mine = channel < CHANNELS
    begin = image * positions * CHANNELS
    moved = tl.zeros((BLOCK_C,), tl.float32)
    if SHIFT:
        moved = tl.load(shift + image * CHANNELS + channel, mask=mine, other=0.0).to(tl.float32)
    own = image * (CHANNELS // GROUP) + channel // GROUP
    centre = tl.load(mean + own, mask=mine, other=0.0)
    scale = tl.load(inverse + own, mask=mine, other=0.0)
    factor = tl.load(weight + channel, mask=mine, other=0.0)
    offset = tl.load(bias + channel, mask=mine, other=0.0)
    of_weight = tl.zeros((BLOCK, BLOCK_C), tl.float32)
    of_bias = tl.zeros((BLOCK, BLOCK_C), tl.float32)
    for start in range(0, positions, BLOCK):
        row = start + tl.arange(0, BLOCK)
        live = (row < positions)[:, None] & mine[None, :]
        place = begin + row[:, None] * CHANNELS + channel[None, :]
        normal, gradient = _slopes(
            x, slope, place, live, moved[None, :], centre[None, :], scale[None, :], factor[None, :], offset[None, :],
            ACT,
        )  # fmt: skip
        of_weight += gradient * normal
        of_bias += gradient
    weight_sum, bias_sum = tl.sum(of_weight, axis=0), tl.sum(of_bias, axis=0)
    count = positions * GROUP
    level = _by_channel(_by_group(bias_sum * factor, GROUPS, GROUP), GROUPS, GROUP) / count
    tilt = _by_channel(_by_group(weight_sum * factor, GROUPS, GROUP), GROUPS, GROUP) / count
    of_shift = tl.zeros((BLOCK, BLOCK_C), tl.float32)
    for start in range(0, positions, BLOCK):
        row = start + tl.arange(0, BLOCK)
        live = (row < positions)[:, None] & mine[None, :]
        place = begin + row[:, None] * CHANNELS + channel[None, :]
        normal, gradient = _slopes(
            x, slope, place, live, moved[None, :], centre[None, :], scale[None, :], factor[None, :], offset[None, :],
            ACT,
        )  # fmt: skip
        gradient = scale[None, :] * (gradient * factor[None, :] - level[None, :] - normal * tilt[None, :])
        gradient = tl.where(live, gradient, 0.0)
        of_shift += gradient
        tl.store(found + place, gradient.to(found.dtype.element_ty), mask=live)
    out = image * CHANNELS + channel
    every = tl.num_programs(0).to(tl.int64) * CHANNELS
    tl.store(sums + out, weight_sum, mask=mine)
    tl.store(sums + every + out, bias_sum, mask=mine)
    tl.store(sums + 2 * every + out, tl.sum(of_shift, axis=0), mask=mine)
