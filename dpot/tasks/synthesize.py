"""`task=synthesize`: a private data set in, a synthetic one out, with its privacy statement and a utility report."""

from __future__ import annotations

import contextlib
import logging
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table as TextTable
from torch import Tensor

from dpot import config
from dpot.data.base import Dataset, Source, Split, unit_range
from dpot.data.coding import SMALLEST_SIDE, Coding, ImageCoding, load_coding
from dpot.data.folder import Folder
from dpot.disk import write_atomically
from dpot.errors import UsageError
from dpot.evaluation.downstream import Downstream
from dpot.evaluation.hurried import Clock
from dpot.evaluation.stepping import side_by_side
from dpot.models.generator import Generator
from dpot.preflight import Expectation, expect
from dpot.privacy.budget import Budget
from dpot.profiles import Profile
from dpot.ranges import Count, Positive
from dpot.record import Record, numbers
from dpot.spread import Spread
from dpot.synthesis import Synthesizer
from dpot.tasks import streaming
from dpot.tasks.base import Answer
from dpot.tasks.handing_out import check_names, write
from dpot.tasks.training import Findings, Training, TrainingTask, device_of, show_headline
from dpot.training.capture import Outcome
from dpot.transport.directions import uniform_directions
from dpot.transport.sliced import sliced_wasserstein
from dpot.views import changes, page

log = logging.getLogger("dpot")
Format = Literal["auto", "png", "npz", "csv"]
UNCOVERED = (
    "the utility report: its scores were computed on {count} held-out records and printed without noise "
    "(task.utility=false leaves it out); these records were not learned from"
)
DIRECTIONS = 200
LEAST_SECONDS = 30.0  # for the utility report, however short the fit was


@dataclass
class Synthesis(Training):
    """With the synthesizer, what it writes, and how long each part took."""

    synthesizer: Synthesizer = field(init=False)
    model: Generator | None = None
    names: Sequence[str] = ()  # of the classes
    written: str = ""  # the format
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def spread(self) -> Spread | None:
        """The records, where an engine has them."""
        return getattr(self.data, "spread", None)

    @property
    def records(self) -> int:
        """How many are learned from."""
        return len(self.spread or self.data.train)

    @contextlib.contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """What is inside is `part` of the run."""
        began = time.perf_counter()
        yield
        self.seconds[part] = round(time.perf_counter() - began, 2)


class Synthesize(TrainingTask[Synthesis]):
    """Records, budget → synthetic records, labels, preview, release, statement, utility report."""

    name = "synthesize"
    training = Synthesis
    streams = True

    def __init__(
        self,
        count: Count | None = None,
        format: Format = "auto",
        utility: bool = True,
        preflight: bool = False,
        utility_share: Positive | None = 0.2,
    ) -> None:
        self.count, self.format, self.utility, self.preflight = count, format, utility, preflight
        self.utility_share = utility_share

    def check(self, cfg: DictConfig) -> None:
        """As every task, and whether the records are read as a stream; whose they are is a column of a table."""
        super().check(cfg)
        if cfg.get("engine") is not None:
            streaming.settle(cfg)
        if cfg.privacy.get("unit") is not None:
            if "most" not in cfg.dataset:
                raise UsageError("privacy.unit: only a table has a column that says whose a record is (dataset=table)")
            if cfg.dataset.get("streamed"):
                raise UsageError("privacy.unit: records that are read as a stream are not bounded by person")
            cfg.dataset.unit, cfg.dataset.most = cfg.privacy.unit, cfg.privacy.most

    def run(self, cfg: DictConfig) -> Answer:
        """Synthesize, or only say what to expect: nothing is released then."""
        if not self.preflight:
            return super().run(cfg)
        self.check(cfg)
        profile: Profile = config.instantiate(cfg.profile, "profile")
        data = self.load(cfg, profile)
        found = self._expected(cfg, data, len(getattr(data, "spread", None) or data.train))

        def show(console: Console) -> None:
            console.print(found.line(), highlight=False)
            console.print(f"measured in: {found.source}; method: {found.method}", highlight=False)
            for line in [*found.resized, *(f"warning: {warning}" for warning in found.warnings)]:
                console.print(line, highlight=False, markup=False)
            console.print("nothing was released", highlight=False)

        return Answer(found.to_dict(), show)

    def _expected(self, cfg: DictConfig, data: Dataset, records: int, model: Generator | None = None) -> Expectation:
        coding = _coding(data)
        budget: Budget = config.instantiate(cfg.privacy, "privacy")
        return expect(coding, records, data.classes, budget, device_of(cfg), resized=changes(coding), model=model)

    def load(self, cfg: DictConfig, profile: Profile) -> Any:
        """The data set in memory, or where an engine finds it."""
        if not cfg.dataset.get("streamed"):
            return super().load(cfg, profile)
        data = streaming.load(cfg)
        self.accept(data)
        return data

    def accept(self, data: Any) -> None:
        """Images that are not too small, or a table with public ranges."""
        if not isinstance(data, Dataset) or data.kind not in ("images", "table"):
            raise UsageError(
                f"dataset={data.name}: task=synthesize needs images or a table; "
                "rows of numbers go into a .csv file, with dataset=table and the public ranges in dataset.bounds"
            )
        if data.kind == "images" and min(data.shape[1:]) < SMALLEST_SIDE:
            raise UsageError(
                f"dataset.size={min(data.shape[1:])}: images need {SMALLEST_SIDE}×{SMALLEST_SIDE} pixels at least"
            )
        if data.kind == "table" and not data.coding:
            raise UsageError(
                "dataset.bounds: give the public range of each number, {age:[0,100],…}, and dataset.categories "
                "for columns of words, or dataset.schema (dpot task=schema); what occurs in the data is private"
            )

    def build(self, one: Synthesis) -> None:
        """The generator of images (a table has one of its own), and what could not be written is refused."""
        data, cfg = one.data, one.cfg
        one.seconds["reading"] = round(one.reading, 2)
        one.written = self._format(config.instantiate(cfg.dataset, "dataset"), data)
        one.names = data.class_names or tuple(map(str, range(data.classes if data.train.y is not None else 0)))
        check_names(one.names, one.written)
        if isinstance(_coding(data), ImageCoding):
            one.model = config.instantiate(cfg.generator, "generator", classes=data.classes, shape=data.shape)

    def fit(self, one: Synthesis) -> Outcome:
        """Release the sketch and fit the generator to it."""
        budget, data = one.budget, one.data
        expected = self._expected(one.cfg, data, one.records, one.model)
        log.info("%s", expected.line())
        for warning in expected.warnings:
            log.warning("%s", warning)
        utility = self.utility and one.spread is None
        notes = [*data.uncovered, *([UNCOVERED.format(count=len(data.test))] if utility else [])]
        one.synthesizer = Synthesizer(
            budget.epsilon or 0, budget.delta or 0, seed=one.cfg.seed, device=str(one.cfg.device)
        )
        with one.timed("release and fits"):
            one.synthesizer.fit_records(
                one.spread or _records(data.train),
                None if one.spread else _labels(data.train),
                one.names,
                _coding(data),
                generator=one.model,
                budget=budget,
                sketch=one.method,
                notes=notes,
                conditions=data.taken,
                **one.frame(),
            )
        if one.spread:
            one.spread.engine.close()
        return one.synthesizer.outcome_

    def judge(self, one: Synthesis) -> Findings:
        """The utility report, and everything that is handed out."""
        synthesizer, data = one.synthesizer, one.data
        metrics: dict[str, Any] = {}
        if self.utility and one.spread is None:
            downstream: Downstream = config.instantiate(one.cfg.classifier, "classifier")
            with one.timed("utility report"):
                took = one.seconds["release and fits"]
                seconds = None if self.utility_share is None else max(LEAST_SECONDS, self.utility_share * took)
                metrics |= _utility(synthesizer, downstream, data, one.profile, one.cfg.seed, seconds)
        outcome = one.outcomes["training"].facts()
        metrics["classes"] = _class_facts(synthesizer)
        metrics["training"] = {key: outcome[key] for key in ("steps", "seconds", "mode", "resumed_at")}
        scores = numbers(metrics)
        with one.timed("writing"):
            declared = one.cfg.dataset.get("schema") or one.cfg.dataset
            label = str(declared.get("label") or "label")
            count = self.count or (min(one.records, streaming.MOST_WRITTEN) if one.spread else one.records)
            files = write(one.run.directory, synthesizer, data, one.written, count, metrics, label)
            held_out = len(data.test) if scores else 0
            own_page = page(
                synthesizer, title=f"Synthetic {data.name}", data=data.name, utility=scores, held_out=held_out
            )
            write_atomically(one.run.directory / "index.html", own_page)
        metrics["seconds"] = one.seconds
        files["page"] = "index.html"
        return Findings(metrics, synthesizer.statement_, one.records, files)

    def show(self, console: Console, record: Record) -> None:
        """The utility report, remarks on the release, and what the statement says in a sentence."""
        scores = numbers(record.metrics)
        if scores:
            table = TextTable(title="on held-out real records (not covered by ε)", title_justify="left")
            table.add_column("score")
            table.add_column("value", justify="right")
            for name, value in scores.items():
                table.add_row(name, f"{value:.4g}")
            console.print(table)
        for remark in record.metrics["classes"]["remarks"]:
            console.print(remark, highlight=False)
        show_headline(console, record)

    def _format(self, source: Source, data: Dataset) -> str:
        table = data.kind != "images"
        if self.format == "auto":
            folder = isinstance(source, Folder) and Path(source.path or "").expanduser().is_dir()
            return "csv" if table else "png" if folder else "npz"
        if table != (self.format == "csv") and self.format != "npz":
            raise UsageError(f"task.format={self.format}: tables are written as csv or npz, images as png or npz")
        return self.format


def _coding(data: Dataset) -> Coding:
    if data.coding:
        return load_coding(data.coding)
    channels, height, width = data.shape
    return ImageCoding("NHW" if channels == 1 else "NHWC", (channels, height, width), "uint8", 0.0, 255.0)


def _records(split: Split) -> Tensor:
    x = split.x[:, :, None, None] if split.x.dim() == 2 else split.x
    return unit_range(x).clamp(0, 1)


def _labels(split: Split) -> Tensor:
    return split.y if split.y is not None else torch.zeros(len(split), dtype=torch.int64)


def _utility(
    synthesizer: Synthesizer, downstream: Downstream, data: Dataset, profile: Profile, seed: int, seconds: float | None
) -> dict[str, Any]:
    """Train on synthetic, test on held-out real records, in so many seconds; and the sliced distance between them."""
    downstream.samples = min(downstream.samples, profile.samples or downstream.samples)
    downstream.passes = profile.passes or downstream.passes
    device = synthesizer.release_.counts.device
    real, labels = _records(data.test).to(device), _labels(data.test).to(device)
    found: dict[str, Any] = {}
    if data.classes > 1:
        downstream.kinds = [kind for kind in downstream.kinds if "cnn" not in kind or data.kind == "images"]
        clock = Clock("utility report", downstream.names(), seconds)
        exams = downstream.exams(synthesizer.draw, real, labels, data.classes, seed)
        marks = downstream.gather(side_by_side(clock.exams(exams), real.device))
        if clock.left_out:
            late = ", ".join(dict.fromkeys(clock.left_out))
            log.warning("%s: left out, the time was up (task.utility_share=null waits for all)", late)
        for name, found_marks in marks.items():
            values = [mark for mark in found_marks if mark is not None]
            if not values:
                continue
            spread = statistics.stdev(values) if len(values) > 1 else None
            found[name] = {"mean": statistics.fmean(values), "std": spread, "passes": values}
        found["chance"] = 100 * float(torch.bincount(labels).max() / len(labels))
    fake, _ = synthesizer.draw(len(real))
    random = torch.Generator(device).manual_seed(seed)
    directions = uniform_directions(DIRECTIONS, real[0].numel(), random, device)
    found["sliced_wasserstein"] = float(sliced_wasserstein(fake.flatten(1), real.flatten(1), directions))
    return found


def _class_facts(synthesizer: Synthesizer) -> dict[str, Any]:
    """Released sizes of the classes: noisy, so covered by ε."""
    release = synthesizer.release_
    names = synthesizer.classes_ or ["all"]
    return {
        "noisy_counts": dict(zip(map(str, names), [round(c, 1) for c in release.counts.tolist()], strict=True)),
        "deviation": round(release.deviation, 3),
        "remarks": synthesizer.remarks_,
    }
