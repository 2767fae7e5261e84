"""`task=synthesize`: a private data set in, a synthetic one out, with its privacy statement and a utility report."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table as TextTable
from torch import Tensor

from dpot import config
from dpot.data.base import Dataset, Source, Split, unit_range
from dpot.data.coding import SMALLEST_SIDE, Coding, ImageCoding, TableCoding, load_coding
from dpot.data.folder import Folder
from dpot.disk import write_atomically
from dpot.errors import DataError, UsageError
from dpot.evaluation.downstream import Downstream
from dpot.models.generator import Generator
from dpot.profiles import Profile
from dpot.ranges import Count
from dpot.record import Record, numbers
from dpot.reporting.columns import column_picture
from dpot.reporting.figures import grid
from dpot.spread import Spread
from dpot.synthesis import Synthesizer
from dpot.tasks import streaming
from dpot.tasks.training import Findings, Training, TrainingTask, show_headline
from dpot.training.capture import Outcome
from dpot.transport.directions import uniform_directions
from dpot.transport.sliced import sliced_wasserstein

Format = Literal["auto", "png", "npz", "csv"]
UNCOVERED = (
    "the utility report: its scores were computed on {count} held-out records and printed without noise "
    "(task.utility=false leaves it out); these records were not learned from"
)
DIRECTIONS = 200
LONGEST_NAME = 255  # bytes of a folder's name


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

    def __init__(self, count: Count | None = None, format: Format = "auto", utility: bool = True) -> None:
        self.count, self.format, self.utility = count, format, utility

    def check(self, cfg: DictConfig) -> None:
        """As every task, and whether the records are read as a stream."""
        super().check(cfg)
        if cfg.get("engine") is not None:
            streaming.settle(cfg)

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
        _check_names(one.names, one.written)
        if isinstance(_coding(data), ImageCoding):
            one.model = config.instantiate(cfg.generator, "generator", classes=data.classes, shape=data.shape)

    def fit(self, one: Synthesis) -> Outcome:
        """Release the sketch and fit the generator to it."""
        budget, data = one.budget, one.data
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
                metrics |= _utility(synthesizer, downstream, data, one.profile, one.cfg.seed)
        outcome = one.outcomes["training"].facts()
        metrics["classes"] = _class_facts(synthesizer)
        metrics["training"] = {key: outcome[key] for key in ("steps", "seconds", "mode", "resumed_at")}
        with one.timed("writing"):
            declared = one.cfg.dataset.get("schema") or one.cfg.dataset
            label = str(declared.get("label") or "label")
            count = self.count or (min(one.records, streaming.MOST_WRITTEN) if one.spread else one.records)
            files = _write(one.run.directory, synthesizer, data, one.written, count, metrics, label)
        metrics["seconds"] = one.seconds
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
    synthesizer: Synthesizer, downstream: Downstream, data: Dataset, profile: Profile, seed: int
) -> dict[str, Any]:
    """Train on synthetic, test on held-out real records; and the sliced distance between the two."""
    downstream.samples = min(downstream.samples, profile.samples or downstream.samples)
    downstream.passes = profile.passes or downstream.passes
    device = synthesizer.release_.counts.device
    real, labels = _records(data.test).to(device), _labels(data.test).to(device)
    found: dict[str, Any] = {}
    if data.classes > 1:
        downstream.kinds = [kind for kind in downstream.kinds if "cnn" not in kind or data.kind == "images"]
        scores = downstream.evaluate(synthesizer.draw, real, labels, data.classes, seed)
        for name, values in scores.items():
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


def _write(
    directory: Path,
    synthesizer: Synthesizer,
    data: Dataset,
    written: str,
    count: int,
    metrics: dict[str, Any],
    label: str,
) -> dict[str, str]:
    import pandas as pd

    records, drawn = synthesizer.draw(count)
    values, labels = synthesizer.coding_.decode(records), synthesizer.named(drawn)
    files = {"synthetic": _write_records(directory, written, values, labels, label)}
    if isinstance(synthesizer.coding_, ImageCoding):
        preview = [records[drawn == label][:10] for label in range(data.classes)]
        shown = torch.cat([torch.full((len(p),), i) for i, p in enumerate(preview)])
        write_atomically(directory / "samples.png", grid(torch.cat(preview).cpu(), shown, data.classes))
        files["samples"] = "samples.png"
    else:
        assert isinstance(synthesizer.coding_, TableCoding)
        write_atomically(directory / "preview.csv", _csv(values[:20], None if labels is None else labels[:20], label))
        write_atomically(directory / "columns.png", column_picture(pd.DataFrame(values), labels))
        files |= {"preview": "preview.csv", "columns": "columns.png"}
    write_atomically(directory / "privacy.json", json.dumps(synthesizer.statement_.to_dict(), indent=1) + "\n")
    synthesizer.save(directory / "release.safetensors")
    files |= {"statement_data": "privacy.json", "release": "release.safetensors"}
    if numbers(metrics):
        write_atomically(directory / "utility.md", _report(metrics, data))
        files["utility"] = "utility.md"
    return files


def _write_records(directory: Path, written: str, values: Any, labels: np.ndarray | None, label: str) -> str:
    if written == "csv":
        write_atomically(directory / "synthetic.csv", _csv(values, labels, label))
        return "synthetic.csv"
    if written == "npz":
        buffer = io.BytesIO()
        if labels is None:
            np.savez_compressed(buffer, x=np.asarray(values))
        else:
            np.savez_compressed(buffer, x=np.asarray(values), y=labels)
        write_atomically(directory / "synthetic.npz", buffer.getvalue())
        return "synthetic.npz"
    _write_folder(directory / "synthetic", values, labels)
    return "synthetic"


def _write_folder(place: Path, images: np.ndarray, labels: np.ndarray | None) -> None:
    """A folder per class, put in the place of an older one as a whole: two runs' images must not be mixed."""
    from PIL import Image

    begun = place.with_name(f".{place.name}.tmp")
    shutil.rmtree(begun, ignore_errors=True)  # of a killed run
    for name in [""] if labels is None else sorted(set(map(_folder_name, labels))):
        (begun / name).mkdir(parents=True)
    for index, image in enumerate(images):
        name = "" if labels is None else _folder_name(labels[index])
        Image.fromarray(image).save(begun / name / f"{index:06d}.png")
    shutil.rmtree(place, ignore_errors=True)
    begun.rename(place)


def _folder_name(label: Any) -> str:
    return str(label).replace("/", "_").lstrip(".") or "_"


def _check_names(names: Sequence[str], written: str) -> None:
    """Before anything is spent: classes must be told apart in what is written."""
    taken: dict[str, str] = {}
    for name in names:
        shown = _folder_name(name) if written == "png" else name
        if shown in taken:
            raise DataError(f"the classes {taken[shown]!r} and {name!r} would both be written as {shown!r}: rename one")
        if written == "png" and len(shown.encode()) > LONGEST_NAME:
            raise DataError(f"the class {shown[:30]!r}… is too long a name for a folder: rename it, or task.format=npz")
        taken[shown] = name


def _csv(values: Any, labels: np.ndarray | None, name: str) -> str:
    import pandas as pd

    frame = pd.DataFrame(values)
    if labels is not None:
        frame[name] = labels
    return str(frame.to_csv(index=False))


def _report(metrics: dict[str, Any], data: Dataset) -> str:
    lines = [
        "## Utility report",
        "",
        f"Trained on synthetic records, tested on {len(data.test)} real ones, held out and never learned from.",
        "These scores are computed on private records and carry no noise: they are **not covered by ε**. Show them to",
        "nobody who must not learn about these records, or run with `task.utility=false`.",
        "",
        "| score | value |",
        "|---|---|",
    ]
    for name, value in numbers(metrics).items():
        lines.append(f"| {name} | {value:.4g} |")
    classes = metrics["classes"]
    lines += ["", f"Released class sizes (within ε; noise deviation {classes['deviation']} records):", ""]
    lines += [f"- {name}: {count}" for name, count in classes["noisy_counts"].items()]
    return "\n".join(lines + [f"- {remark}" for remark in classes["remarks"]]) + "\n"
