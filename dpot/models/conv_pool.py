"""ReLU(max-pool(convolution)) of images of one channel, channels dropped: one kernel on a GPU, one for the gradients.

A convolution of one channel is too thin for the library's tensor cores, and its output, four times as large as what
the pooling leaves of it, goes through memory for bias, pooling, ReLU and all of them again on the way back. Here it
never exists: only the pooled values do, and which of four each one was. The gradient with respect to the images is not
made: where it is needed, and everywhere but on a GPU, torch's own layers run.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from dpot.models.pool_relu import LAST, ChannelDropout
from dpot.precision import has_triton

BLOCK, BLOCK_C = 128, 8  # cells and channels a program works on at once
BLOCK_BACK, BLOCK_C_BACK = 64, 32  # and on the way back,
PROGRAMS = 256  # where so many at most share the cells


class ConvPoolFirst(nn.Sequential):
    """A Sequential that begins with Conv2d, MaxPool2d(2), ReLU; on images of one channel the three run as one.

    So does a ChannelDropout behind them. The result has the layout of the later convolutions' weights.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Of records (N, 1, height, width)."""
        first = cast(nn.Conv2d, self[0])
        if not self._takes(x, first):
            result: Tensor = super().forward(x)
            return result
        assert first.bias is not None
        layers = list(self)[3:]
        weights = [layer.weight for layer in layers if isinstance(layer, nn.Conv2d)]
        last = bool(weights) and not weights[0].is_contiguous() and weights[0].is_contiguous(memory_format=LAST)
        factor = None
        if layers and isinstance(dropout := layers[0], ChannelDropout):
            factor = dropout.factors(len(x), first.out_channels) if dropout.training else None
            del layers[0]
        x = fused(x, first.weight, first.bias, factor, cast(int, first.padding[0]), last)
        for layer in layers:
            x = layer(x)
        return x

    def _takes(self, x: Tensor, first: nn.Conv2d) -> bool:
        """A hook on the convolution wants to see its output (clipped_sum): then it must exist."""
        plain = x.is_cuda and x.dtype == torch.float32 and not x.requires_grad and not first._forward_hooks
        return plain and has_triton() and self._is_simple(x.shape, first)

    def _is_simple(self, shape: torch.Size, first: nn.Conv2d) -> bool:
        """One channel, and no half cells at the border where the pooling would keep them."""
        half = any((side + 2 * cast(int, first.padding[0]) - first.kernel_size[0] + 1) % 2 for side in shape[2:])
        return first.in_channels == 1 and not (half and cast(nn.MaxPool2d, self[1]).ceil_mode)


def fused(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    factor: Tensor | None = None,
    padding: int = 0,
    channels_last: bool = False,
) -> Tensor:
    """ReLU(max-pool by 2(convolution))·factor, with gradients for weight and bias; factor is (N, channels, 1, 1)."""
    result: Tensor = _ConvPool.apply(x.contiguous(), weight, bias, factor, padding, channels_last)
    return result


class _ConvPool(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, factor: Tensor | None, padding: int, channels_last: bool
    ) -> Tensor:
        from dpot.models.triton_conv_pool import conv_pool_kernel

        ctx.layout = LAST if channels_last else torch.contiguous_format
        ctx.sizes = _sizes(x, weight, padding)
        shape = (len(x), ctx.sizes["CHANNELS"], ctx.sizes["ROWS"], ctx.sizes["COLUMNS"])
        pooled, winner = (
            torch.empty(shape, dtype=dtype, device=x.device, memory_format=ctx.layout)
            for dtype in (x.dtype, torch.int8)
        )
        ctx.sizes |= {"CHANNEL_STEP": pooled.stride(1), "CELL_STEP": pooled.stride(3), "FACTOR": factor is not None}
        ctx.total = len(x) * shape[2] * shape[3]
        grid = (_blocks(ctx.total, BLOCK), _blocks(shape[1], BLOCK_C))
        conv_pool_kernel[grid](
            x, weight.contiguous(), bias, bias if factor is None else factor, pooled, winner, ctx.total,
            **ctx.sizes, BLOCK=BLOCK, BLOCK_C=BLOCK_C,
        )  # fmt: skip
        ctx.save_for_backward(x, winner, factor)
        return pooled

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[None, Tensor, Tensor, None, None, None]:
        from dpot.models.triton_conv_pool import conv_pool_gradient_kernel

        x, winner, factor = ctx.saved_tensors
        slope, channels, kernel = slopes[0].contiguous(memory_format=ctx.layout), ctx.sizes["CHANNELS"], ctx.sizes["K"]
        pixels = max(16, 1 << ((kernel + 1) ** 2 - 1).bit_length())  # a power of two; 16 make a matrix
        blocks = _blocks(ctx.total, BLOCK_BACK)
        programs = min(blocks, PROGRAMS)
        partial = x.new_empty(programs * 4, channels, kernel * kernel + 1)
        conv_pool_gradient_kernel[programs, _blocks(channels, BLOCK_C_BACK)](
            x, slope, slope if factor is None else factor, winner, partial, ctx.total, _blocks(blocks, programs),
            **ctx.sizes, BLOCK=BLOCK_BACK, BLOCK_C=BLOCK_C_BACK, PIXELS=pixels,
        )  # fmt: skip
        found = partial.sum(0)
        of_weight = found[:, :-1].reshape(channels, 1, kernel, kernel)
        return None, of_weight, found[:, -1].clone(), None, None, None


def _sizes(x: Tensor, weight: Tensor, padding: int) -> dict[str, int]:
    """What the kernels are compiled for."""
    (_, _, height, width), (channels, _, kernel, _) = x.shape, weight.shape
    rows, columns = ((side + 2 * padding - kernel + 1) // 2 for side in (height, width))
    sizes = {"HEIGHT": height, "WIDTH": width, "PADDING": padding, "K": kernel, "CHANNELS": channels}
    return sizes | {"ROWS": rows, "COLUMNS": columns}


def _blocks(n: int, size: int) -> int:
    return -(-n // size)
