"""A mean image for each class and a few factors: the smallest generator that makes images differ, ours.

Where noise drowns the gradient, every weight walks at random; the fewer stand between it and the images, the less they
wander. For trainings of minutes and for small data.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dpot.models.generator import Generator
from dpot.ranges import Count

START = 0.05  # the standard deviation of a pixel along a factor, before training


class Linear(Generator):
    """tanh(mean of the class + code · factors), the code being standard normal."""

    pixel_range = (-1.0, 1.0)

    def __init__(self, classes: int, shape: tuple[int, int, int], code_size: Count = 3) -> None:
        super().__init__(code_size, classes, tuple(shape))  # type: ignore[arg-type]
        self.means = nn.Parameter(torch.zeros(classes, *shape))
        self.factors = nn.Parameter(START * torch.randn(code_size, *shape))

    def forward(self, code: Tensor, labels: Tensor) -> Tensor:
        """Images in [-1, 1]."""
        away = (code @ self.factors.flatten(1)).view(-1, *self.shape)
        return torch.tanh(self.means.index_select(0, labels) + away)
