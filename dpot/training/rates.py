"""The learning rates of a training: base rate × schedule, readable by a captured step.

A CUDA graph replays the same kernels on the same addresses, so a rate that changes must live in a device
tensor. The factors of a chunk of steps are copied to the device before the chunk, and each step picks its
own by a device counter: every step has its exact rate, wherever the chunks begin and end.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.optim import SGD, Adadelta, Adam, Adamax, AdamW, Optimizer, RAdam, RMSprop

from dpot import kernels
from dpot.training.schedules import Constant, Schedule

# Optimizers whose state begins at zero. A captured step reads state tensors that must exist before the
# capture, and for these "zero" and "not there yet" mean the same.
ZERO_START = (SGD, Adam, AdamW, RMSprop, Adadelta, Adamax, RAdam)


def capture_obstacle(optimizer: Optimizer) -> str | None:
    """Why this optimizer's step cannot be captured in a CUDA graph; None if it can."""
    name = type(optimizer).__name__
    if type(optimizer) not in ZERO_START:
        return f"the state of {name} does not begin at zero"
    if any(group.get("momentum") and group.get("dampening") for group in optimizer.param_groups):
        return f"{name} with dampening treats its first step differently"
    return None


class LearningRates:
    """Sets lr = base·schedule(step) in every parameter group, before every step."""

    def __init__(
        self, optimizers: Mapping[str, Optimizer], schedule: Schedule, device: torch.device, capacity: int
    ) -> None:
        self._optimizers = optimizers
        self._schedule = schedule
        self._constant = isinstance(schedule, Constant)
        self._bases = {
            (name, i): float(group["lr"])
            for name, optimizer in optimizers.items()
            for i, group in enumerate(optimizer.param_groups)
        }
        self._device = device
        self._factors = torch.ones(capacity, device=device)
        self._host: list[float] = []
        self._on_device: dict[tuple[str, int], Tensor] = {}
        self.adopt()

    def adopt(self) -> None:
        """Make the optimizers capturable on CUDA, and their rates device tensors (again after a load)."""
        for name, optimizer in self._optimizers.items():
            capturable = self._device.type == "cuda" and capture_obstacle(optimizer) is None
            # Torch warns of capturable=True outside a capture; warm-up and the eager fallback are just that.
            optimizer._warned_capturable_if_run_uncaptured = True
            for i, group in enumerate(optimizer.param_groups):
                base = self._bases[name, i]
                if not capturable:
                    group["lr"] = base
                    continue
                if "capturable" in group:
                    group["capturable"] = True
                if "fused" in group:
                    # One launch where the others take a dozen, and the only SGD that reads its rate from the device.
                    group["fused"], group["foreach"] = True, False
                if kernels.has_triton():
                    kernels.adam.spread(optimizer)
                rate = self._on_device.setdefault((name, i), torch.empty((), device=self._device))
                group["lr"] = rate.fill_(base)

    def begin_chunk(self, step: int, n: int) -> None:
        """Have the factors of the n steps from `step` on at hand."""
        if self._constant:
            return
        factors = self._schedule(torch.arange(step, step + n, dtype=torch.float64))
        self._host = factors.tolist()
        self._factors[:n].copy_(factors)

    def apply(self, position: Tensor) -> None:
        """Set the rates of the step at `position` (a device counter within the chunk).

        No synchronisation, but for optimizers on CUDA that cannot be captured: they want a plain number.
        """
        if self._constant:
            return
        if self._on_device:
            factor = self._factors.index_select(0, position).squeeze(0)
            for key, rate in self._on_device.items():
                torch.mul(factor, self._bases[key], out=rate)
        if len(self._on_device) < len(self._bases):
            factor_now = self._host[int(position)]
            for (name, i), base in self._bases.items():
                if (name, i) not in self._on_device:
                    self._optimizers[name].param_groups[i]["lr"] = base * factor_now

    def current(self, step: int) -> dict[str, float]:
        """The rate of each group at a step, by name, for messages."""
        factor = float(self._schedule(torch.tensor([float(step)], dtype=torch.float64)))
        return {f"{name}[{i}]": base * factor for (name, i), base in self._bases.items()}
