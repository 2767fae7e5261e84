"""A generator of table rows, scaled to [0, 1]: a small residual network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dpot.models.generator import Generator, one_hot
from dpot.ranges import Count


class TableGenerator(Generator):
    """code + label → two hidden layers with batch normalisation → sigmoid; rows have shape (columns, 1, 1)."""

    def __init__(self, classes: int, shape: tuple[int, int, int], code_size: Count = 32, hidden: Count = 256) -> None:
        super().__init__(code_size, classes, shape)
        self.first = nn.Sequential(nn.Linear(code_size + classes, hidden), nn.BatchNorm1d(hidden), nn.ReLU())
        self.second = nn.Sequential(nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden), nn.ReLU())
        self.last = nn.Linear(2 * hidden, shape[0] * shape[1] * shape[2])

    def forward(self, code: Tensor, labels: Tensor) -> Tensor:
        """(N, code_size), (N,) → (N, columns, 1, 1) in [0, 1]."""
        first = self.first(torch.cat([code, one_hot(labels, self.classes)], 1))
        return torch.sigmoid(self.last(torch.cat([first, self.second(first)], 1))).view(-1, *self.shape)
