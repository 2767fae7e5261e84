"""What a generative method is given, and what it must do with it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.optim import Optimizer

from dpot.errors import PrivacyError, UsageError
from dpot.models.generator import Generator, synthesize
from dpot.privacy.budget import Budget
from dpot.privacy.events import Event, NonPrivate
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.record import write_atomically
from dpot.training.checkpoint import CheckpointPolicy
from dpot.training.ema import EMA
from dpot.training.engine import Engine, Outcome
from dpot.training.progress import Progress
from dpot.training.schedules import Schedule

LARGEST_RATE = 5e-4  # of a shortened training


@dataclass
class Problem:
    """Private images, a generator to train on them, and the budget to do it with.

    Whatever touches `images` or `labels` must go through `ledger`; whatever hides them draws from `noise`, which
    does not follow the experiment seed. `random` does: initial weights, codes, generated labels.
    """

    images: Tensor  # (N, C, H, W), pixels in [0, 1]
    labels: Tensor  # (N,)
    classes: int
    generator: Generator
    budget: Budget
    ledger: Ledger
    noise: NoiseSource
    random: torch.Generator
    max_steps: int | None = None
    batch_statistics: bool = False  # how BatchNorm normalises when samples are drawn (see synthesize)
    checkpoints: Path | None = None
    fingerprint: str = ""
    progress: Progress = field(default_factory=lambda: Progress("silent"))
    name: str = "training"
    engines: list[Engine] = field(default_factory=list)
    average: EMA | None = None

    @property
    def device(self) -> torch.device:
        """Where everything lives."""
        return self.images.device

    def steps(self, wanted: int) -> int:
        """The method's number of steps, cut to the profile's."""
        return min(wanted, self.max_steps or wanted)

    def rate(self, learning_rate: float, wanted: int) -> float:
        """The method's learning rate, larger where a profile cuts the `wanted` steps.

        Adam's way is about rate × steps long: it is kept, up to rates of LARGEST_RATE, so that a short training by a
        method made for millions of small steps gets somewhere. Such a run is never called comparable.
        """
        steps = self.steps(wanted)
        return (
            learning_rate if steps == wanted else max(learning_rate, min(LARGEST_RATE, learning_rate * wanted / steps))
        )

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
        """The engine for this step, with the problem's generators, checkpoints, ledger and progress.

        A method that trains in several parts names each, so that their checkpoints are kept apart.
        """
        folder = self.checkpoints / part if self.checkpoints and part else self.checkpoints
        modules: dict[str, nn.Module] = {"generator": self.generator}
        engine = Engine(
            step,
            modules=modules,
            optimizer=optimizer,
            generators={"random": self.random, "noise": self.noise.generator},
            steps=steps,
            schedule=schedule,
            ema=ema,
            tensors=tensors,
            every=every,
            before=before,
            extra_state={"ledger": self.ledger},
            checkpoint=CheckpointPolicy(folder, every_seconds=60) if folder else None,
            fingerprint=self.fingerprint,
            report=self.progress,
            name=f"{self.name}, {part}" if part else self.name,
        )
        self.engines.append(engine)
        self.average = ema
        return engine

    def settle(self) -> None:
        """After the last step: the averaged weights, where there are some, become the generator's."""
        if self.average is not None:
            self.generator.load_state_dict(self.average.module.state_dict())

    def keep_release(self, name: str, make: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """A one-shot release: made once, and read back by a run that resumes, which must not draw it again.

        It holds whatever belongs to the release (public directions too: on another device the seed would give
        others). What is kept is already private, so the file may stay beside the record.
        """
        if self.checkpoints is None:
            return make()
        owner = hashlib.sha256(self.fingerprint.encode()).hexdigest()[:12]  # of this configuration and these data
        path = self.checkpoints.parent / f"release-{name}-{owner}.safetensors"
        if path.exists():
            kept = load_file(path)
        else:
            kept = {key: tensor.cpu().contiguous() for key, tensor in make().items()}
            write_atomically(path, save(kept))
        return {key: tensor.to(self.device) for key, tensor in kept.items()}

    def charging(self, event: Event, source: str, sampler: str, steps: int) -> Callable[[int], None]:
        """A hook that charges `event` once per step, before the steps are made.

        Whether all of them fit the budget is known now, and said now, not after an hour of training.
        """
        if self.budget.epsilon is not None and not isinstance(event, NonPrivate):
            affordable = self.ledger.affordable(event)
            if affordable < steps:
                raise PrivacyError(
                    f"{steps} steps with this noise exceed the budget of epsilon={self.budget.epsilon:g}, which allows "
                    f"{affordable}: take fewer steps, more noise (or let it be calibrated), or raise privacy.epsilon"
                )
        drawn = str(event.sampler) if isinstance(event, NonPrivate) else sampler  # no noise: no sampler helps

        def before(count: int) -> None:
            self.ledger.charge(event, count=count, source=source, sampler=drawn)

        return before


class Method:
    """Trains the problem's generator. Reads its parameters from its config node, one file per method.

    Most methods define `prepare`; one that does not train step by step defines `fit` instead.
    """

    private: ClassVar[bool] = True

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
