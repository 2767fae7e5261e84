"""`task=adapt`: carry a classifier from a labelled public source to an unlabelled private target, and measure it.

Accuracies are those after the last step; nothing is selected with the target's labels, which no method but the
ceiling is given.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table
from torch import Tensor

from dpot import config
from dpot.data.base import Dataset, Pair, Split, signed_range
from dpot.disk import write_atomically
from dpot.errors import UsageError
from dpot.evaluation.embedding import embed
from dpot.methods.adapt.base import AdaptationProblem
from dpot.models.adaptation import Network, network_for
from dpot.profiles import Profile
from dpot.ranges import Count, Fraction
from dpot.record import PRIVATE, Record, numbers
from dpot.reporting.features import feature_picture
from dpot.tasks.training import Findings, Training, TrainingTask, device_of, show_headline
from dpot.training.capture import Outcome, train_together


@dataclass(frozen=True, eq=False)
class PlacedPair(Pair):
    """A pair with its records on the device; seeds of one cell share it."""

    source_x: Tensor
    source_y: Tensor
    target_x: Tensor
    target_y: Tensor
    test_x: Tensor
    test_y: Tensor


@dataclass
class NetworkTraining(Training):
    """With the network, and how it was before its alignment."""

    problem: AdaptationProblem = field(init=False)
    before: dict[str, float] = field(default_factory=dict)  # accuracies after source training
    clouds: dict[str, Tensor] = field(default_factory=dict)  # features of some records, for the picture


class Adapt(TrainingTask[NetworkTraining]):
    """Source, target, method, budget → a network for the target, its accuracy, a picture, a statement."""

    name = "adapt"
    training = NetworkTraining

    def __init__(
        self,
        width: Count = 50,
        picture: Literal["pca", "tsne", "none"] = "pca",
        points: Count = 300,
        dropout: Fraction = 0.0,
    ) -> None:
        """`dropout` of networks on ready-made features; digits have theirs."""
        self.width, self.picture, self.points, self.dropout = width, picture, points, dropout

    def load(self, cfg: DictConfig, profile: Profile) -> PlacedPair:
        """A pair of data sets, on the device."""
        pair = config.instantiate(cfg.dataset, "dataset").load(cfg.data_root)
        if not isinstance(pair, Pair):
            raise UsageError(f"dataset={pair.name}: task=adapt needs a pair, such as dataset=mnist_to_usps")
        source, target = (
            data.limited(profile.records) if profile.records else data for data in (pair.source, pair.target)
        )
        splits = ((source, source.train), (target, target.train), (target, target.test))
        placed = [part for data, split in splits for part in _placed(data, split, device_of(cfg))]
        return PlacedPair(pair.name, source, target, *placed)

    def build(self, one: NetworkTraining) -> None:
        """The network; its engines are made stage by stage."""
        data: PlacedPair = one.data
        budget = one.budget
        network = network_for(data.source.shape, data.source.classes, self.width, self.dropout)
        # paper mode counts what happens and prices it; it does not hold anybody to the paper's claim
        held_to = replace(budget, epsilon=None) if budget.mode == "paper" else budget
        one.problem = AdaptationProblem(
            source=data.source_x,
            labels=data.source_y,
            target=data.target_x,
            classes=data.source.classes,
            network=network.to(one.device),
            target_labels=data.target_y if one.method.reads_target_labels else None,
            **one.means(held_to),
        )

    def train(self, trainings: Sequence[NetworkTraining]) -> None:
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
                    one.before = measure(one.problem.network, one.data.test_x, one.data.test_y)
                    self._look(one, "before")

    def _look(self, one: NetworkTraining, when: str) -> None:
        """Keep the features of some records of both domains, for the first seed's picture."""
        if self.picture != "none" and one.cfg.seed == 0:
            for side, rows in (("source", one.data.source_x), ("target", one.data.test_x)):
                some = rows[:: max(1, len(rows) // self.points)][: self.points]
                one.clouds[f"{side} {when}"] = features(one.problem.network, some).cpu()

    def judge(self, one: NetworkTraining) -> Findings:
        """Accuracies on the target before and after the alignment, and the picture of features."""
        problem, data = one.problem, one.data
        metrics: dict[str, Any] = measure(problem.network, data.test_x, data.test_y)
        metrics |= {f"{name}_before_alignment": value for name, value in one.before.items()}
        metrics["training"] = _training_facts(one.outcomes)
        self._look(one, "after")
        if one.clouds:
            problem.ledger.note_uncovered(f"the folder {PRIVATE}/: the picture of features in it shows private records")
        records = {"source": len(data.source_x), "target": len(data.target_x), "measured": len(data.test_x)}
        return Findings(metrics, problem.statement(), records, self._picture(one))

    def show(self, console: Console, record: Record) -> None:
        """Accuracies on the target, and why the statement is not rigorous where it is not."""
        title = f"{record.provenance['data']['name']}, seed {record.provenance['seed']}"
        table = Table(title=title, title_justify="left")
        table.add_column("on the target")
        table.add_column("%", justify="right")
        for name, value in numbers(record.metrics).items():
            table.add_row(name.replace("_", " "), f"{value:.2f}")
        console.print(table)
        show_headline(console, record)
        for reason in () if record.privacy["rigorous"] else record.privacy["reasons"]:
            console.print(f"  - {reason}", highlight=False)

    def _picture(self, one: NetworkTraining) -> dict[str, str]:
        if not one.clouds:
            return {}
        panels = {
            when: embed(one.clouds[f"source {when}"], one.clouds[f"target {when}"], self.picture)
            for when in ("before", "after")
        }
        classes = {
            "source": _labels_of(one.data.source_y, self.points),
            "target": _labels_of(one.data.test_y, self.points),
        }
        title = f"{one.data.name}, {type(one.method).__name__}"
        content = {"title": title, "kind": self.picture, "panels": panels, "classes": classes}
        folder = one.run.private_folder()
        write_atomically(folder / "features.json", json.dumps(content) + "\n")
        write_atomically(folder / "features.png", feature_picture(content))
        return {"features": f"{PRIVATE}/features.json", "picture": f"{PRIVATE}/features.png"}


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


def _placed(data: Dataset, split: Split, device: torch.device) -> tuple[Tensor, Tensor]:
    if split.y is None:
        raise UsageError(f"dataset={data.name}: has no labels, which adaptation is measured with")
    x = signed_range(split.x) if data.kind == "images" else split.x.float()
    return x.to(device), split.y.to(device)


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
