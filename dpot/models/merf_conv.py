"""The convolutional generator of DP-MERF, which DP-SWD uses too (167,161 parameters for 28×28, 10 classes)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dpot.errors import UsageError
from dpot.models.generator import Generator, one_hot
from dpot.models.layers import UpsampledConv2d
from dpot.ranges import Count


class MerfConv(Generator):
    """code + one-hot → FC 200 → FC 16×7×7 → ×2, conv5 16→8 → ×2, conv5 8→1, sigmoid.

    The DP-SWD paper prints the second layer's shape as 28×28; 784 values are reshaped to 16×7×7, as
    DP-MERF's own code does and as the parameter count requires.
    """

    def __init__(
        self,
        classes: int,
        shape: tuple[int, int, int],
        code_size: Count = 10,
        hidden: Count = 200,
        channels: tuple[int, int] = (16, 8),
    ) -> None:
        super().__init__(code_size, classes, tuple(shape))  # type: ignore[arg-type]
        colours, height, width = shape
        if height != width or height % 4:
            raise UsageError(f"generator=merf_conv: images must be square with a side divisible by 4, not {shape}")
        first, second = channels
        self.side, self.first = height // 4, first
        features = first * self.side**2
        self.dense = nn.Sequential(
            nn.Linear(code_size + classes, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, features),
            nn.BatchNorm1d(features),
        )
        self.convolutions = nn.Sequential(
            UpsampledConv2d(first, second, 5, self.side),
            nn.ReLU(),
            UpsampledConv2d(second, colours, 5, 2 * self.side),
            nn.Sigmoid(),
        )

    def forward(self, code: Tensor, labels: Tensor) -> Tensor:
        """Images in [0, 1]."""
        features = self.dense(torch.cat([code, one_hot(labels, self.classes)], dim=1))
        rows_first = features.view(-1, self.first, self.side, self.side).permute(2, 0, 1, 3)
        return self.convolutions(rows_first).permute(1, 2, 0, 3)
