"""What a method that trains a classifier is given, and what it must do with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from dpot.methods.gate import Gate
from dpot.methods.work import Loss
from dpot.privacy.budget import Budget
from dpot.privacy.wdp.budget import BayesianBudget, WassersteinBudget
from dpot.record import name_of_code
from dpot.training.checkpoint import CheckpointPolicy
from dpot.training.engine import Engine
from dpot.training.progress import Progress


@dataclass
class EpochLog:
    """The test accuracy after each epoch; part of the checkpoint, so that a resumed run has them all."""

    accuracies: dict[int, float] = field(default_factory=dict)  # by step

    def state_dict(self) -> Mapping[str, Any]:
        """For the checkpoint."""
        return {"accuracies": [[step, value] for step, value in self.accuracies.items()]}

    def load_state_dict(self, state_dict: Any) -> None:
        """From the checkpoint."""
        self.accuracies = {int(step): float(value) for step, value in state_dict["accuracies"]}


@dataclass(kw_only=True)
class Classification(Gate):
    """Private images with labels, a network to train on them, and the terms.

    Whatever is taken from `images` or `labels` leaves through `release` (dpot/methods/gate.py). Batches are drawn with
    the generator of `noise`, which does not follow the experiment seed. `random` does: public masks.
    """

    images: Tensor  # (N, C, H, W), pixels in [0, 1]
    labels: Tensor
    network: nn.Module
    accuracy: Callable[[], float]  # on the test images, in per cent
    batch: int
    epochs: int
    learning_rate: float
    noise_multiplier: float  # the paper's σ for these data
    budget: Budget
    random: torch.Generator
    max_steps: int | None = None
    checkpoints: Path | None = None
    fingerprint: str = ""
    progress: Progress = field(default_factory=lambda: Progress("silent"))
    name: str = "training"
    log: EpochLog = field(default_factory=EpochLog)

    def private_records(self) -> int:
        """Those that the ledger guards."""
        return len(self.images)

    @property
    def device(self) -> torch.device:
        """Where everything lives."""
        return self.images.device

    @property
    def rate(self) -> float:
        """q = B/N."""
        return min(self.batch, len(self.images)) / len(self.images)

    @property
    def steps_per_epoch(self) -> int:
        """⌈N/B⌉, as the paper counts them."""
        return -(-len(self.images) // self.batch)

    @property
    def steps(self) -> int:
        """All steps, cut to the profile's."""
        wanted = self.epochs * self.steps_per_epoch
        return min(wanted, self.max_steps or wanted)

    def engine(
        self,
        step: Callable[[], Mapping[str, Tensor]],
        *,
        optimizer: Optimizer,
        before: Callable[[int], None],
        every: Mapping[int, Callable[[int], None]] | None = None,
        tensors: Mapping[str, Tensor] | None = None,
    ) -> Engine:
        """The engine for this step; the accuracy is measured after every epoch."""

        due: dict[int, list[Callable[[int], None]]] = {self.steps_per_epoch: [self._measure]}
        for period, action in (every or {}).items():
            due.setdefault(period, []).append(action)

        def all_of(actions: list[Callable[[int], None]]) -> Callable[[int], None]:
            def run(at: int) -> None:
                for action in actions:
                    action(at)

            return run

        return Engine(
            step,
            modules={"network": self.network},
            optimizer=optimizer,
            generators={"random": self.random, "noise": self.noise.generator},
            steps=self.steps,
            tensors=tensors,
            every={period: all_of(actions) for period, actions in due.items()},
            before=before,
            extra_state={"ledger": self.ledger, "epochs": self.log},
            checkpoint=CheckpointPolicy(self.checkpoints, every_seconds=60, code=name_of_code())
            if self.checkpoints
            else None,
            fingerprint=self.fingerprint,
            report=self.progress,
            name=self.name,
        )

    def _measure(self, at: int) -> None:
        if at:
            self.log.accuracies[at] = self.accuracy()


class Trainer(Loss, ABC):
    """Trains the network of a classification. Reads its parameters from its config node, one file per method."""

    tasks: ClassVar[tuple[str, ...]] = ("classify",)
    norm: ClassVar[Literal["batch", "group"]] = "batch"

    @abstractmethod
    def prepare(self, problem: Classification) -> Engine:
        """The engine that trains problem.network, not yet run."""

    @abstractmethod
    def budgets(self, problem: Classification, steps: Sequence[int]) -> Budgets:
        """What every accountant says, after the training, of each of these numbers of steps and of all of it."""


@dataclass(frozen=True)
class Budgets:
    """The budgets of a training: numbers after each epoch by name, and in their own types after the last step.

    Names that are not `epsilon` are no ε (docs/wdp.md).
    """

    running: Mapping[str, Sequence[float]] = field(default_factory=dict)
    final: Sequence[WassersteinBudget | BayesianBudget] = ()
