"""`task=adapt`: carry a classifier from a labelled public source to an unlabelled private target, and measure it.

Accuracies are those after the last step; nothing is selected with the target's labels, which no method but the
ceiling is given.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table
from torch import Tensor

from dpot import config
from dpot.data.base import Dataset, Pair, signed_range
from dpot.errors import UsageError
from dpot.evaluation.embedding import embed
from dpot.methods.adapt.base import AdaptationMethod, AdaptationProblem
from dpot.models.adaptation import Network, network_for
from dpot.privacy.budget import Budget
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.privacy.statement import Statement
from dpot.profiles import Profile
from dpot.ranges import Count, Fraction
from dpot.record import Record, Run, write_atomically
from dpot.reporting.features import feature_picture
from dpot.tasks.base import Answer, Task
from dpot.trackers import Tracker
from dpot.training.capture import train_together
from dpot.training.engine import Outcome
from dpot.training.progress import Progress

log = logging.getLogger("dpot")


@dataclass
class Prepared:
    """A pair of data sets on the device; seeds of one cell share it."""

    pair: Pair
    source: Tensor
    labels: Tensor
    target: Tensor
    target_labels: Tensor
    test: Tensor
    test_labels: Tensor

    @property
    def checksum(self) -> str:
        """Of both sides."""
        return f"{self.pair.source.checksum} {self.pair.target.checksum}"


@dataclass
class Training:
    """One run between its beginning and its record."""

    cfg: DictConfig
    run: Run
    data: Prepared
    method: AdaptationMethod
    problem: AdaptationProblem
    tracker: Tracker
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    before: dict[str, float] = field(default_factory=dict)  # accuracies after source training
    clouds: dict[str, Tensor] = field(default_factory=dict)  # features of some records, for the picture


class Adapt(Task):
    """Source, target, method, budget → a network for the target, its accuracy, a picture, a statement."""

    def __init__(
        self,
        width: Count = 50,
        picture: Literal["pca", "tsne", "none"] = "pca",
        points: Count = 300,
        dropout: Fraction = 0.0,
    ) -> None:
        """`dropout` of networks on ready-made features; digits have theirs. `+task.dropout=0.5` sets it."""
        self.width, self.picture, self.points, self.dropout = width, picture, points, dropout

    def run(self, cfg: DictConfig) -> Answer:
        """Train and evaluate, or give the record of this configuration if there is one."""
        return self.run_together([cfg])[0]

    def run_together(self, cfgs: Sequence[DictConfig]) -> list[Answer]:
        """Train those that have no record yet side by side, then measure them one after the other."""
        at_hand: dict[str, Prepared] = {}
        with contextlib.ExitStack() as locks:
            runs = [locks.enter_context(Run(cfg)) for cfg in cfgs]
            begun = [self._begin(cfg, run, at_hand) for cfg, run in zip(cfgs, runs, strict=True)]
            self._train([one for one in begun if isinstance(one, Training)])
            records = [self._conclude(one) if isinstance(one, Training) else one for one in begun]
        return [_answer(record, run.directory) for record, run in zip(records, runs, strict=True)]

    def _begin(self, cfg: DictConfig, run: Run, at_hand: dict[str, Prepared]) -> Training | Record:
        """The record of this configuration, or the training that will make it, ready to run."""
        method = _method(cfg)
        budget: Budget = config.instantiate(cfg.privacy, "privacy")
        _check_together(method, budget)
        profile: Profile = config.instantiate(cfg.profile, "profile")
        device = torch.device(cfg.device if cfg.device != "cuda" else "cuda:0")
        data = _prepared(cfg, profile, device, at_hand)
        record = run.finished()
        if record is not None and record.provenance["data"]["checksum"] != data.checksum:
            log.warning("the data have changed since this configuration was run: it is run again")
            run.forget()
            record = None
        if record is not None:
            log.info("on record already: %s (rerun=true runs it again)", run.directory)
            return record
        torch.manual_seed(cfg.seed)
        shape, classes = data.pair.source.shape, data.pair.source.classes
        network = network_for(shape, classes, self.width, self.dropout).to(device)
        problem = AdaptationProblem(
            source=data.source,
            labels=data.labels,
            target=data.target,
            classes=data.pair.source.classes,
            network=network,
            target_labels=data.target_labels if method.reads_target_labels else None,
            budget=budget,
            # paper mode counts what happens and prices it; it does not hold anybody to the paper's claim
            ledger=Ledger.of(replace(budget, epsilon=None) if budget.mode == "paper" else budget),
            noise=NoiseSource(device=device),
            random=torch.Generator(device).manual_seed(cfg.seed),
            max_steps=profile.steps,
            checkpoints=run.checkpoints,
            fingerprint=f"{run.fingerprint} {data.checksum}",
            progress=Progress("auto"),
            name=f"{data.pair.name} {type(method).__name__} seed {cfg.seed}",
        )
        tracker: Tracker = config.instantiate(cfg.tracker, "tracker")
        plain: Any = OmegaConf.to_container(cfg, resolve=True)
        tracker.start(run.directory, plain)
        return Training(cfg, run, data, method, problem, tracker)

    def _train(self, trainings: Sequence[Training]) -> None:
        """Stage by stage, all of them side by side."""
        stages = []
        for one in trainings:
            torch.manual_seed(int(one.cfg.seed))  # a discriminator's first weights, the same alone and in company
            stages.append(one.method.stages(one.problem))
        for turn in range(max(map(len, stages), default=0)):
            now = [(one, *mine[turn]) for one, mine in zip(trainings, stages, strict=True) if turn < len(mine)]
            engines = []
            for one, _, make in now:
                # Dropout follows a generator seeded when the engine is built: the same alone and in company.
                torch.manual_seed(int(one.cfg.seed) + 1_000_003 * turn)
                one.problem.network.train()
                engines.append(make())
            for (one, name, _), outcome in zip(now, train_together(engines), strict=True):
                one.outcomes[name] = outcome
                if turn == 0:
                    one.before = measure(one.problem.network, one.data.test, one.data.test_labels)
                    self._look(one, "before")

    def _look(self, one: Training, when: str) -> None:
        """Keep the features of some records of both domains, for the first seed's picture."""
        if self.picture != "none" and one.cfg.seed == 0:
            for side, rows in (("source", one.data.source), ("target", one.data.test)):
                some = rows[:: max(1, len(rows) // self.points)][: self.points]
                one.clouds[f"{side} {when}"] = features(one.problem.network, some).cpu()

    def _conclude(self, one: Training) -> Record:
        """Measure the network and write the record."""
        problem, data = one.problem, one.data
        metrics: dict[str, Any] = measure(problem.network, data.test, data.test_labels)
        metrics |= {f"{name}_before_alignment": value for name, value in one.before.items()}
        metrics["training"] = _training_facts(one.outcomes)
        self._look(one, "after")
        if one.clouds:
            problem.ledger.note_uncovered("the picture of features, which shows private records")
        statement = problem.statement()
        files = self._write_files(one, statement)
        for outcome in one.outcomes.values():
            for point in outcome.history:
                one.tracker.log(int(point["step"]), {k: v for k, v in point.items() if k != "step"})
        one.tracker.finish({k: v for k, v in metrics.items() if k != "training"})
        facts = {
            "name": data.pair.name,
            "checksum": data.checksum,
            "note": data.pair.note,
            "comparable": data.pair.comparable,
            "records": {"source": len(data.source), "target": len(data.target), "measured": len(data.test)},
        }
        record = one.run.finish(metrics, statement.to_dict() | {"headline": statement.headline()}, facts, files)
        for engine in problem.engines:
            engine.discard()  # checkpoints hold the state of the noise generator
        return record

    def _write_files(self, one: Training, statement: Statement) -> dict[str, str]:
        directory = one.run.directory
        write_atomically(directory / "privacy.md", statement.to_markdown())
        write_atomically(directory / "privacy.html", statement.to_html())
        files = {"statement": "privacy.md", "statement_page": "privacy.html"}
        if one.clouds:
            panels = {
                when: embed(one.clouds[f"source {when}"], one.clouds[f"target {when}"], self.picture)
                for when in ("before", "after")
            }
            classes = {
                "source": _labels_of(one.data.labels, self.points),
                "target": _labels_of(one.data.test_labels, self.points),
            }
            title = f"{one.data.pair.name}, {type(one.method).__name__}"
            content = {"title": title, "kind": self.picture, "panels": panels, "classes": classes}
            write_atomically(directory / "features.json", json.dumps(content) + "\n")
            write_atomically(directory / "features.png", feature_picture(content))
            files |= {"features": "features.json", "picture": "features.png"}
        return files


@torch.no_grad()
def features(network: Network, rows: Tensor) -> Tensor:
    """g of the rows, without dropout."""
    network.eval()
    return torch.cat([network.features(part) for part in rows.split(5000)])


@torch.no_grad()
def measure(network: Network, rows: Tensor, labels: Tensor) -> dict[str, float]:
    """Accuracy and balanced accuracy (the mean over classes of each class's accuracy), in percent."""
    network.eval()
    right = torch.cat([network(part).argmax(1) for part in rows.split(5000)]) == labels
    per_class = torch.stack([right[labels == label].double().mean() for label in labels.unique()])
    return {"accuracy": 100 * float(right.double().mean()), "balanced_accuracy": 100 * float(per_class.mean())}


def _method(cfg: DictConfig) -> AdaptationMethod:
    target = config.locate(str(cfg.loss["_target_"]), "loss")
    if not (isinstance(target, type) and issubclass(target, AdaptationMethod)):
        choices = ", ".join(
            sorted(f"adapt/{path.stem}" for path in (config.CONF_DIR / "loss" / "adapt").glob("*.yaml"))
        )
        raise UsageError(f"loss={target.__name__} trains a generator; for task=adapt choose loss= from {choices}")
    method: AdaptationMethod = config.instantiate(cfg.loss, "loss")
    return method


def _check_together(method: AdaptationMethod, budget: Budget) -> None:
    if method.private and budget.epsilon is None:
        raise UsageError("privacy.epsilon: this loss is private and needs a budget (or choose loss=swd)")
    if not method.private and budget.epsilon is not None:
        raise UsageError("privacy: this loss adds no noise, so no budget holds for it: use privacy=none")


def _prepared(cfg: DictConfig, profile: Profile, device: torch.device, at_hand: dict[str, Prepared]) -> Prepared:
    key = f"{OmegaConf.to_yaml(cfg.dataset)} {profile.records} {device}"
    if key not in at_hand:
        pair = config.instantiate(cfg.dataset, "dataset").load(cfg.data_root)
        if not isinstance(pair, Pair):
            raise UsageError(f"dataset={pair.name}: task=adapt needs a pair, such as dataset=mnist_to_usps")
        if profile.records:
            pair = replace(
                pair, source=pair.source.limited(profile.records), target=pair.target.limited(profile.records)
            )
        at_hand[key] = Prepared(
            pair,
            _records(pair.source, pair.source.train.x, device),
            _given(pair.source.train.y, pair.source, device),
            _records(pair.target, pair.target.train.x, device),
            _given(pair.target.train.y, pair.target, device),
            _records(pair.target, pair.target.test.x, device),
            _given(pair.target.test.y, pair.target, device),
        )
    return at_hand[key]


def _records(data: Dataset, x: Tensor, device: torch.device) -> Tensor:
    return (signed_range(x) if data.kind == "images" else x.float()).to(device)


def _given(labels: Tensor | None, data: Dataset, device: torch.device) -> Tensor:
    if labels is None:
        raise UsageError(f"dataset={data.name}: has no labels, which adaptation is measured with")
    return labels.to(device)


def _labels_of(labels: Tensor, points: int) -> list[int]:
    some: list[int] = labels[:: max(1, len(labels) // points)][:points].tolist()
    return some


def _training_facts(outcomes: dict[str, Outcome]) -> dict[str, Any]:
    done = list(outcomes.values())
    return {
        "steps": sum(o.steps for o in done),
        "seconds": round(sum(o.seconds for o in done), 3),
        "stages": {name: o.facts() for name, o in outcomes.items()},
    }


def _answer(record: Record, directory: Path) -> Answer:
    return Answer(record.answer(directory), lambda console: _show(console, record, directory))


def _show(console: Console, record: Record, directory: Path) -> None:
    table = Table(title=f"{record.provenance['data']['name']}, seed {record.provenance['seed']}", title_justify="left")
    table.add_column("on the target")
    table.add_column("%", justify="right")
    for name, value in record.metrics.items():
        if name != "training":
            table.add_row(name.replace("_", " "), f"{value:.2f}")
    console.print(table)
    console.print(f"privacy: {record.privacy.get('headline', '')}", highlight=False)
    for reason in () if record.privacy["rigorous"] else record.privacy["reasons"]:
        console.print(f"  - {reason}", highlight=False)
    console.print(f"kept in {directory}", highlight=False)
