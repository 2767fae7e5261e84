"""`task=classify`: train a classifier on private images, with accuracy and every budget after each epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from dpot.data.base import Dataset, unit_range
from dpot.errors import UsageError
from dpot.methods.classify.base import Budgets, Classification
from dpot.methods.work import statement_of
from dpot.models.wdp_cnn import WdpNetwork
from dpot.privacy.wdp.budget import BayesianBudget, Beside, WassersteinBudget
from dpot.privacy.wdp.formulas import attack_success, floor
from dpot.ranges import Count, NonNegative, Positive
from dpot.record import Record
from dpot.tasks.training import Findings, Training, TrainingTask, note_form, show_headline
from dpot.training.capture import Outcome

TEST_CHUNK = 2000


@dataclass
class ClassifierTraining(Training):
    """With the network and the accuracy after each epoch."""

    problem: Classification = field(init=False)


class Classify(TrainingTask[ClassifierTraining]):
    """Data, method, network, budget → test accuracy, budgets, a statement. The sizes are those of WDP's Table 2."""

    name = "classify"
    training = ClassifierTraining

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

    def accept(self, data: Any) -> None:
        """Images with labels."""
        if not isinstance(data, Dataset) or data.kind != "images" or data.train.y is None or data.test.y is None:
            raise UsageError(f"dataset={data.name}: task=classify needs images with labels")

    def build(self, one: ClassifierTraining) -> None:
        """The network and its engine."""
        data, device = one.data, one.device
        network = self.network.build(data.shape, data.classes, one.method.norm).to(device)
        one.problem = Classification(
            images=unit_range(data.train.x).clamp(0, 1).to(device),
            labels=data.train.y.to(device),
            network=network,
            accuracy=_accuracy(network, data, device),
            # a small profile has few records: a batch of most of them would be no sampling
            batch=min(self.batch, max(len(data.train) // 8, 1)),
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            noise_multiplier=self.noise_multiplier,
            **one.means(),
        )
        one.engine = one.method.prepare(one.problem)

    def judge(self, one: ClassifierTraining) -> Findings:
        """The test accuracy and every budget, after each epoch and at the end."""
        problem = one.problem
        assert one.engine is not None
        accuracies = problem.log.accuracies | {problem.steps: problem.accuracy()}
        budgets: Budgets = one.method.budgets(problem, list(accuracies))
        metrics = _metrics(problem, accuracies, budgets, one.outcomes["training"])
        note_form(problem.ledger, one.data)
        problem.ledger.note_uncovered("the test accuracy after each epoch, if it decided when to stop")
        statement = statement_of(problem.ledger, problem.noise, [one.engine], problem.account)
        statement = replace(statement, other_budgets=[str(budget) for budget in budgets.final])
        return Findings(metrics, statement, len(one.data.train), history=metrics["epochs"])

    def show(self, console: Console, record: Record) -> None:
        """Accuracy and budgets of every epoch."""
        facts = record.provenance["data"]
        title = f"{facts['name']}{f' ({note})' if (note := facts['note']) else ''}, seed {record.provenance['seed']}"
        names = [name for name in record.metrics["epochs"][-1] if name != "step"]
        table = Table(*names, title=title, title_justify="left")
        for epoch in record.metrics["epochs"]:
            table.add_row(*(f"{epoch[name]:.4g}" for name in names))
        console.print(table)
        for budget in record.metrics["budgets"]:
            console.print(_words(budget), highlight=False)
        show_headline(console, record)


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


def _words(budget: dict[str, Any]) -> str:
    """A stored budget as it printed itself."""
    beside = Beside(budget["beside"]["epsilon"], budget["beside"]["delta"], budget["beside"].get("reason", ""))
    if budget["kind"] == "wasserstein":
        return str(WassersteinBudget(budget["order"], budget["distance"], beside, budget["delta"], budget["beta"]))
    return str(
        BayesianBudget(budget["order"], budget["bayesian_epsilon"], budget["delta"], budget["confidence"], beside)
    )
