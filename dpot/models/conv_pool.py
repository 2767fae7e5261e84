"""ReLU(max-pool(convolution)) of images of one channel, as one kernel on a GPU and one for the gradients.

A convolution of one channel is too thin for the library's tensor cores, and its output, four times as large as what
the pooling leaves of it, goes through memory for bias, pooling, ReLU and all of them again on the way back. Here it
never exists: only the pooled values do, and which of four each one was. The gradient with respect to the images is not
made: where it is needed, and everywhere but on a GPU, torch's own layers run.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from dpot.precision import has_triton

BLOCK = 128  # cells a program works on at once
PROGRAMS = 16  # how many share the cells of a channel on the way back


class ConvPoolFirst(nn.Sequential):
    """A Sequential that begins with Conv2d(1, ·), MaxPool2d(2), ReLU; these three run as one where they can."""

    def forward(self, x: Tensor) -> Tensor:
        """Of records (N, 1, height, width)."""
        first = cast(nn.Conv2d, self[0])
        if not self._takes(x, first):
            result: Tensor = super().forward(x)
            return result
        assert first.bias is not None
        x = fused(x, first.weight, first.bias)
        for layer in list(self)[3:]:
            x = layer(x)
        return x

    def _takes(self, x: Tensor, first: nn.Conv2d) -> bool:
        """A hook on the convolution wants to see its output (clipped_sum): then it must exist."""
        plain = x.is_cuda and x.dtype == torch.float32 and not x.requires_grad and not first._forward_hooks
        return plain and has_triton()


def fused(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """ReLU(max-pool by 2(convolution)), with gradients for weight and bias."""
    result: Tensor = _ConvPool.apply(x.contiguous(), weight, bias)
    return result


class _ConvPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        from dpot.models.triton_conv_pool import conv_pool_kernel

        ctx.sizes = _sizes(x, weight)
        shape = (len(x), ctx.sizes["CHANNELS"], ctx.sizes["ROWS"], ctx.sizes["COLUMNS"])
        pooled, winner = x.new_empty(shape), torch.empty(shape, dtype=torch.int8, device=x.device)
        ctx.total = len(x) * shape[2] * shape[3]
        grid = (_blocks(ctx.total, BLOCK), _blocks(shape[1], 8))
        conv_pool_kernel[grid](
            x, weight.contiguous(), bias, pooled, winner, ctx.total, **ctx.sizes, BLOCK=BLOCK, BLOCK_C=8
        )
        ctx.save_for_backward(x, winner)
        return pooled

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[None, Tensor, Tensor]:
        from dpot.models.triton_conv_pool import conv_pool_gradient_kernel

        x, winner = ctx.saved_tensors
        channels, kernel = ctx.sizes["CHANNELS"], ctx.sizes["K"]
        taps = 1 << (kernel * kernel).bit_length()  # at least one more than the kernel has weights
        steps = _blocks(ctx.total, BLOCK * PROGRAMS)
        partial = x.new_empty(PROGRAMS, channels, taps)
        conv_pool_gradient_kernel[PROGRAMS, channels](
            x, slopes[0].contiguous(), winner, partial, ctx.total, steps, **ctx.sizes, BLOCK=BLOCK, TAPS=taps
        )
        found = partial.sum(0)
        return None, found[:, : kernel * kernel].reshape(channels, 1, kernel, kernel), found[:, kernel * kernel].clone()


def _sizes(x: Tensor, weight: Tensor) -> dict[str, int]:
    """What the kernels are compiled for."""
    (_, _, height, width), (channels, _, kernel, _) = x.shape, weight.shape
    rows, columns = (height - kernel + 1) // 2, (width - kernel + 1) // 2
    sizes = {"WIDTH": width, "PIXELS": height * width, "K": kernel, "CHANNELS": channels}
    return sizes | {"ROWS": rows, "COLUMNS": columns}


def _blocks(n: int, size: int) -> int:
    return -(-n // size)
