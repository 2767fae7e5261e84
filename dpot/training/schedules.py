"""Learning-rate schedules: the factor on the base learning rate, as a pure function of the step number.

A schedule is asked for a whole chunk of steps at once. It depends on nothing but the step number, so a
resumed run has the same rates as an uninterrupted one, and a captured step reads its rate from the device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from dpot.ranges import Count, Fraction, Positive


class Schedule(Protocol):
    """Maps step numbers (float64, from 0) to the factors on the base learning rate."""

    def __call__(self, step: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Constant:
    """factor(t) = 1."""

    def __call__(self, step: Tensor) -> Tensor:
        return torch.ones_like(step)


@dataclass(frozen=True)
class StepDecay:
    """factor(t) = factor^⌊t / every⌋; DP-MERF: every = the steps of an epoch, factor = 0.9."""

    every: Count
    factor: Positive

    def __call__(self, step: Tensor) -> Tensor:
        return self.factor ** torch.floor(step / self.every)


@dataclass(frozen=True)
class Cosine:
    """factor(t) = final + (1 - final)·(1 + cos(π·min(t, steps)/steps))/2: from 1 at t=0 to `final`."""

    steps: Count
    final: Fraction = 0.0

    def __call__(self, step: Tensor) -> Tensor:
        along = torch.clamp(step / self.steps, max=1.0)
        return self.final + (1 - self.final) * (1 + torch.cos(math.pi * along)) / 2


@dataclass(frozen=True)
class Warmup:
    """factor(t) = (t+1)/steps for t < steps, then the schedule `then`, which starts counting there.

    The ramp begins at 1/steps rather than 0, so that no charged private step is spent on a zero rate.
    """

    steps: Count
    then: Schedule = field(default_factory=Constant)

    def __call__(self, step: Tensor) -> Tensor:
        after = self.then(torch.clamp(step - self.steps, min=0.0))
        return torch.where(step < self.steps, (step + 1) / self.steps, after)
