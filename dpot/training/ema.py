"""An exponential moving average of a module's weights, updated on the device inside the step."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from dpot.ranges import Fraction


class EMA:
    """θ̄ ← decay·θ̄ + (1 - decay)·θ after every step, beginning at the weights as they are now.

    `module` is the averaged copy. Buffers (BatchNorm's statistics, counters) are averages or counts already
    and are copied, not averaged. The average of released weights is post-processing: it costs no privacy.
    """

    def __init__(self, source: nn.Module, decay: Fraction) -> None:
        self.decay = decay
        self.module = copy.deepcopy(source).requires_grad_(False)
        self._average: list[Tensor] = list(self.module.parameters())
        self._weights: list[Tensor] = list(source.parameters())
        self._copies, self._buffers = list(self.module.buffers()), list(source.buffers())

    @torch.no_grad()
    def update(self) -> None:
        """One averaging step; two fused launches, whatever the number of tensors."""
        if self._weights:
            torch._foreach_lerp_(self._average, self._weights, 1 - self.decay)
        if self._buffers:
            torch._foreach_copy_(self._copies, self._buffers)
