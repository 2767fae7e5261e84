"""DP-CGAN's two networks, each with one hidden layer (115,344 and 101,889 parameters on 28×28 and ten classes)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dpot.models.generator import Generator, one_hot
from dpot.ranges import Count


def layers(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Linear, ReLU, linear; weights begin with a variance of 2/inputs, biases at zero, as published."""
    first, last = nn.Linear(inputs, hidden), nn.Linear(hidden, outputs)
    for layer in (first, last):
        nn.init.normal_(layer.weight, std=math.sqrt(2 / layer.in_features))
        nn.init.zeros_(layer.bias)
    return nn.Sequential(first, nn.ReLU(), last)


class CGANMLP(Generator):
    """U(-1, 1)^100 and a one-hot label → 128 → pixels, sigmoid."""

    def __init__(self, classes: int, shape: tuple[int, int, int], code_size: Count = 100, hidden: Count = 128) -> None:
        super().__init__(code_size, classes, tuple(shape))  # type: ignore[arg-type]
        self.layers = layers(code_size + classes, hidden, math.prod(shape))

    def code(self, count: int, generator: torch.Generator, device: torch.device | str) -> Tensor:
        """Uniform on the cube of side 2 about zero."""
        return 2 * torch.rand(count, self.code_size, generator=generator, device=device) - 1

    def forward(self, code: Tensor, labels: Tensor) -> Tensor:
        """Images in [0, 1]."""
        joined = torch.cat([code, one_hot(labels, self.classes)], dim=1)
        return torch.sigmoid(self.layers(joined)).view(-1, *self.shape)
