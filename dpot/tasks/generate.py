"""`task=generate`: train a generator, privately or not, and judge what it makes."""

from __future__ import annotations

import functools
import itertools
import logging
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table
from torch import Tensor

from dpot import config
from dpot.data.base import Dataset, unit_range
from dpot.data.weights import InceptionWeights, inception_weights
from dpot.disk import write_atomically
from dpot.errors import DataError, UsageError
from dpot.evaluation.downstream import Accuracies, Downstream, Marks
from dpot.evaluation.fid import FrechetInception, frechet_distance, inception, read_weights
from dpot.evaluation.stepping import Fit, side_by_side
from dpot.methods.generate.base import Problem
from dpot.methods.work import Loss
from dpot.models.generator import Generator
from dpot.profiles import Profile
from dpot.ranges import Count
from dpot.record import Record, numbers
from dpot.reporting.figures import grid
from dpot.tasks.training import Findings, Training, TrainingTask, note_form, show_headline
from dpot.training.capture import Outcome

log = logging.getLogger("dpot")
MARKS = "marks.json"  # accuracies of a run that has no record yet


@dataclass
class GeneratorTraining(Training):
    """With the generator, and what will judge it."""

    problem: Problem = field(init=False)
    downstream: Downstream = field(init=False)
    weights: InceptionWeights | None = None
    accuracies: Accuracies = field(default_factory=dict)


class Generate(TrainingTask[GeneratorTraining]):
    """Data, method, generator, budget → synthetic images, their FID and downstream accuracy, a statement."""

    name = "generate"
    training = GeneratorTraining

    def __init__(
        self,
        fid: bool = True,
        fid_samples: Count = 60_000,
        fid_reference: Literal["test", "train"] = "test",
        batch_statistics: bool = False,
        dark_to_black: bool = False,
        judged_on: Literal["test", "train"] = "test",
        grey_too: bool = False,
    ) -> None:
        """batch_statistics, dark_to_black: how DP-Sinkhorn draws the samples it judges: BatchNorm by the batch at
        hand, and every pixel below the middle of its range (negative behind a tanh) set to the range's lower end.
        judged_on: the real images of the accuracies and the FID; train, where settings are being chosen.
        grey_too: with dark_to_black, accuracies by samples as they were generated as well, mlp_grey beside mlp."""
        if grey_too and not dark_to_black:
            raise UsageError("task.grey_too: pixels are left as they are already; it goes with task.dark_to_black=true")
        self.fid, self.batch_statistics, self.dark_to_black = fid, batch_statistics, dark_to_black
        self.judged_on, self.grey_too = judged_on, grey_too
        reference = fid_reference if judged_on == "test" else judged_on
        self.protocol = FrechetInception(samples=fid_samples, reference=reference)

    def released(self, cfg: DictConfig, method: Loss, fit: bool = True) -> dict[str, Any]:
        """And the generator and its fit: methods are compared here, and a later round may look through both."""
        return super().released(cfg, method, fit) | {"generator": cfg.generator, "steps": cfg.profile.get("steps")}

    def accept(self, data: Any) -> None:
        """Images."""
        if not isinstance(data, Dataset) or data.kind != "images":
            raise UsageError(f"dataset={data.name}: task=generate needs a data set of images")

    def build(self, one: GeneratorTraining) -> None:
        """The generator, its judges, and the engine if the method has one."""
        cfg, data, device = one.cfg, one.data, one.device
        one.downstream = config.instantiate(cfg.classifier, "classifier")
        if data.classes < 2 and one.downstream.kinds:
            log.info("images without labels: no classifier can be trained on what is generated")
            one.downstream.kinds = []
        one.downstream.meet(data.name, _validation(data))
        self._check_judges(one, data)
        one.weights = self._weights(cfg.data_root, one.profile)  # now: once it is trained, it cannot be judged again
        model: Generator = config.instantiate(cfg.generator, "generator", classes=data.classes, shape=data.shape)
        one.problem = Problem(
            images=unit_range(data.train.x).clamp(0, 1).to(device),
            labels=_labels(data).to(device),
            classes=data.classes,
            generator=model.to(device),
            batch_statistics=self.batch_statistics,
            **one.means(),
        )
        one.engine = one.method.prepare(one.problem)

    def fit(self, one: GeneratorTraining) -> Outcome:
        """A method that does not train step by step."""
        outcome: Outcome = one.method.fit(one.problem)
        return outcome

    def _check_judges(self, one: GeneratorTraining, data: Dataset) -> None:
        """What could not be judged after the training is refused before it."""
        downstream, profile = one.downstream, one.profile
        if self._samples(one) < 2:
            raise UsageError("task.fid_samples, profile.samples: a Fréchet distance needs at least two images")
        if len(data.test if self._protocol(one).reference == "test" else data.train) < 2:
            raise UsageError("dataset.test_fraction: a Fréchet distance needs at least two real images to compare with")
        if downstream.kinds:
            downstream.check(data.shape, profile.samples)

    def _protocol(self, one: GeneratorTraining) -> FrechetInception:
        """How the FID is measured: as the benchmark of the classifiers wants it, or as the task says."""
        return one.downstream.frechet or self.protocol

    def _samples(self, one: GeneratorTraining) -> int:
        most = self._protocol(one).samples
        return min(most, one.profile.samples or most)

    def _weights(self, data_root: str | None, profile: Profile) -> InceptionWeights | None:
        if not (self.fid and profile.fid):
            return None
        try:
            return inception_weights(data_root)
        except DataError as error:
            log.warning("no FID: %s; pixel_frechet, which is something else, is reported instead", error)
            return None

    def judge_together(self, trainings: Sequence[GeneratorTraining]) -> None:
        """The downstream accuracies of each, all of them measured side by side."""
        exams: list[Iterator[Fit[Any]]] = []
        for one in trainings:
            one.problem.settle()
            problem, data, downstream = one.problem, one.data, one.downstream
            downstream.samples = one.profile.samples or downstream.samples
            downstream.passes = one.profile.passes or downstream.passes
            real = data.test if self.judged_on == "test" else data.train
            test_x = unit_range(real.x).to(problem.device)
            test_y = _labels(data, self.judged_on).to(problem.device)
            sittings = [
                downstream.exams(functools.partial(draw, one), test_x, test_y, data.classes, one.cfg.seed)
                for draw in self._draws().values()
            ]
            marks = Marks(one.run.checkpoints / MARKS, problem.generator, f"{one.run.code} {data.checksum}")
            exams.append(marks.of(itertools.chain(*sittings)))
        if not trainings:
            return
        found = iter(side_by_side(itertools.chain.from_iterable(exams), trainings[0].problem.device))
        for one in trainings:
            one.accuracies = {
                kind + suffix: values
                for suffix in self._draws()
                for kind, values in one.downstream.gather(list(itertools.islice(found, _exams(one)))).items()
            }

    def judge(self, one: GeneratorTraining) -> Findings:
        """Accuracies, the distance of what was trained from the data, samples."""
        problem, data = one.problem, one.data
        metrics: dict[str, Any] = {
            name: {
                "mean": statistics.fmean(values),
                "std": statistics.stdev(values) if len(values) > 1 else None,
                "passes": values,
            }
            for name, values in one.accuracies.items()
        }
        metrics |= self._frechet(one) | one.downstream.remarks()
        metrics["training"] = one.outcomes["training"].facts()
        if one.method.private:
            note_form(problem.ledger, data)
            for what in one.downstream.uncovered():
                problem.ledger.note_uncovered(what)
        if one.method.private and self._protocol(one).reference == "train":
            problem.ledger.note_uncovered(_measured_on_training_images(self.judged_on))
        images, labels = self._draw(one, 10 * problem.classes)
        write_atomically(one.run.directory / "samples.png", grid(images.cpu(), labels.cpu(), problem.classes))
        return Findings(metrics, problem.statement(), len(data.train), {"samples": "samples.png"})

    def show(self, console: Console, record: Record) -> None:
        """Every metric, and what the statement says in a sentence."""
        title = f"{record.provenance['data']['name']}, seed {record.provenance['seed']}"
        table = Table(title=title, title_justify="left")
        table.add_column("metric")
        table.add_column("value", justify="right")
        for name, value in numbers(record.metrics).items():
            table.add_row(name, f"{value:.2f}")
        console.print(table)
        show_headline(console, record)

    def _draw(self, one: GeneratorTraining, count: int) -> tuple[Tensor, Tensor]:
        """Samples as they are judged."""
        images, labels = _as_generated(one, count)
        return (images * (images >= 0.5) if self.dark_to_black else images), labels

    def _draws(self) -> dict[str, Callable[[GeneratorTraining, int], tuple[Tensor, Tensor]]]:
        """How samples are drawn to be judged, by what the names of the accuracies end with."""
        ways: dict[str, Callable[[GeneratorTraining, int], tuple[Tensor, Tensor]]] = {"": self._draw}
        return ways | {"_grey": _as_generated} if self.grey_too else ways

    def _frechet(self, one: GeneratorTraining) -> dict[str, float]:
        problem, data, protocol = one.problem, one.data, self._protocol(one)
        network = None if one.weights is None else inception(read_weights(one.weights.path), problem.device)
        split = data.test if protocol.reference == "test" else data.train
        real = unit_range(split.x).to(problem.device)
        fake, _ = self._draw(one, self._samples(one))
        cache = Path(one.cfg.output_root) / "statistics" if data.public else None
        origin = "" if one.weights is None else one.weights.checksum
        reference = protocol.reference_statistics(real, network, cache, origin)
        distance = frechet_distance(protocol.statistics(fake, network), reference)
        return {"fid" if network is not None else "pixel_frechet": distance}


def _as_generated(one: GeneratorTraining, count: int) -> tuple[Tensor, Tensor]:
    return one.method.draw(one.problem, count)


def _exams(one: GeneratorTraining) -> int:
    """How many a way of drawing samples asks for."""
    return one.downstream.passes * len(one.downstream.kinds)


def _measured_on_training_images(judged_on: str) -> str:
    what = "the accuracies and the FID" if judged_on == "train" else "the FID"
    return f"{what} in this record, which are measured on the private training images themselves, without noise"


def _validation(data: Dataset) -> tuple[Tensor, Tensor] | None:
    """Images and labels that were held out for choices."""
    held = data.validation
    return None if held is None or held.y is None else (unit_range(held.x), held.y)


def _labels(data: Dataset, part: str = "train") -> Tensor:
    split = data.train if part == "train" else data.test
    return split.y if split.y is not None else torch.zeros(len(split), dtype=torch.int64)
