"""What every private training is given, whatever it trains: budget, gate, generators, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from dpot.errors import PrivacyError
from dpot.methods.gate import Gate, note_other_code
from dpot.privacy.budget import Budget
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.privacy.spending import Account
from dpot.privacy.statement import Statement
from dpot.record import name_of_code
from dpot.training.checkpoint import CheckpointPolicy
from dpot.training.ema import EMA
from dpot.training.engine import Engine
from dpot.training.progress import Progress
from dpot.training.schedules import Schedule


class Loss:
    """What every method says of itself, so that what does not fit is refused before any data are read."""

    tasks: ClassVar[tuple[str, ...]] = ()  # those it is for, as in task=
    private: ClassVar[bool] = True
    afterwards: ClassVar[tuple[str, ...]] = ()  # parameters that only say what is done with what was released
    keeps_epsilon: ClassVar[bool] = True  # False: a private method that has no (ε, δ) guarantee to keep


@dataclass(kw_only=True)
class Work(Gate):
    """The budget and the means of one run.

    Whatever is taken from private records leaves through `release` (gate.py). Batches are drawn with the generator of
    `noise`, which does not follow the experiment seed. `random` does: initial weights, codes, public directions.
    """

    budget: Budget
    random: torch.Generator
    max_steps: int | None = None
    checkpoints: Path | None = None
    fingerprint: str = ""  # of the checkpoints
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

    def statement(self) -> Statement:
        """What was released."""
        if self.budget.is_private:
            refuse_silence(self.ledger)
        return statement_of(self.ledger, self.noise, self.engines, self.account)


SILENCE = (
    "this method is private and there is nothing in the ledger: what was learned from private records did not pass the "
    "gate; a private method opens it with problem.release(event, ...)"
)


def refuse_silence(ledger: Ledger) -> None:
    """A budget was given, so private records were learned from: an empty ledger then is an account that is missing.

    Whether a method without a budget is private the task knows, and asks the same (dpot/tasks/training.py).
    """
    if not ledger.entries:
        raise PrivacyError(SILENCE)


def statement_of(
    ledger: Ledger, noise: NoiseSource, engines: Iterable[Engine], account: Account | None = None
) -> Statement:
    """What was released, with a word about steps that other code than the present made, and about other runs."""
    if ledger.budget.is_private:
        refuse_silence(ledger)
    for engine in engines:
        last = {part["code"]: part["until"] for part in engine.outcome.earlier if part["until"]}
        for code, until in last.items():
            note_other_code(ledger, f"the steps of {engine.name} up to {until:,}", code)
    total = account.spending.total(ledger.budget) if account else None
    statement = Statement.of(ledger, noise.record())
    return replace(statement, total=total.sentence()) if total else statement
