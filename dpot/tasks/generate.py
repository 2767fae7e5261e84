"""`task=generate`: train a generator, privately or not, and judge what it makes."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table
from torch import Tensor

from dpot import config
from dpot.data.base import Dataset, unit_range
from dpot.data.weights import InceptionWeights, inception_weights
from dpot.errors import DataError, UsageError
from dpot.evaluation.downstream import Accuracies, Downstream
from dpot.evaluation.fid import FrechetInception, frechet_distance, inception, read_weights
from dpot.evaluation.stepping import Fit, side_by_side
from dpot.methods.generate.base import Method, Problem
from dpot.models.generator import Generator
from dpot.privacy.budget import Budget
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.privacy.statement import Statement
from dpot.profiles import Profile
from dpot.ranges import Count
from dpot.record import Record, Run, write_atomically
from dpot.reporting.figures import grid
from dpot.tasks.base import Answer, Task
from dpot.tasks.marks import Marks
from dpot.trackers import Tracker
from dpot.training.capture import train_together
from dpot.training.engine import Engine, Outcome
from dpot.training.progress import Progress

log = logging.getLogger("dpot")
MARKS = "marks.json"  # accuracies of a run that has no record yet


@dataclass
class Training:
    """One run between its beginning and its record."""

    cfg: DictConfig
    run: Run
    profile: Profile
    data: Dataset
    method: Method
    problem: Problem
    engine: Engine | None
    downstream: Downstream
    tracker: Tracker
    weights: InceptionWeights | None


class Generate(Task):
    """Data, method, generator, budget → synthetic images, their FID and downstream accuracy, a statement."""

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

    def run(self, cfg: DictConfig) -> Answer:
        """Train and evaluate, or give the record of this configuration if there is one."""
        return self.run_together([cfg])[0]

    def run_together(self, cfgs: Sequence[DictConfig]) -> list[Answer]:
        """Train those that have no record yet side by side, then judge them side by side."""
        with contextlib.ExitStack() as locks:
            runs = [locks.enter_context(Run(cfg)) for cfg in cfgs]
            begun = [self._begin(cfg, run) for cfg, run in zip(cfgs, runs, strict=True)]
            trainings = [one for one in begun if isinstance(one, Training)]
            outcomes = _train(trainings)
            judged = zip(trainings, outcomes, self._accuracies(trainings), strict=True)
            made = iter([self._conclude(*one) for one in judged])
            records = [next(made) if isinstance(one, Training) else one for one in begun]
        return [_answer(record, run.directory) for record, run in zip(records, runs, strict=True)]

    def _begin(self, cfg: DictConfig, run: Run) -> Training | Record:
        """The record of this configuration, or the training that will make it, ready to run."""
        profile: Profile = config.instantiate(cfg.profile, "profile")
        data = _images(config.instantiate(cfg.dataset, "dataset").load(cfg.data_root), profile)
        record = run.finished()
        if record is not None and record.provenance["data"]["checksum"] != data.checksum:
            log.warning("the data have changed since this configuration was run: it is run again")
            run.forget()
            record = None
        if record is not None:
            log.info("on record already: %s (rerun=true runs it again)", run.directory)
            return record
        budget: Budget = config.instantiate(cfg.privacy, "privacy")
        method: Method = config.instantiate(cfg.loss, "loss")
        downstream: Downstream = config.instantiate(cfg.classifier, "classifier")
        tracker: Tracker = config.instantiate(cfg.tracker, "tracker")
        _check_together(method, budget)
        if data.classes < 2 and downstream.kinds:
            log.info("images without labels: no classifier can be trained on what is generated")
            downstream.kinds = []
        self._check_judges(downstream, data, profile)
        weights = self._weights(cfg.data_root, profile)  # now: when the training is over, it cannot be judged again
        device = torch.device(cfg.device if cfg.device != "cuda" else "cuda:0")

        torch.manual_seed(cfg.seed)
        random = torch.Generator(device).manual_seed(cfg.seed)
        model: Generator = config.instantiate(cfg.generator, "generator", classes=data.classes, shape=data.shape)
        problem = Problem(
            images=unit_range(data.train.x).clamp(0, 1).to(device),
            labels=_labels(data).to(device),
            classes=data.classes,
            generator=model.to(device),
            budget=budget,
            ledger=Ledger.of(budget),
            noise=NoiseSource(device=device),
            random=random,
            max_steps=profile.steps,
            batch_statistics=self.batch_statistics,
            checkpoints=run.checkpoints,
            fingerprint=f"{run.fingerprint} {data.checksum}",  # other data: no checkpoint, no release of these
            progress=Progress("auto"),
            name=f"{data.name} {cfg.loss._target_.rpartition('.')[2]} seed {cfg.seed}",
        )
        plain: Any = OmegaConf.to_container(cfg, resolve=True)
        tracker.start(run.directory, plain)
        engine = method.prepare(problem)
        return Training(cfg, run, profile, data, method, problem, engine, downstream, tracker, weights)

    def _check_judges(self, downstream: Downstream, data: Dataset, profile: Profile) -> None:
        """What could not be judged after the training is refused before it."""
        if self._samples(profile) < 2:
            raise UsageError("task.fid_samples, profile.samples: a Fréchet distance needs at least two images")
        if len(data.test if self.protocol.reference == "test" else data.train) < 2:
            raise UsageError("dataset.test_fraction: a Fréchet distance needs at least two real images to compare with")
        if downstream.kinds:
            downstream.check(data.shape, profile.samples)

    def _samples(self, profile: Profile) -> int:
        return min(self.protocol.samples, profile.samples or self.protocol.samples)

    def _weights(self, data_root: str | None, profile: Profile) -> InceptionWeights | None:
        if not (self.fid and profile.fid):
            return None
        try:
            return inception_weights(data_root)
        except DataError as error:
            log.warning("no FID: %s; pixel_frechet, which is something else, is reported instead", error)
            return None

    def _conclude(self, one: Training, outcome: Outcome, accuracies: Accuracies) -> Record:
        """Measure the distance of what was trained from the data and write the record."""
        for point in outcome.history:
            one.tracker.log(int(point["step"]), {k: v for k, v in point.items() if k != "step"})
        problem, data = one.problem, one.data
        metrics: dict[str, Any] = {
            name: {
                "mean": statistics.fmean(values),
                "std": statistics.stdev(values) if len(values) > 1 else None,
                "passes": values,
            }
            for name, values in accuracies.items()
        }
        metrics |= self._frechet(one)
        metrics["training"] = outcome.facts()
        if one.method.private and (problem.budget.delta or 0) >= 1 / len(data.train):
            problem.ledger.note_uncovered(
                f"a delta of {problem.budget.delta:g} with {len(data.train):,} records: below 1/records it would rule "
                "out publishing one of them at random"
            )
        for what in data.taken if one.method.private else ():
            problem.ledger.note_uncovered(what)
        if one.method.private and self.protocol.reference == "train":
            problem.ledger.note_uncovered(_measured_on_training_images(self.judged_on))
        statement = problem.statement()
        files = _write_files(one, statement, *self._draw(one, 10 * problem.classes))
        one.tracker.finish(_flat(metrics))
        facts = {
            "name": data.name,
            "checksum": data.checksum,
            "note": data.note,
            "comparable": data.comparable,
            "records": len(data.train),
        }
        record = one.run.finish(metrics, statement.to_dict() | {"headline": statement.headline()}, facts, files)
        (one.run.directory / MARKS).unlink(missing_ok=True)
        for engine in problem.engines:
            engine.discard()  # checkpoints hold the state of the noise generator
        return record

    def _draw(self, one: Training, count: int) -> tuple[Tensor, Tensor]:
        """Samples as they are judged."""
        images, labels = _as_generated(one, count)
        return (images * (images >= 0.5) if self.dark_to_black else images), labels

    def _accuracies(self, trainings: Sequence[Training]) -> list[Accuracies]:
        """The downstream accuracies of each, all of them measured side by side."""
        if not trainings:
            return []
        exams: list[Iterator[Fit[float]]] = []
        for one in trainings:
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
            marks = Marks(one.run.directory / MARKS, problem.generator, f"{one.run.code} {data.checksum}")
            exams.append(marks.of(itertools.chain(*sittings)))
        found = iter(side_by_side(itertools.chain.from_iterable(exams), trainings[0].problem.device))
        return [
            {
                kind + suffix: values
                for suffix in self._draws()
                for kind, values in one.downstream.gather(list(itertools.islice(found, _exams(one)))).items()
            }
            for one in trainings
        ]

    def _draws(self) -> dict[str, Callable[[Training, int], tuple[Tensor, Tensor]]]:
        """How samples are drawn to be judged, by what the names of the accuracies end with."""
        ways: dict[str, Callable[[Training, int], tuple[Tensor, Tensor]]] = {"": self._draw}
        return ways | {"_grey": _as_generated} if self.grey_too else ways

    def _frechet(self, one: Training) -> dict[str, float]:
        problem, data, profile = one.problem, one.data, one.profile
        network = None if one.weights is None else inception(read_weights(one.weights.path), problem.device)
        split = data.test if self.protocol.reference == "test" else data.train
        real = unit_range(split.x).to(problem.device)
        fake, _ = self._draw(one, self._samples(profile))
        cache = Path(one.cfg.output_root) / "statistics" if data.public else None
        origin = "" if one.weights is None else one.weights.checksum
        reference = self.protocol.reference_statistics(real, network, cache, origin)
        distance = frechet_distance(self.protocol.statistics(fake, network), reference)
        return {"fid" if network is not None else "pixel_frechet": distance}


def _as_generated(one: Training, count: int) -> tuple[Tensor, Tensor]:
    return one.method.draw(one.problem, count)


def _exams(one: Training) -> int:
    """How many a way of drawing samples asks for."""
    return one.downstream.passes * len(one.downstream.kinds)


def _train(trainings: Sequence[Training]) -> list[Outcome]:
    """Those with an engine side by side; a method without one is fitted by itself."""
    engines = [one.engine for one in trainings if one.engine is not None]
    outcomes = iter(train_together(engines) if engines else ())
    done = [one.method.fit(one.problem) if one.engine is None else next(outcomes) for one in trainings]
    for one in trainings:
        one.problem.settle()
    return done


def _check_together(method: Method, budget: Budget) -> None:
    if method.private and budget.epsilon is None:
        raise UsageError("privacy.epsilon: this loss is private and needs a budget (or choose loss=swd)")
    if not method.private and budget.epsilon is not None:
        raise UsageError("privacy: this loss adds no noise, so no budget holds for it: use privacy=none")


def _images(data: Any, profile: Profile) -> Dataset:
    if not isinstance(data, Dataset) or data.kind != "images":
        raise UsageError(f"dataset={data.name}: task=generate needs a data set of images")
    return data.limited(profile.records) if profile.records else data


def _measured_on_training_images(judged_on: str) -> str:
    what = "the accuracies and the FID" if judged_on == "train" else "the FID"
    return f"{what} in this record, which are measured on the private training images themselves, without noise"


def _labels(data: Dataset, part: str = "train") -> Tensor:
    split = data.train if part == "train" else data.test
    return split.y if split.y is not None else torch.zeros(len(split), dtype=torch.int64)


def _write_files(one: Training, statement: Statement, images: Tensor, labels: Tensor) -> dict[str, str]:
    directory = one.run.directory
    write_atomically(directory / "samples.png", grid(images.cpu(), labels.cpu(), one.problem.classes))
    write_atomically(directory / "privacy.md", statement.to_markdown())
    write_atomically(directory / "privacy.html", statement.to_html())
    return {"samples": "samples.png", "statement": "privacy.md", "statement_page": "privacy.html"}


def _flat(metrics: dict[str, Any]) -> dict[str, float]:
    flat = {
        name: value["mean"] if isinstance(value, dict) else value
        for name, value in metrics.items()
        if name != "training"
    }
    return {name: float(value) for name, value in flat.items()}


def _answer(record: Record, directory: Path) -> Answer:
    return Answer(record.answer(directory), lambda console: _show(console, record, directory))


def _show(console: Console, record: Record, directory: Path) -> None:
    table = Table(title=f"{record.provenance['data']['name']}, seed {record.provenance['seed']}", title_justify="left")
    table.add_column("metric")
    table.add_column("value", justify="right")
    for name, value in _flat(record.metrics).items():
        table.add_row(name, f"{value:.2f}")
    console.print(table)
    console.print(f"privacy: {record.privacy.get('headline', '')}", highlight=False)
    console.print(f"kept in {directory}", highlight=False)
