"""What was released of a table by its marginals, in memory and as a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dpot.methods.sketch.file import CERTAIN
from dpot.methods.sketch.marginals import Marginals
from dpot.models.product_mixture import Column


@dataclass(frozen=True)
class TableRelease:
    """Everything that was released of a table, and nothing else of it."""

    shape: tuple[int, int, int]
    classes: int
    records: int  # public
    counts: Tensor  # (classes,) as all blocks say
    deviation: float  # of the noise in each of `counts`, in records: at most this
    columns: list[Column]
    marginals: Marginals
    generator: dict[str, Tensor] = field(default_factory=dict)
    statement: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    digest: str = field(default="", compare=False)

    @property
    def uncertain(self) -> list[int]:
        """Classes whose count does not stand out of the noise."""
        return torch.nonzero(self.counts < CERTAIN * self.deviation).flatten().tolist() if self.classes > 1 else []

    @property
    def shares(self) -> Tensor:
        """What part of the records each class has; uncertain classes have none, unless all are."""
        counts = self.counts.double().clamp(min=0)
        certain = counts.clone()
        certain[self.uncertain] = 0
        chosen = certain if certain.any() else counts
        return chosen / chosen.sum()
