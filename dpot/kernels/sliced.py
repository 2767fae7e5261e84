"""The one-dimensional transport cost: sort, compare and scatter back in one launch."""

# mypy: disable-error-code="no-untyped-def"
# Triton reads types off the arguments; only compile-time constants carry an annotation.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


def sorted_difference(
    x: Tensor, y: Tensor, q: float, needs_x: bool, needs_y: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """W_q^q per row and its gradients, one program per row (twin: transport/sliced.py)."""
    x, y = x.contiguous(), y.contiguous()
    n = x.shape[-1]
    value = x.new_empty(x.shape[:-1])
    grad_x = torch.empty_like(x) if needs_x else None
    grad_y = torch.empty_like(y) if needs_y else None
    block = max(16, 1 << (n - 1).bit_length())
    sorted_difference_kernel[value.numel(),](
        x, y, value, x if grad_x is None else grad_x, y if grad_y is None else grad_y, n, float(q), 1 / n,
        int(q) if q in (1, 2) else 0, needs_x, needs_y, block, num_warps=max(1, min(8, block // 128)),
    )  # fmt: skip
    return value, grad_x, grad_y


@triton.jit
def _ordered(values, lane, n):
    """32-bit integers that sort as the values do; padding gets the largest, so it ends up last.

    Flipping the low 31 bits of a negative float makes its bits, read as a signed integer, grow with its value.
    """
    bits = values.to(tl.int32, bitcast=True)
    return tl.where(lane < n, bits ^ ((bits >> 31) & 0x7FFFFFFF), 0x7FFFFFFF)


@triton.jit
def _values(ordered):
    return (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _sort(values, lane, n, NEEDS_ORDER: tl.constexpr):
    """Sorted values and where each came from. The position rides below the value in a 64-bit key, where it is needed:
    half as many bits to exchange where it is not."""
    ordered = _ordered(values, lane, n)
    if NEEDS_ORDER:
        keys = tl.sort((ordered.to(tl.int64) << 32) | lane.to(tl.int64))
        result = _values((keys >> 32).to(tl.int32))
        origin = (keys & 0x7FFFFFFF).to(tl.int32)
    else:
        result = _values(tl.sort(ordered))
        origin = lane
    return result, origin


@triton.jit
def sorted_difference_kernel(
    x, y, value, grad_x, grad_y, n, q, inverse_n,
    ORDER: tl.constexpr, NEEDS_X: tl.constexpr, NEEDS_Y: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """value[row] = (1/n) Σ_i |x_(i) - y_(i)|^q and its gradients; ORDER is 1 or 2 for those q, 0 for any other."""
    row = tl.program_id(0).to(tl.int64) * n
    lane = tl.arange(0, BLOCK)
    live = lane < n
    sorted_x, origin_x = _sort(tl.load(x + row + lane, mask=live, other=0.0), lane, n, NEEDS_X)
    sorted_y, origin_y = _sort(tl.load(y + row + lane, mask=live, other=0.0), lane, n, NEEDS_Y)
    difference = tl.where(live, sorted_x - sorted_y, 0.0)
    size = tl.abs(difference)
    if ORDER == 1:
        power = size
        slope = tl.full((BLOCK,), 1.0, tl.float32)
    elif ORDER == 2:
        power = size * size
        slope = 2.0 * size
    else:
        logarithm = tl.log2(tl.maximum(size, 1e-37))
        power = tl.where(size > 0, tl.exp2(q * logarithm), 0.0)
        slope = tl.where(size > 0, q * tl.exp2((q - 1.0) * logarithm), 0.0)
    tl.store(value + tl.program_id(0), tl.sum(power, axis=0) * inverse_n)
    sign = tl.where(difference > 0, inverse_n, tl.where(difference < 0, -inverse_n, 0.0))
    # NaN compares as neither, so it is passed on by hand
    slope = tl.where(difference == difference, slope * sign, difference)
    if NEEDS_X:
        tl.store(grad_x + row + origin_x, slope, mask=live)
    if NEEDS_Y:
        tl.store(grad_y + row + origin_y, -slope, mask=live)
