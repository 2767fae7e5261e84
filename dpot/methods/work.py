"""What every private training is given, whatever it trains: budget, ledger, noise, checkpoints."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.optim import Optimizer

from dpot.errors import PrivacyError
from dpot.privacy.budget import Budget
from dpot.privacy.events import Event, NonPrivate
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.privacy.statement import Statement
from dpot.record import name_of_code, write_atomically
from dpot.training.checkpoint import CheckpointPolicy
from dpot.training.ema import EMA
from dpot.training.engine import Engine
from dpot.training.progress import Progress
from dpot.training.schedules import Schedule


class Loss:
    """What every method says of itself, so that what does not fit is refused before any data are read."""

    tasks: ClassVar[tuple[str, ...]] = ()  # those it is for, as in task=
    private: ClassVar[bool] = True
    keeps_epsilon: ClassVar[bool] = True  # False: a private method that has no (ε, δ) guarantee to keep


@dataclass(kw_only=True)
class Work:
    """The budget and the means of one run.

    Whatever touches private records must go through `ledger`; whatever hides them draws from `noise`, which does not
    follow the experiment seed. `random` does: initial weights, codes, directions.
    """

    budget: Budget
    ledger: Ledger
    noise: NoiseSource
    random: torch.Generator
    max_steps: int | None = None
    checkpoints: Path | None = None
    fingerprint: str = ""
    progress: Progress = field(default_factory=lambda: Progress("silent"))
    name: str = "training"
    engines: list[Engine] = field(default_factory=list)

    @property
    def device(self) -> torch.device:
        """Where everything lives."""
        return self.random.device

    def steps(self, wanted: int) -> int:
        """The method's number of steps, cut to the profile's."""
        return min(wanted, self.max_steps or wanted)

    def build_engine(
        self,
        step: Callable[[], Mapping[str, Tensor]],
        *,
        modules: Mapping[str, nn.Module],
        steps: int,
        optimizer: Optimizer,
        part: str | None = None,
        ema: EMA | None = None,
        schedule: Schedule | None = None,
        tensors: Mapping[str, Tensor] | None = None,
        every: Mapping[int, Callable[[int], None]] | None = None,
        before: Callable[[int], None] | None = None,
    ) -> Engine:
        """The engine for this step, with the run's generators, checkpoints, ledger and progress.

        A training in several parts names each, so that their checkpoints are kept apart.
        """
        folder = self.checkpoints / part if self.checkpoints and part else self.checkpoints
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
            checkpoint=CheckpointPolicy(folder, every_seconds=60, code=name_of_code()) if folder else None,
            fingerprint=self.fingerprint,
            report=self.progress,
            name=f"{self.name}, {part}" if part else self.name,
        )
        self.engines.append(engine)
        return engine

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
            with safe_open(path, "pt") as file:
                _note_other_code(self.ledger, f"the release {name}", (file.metadata() or {}).get("code"))
        else:
            kept = {key: tensor.cpu().contiguous() for key, tensor in make().items()}
            write_atomically(path, save(kept, {"code": name_of_code()}))
        return {key: tensor.to(self.device) for key, tensor in kept.items()}

    def statement(self) -> Statement:
        """What was released."""
        return statement_of(self.ledger, self.noise, self.engines)

    def charging(self, event: Event, source: str, sampler: str, steps: int) -> Callable[[int], None]:
        """A hook that charges `event` once per step, before the steps are made.

        Whether all of them fit the budget is known now, and said now, not after an hour of training.
        """
        if self.ledger.budget.epsilon is not None and not isinstance(event, NonPrivate):
            affordable = self.ledger.affordable(event)
            if affordable < steps:
                raise PrivacyError(
                    f"{steps} steps with this noise exceed the budget of epsilon={self.ledger.budget.epsilon:g}, which "
                    f"allows {affordable}: take fewer steps, more noise (or let it be calibrated), or raise "
                    "privacy.epsilon"
                )
        drawn = str(event.sampler) if isinstance(event, NonPrivate) else sampler  # no noise: no sampler helps

        def before(count: int) -> None:
            self.ledger.charge(event, count=count, source=source, sampler=drawn)

        return before


def statement_of(ledger: Ledger, noise: NoiseSource, engines: Iterable[Engine]) -> Statement:
    """What was released, with a word about steps that other code than the present made."""
    for engine in engines:
        last = {part["code"]: part["until"] for part in engine.outcome.earlier if part["until"]}
        for code, until in last.items():
            _note_other_code(ledger, f"the steps of {engine.name} up to {until:,}", code)
    return Statement.of(ledger, noise.record())


def _note_other_code(ledger: Ledger, what: str, code: str | None) -> None:
    if code != name_of_code():
        ledger.note_uncovered(
            f"{what}, made by other code ({code or 'not known which'}): noise and samplers are described as the "
            "present code has them"
        )
