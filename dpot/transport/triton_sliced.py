"""Device code of the one-dimensional transport cost, in Triton: sort, compare and scatter back in one launch."""

# mypy: disable-error-code="no-untyped-def"
# Triton reads types off the arguments; only compile-time constants carry an annotation.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _keys(values, lane, n):
    """64-bit keys that sort as the values do and carry their position: ordered bits above, index below.

    Flipping the low 31 bits of a negative float makes its bits, read as a signed integer, grow with its value.
    Padding gets the largest key, so it ends up last.
    """
    bits = values.to(tl.int32, bitcast=True)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    ordered = tl.where(lane < n, ordered, 0x7FFFFFFF)
    return (ordered.to(tl.int64) << 32) | lane.to(tl.int64)


@triton.jit
def _values(keys):
    ordered = (keys >> 32).to(tl.int32)
    bits = ordered ^ ((ordered >> 31) & 0x7FFFFFFF)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def sorted_difference_kernel(
    x, y, value, grad_x, grad_y, n, q, inverse_n,
    ORDER: tl.constexpr, NEEDS_X: tl.constexpr, NEEDS_Y: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """value[row] = (1/n) Σ_i |x_(i) - y_(i)|^q and its gradients; ORDER is 1 or 2 for those q, 0 for any other."""
    row = tl.program_id(0).to(tl.int64) * n
    lane = tl.arange(0, BLOCK)
    live = lane < n
    keys_x = tl.sort(_keys(tl.load(x + row + lane, mask=live, other=0.0), lane, n))
    keys_y = tl.sort(_keys(tl.load(y + row + lane, mask=live, other=0.0), lane, n))
    difference = tl.where(live, _values(keys_x) - _values(keys_y), 0.0)
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
        tl.store(grad_x + row + (keys_x & 0x7FFFFFFF), slope, mask=live)
    if NEEDS_Y:
        tl.store(grad_y + row + (keys_y & 0x7FFFFFFF), -slope, mask=live)
