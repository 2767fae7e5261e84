"""The blur behind a doubling: one launch each way, no copies of what it reads."""

# mypy: disable-error-code="no-untyped-def"
# Triton reads types off the arguments; only compile-time constants carry an annotation.

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, BLOCK_C = 32, 64  # pixels and channels a program works on


def blur(x: Tensor) -> Tensor:
    """(N, C, H, W) → (N, C, H - 1, W - 1): the blur with a margin of one pixel, channels last."""
    result: Tensor = _Blur.apply(x)
    return result


class _Blur(torch.autograd.Function):
    """The blur is symmetric: its gradient is a blur of the slopes, with the margin that gives the size back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _blurred(x, 1)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        return _blurred(slopes[0], 2)


def _blurred(x: Tensor, margin: int) -> Tensor:
    x = x.contiguous(memory_format=torch.channels_last)
    count, channels, height, width = x.shape
    rows, columns = height + 2 * margin - 3, width + 2 * margin - 3
    y = torch.empty((count, channels, rows, columns), dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    total = count * rows * columns
    sizes = {"HEIGHT": height, "WIDTH": width, "ROWS": rows, "COLUMNS": columns, "CHANNELS": channels}
    grid = (-(-total // BLOCK), -(-channels // BLOCK_C))
    blur_kernel[grid](x, y, total, **sizes, MARGIN=margin, BLOCK=BLOCK, BLOCK_C=BLOCK_C)
    return y


@triton.jit
def blur_kernel(
    x, y, total,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHANNELS: tl.constexpr,
    MARGIN: tl.constexpr, BLOCK: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """y[n, i, j, c] = Σ_ab k[a]·k[b]·x[n, i + a - MARGIN, j + b - MARGIN, c] with k = (1, 3, 3, 1)/4, zero beyond x.

    Both are channels last, x with HEIGHT × WIDTH pixels, y with ROWS × COLUMNS, of which `total` in all images.
    """
    flat = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    image = (flat // (ROWS * COLUMNS)).to(tl.int64)
    row = (flat % (ROWS * COLUMNS)) // COLUMNS - MARGIN
    column = flat % COLUMNS - MARGIN
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    live = (flat < total)[:, None] & (channel < CHANNELS)[None, :]
    corner = ((image * HEIGHT + row) * WIDTH + column)[:, None] * CHANNELS + channel[None, :]
    summed = tl.zeros((BLOCK, BLOCK_C), tl.float32)
    for a in tl.static_range(4):
        for b in tl.static_range(4):
            inside = (row + a >= 0) & (row + a < HEIGHT) & (column + b >= 0) & (column + b < WIDTH)
            value = tl.load(x + corner + (a * WIDTH + b) * CHANNELS, mask=live & inside[:, None], other=0.0)
            across = 1.0 if a == 0 or a == 3 else 3.0
            along = 1.0 if b == 0 or b == 3 else 3.0
            summed += (across * along / 16) * value.to(tl.float32)
    out = flat.to(tl.int64)[:, None] * CHANNELS + channel[None, :]
    tl.store(y + out, summed.to(y.dtype.element_ty), mask=live)
