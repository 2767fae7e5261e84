"""Labelled data as plain points: the augmentation of the optimal-transport dataset distance.

    z = [x; m; s],  m the mean and s = √diag Σ of the points that share the label of x

‖z - z'‖² = ‖x - x'‖² + ‖m - m'‖² + ‖s - s'‖², and the last two terms are the squared Wasserstein distance of the two
classes taken as Gaussians with diagonal covariance (Alvarez-Melis & Fusi 2020; the commuting case of Bures' formula).
So any method for points compares labelled data. With global statistics all points carry those of the whole data set.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from dpot.errors import UsageError

Statistics = Literal["none", "class", "global"]


def augmented(x: Tensor, labels: Tensor | None, statistics: Statistics) -> Tensor:
    """x (n, d) with the mean and the standard deviation of its class, or of all points, beside it: (n, 3d)."""
    if statistics == "none":
        return x
    if statistics == "global":
        groups = torch.zeros(len(x), dtype=torch.int64)
    elif labels is None:
        raise UsageError("statistics=class needs labels: use statistics=global or none")
    else:
        groups = labels
    mean, deviation = torch.empty_like(x), torch.empty_like(x)
    for group in groups.unique():
        rows = groups == group
        mean[rows] = x[rows].mean(0)
        # one point has no spread: 0, where the n - 1 rule would give NaN
        deviation[rows] = x[rows].std(0) if int(rows.sum()) > 1 else 0.0
    return torch.cat((x, mean, deviation), 1)
