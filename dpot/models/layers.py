"""Layers the generators share."""

from __future__ import annotations

import torch
from torch import Tensor, nn


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
    a few channels is ten times slower than these products on some CPUs.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, size: int) -> None:
        super().__init__(inputs, outputs, kernel, padding=kernel // 2)
        self.size = size
        half = kernel // 2
        padded = nn.functional.pad(bilinear_matrix(size), (0, 0, half, half))
        columns = torch.stack([padded[j : j + 2 * size].T for j in range(kernel)])
        self.register_buffer("rows_up", padded, persistent=False)  # (2·size + kernel − 1, size)
        self.register_buffer("columns_up", columns, persistent=False)  # (kernel, size, 2·size)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, size, size) → (N, outputs, 2·size, 2·size)."""
        count, inputs, size, _ = x.shape
        kernel, outputs = self.kernel_size[0], self.out_channels
        rows_up: Tensor = self.rows_up  # type: ignore[assignment]
        columns_up: Tensor = self.columns_up  # type: ignore[assignment]
        high = rows_up @ x.permute(2, 0, 1, 3).reshape(size, -1)
        high = high.view(-1, count, inputs * size)
        windows = torch.cat([high[i : i + 2 * size] for i in range(kernel)], dim=2)
        across = torch.einsum("ocij,jvw->icvow", self.weight, columns_up).reshape(-1, outputs * 2 * size)
        out = windows.view(-1, kernel * inputs * size) @ across
        out = out.view(2 * size, count, outputs, 2 * size).permute(1, 2, 0, 3)
        return out if self.bias is None else out + self.bias[:, None, None]
