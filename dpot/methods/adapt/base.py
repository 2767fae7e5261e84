"""What a domain-adaptation method is given, and what it must do with it.

The source is public, with its labels. The target's records are private; its labels are never handed to a method
(but to the ceiling that trains on them). All methods of a data set share network, optimiser and source training;
they differ in what pulls the features of the two domains together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpot.errors import UsageError
from dpot.methods.gate import Release
from dpot.methods.work import Loss, Work
from dpot.models.adaptation import Network
from dpot.ranges import Count, NonNegative, NonNegativeInt, Positive
from dpot.training.backward import weighted_backward
from dpot.training.engine import Engine
from dpot.training.samplers import Sampler, ShuffledEpochs

Stage = Callable[[], Engine]  # made when its turn comes: it begins where the stage before it ended


@dataclass(kw_only=True)
class AdaptationProblem(Work):
    """A labelled public source, an unlabelled private target, a network to train on both."""

    source: Tensor
    labels: Tensor  # of the source
    target: Tensor
    classes: int
    network: Network
    target_labels: Tensor | None = None  # only for a method that says it reads them

    def private_records(self) -> int:
        """Those of the target."""
        return len(self.target)

    def stage(
        self,
        name: str,
        step: Callable[[], Mapping[str, Tensor]],
        *,
        steps: int,
        optimizer: torch.optim.Optimizer,
        extra: Mapping[str, nn.Module],
        samplers: Sequence[Sampler],
        before: Callable[[int], None] | None = None,
    ) -> Engine:
        """The engine of one stage: network and extra modules, with those of the samplers reshuffled that need it."""
        shuffled = [sampler for sampler in samplers if isinstance(sampler, ShuffledEpochs)]
        periods: dict[int, list[ShuffledEpochs]] = {}
        for sampler in shuffled:
            periods.setdefault(sampler.period, []).append(sampler)
        return self.build_engine(
            step,
            modules={"network": self.network, **extra},
            steps=steps,
            optimizer=optimizer,
            part=name,
            before=before,
            every={period: _reshuffle(mine) for period, mine in periods.items()},
            tensors={f"{key} {i}": tensor for i, s in enumerate(shuffled) for key, tensor in s.tensors.items()},
        )


class AdaptationMethod(Loss, ABC):
    """Trains the problem's network, in stages. Reads its parameters from its config node, one file per method."""

    tasks: ClassVar[tuple[str, ...]] = ("adapt",)
    reads_target_labels: ClassVar[bool] = False

    @abstractmethod
    def stages(self, problem: AdaptationProblem) -> list[tuple[str, Stage]]:
        """The trainings to run one after the other, each with its name."""


class SourceThenAlign(AdaptationMethod):
    """Source training first, then source training with an alignment term; one Adam for both.

    An epoch is one pass over the source. `source_epochs`: alignment starts after epoch 10 counted from 0, that is
    after 11 epochs (DP-SWD's code: 89 of 100 epochs are aligned).
    """

    def __init__(
        self,
        batch: Count = 128,
        epochs: Count = 100,
        source_epochs: NonNegativeInt = 11,
        learning_rate: Positive = 5e-4,
        weight: NonNegative = 0.05,
    ) -> None:
        if source_epochs > epochs:
            raise UsageError(f"loss.source_epochs={source_epochs}: more than the {epochs} epochs there are")
        self.batch, self.epochs, self.source_epochs = batch, epochs, source_epochs
        self.learning_rate, self.weight = learning_rate, weight

    def plan(self, problem: AdaptationProblem) -> tuple[int, int]:
        """Steps of source training and of alignment; a small profile shortens both alike."""
        per_epoch = max(1, len(problem.source) // self.batch)
        total, first = self.epochs * per_epoch, self.source_epochs * per_epoch
        steps = problem.steps(total)
        first = round(first * steps / total)
        if 0 < self.source_epochs < self.epochs:
            first = min(max(first, 1), steps - 1)
        return first, steps - first

    def stages(self, problem: AdaptationProblem) -> list[tuple[str, Stage]]:
        """Source training, then alignment, as long as each has steps."""
        first, second = self.plan(problem)
        extra = self.extra_modules(problem)
        optimizer = adam([problem.network, *extra.values()], self.learning_rate)
        sampler = public_batches(problem, self.batch)
        stages: list[tuple[str, Stage]] = []
        if first:
            stages.append(
                (
                    "source",
                    lambda: supervised(problem, problem.source, problem.labels, extra, optimizer, sampler, first),
                )
            )
        if second:
            stages.append(("alignment", lambda: self.alignment(problem, extra, optimizer, sampler, second)))
        return stages

    def extra_modules(self, problem: AdaptationProblem) -> dict[str, nn.Module]:
        """What is trained beside the network (a discriminator)."""
        return {}

    @abstractmethod
    def alignment(
        self,
        problem: AdaptationProblem,
        extra: Mapping[str, nn.Module],
        optimizer: torch.optim.Optimizer,
        sampler: ShuffledEpochs,
        steps: int,
    ) -> Engine:
        """The engine of the second stage."""


def supervised(
    problem: AdaptationProblem,
    records: Tensor,
    labels: Tensor,
    extra: Mapping[str, nn.Module],
    optimizer: torch.optim.Optimizer,
    sampler: ShuffledEpochs,
    steps: int,
    release: Release | None = None,
    stage: str = "source",
) -> Engine:
    """Plain training of the network on labelled records: the first stage of every method.

    release: through which private records pass, without noise; public ones need none.
    """

    backward = weighted_backward(problem.device, 1.0)

    def step() -> dict[str, Tensor]:
        drawn = sampler.draw()
        rows = drawn.rows(records), drawn.rows(labels)
        inputs, targets = rows if release is None else release.bare(rows)
        loss = functional.cross_entropy(problem.network(inputs), targets)
        backward(loss)
        optimizer.step()
        return {"loss": loss}

    before = None if release is None else release.charge
    return problem.stage(stage, step, steps=steps, optimizer=optimizer, extra=extra, samplers=[sampler], before=before)


def adam(modules: Sequence[nn.Module], learning_rate: float) -> torch.optim.Adam:
    """The optimiser of DP-SWD's experiments: Adam with betas (0.5, 0.999)."""
    return torch.optim.Adam([p for m in modules for p in m.parameters()], lr=learning_rate, betas=(0.5, 0.999))


def public_batches(problem: AdaptationProblem, batch: int) -> ShuffledEpochs:
    """Shuffled epochs of the source. It is public, so the order may follow the experiment seed."""
    if batch > len(problem.source):
        raise UsageError(f"loss.batch={batch}: the source has {len(problem.source)} records only")
    return ShuffledEpochs(len(problem.source), batch, problem.random)


def _reshuffle(samplers: Sequence[ShuffledEpochs]) -> Callable[[int], None]:
    def action(step: int) -> None:
        for sampler in samplers:
            sampler.reshuffle(step)

    return action
