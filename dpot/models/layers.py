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


class BilinearUpsample(nn.Module):
    """Bilinear ×2 as the fixed linear map x ↦ A x Aᵀ.

    The same numbers as torch's own up-sampling, whose backward pass uses atomics and takes three
    quarters of a DP-MERF generator's step; two small matrix products do not.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("matrix", bilinear_matrix(size), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, size, size) → (N, C, 2·size, 2·size)."""
        matrix: Tensor = self.matrix  # type: ignore[assignment]
        return matrix @ x @ matrix.T
