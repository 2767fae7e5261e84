"""ReLU(max-pool(convolution)) with whole channels dropped; on a GPU by kernels of our own."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpot import kernels

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
            factor = self.drop.factors(*wide.shape[:2]) if self.training else None
            return kernels.pool_relu.fused(wide, self.bias, factor, self.border)
        pooled = F.max_pool2d(wide, 2, ceil_mode=self.border) + self.bias[:, None, None]
        dropped: Tensor = self.drop(F.relu(pooled))
        return dropped

    def _takes(self, wide: Tensor) -> bool:
        return kernels.run_on(wide) and wide.dtype == torch.float32 and wide.is_contiguous(memory_format=LAST)


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
        x = kernels.conv_pool.fused(x, first.weight, first.bias, factor, cast(int, first.padding[0]), last)
        for layer in layers:
            x = layer(x)
        return x

    def _takes(self, x: Tensor, first: nn.Conv2d) -> bool:
        """A hook on the convolution wants to see its output (clipped_sum): then it must exist."""
        plain = x.dtype == torch.float32 and not x.requires_grad and not first._forward_hooks
        return plain and kernels.run_on(x) and self._is_simple(x.shape, first)

    def _is_simple(self, shape: torch.Size, first: nn.Conv2d) -> bool:
        """One channel, and no half cells at the border where the pooling would keep them."""
        half = any((side + 2 * cast(int, first.padding[0]) - first.kernel_size[0] + 1) % 2 for side in shape[2:])
        return first.in_channels == 1 and not (half and cast(nn.MaxPool2d, self[1]).ceil_mode)
