"""An exponential moving average of a module's weights, updated on the device inside the step."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from dpot.ranges import Count, Fraction


class EMA:
    """θ̄ ← d·θ̄ + (1 - d)·θ after every step, with d = min(decay, t/(t + 9)) at the t-th time.

    The bound on d is for short trainings: while t is small the average is over the last tenth of the steps, and
    the weights of the beginning, which are no result, are soon out of it.

    `module` is the averaged copy. Buffers (BatchNorm's statistics, counters) are averages or counts already
    and are copied, not averaged. The average of released weights is post-processing: it costs no privacy.

    every: for millions of steps, only before each step whose number is a multiple of it. That costs nothing to speak
    of, and θ - θ̄ times a share of a millionth would be lost in single precision.
    """

    def __init__(self, source: nn.Module, decay: Fraction, every: Count = 1) -> None:
        self.decay, self.every = decay, every
        self.module = copy.deepcopy(source).requires_grad_(False)
        self._average: list[Tensor] = list(self.module.parameters())
        self._weights: list[Tensor] = list(source.parameters())
        self._copies, self._buffers = list(self.module.buffers()), list(source.buffers())
        device = self._average[0].device if self._average else None
        self.updates = torch.zeros((), dtype=torch.float64, device=device)  # on the device: a captured step counts too

    @torch.no_grad()
    def update(self) -> None:
        """One averaging step: a few fused launches, whatever the number of tensors."""
        self.updates.add_(1)
        if self._weights:
            # θ̄ + (θ - θ̄)·(1 - d), in this order, so that equal weights stay exactly equal
            share = (9 / (self.updates + 9)).clamp(min=1 - self.decay).to(self._average[0].dtype)
            distance = torch._foreach_sub(self._weights, self._average)
            torch._foreach_mul_(distance, share)
            torch._foreach_add_(self._average, distance)
        if self._buffers:
            torch._foreach_copy_(self._copies, self._buffers)
