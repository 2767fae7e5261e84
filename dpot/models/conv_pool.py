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
CHANNELS_LAST = torch.channels_last


class ConvPoolFirst(nn.Sequential):
    """A Sequential that begins with Conv2d, MaxPool2d(2), ReLU; on images of one channel the three run as one.

    The result has the layout of the later convolutions' weights.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Of records (N, 1, height, width)."""
        first = cast(nn.Conv2d, self[0])
        if not self._takes(x, first):
            result: Tensor = super().forward(x)
            return result
        assert first.bias is not None
        later = [layer.weight for layer in list(self)[3:] if isinstance(layer, nn.Conv2d)]
        last = bool(later) and not later[0].is_contiguous() and later[0].is_contiguous(memory_format=CHANNELS_LAST)
        x = fused(x, first.weight, first.bias, cast(int, first.padding[0]), last)
        for layer in list(self)[3:]:
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


def fused(x: Tensor, weight: Tensor, bias: Tensor, padding: int = 0, channels_last: bool = False) -> Tensor:
    """ReLU(max-pool by 2(convolution)), with gradients for weight and bias."""
    result: Tensor = _ConvPool.apply(x.contiguous(), weight, bias, padding, channels_last)
    return result


class _ConvPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, padding: int, channels_last: bool) -> Tensor:
        from dpot.models.triton_conv_pool import conv_pool_kernel

        ctx.layout = CHANNELS_LAST if channels_last else torch.contiguous_format
        ctx.sizes = _sizes(x, weight, padding)
        shape = (len(x), ctx.sizes["CHANNELS"], ctx.sizes["ROWS"], ctx.sizes["COLUMNS"])
        pooled, winner = (
            torch.empty(shape, dtype=dtype, device=x.device, memory_format=ctx.layout)
            for dtype in (x.dtype, torch.int8)
        )
        ctx.sizes |= {"CHANNEL_STEP": pooled.stride(1), "CELL_STEP": pooled.stride(3)}
        ctx.total = len(x) * shape[2] * shape[3]
        grid = (_blocks(ctx.total, BLOCK), _blocks(shape[1], 8))
        conv_pool_kernel[grid](
            x, weight.contiguous(), bias, pooled, winner, ctx.total, **ctx.sizes, BLOCK=BLOCK, BLOCK_C=8
        )
        ctx.save_for_backward(x, winner)
        return pooled

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[None, Tensor, Tensor, None, None]:
        from dpot.models.triton_conv_pool import conv_pool_gradient_kernel

        x, winner = ctx.saved_tensors
        channels, kernel = ctx.sizes["CHANNELS"], ctx.sizes["K"]
        taps = 1 << (kernel * kernel).bit_length()  # at least one more than the kernel has weights
        steps = _blocks(ctx.total, BLOCK * PROGRAMS)
        partial = x.new_empty(PROGRAMS, channels, taps)
        conv_pool_gradient_kernel[PROGRAMS, channels](
            x,
            slopes[0].contiguous(memory_format=ctx.layout),
            winner,
            partial,
            ctx.total,
            steps,
            **ctx.sizes,
            BLOCK=BLOCK,
            TAPS=taps,
        )
        found = partial.sum(0)
        of_weight = found[:, : kernel * kernel].reshape(channels, 1, kernel, kernel)
        return None, of_weight, found[:, kernel * kernel].clone(), None, None


def _sizes(x: Tensor, weight: Tensor, padding: int) -> dict[str, int]:
    """What the kernels are compiled for."""
    (_, _, height, width), (channels, _, kernel, _) = x.shape, weight.shape
    rows, columns = ((side + 2 * padding - kernel + 1) // 2 for side in (height, width))
    sizes = {"HEIGHT": height, "WIDTH": width, "PADDING": padding, "K": kernel, "CHANNELS": channels}
    return sizes | {"ROWS": rows, "COLUMNS": columns}


def _blocks(n: int, size: int) -> int:
    return -(-n // size)
