"""A convolution that doubles an image's size and cannot make a pattern of every second pixel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dpot.precision import has_triton

BLOCK, BLOCK_C = 32, 64  # pixels and channels a program works on


class SmoothDoubling(nn.Module):
    """A 3×3 convolution of twice the size: zeros between the pixels, the convolution, a blur by (1, 3, 3, 1) each way.

    The blur takes out what repeats with every second pixel. A transposed convolution has weights of its own for even
    and odd pixels, and a sketch of smooth directions does not see what it does with them. On a GPU the blur is a kernel
    of its own; elsewhere blur and convolution are one kernel of 6×6, four times the products in one pass.
    """

    spread: Tensor

    def __init__(self, inputs: int, outputs: int, bias: bool = False) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        self.weight = nn.Parameter(torch.empty(inputs, outputs, 3, 3))
        nn.init.kaiming_uniform_(self.weight, a=5**0.5)  # as torch's own convolutions
        line = torch.zeros(3, 6)
        for i in range(3):
            line[i, i : i + 4] = torch.tensor([1.0, 3.0, 3.0, 1.0]) / 4
        self.register_buffer("spread", torch.einsum("ai,bj->abij", line, line).reshape(9, 36), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) → (N, C', 2H, 2W)."""
        if x.is_cuda and has_triton():
            doubled = blur(nn.functional.conv_transpose2d(x, self.weight, stride=2))
            return doubled if self.bias is None else doubled + self.bias[:, None, None]
        kernel = (self.weight.flatten(2) @ self.spread).unflatten(2, (6, 6))
        return nn.functional.conv_transpose2d(x, kernel, self.bias, stride=2, padding=2)


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
    from dpot.models.triton_blur import blur_kernel

    x = x.contiguous(memory_format=torch.channels_last)
    count, channels, height, width = x.shape
    rows, columns = height + 2 * margin - 3, width + 2 * margin - 3
    y = torch.empty((count, channels, rows, columns), dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    total = count * rows * columns
    sizes = {"HEIGHT": height, "WIDTH": width, "ROWS": rows, "COLUMNS": columns, "CHANNELS": channels}
    grid = (-(-total // BLOCK), -(-channels // BLOCK_C))
    blur_kernel[grid](x, y, total, **sizes, MARGIN=margin, BLOCK=BLOCK, BLOCK_C=BLOCK_C)
    return y
