"""The skeleton of every task that learns from data and leaves a record: check, begin, train, judge, record, discard.

check    the loss is one of this task and the budget suits it; no data have been read yet
begin    profile and data; a record of this configuration and these data is the answer, and nothing is run
train    those that have no record yet, side by side where they have engines
judge    what each has learned; a private statement comes from its ledger
record   statement, files, record.json, in this order
discard  the checkpoints, which hold states of noise generators. A run that was killed just before this step leaves
         them beside its record, and the next one that finds the record deletes them

A task says what it can learn from (`accept`), what it trains (`build`, `fit`), how it judges (`judge_together`,
`judge`) and how it shows a record (`show`).
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from dpot import config
from dpot.data.base import Dataset, Pair, facts
from dpot.data.files import cache_root
from dpot.data.schema import read as read_schema
from dpot.disk import write_atomically
from dpot.errors import PrivacyError, UsageError
from dpot.fingerprint import fingerprint
from dpot.methods.kept import Kept
from dpot.methods.work import SILENCE, Loss
from dpot.places import without_places
from dpot.privacy import registry
from dpot.privacy.budget import Budget
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.privacy.spending import Account, Spending
from dpot.privacy.statement import Statement
from dpot.profiles import Profile
from dpot.record import Record, Run, numbers
from dpot.tasks.base import Answer, Task
from dpot.trackers import Tracker
from dpot.training.capture import Outcome, train_together
from dpot.training.engine import Engine
from dpot.training.progress import Progress

log = logging.getLogger("dpot")


@dataclass
class Training:
    """One run between its beginning and its record. A task adds what it builds."""

    run: Run
    profile: Profile
    method: Any
    budget: Budget
    tracker: Tracker
    data: Any
    reading: float  # seconds
    kept: Kept
    account: Account | None = None  # of what is not kept; none: the data are public
    engine: Engine | None = None  # None: the task fits it by itself
    outcomes: dict[str, Outcome] = field(default_factory=dict)  # of each stage

    @property
    def cfg(self) -> DictConfig:
        """The whole configuration."""
        return self.run.cfg

    @property
    def device(self) -> torch.device:
        """Where it is trained."""
        return device_of(self.cfg)

    def means(self, budget: Budget | None = None) -> dict[str, Any]:
        """What every problem is given: budget, ledger, noise, random numbers, a place for checkpoints, a name.

        `budget`: what the ledger holds the run to, where that is not the budget itself.
        """
        return {
            "budget": self.budget,
            "ledger": Ledger.of(budget or self.budget),
            "noise": NoiseSource(device=self.device),
            "random": torch.Generator(self.device).manual_seed(self.cfg.seed),
            "large_delta": bool(self.cfg.get("large_delta", False)),
            **self.frame(),
        }

    def frame(self) -> dict[str, Any]:
        """Those of them that are no matter of privacy or chance: how long, where, under which name."""
        return {
            "max_steps": self.profile.steps,
            "checkpoints": self.run.checkpoints,
            "kept": self.kept,
            "account": self.account,
            "fingerprint": f"{self.run.fingerprint} {self.data.checksum}",  # other data: no checkpoint
            "progress": Progress("auto"),
            "name": f"{self.data.name} {type(self.method).__name__} seed {self.cfg.seed}",
        }


@dataclass
class Findings:
    """What came of a run: the record, before it is written."""

    metrics: dict[str, Any]
    statement: Statement
    records: int | Mapping[str, int]  # learned from
    files: dict[str, str] = field(default_factory=dict)  # beside the statement's, written already
    privacy: Mapping[str, Any] = field(default_factory=dict)  # beyond the statement
    history: Sequence[Mapping[str, float]] | None = None  # for the tracker; None: that of the training


T = TypeVar("T", bound=Training)


class TrainingTask(Task, Generic[T]):
    """Data, loss, budget → a record."""

    name: ClassVar[str]  # as in task=
    training: ClassVar[type[Training]] = Training
    streams: ClassVar[bool] = False  # whether it can leave its records with an engine

    # what a task fills in

    def accept(self, data: Any) -> None:
        """Refuse data that this task cannot learn from."""

    @abstractmethod
    def build(self, one: T) -> None:
        """Put together what will be trained. torch's global generator follows the seed of the experiment here."""

    def fit(self, one: T) -> Outcome | None:
        """Train what has no engine."""
        return None

    def judge_together(self, trainings: Sequence[T]) -> None:
        """What is measured side by side, before each is judged by itself."""

    @abstractmethod
    def judge(self, one: T) -> Findings:
        """Measure what was learned."""

    @abstractmethod
    def show(self, console: Console, record: Record) -> None:
        """Print a record for people."""

    # what they share

    def run(self, cfg: DictConfig) -> Answer:
        """Train and judge, or give the record of this configuration if there is one."""
        return self.run_together([cfg])[0]

    def run_together(self, cfgs: Sequence[DictConfig]) -> list[Answer]:
        """Train those that have no record yet side by side, then judge them."""
        for cfg in cfgs:
            self.check(cfg)
        with contextlib.ExitStack() as locks:
            runs = [locks.enter_context(Run(cfg)) for cfg in cfgs]
            at_hand: dict[str, Any] = {}  # runs of one cell share their data
            begun = [self._begin(run, at_hand) for run in runs]
            trainings = [one for one in begun if not isinstance(one, Record)]
            self.train(trainings)
            self.judge_together(trainings)
            records = [one if isinstance(one, Record) else self._conclude(one) for one in begun]
        return [self._answer(record, run) for record, run in zip(records, runs, strict=True)]

    def check(self, cfg: DictConfig) -> None:
        """Refuse a loss of another task, and a budget that does not suit the loss.

        The file of a schema is put in its place: a run with another content of it is another run.
        """
        if isinstance(cfg.dataset.get("schema"), str):
            cfg.dataset.schema = read_schema(Path(cfg.dataset.schema))
        loss: Any = config.locate(str(cfg.loss._target_), "loss")
        if self.name not in getattr(loss, "tasks", ()):
            choices = ", ".join(losses_of(self.name))
            raise UsageError(f"loss: task={self.name} does not work with {loss.__name__}; choose loss= from {choices}")
        engine = cfg.get("engine")
        if engine is not None and not self.streams and config.instantiate(engine, "engine").name != "local":
            raise UsageError(f"engine: task={self.name} reads its records into memory; engines are for task=synthesize")
        budget: Budget = config.instantiate(cfg.privacy, "privacy")
        if loss.private and loss.keeps_epsilon and budget.epsilon is None:
            raise UsageError("privacy.epsilon: this loss is private and needs a budget, for instance privacy=eps1")
        if not loss.private and budget.epsilon is not None:
            raise UsageError("privacy: this loss adds no accounted noise, so no budget holds for it: use privacy=none")

    def load(self, cfg: DictConfig, profile: Profile) -> Any:
        """The data set of this configuration, cut to the profile."""
        data = config.instantiate(cfg.dataset, "dataset").load(cfg.data_root)
        self.accept(data)
        return data.limited(profile.records) if profile.records and isinstance(data, Dataset) else data

    def _begin(self, run: Run, at_hand: dict[str, Any]) -> T | Record:
        """The record of this configuration, or the training that will make it, ready to run."""
        cfg = run.cfg
        profile: Profile = config.instantiate(cfg.profile, "profile")
        method = config.instantiate(cfg.loss, "loss")
        began = time.perf_counter()
        key = f"{OmegaConf.to_yaml(cfg.dataset)} {profile.records} {cfg.device}"
        if key not in at_hand:
            at_hand[key] = self.load(cfg, profile)
        data, reading = at_hand[key], time.perf_counter() - began
        record = run.finished()
        if record is not None and record.provenance["data"]["checksum"] != data.checksum:
            log.warning("the data have changed since this configuration was run: it is run again")
            run.forget()
            record = None
        if record is not None:
            log.info("on record already: %s (rerun=true runs it again)", run.directory)
            return record
        budget: Budget = config.instantiate(cfg.privacy, "privacy")
        tracker: Tracker = config.instantiate(cfg.tracker, "tracker")
        kept, account = self._releases(run, method, profile, data)
        one: Any = self.training(run, profile, method, budget, tracker, data, reading, kept, account)
        torch.manual_seed(cfg.seed)
        self.build(one)
        plain: Any = OmegaConf.to_container(cfg, resolve=True)
        tracker.start(run.directory, without_places(plain))
        return one

    def released(self, cfg: DictConfig, method: Loss, fit: bool = False) -> dict[str, Any]:
        """What a release depends on beside the data: not how it is shown, nor, unless `fit`, what is fitted to it.

        The seed is part of it: to ask for another seed is to ask for another release.
        """
        dataset = {key: value for key, value in cfg.dataset.items() if key != "path"}  # their checksum knows them
        loss = {key: value for key, value in cfg.loss.items() if fit or key not in method.afterwards}
        return {"dataset": dataset, "loss": loss, "privacy": cfg.privacy, "seed": cfg.seed}

    def _releases(self, run: Run, method: Loss, profile: Profile, data: Any) -> tuple[Kept, Account | None]:
        """Where this run's releases lie, and the account of what it does not keep."""
        about = {"records": profile.records, "data": data.checksum}
        owner = fingerprint(OmegaConf.create(self.released(run.cfg, method) | about))
        private = data.target if isinstance(data, Pair) else data
        spending = None if private.public else Spending.of(cache_root() / "spending", private.checksum)

        def account(whose: str) -> Account | None:
            return spending.account(whose, run.forgotten) if spending else None

        kept = Kept(Path(run.cfg.output_root) / "releases" / owner, owner, account(owner))
        if run.forgotten:
            kept.forget()
        for path in run.directory.glob("release-*-*.safetensors"):  # of a version that kept them here, and was killed
            path.unlink()
        return kept, account(f"{run.fingerprint} {owner}")

    def train(self, trainings: Sequence[T]) -> None:
        """Those with an engine side by side; one without is fitted by itself."""
        engines = [one.engine for one in trainings if one.engine is not None]
        outcomes = iter(train_together(engines) if engines else ())
        for one in trainings:
            outcome = self.fit(one) if one.engine is None else next(outcomes)
            if outcome is not None:
                one.outcomes["training"] = outcome

    def _conclude(self, one: T) -> Record:
        """Judge, write the record, and only then delete the checkpoints."""
        found = self.judge(one)
        if one.account:
            one.account.close()
        told = found.statement
        if one.method.private and not told.entries:
            raise PrivacyError(SILENCE)
        for warning in told.warnings:
            log.warning("%s", warning)
        write_atomically(one.run.directory / "privacy.md", told.to_markdown())
        write_atomically(one.run.directory / "privacy.html", told.to_html())
        about = registry.About(self.name, one.data.name, found.records, datetime.date.today())
        write_atomically(one.run.directory / "privacy.registry.yaml", registry.write(registry.record(told, about)))
        files = found.files | {"statement": "privacy.md", "statement_page": "privacy.html"}
        files["statement_registry"] = "privacy.registry.yaml"
        trained = [point for outcome in one.outcomes.values() for point in outcome.history]
        for point in trained if found.history is None else found.history:
            one.tracker.log(int(point["step"]), {name: value for name, value in point.items() if name != "step"})
        one.tracker.finish(numbers(found.metrics))
        privacy = told.to_dict() | {"headline": told.headline()} | dict(found.privacy)
        record = one.run.finish(found.metrics, privacy, facts(one.data) | {"records": found.records}, files)
        one.run.discard()
        return record

    def _answer(self, record: Record, run: Run) -> Answer:
        def show(console: Console) -> None:
            self.show(console, record)
            console.print(f"kept in {run.directory}", highlight=False)

        return Answer(record.answer(run.directory), show)


def device_of(cfg: DictConfig) -> torch.device:
    """The device that a configuration names; engines want its number."""
    return torch.device(cfg.device if cfg.device != "cuda" else "cuda:0")


@cache
def losses_of(task: str) -> tuple[str, ...]:
    """The names of conf/loss/ whose loss says that it is for this task."""
    folder = config.CONF_DIR / "loss"
    found = {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.yaml"))}
    return tuple(name for name, path in found.items() if task in _loss_in(path).tasks)


def _loss_in(path: Path) -> Any:
    """The class that a file of conf/loss/ names, or the file that it is a variant of."""
    node: Any = OmegaConf.load(path)
    if "_target_" in node:
        return config.locate(str(node["_target_"]), "loss")
    return _loss_in(path.with_name(f"{node['defaults'][0]}.yaml"))


def note_form(ledger: Ledger, data: Dataset) -> None:
    """Say what private records decided about the form of the data, and which were left out."""
    for what in data.taken:
        ledger.note_condition(what)
    for what in data.uncovered:
        ledger.note_uncovered(what)


def show_headline(console: Console, record: Record) -> None:
    """What the privacy statement says in a sentence."""
    console.print(f"privacy: {record.privacy.get('headline', '')}", highlight=False)
