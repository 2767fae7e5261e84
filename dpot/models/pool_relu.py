"""ReLU(max-pool(convolution)) with whole channels dropped; on a GPU all that follows the convolution is one kernel."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpot.precision import has_triton

BLOCK, BLOCK_C = 32, 64  # cells and channels a program works on at once
PROGRAMS = 512  # at most, on the way back
LAST = torch.channels_last


class ChannelDropout(nn.Module):
    """nn.Dropout2d with a mask made by one fused dropout of ones, where torch draws it and scales it."""

    one: Tensor

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.register_buffer("one", torch.ones(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """x with whole channels set to zero, the others scaled by 1/(1 - p)."""
        return x * self.factors(*x.shape[:2]) if self.training else x

    def factors(self, count: int, channels: int) -> Tensor:
        """(count, channels, 1, 1): 0 or 1/(1 - p)."""
        return F.dropout(self.one.expand(count, channels, 1, 1), self.p)


class PooledConv2d(nn.Conv2d):
    """Convolution of 3×3, max-pooling by 2, ReLU, dropout of channels.

    With a border (the default) the convolution keeps the size, and the halves of cells at an odd edge are cells too;
    without one they are left out. A maximum of ReLUs is the ReLU of the maximum, and a bias may wait for it too: of a
    quarter of the values.
    """

    def __init__(self, inputs: int, outputs: int, drop: float, border: bool = True) -> None:
        super().__init__(inputs, outputs, 3, padding=int(border))
        self.border, self.drop = border, ChannelDropout(drop)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) → (N, outputs, ⌈H/2⌉, ⌈W/2⌉), or (N, outputs, ⌊H/2⌋ - 1, ⌊W/2⌋ - 1) without a border."""
        assert self.bias is not None
        wide = F.conv2d(x, self.weight, None, padding=self.padding)
        if self._takes(wide):
            return fused(wide, self.bias, self.drop.factors(*wide.shape[:2]) if self.training else None, self.border)
        pooled = F.max_pool2d(wide, 2, ceil_mode=self.border) + self.bias[:, None, None]
        dropped: Tensor = self.drop(F.relu(pooled))
        return dropped

    def _takes(self, wide: Tensor) -> bool:
        plain = wide.is_cuda and wide.dtype == torch.float32 and wide.is_contiguous(memory_format=LAST)
        return plain and has_triton()


def fused(x: Tensor, bias: Tensor, factor: Tensor | None, halves: bool = True) -> Tensor:
    """ReLU(max-pool by 2(x) + bias)·factor by our kernels, of images channels last; factor has no gradient.

    halves: what an odd edge leaves of a cell is one.
    """
    result: Tensor = _PoolReLU.apply(x, bias, factor, halves)
    return result


class _PoolReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, factor: Tensor | None, halves: bool) -> Tensor:
        from dpot.models.triton_pool_relu import pool_relu_kernel

        count, channels, height, width = ctx.shape = x.shape
        rows, columns = ((side + halves) // 2 for side in (height, width))
        pooled, winner = (
            torch.empty((count, channels, rows, columns), dtype=dtype, device=x.device, memory_format=LAST)
            for dtype in (x.dtype, torch.int8)
        )
        ctx.total, ctx.covered = count * rows * columns, 2 * rows >= height and 2 * columns >= width
        ctx.sizes = {"HEIGHT": height, "WIDTH": width, "ROWS": rows, "COLUMNS": columns, "CHANNELS": channels}
        ctx.sizes |= {"FACTOR": factor is not None, "BLOCK": BLOCK, "BLOCK_C": BLOCK_C}
        grid = (-(-ctx.total // BLOCK), -(-channels // BLOCK_C))
        pool_relu_kernel[grid](x, bias, bias if factor is None else factor, pooled, winner, ctx.total, **ctx.sizes)
        ctx.save_for_backward(winner, factor)
        return pooled

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor, None, None]:
        from dpot.models.triton_pool_relu import pool_relu_slope_kernel

        winner, factor = ctx.saved_tensors
        slope, channels = slopes[0].contiguous(memory_format=LAST), ctx.shape[1]
        found = torch.empty(ctx.shape, dtype=slope.dtype, device=slope.device, memory_format=LAST)
        if not ctx.covered:
            found.zero_()  # at an odd edge that is in no cell
        blocks, groups = -(-ctx.total // BLOCK), -(-channels // BLOCK_C)
        programs = min(blocks, max(1, PROGRAMS // groups))
        partial = slope.new_empty(programs, channels)
        pool_relu_slope_kernel[programs, groups](
            slope, slope if factor is None else factor, winner, found, partial, ctx.total, -(-blocks // programs),
            **ctx.sizes,
        )  # fmt: skip
        return found, partial.sum(0), None, None
