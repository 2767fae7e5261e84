"""`task=classify`: train a classifier on private images, with accuracy and every budget after each epoch."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from dpot import config
from dpot.data.base import Dataset, unit_range
from dpot.errors import UsageError
from dpot.methods.classify.base import Budgets, Classification, Trainer
from dpot.methods.work import statement_of
from dpot.models.wdp_cnn import WdpNetwork
from dpot.privacy.budget import Budget
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.privacy.statement import Statement
from dpot.privacy.wdp.budget import BayesianBudget, Beside, WassersteinBudget
from dpot.privacy.wdp.formulas import attack_success, floor
from dpot.profiles import Profile
from dpot.ranges import Count, NonNegative, Positive
from dpot.record import Record, Run, write_atomically
from dpot.tasks.base import Answer, Task
from dpot.trackers import Tracker
from dpot.training.engine import Outcome
from dpot.training.progress import Progress

log = logging.getLogger("dpot")
TEST_CHUNK = 2000


class Classify(Task):
    """Data, method, network, budget → test accuracy, budgets, a statement. The sizes are those of WDP's Table 2."""

    def __init__(
        self,
        batch: Count = 1024,
        epochs: Count = 25,
        learning_rate: Positive = 0.01,
        noise_multiplier: NonNegative = 0.01,
        network: Any = None,
    ) -> None:
        self.batch, self.epochs, self.learning_rate = batch, epochs, learning_rate
        self.noise_multiplier = noise_multiplier
        self.network: WdpNetwork = network or WdpNetwork()

    def run(self, cfg: DictConfig) -> Answer:
        """Train and test, or give the record of this configuration if there is one."""
        profile: Profile = config.instantiate(cfg.profile, "profile")
        data = _images(config.instantiate(cfg.dataset, "dataset").load(cfg.data_root), profile)
        with Run(cfg) as run:
            record = run.finished()
            if record is not None and record.provenance["data"]["checksum"] != data.checksum:
                log.warning("the data have changed since this configuration was run: it is run again")
                run.forget()
                record = None
            if record is not None:
                log.info("on record already: %s (rerun=true runs it again)", run.directory)
            else:
                record = self._train(cfg, run, profile, data)
            return _answer(record, run.directory)

    def _train(self, cfg: DictConfig, run: Run, profile: Profile, data: Dataset) -> Record:
        budget: Budget = config.instantiate(cfg.privacy, "privacy")
        trainer = config.instantiate(cfg.loss, "loss")
        tracker: Tracker = config.instantiate(cfg.tracker, "tracker")
        _check_together(trainer, budget)
        device = torch.device(cfg.device if cfg.device != "cuda" else "cuda:0")
        torch.manual_seed(cfg.seed)
        network = self.network.build(data.shape, data.classes, trainer.norm).to(device)
        assert data.train.y is not None
        problem = Classification(
            images=unit_range(data.train.x).clamp(0, 1).to(device),
            labels=data.train.y.to(device),
            network=network,
            accuracy=_accuracy(network, data, device),
            # a small profile has few records: a batch of most of them would be no sampling
            batch=min(self.batch, max(len(data.train) // 8, 1)),
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            noise_multiplier=self.noise_multiplier,
            budget=budget,
            ledger=Ledger.of(budget),
            noise=NoiseSource(device=device),
            random=torch.Generator(device).manual_seed(cfg.seed),
            max_steps=profile.steps,
            checkpoints=run.checkpoints,
            fingerprint=f"{run.fingerprint} {data.checksum}",
            progress=Progress("auto"),
            name=f"{data.name} {cfg.loss._target_.rpartition('.')[2]} seed {cfg.seed}",
        )
        plain: Any = OmegaConf.to_container(cfg, resolve=True)
        tracker.start(run.directory, plain)
        engine = trainer.prepare(problem)
        outcome = engine.run()
        accuracies = problem.log.accuracies | {problem.steps: problem.accuracy()}
        budgets = trainer.budgets(problem, list(accuracies))
        metrics = _metrics(problem, accuracies, budgets, outcome)
        for epoch in metrics["epochs"]:
            tracker.log(epoch["step"], {name: value for name, value in epoch.items() if name != "step"})
        for what in (*data.taken, "the test accuracy after each epoch, if it decided when to stop"):
            problem.ledger.note_uncovered(what)
        statement = statement_of(problem.ledger, problem.noise, [engine])
        statement = replace(statement, other_budgets=[str(budget) for budget in budgets.final])
        files = _write_files(run.directory, statement)
        tracker.finish({"accuracy": metrics["accuracy"]})
        facts = {
            "name": data.name,
            "checksum": data.checksum,
            "note": data.note,
            "comparable": data.comparable,
            "records": len(data.train),
        }
        record = run.finish(metrics, statement.to_dict() | {"headline": statement.headline()}, facts, files)
        engine.discard()  # checkpoints hold the state of the noise generator
        return record


def _metrics(
    problem: Classification, accuracies: dict[int, float], budgets: Budgets, outcome: Outcome
) -> dict[str, Any]:
    """The last epoch's accuracy and numbers, what they mean as P(A), and all epochs."""
    epochs = [
        {
            "epoch": step / problem.steps_per_epoch,
            "step": step,
            "accuracy": accuracy,
            **{name: values[i] for name, values in budgets.running.items()},
        }
        for i, (step, accuracy) in enumerate(accuracies.items())
    ]
    last: dict[str, Any] = {name: values[-1] for name, values in budgets.running.items()}
    last |= {f"{name}_attack": float(attack_success(value)) for name, value in last.items()}
    for budget in budgets.final:
        if (beta := getattr(budget, "beta", None)) is not None and budget.delta is not None:
            last["floor"] = floor(budget.delta, beta)
    return {
        "accuracy": epochs[-1]["accuracy"],
        **last,
        "budgets": [budget.to_dict() for budget in budgets.final],
        "epochs": epochs,
        "training": outcome.facts(),
    }


def _accuracy(network: nn.Module, data: Dataset, device: torch.device) -> Callable[[], float]:
    """Per cent of the test images put into their class, with BatchNorm on its running statistics."""
    assert data.test.y is not None
    images, labels = unit_range(data.test.x).clamp(0, 1).to(device), data.test.y.to(device)

    @torch.no_grad()
    def measure() -> float:
        training = network.training
        network.eval()
        hits: list[Tensor] = [
            (network(x).argmax(1) == y).sum()
            for x, y in zip(images.split(TEST_CHUNK), labels.split(TEST_CHUNK), strict=True)
        ]
        network.train(training)
        return 100 * int(torch.stack(hits).sum()) / len(labels)

    return measure


def _images(data: Any, profile: Profile) -> Dataset:
    if not isinstance(data, Dataset) or data.kind != "images" or data.train.y is None or data.test.y is None:
        raise UsageError(f"dataset={data.name}: task=classify needs images with labels")
    return data.limited(profile.records) if profile.records else data


def _check_together(trainer: Any, budget: Budget) -> None:
    if not isinstance(trainer, Trainer):
        raise UsageError("loss: task=classify trains with loss=sgd, dp_sgd or wdp_sgd")
    if not trainer.private and budget.epsilon is not None:
        raise UsageError("privacy: this training adds no noise, so no budget holds for it: use privacy=none")
    if trainer.private and budget.mode == "sound" and budget.epsilon is None:
        raise UsageError("privacy.epsilon: this training is private and needs a budget, for instance privacy=eps1")


def _write_files(directory: Path, statement: Statement) -> dict[str, str]:
    write_atomically(directory / "privacy.md", statement.to_markdown())
    write_atomically(directory / "privacy.html", statement.to_html())
    return {"statement": "privacy.md", "statement_page": "privacy.html"}


def _answer(record: Record, directory: Path) -> Answer:
    data = record.answer(directory)

    def show(console: Console) -> None:
        facts = record.provenance["data"]
        title = f"{facts['name']}{f' ({note})' if (note := facts['note']) else ''}, seed {record.provenance['seed']}"
        names = [name for name in record.metrics["epochs"][-1] if name != "step"]
        table = Table(*names, title=title, title_justify="left")
        for epoch in record.metrics["epochs"]:
            table.add_row(*(f"{epoch[name]:.4g}" for name in names))
        console.print(table)
        for budget in record.metrics["budgets"]:
            console.print(_words(budget), highlight=False)
        console.print(f"privacy: {record.privacy.get('headline', '')}", highlight=False)
        console.print(f"kept in {directory}", highlight=False)

    return Answer(data, show)


def _words(budget: dict[str, Any]) -> str:
    """A stored budget as it printed itself."""
    beside = Beside(budget["beside"]["epsilon"], budget["beside"]["delta"], budget["beside"].get("reason", ""))
    if budget["kind"] == "wasserstein":
        return str(WassersteinBudget(budget["order"], budget["distance"], beside, budget["delta"], budget["beta"]))
    return str(
        BayesianBudget(budget["order"], budget["bayesian_epsilon"], budget["delta"], budget["confidence"], beside)
    )
