"""Layers the generators share."""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpot import kernels

FEW_PIXELS = 2**17  # a batch of 160 digits


def bilinear_matrix(size: int, factor: int = 2) -> Tensor:
    """The matrix A (factor·size × size) of bilinear up-sampling along one axis, half-pixel centres.

    Output pixel i looks at the input coordinate (i + ½)/factor − ½ and mixes its two neighbours; beyond
    the border the edge pixel stands for its missing neighbour (as torch's align_corners=False does).
    """
    centre = ((torch.arange(factor * size, dtype=torch.float64) + 0.5) / factor - 0.5).clamp(0, size - 1)
    low = centre.floor().long()
    high = (low + 1).clamp(max=size - 1)
    weight = centre - low
    matrix = torch.zeros(factor * size, size, dtype=torch.float64)
    rows = torch.arange(factor * size)
    matrix.index_put_((rows, low), 1 - weight, accumulate=True)
    matrix.index_put_((rows, high), weight, accumulate=True)
    return matrix.float()


class UpsampledConv2d(nn.Conv2d):
    """Bilinear ×2, then a convolution that keeps the size: two matrix products instead of two image operations.

    Both are linear along rows and columns. With A the up-sampling matrix, padded by the kernel's half width, row r of
    the output needs the up-sampled rows r .. r + kernel − 1, and within a row the up-sampling and the kernel make one
    map T[i,c,v → o,w] = Σ_j weight[o,c,i,j]·A[w + j, v]. The numbers are those of torch's own two layers. Torch's
    bilinear backward uses atomics and takes three quarters of a DP-MERF generator's step on a GPU; its convolution of
    a few channels is several times slower than these products on some CPUs.

    Images are (H, N, C, W), rows first: what one layer puts out the next takes in without a copy.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, size: int) -> None:
        super().__init__(inputs, outputs, kernel, padding=kernel // 2)
        half = kernel // 2
        padded = F.pad(bilinear_matrix(size), (0, 0, half, half))
        columns = torch.stack([padded[j : j + 2 * size].T for j in range(kernel)])
        self.register_buffer("rows_up", padded, persistent=False)  # (2·size + kernel − 1, size)
        self.register_buffer("columns_up", columns.flatten(1), persistent=False)  # (kernel, size·2·size)

    def forward(self, x: Tensor) -> Tensor:
        """(size, N, inputs, size) → (2·size, N, outputs, 2·size)."""
        size, count, inputs, _ = x.shape
        kernel, outputs = self.kernel_size[0], self.out_channels
        rows_up: Tensor = self.rows_up  # type: ignore[assignment]
        columns_up: Tensor = self.columns_up  # type: ignore[assignment]
        high = (rows_up @ x.reshape(size, -1)).view(-1, count, inputs * size)
        windows = high.unfold(0, kernel, 1).transpose(2, 3)  # (2·size, N, kernel, inputs·size)
        across = self.weight.permute(2, 1, 0, 3).reshape(-1, kernel) @ columns_up  # (i·c·o, v·w)
        across = across.view(kernel * inputs, outputs, size, 2 * size).transpose(1, 2)
        out = windows.reshape(-1, kernel * inputs * size) @ across.reshape(-1, outputs * 2 * size)
        out = out.view(2 * size, count, outputs, 2 * size)
        return out if self.bias is None else out + self.bias[:, None]


class NarrowConv2d(nn.Conv2d):
    """A convolution to one or a few channels, of images whose memory lies channels last.

    Each pixel's channels times all taps of the kernel at once, one matrix product, then the taps are added up where
    they belong. A library convolution spends its time on the channels that are not there (64 → 1 takes 190 µs for
    a batch of 70 on a GPU that needs 10 µs to read it). In bfloat16 taps of zeros fill rows up to a multiple of 16
    bytes, which the fast products ask for. A few images on a GPU, where a step is bound by its number of launches, go
    through kernels of our own.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__(inputs, outputs, kernel, padding=kernel // 2)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) → (N, outputs, H, W)."""
        kernel, outputs = self.kernel_size[0], self.out_channels
        if self.bias is not None and self._takes(x):
            return kernels.narrow_conv.narrow_conv(x, self.weight, self.bias)
        taps = self.weight.permute(1, 0, 2, 3).reshape(x.shape[1], -1)
        count = taps.shape[1]
        if x.dtype == torch.bfloat16:
            taps = F.pad(taps, (0, -count % 8))
        products = (x.permute(0, 2, 3, 1) @ taps)[..., :count].unflatten(3, (outputs, kernel, kernel))
        out: Tensor = _AddTaps.apply(products)
        return out if self.bias is None else out + self.bias[:, None, None]

    def _takes(self, x: Tensor) -> bool:
        last = x.is_contiguous(memory_format=torch.channels_last)
        return kernels.run_on(x) and last and x.numel() // x.shape[1] <= FEW_PIXELS


class _AddTaps(torch.autograd.Function):
    """y[n,o,h,w] = Σ_ij Z[n, h + i − r, w + j − r, o, i, j] for a kernel of side 2r + 1; zero beyond the border.

    Forwards a sum over a strided view, backwards a copy of one: a launch each, without atomics.
    """

    @staticmethod
    def forward(ctx: Any, products: Tensor) -> Tensor:
        count, height, width, outputs, kernel, _ = products.shape
        ctx.kernel, half = kernel, kernel // 2
        padded = F.pad(products, (0, 0, 0, 0, 0, 0, half, half, half, half))
        n, h, w, o, i, j = padded.stride()
        shape = (count, outputs, height, width, kernel, kernel)
        return padded.as_strided(shape, (n, o, h, w, h + i, w + j)).sum((4, 5))

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        kernel, half = ctx.kernel, ctx.kernel // 2
        padded = F.pad(slopes[0], (half, half, half, half))
        windows = padded.unfold(2, kernel, 1).unfold(3, kernel, 1)  # [n,o,h,w,a,b] = slope[h + a − r, w + b − r]
        return windows.flip(4, 5).permute(0, 2, 3, 1, 4, 5).contiguous()


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
        if self._takes(x):
            doubled = kernels.blur.blur(F.conv_transpose2d(x, self.weight, stride=2))
            return doubled if self.bias is None else doubled + self.bias[:, None, None]
        kernel = (self.weight.flatten(2) @ self.spread).unflatten(2, (6, 6))
        return F.conv_transpose2d(x, kernel, self.bias, stride=2, padding=2)

    def _takes(self, x: Tensor) -> bool:
        return kernels.run_on(x)


class Normed(nn.Sequential):
    """A Sequential whose ReLUs all stand right behind batch norms."""

    def forward(self, x: Tensor) -> Tensor:
        """Of images (N, C, H, W)."""
        for layer, behind in itertools.pairwise([*self, None]):
            if isinstance(layer, nn.BatchNorm2d):
                x, _ = norm_relu(x, layer, behind.negative_slope if isinstance(behind, nn.LeakyReLU) else 0.0)
            elif not isinstance(layer, nn.ReLU | nn.LeakyReLU):
                x = layer(x)
        return x


def norm_relu(x: Tensor, norm: nn.BatchNorm2d, leak: float = 0.0) -> tuple[Tensor, Tensor]:
    """ReLU(norm(x)), and x itself: who uses that one too has the two gradients added up on the way.

    leak: the slope below zero.
    """
    if not (_fits(x) and _learns(norm)):
        return F.leaky_relu(norm(x), leak), x
    return kernels.norm_relu.fused(x, norm, leak)


def _fits(x: Tensor) -> bool:
    return kernels.run_on(x) and x.is_contiguous(memory_format=torch.channels_last)


def _learns(norm: nn.BatchNorm2d) -> bool:
    """By the batch's statistics, and moves its running ones: not in evaluation, nor where samples leave them alone."""
    return norm.training and norm.track_running_stats and norm.momentum is not None and norm.affine
