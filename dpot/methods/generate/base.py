"""What a generative method is given, and what it must do with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from dpot.errors import UsageError
from dpot.methods.work import Loss, Work
from dpot.models.generator import Generator, settle_statistics, synthesize
from dpot.training.ema import EMA
from dpot.training.engine import Engine, Outcome
from dpot.training.schedules import Schedule


@dataclass(kw_only=True)
class Problem(Work):
    """Private images, a generator to train on them, and the budget to do it with.

    `images` and `labels` are what the ledger guards.
    """

    images: Tensor  # (N, C, H, W), pixels in [0, 1]
    labels: Tensor  # (N,)
    classes: int
    generator: Generator
    batch_statistics: bool = False  # how BatchNorm normalises when samples are drawn (see synthesize)
    average: EMA | None = None

    def private_records(self) -> int:
        """Those that the ledger guards."""
        return len(self.images)

    def engine(
        self,
        step: Callable[[], Mapping[str, Tensor]],
        *,
        steps: int,
        optimizer: Optimizer,
        ema: EMA | None = None,
        schedule: Schedule | None = None,
        tensors: Mapping[str, Tensor] | None = None,
        every: Mapping[int, Callable[[int], None]] | None = None,
        before: Callable[[int], None] | None = None,
        part: str | None = None,
    ) -> Engine:
        """The engine that trains the generator by this step."""
        engine = self.build_engine(
            step,
            modules={"generator": self.generator},
            steps=steps,
            optimizer=optimizer,
            part=part,
            ema=ema,
            schedule=schedule,
            tensors=tensors,
            every=every,
            before=before,
        )
        self.average = ema
        return engine

    def settle(self, per_class: int = 1) -> None:
        """After the last step: the averaged weights, where there are some, become the generator's.

        BatchNorm's statistics are taken anew, from batches of `per_class` images of each class or more.
        """
        if self.average is not None:
            self.generator.load_state_dict(self.average.module.state_dict())
            settle_statistics(self.generator, per_class, self.random, self.device)


class Method(Loss):
    """Trains the problem's generator. Reads its parameters from its config node, one file per method.

    Most methods define `prepare`; one that does not train step by step defines `fit` instead.
    """

    tasks: ClassVar[tuple[str, ...]] = ("generate",)

    def prepare(self, problem: Problem) -> Engine | None:
        """The engine that trains problem.generator, not yet run; None: this method only knows `fit`."""
        return None

    def fit(self, problem: Problem) -> Outcome:
        """Train problem.generator in place."""
        engine = self.prepare(problem)
        if engine is None:
            raise NotImplementedError(f"{type(self).__name__} defines neither prepare nor fit")
        outcome = engine.run()
        problem.settle()
        return outcome

    def draw(self, problem: Problem, count: int) -> tuple[Tensor, Tensor]:
        """`count` images in [0, 1] to be judged, with their labels."""
        return synthesize(
            problem.generator, count, problem.random, problem.device, batch_statistics=problem.batch_statistics
        )


def require_labels(problem: Problem, method: str, per_class: int) -> list[int]:
    """The class sizes; a class with too few records for its share of a batch is refused by name."""
    sizes = torch.bincount(problem.labels, minlength=problem.classes).tolist()
    for label, size in enumerate(sizes):
        if size < per_class:
            raise UsageError(f"loss={method}: class {label} has {size} records, fewer than the {per_class} of a batch")
    return [int(size) for size in sizes]
