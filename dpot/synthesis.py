"""Synthetic records from private ones, in Python.

    from dpot import Synthesizer, synthesize

    images, labels = synthesize(x, y, epsilon=1, delta=1e-5)            # in one call

    synthesizer = Synthesizer(epsilon=1, delta=1e-5).fit(x, y)          # or step by step
    images, labels = synthesizer.sample(10_000)
    synthesizer.save("mine.safetensors")                                # release, generator and statement
    print(synthesizer.statement_.to_markdown())

    again = Synthesizer.from_release("mine.safetensors")                # elsewhere: a fresh generator, no records

Behind it is the sliced sketch (dpot/methods/sketch/method.py): the records are looked at a few times, all within
(ε, δ), and everything after that costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from dpot.counted import account_of, warning_of
from dpot.data.coding import Categories, Coding, ImageCoding, Number, Ranges, TableCoding, load_coding
from dpot.data.dtypes import Facts, as_frame, given_back, numbered_labels, typed
from dpot.data.schema import Schema
from dpot.errors import DataError, PrivacyError, UsageError
from dpot.forms import recognised
from dpot.methods.generate.base import Problem
from dpot.methods.sketch.counters import SpreadProblem
from dpot.methods.sketch.directions import is_table
from dpot.methods.sketch.file import Release
from dpot.methods.sketch.method import Sketch
from dpot.methods.sketch.table_file import TableRelease, load_release
from dpot.models.generator import Generator
from dpot.models.product_mixture import ProductMixture
from dpot.models.sketch_dcgan import SketchDCGAN
from dpot.models.table_generator import TableGenerator
from dpot.precision import suited_convolutions
from dpot.privacy.budget import Budget
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.privacy.statement import Statement
from dpot.spread import Spread, is_spread, spread_of
from dpot.tables import refit, released_by, remarks, suited
from dpot.training.progress import Progress
from dpot.views import Views

log = logging.getLogger("dpot")
CHUNK = 5000


class Synthesizer(Views, BaseEstimator):
    """fit(X, y), sample(n), save(path), load(path): a scikit-learn-like synthesizer with an (ε, δ) guarantee.

    Neighbouring data sets differ in one record, label included; their number is public. Parameters:
    epsilon, delta: the budget. δ must be below 1/(number of records).
    ranges: public ranges of numeric columns ((lower, upper), one pair per column, or a dict by name), or of float
        images that are not in [0, 1]. Values are cut to them. They are never taken from the data.
    categories: {column: values} for columns of words. A pandas Categorical brings its own, on which the statement then
        is conditional.
    schema: declares all of this, and the types and classes, so that nothing about a table is taken from its records: a
        file or a mapping (dpot/data/schema.py). Its label is taken out of X, unless y is given.
    classes: the classes that there may be. Without it those that occur in y are taken to be public, and the
        statement says so.
    shape: of the images in the column `image` of a data set of Ray or Spark, as their arrays have it.
    rounds: 2, or 1 to leave out the second look. steps: at most so many steps of fitting; None: by rule.
    seed: of everything but the privacy noise. device: auto, cpu or cuda.

    After fit: release_ (all that was taken from the data), statement_, generator_, classes_, remarks_.
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        *,
        ranges: Ranges = None,
        categories: Categories = None,
        classes: Sequence[Any] | None = None,
        schema: str | Path | Mapping[str, Any] | None = None,
        shape: Sequence[int] | None = None,
        rounds: int = 2,
        steps: int | None = None,
        seed: int = 0,
        device: str = "auto",
        progress: Literal["auto", "silent"] = "silent",
    ) -> None:
        self.epsilon, self.delta = epsilon, delta
        self.ranges, self.categories, self.classes, self.schema = ranges, categories, classes, schema
        self.shape = shape
        self.rounds, self.steps, self.seed, self.device, self.progress = rounds, steps, seed, device, progress

    def fit(self, X: Any, y: Any = None) -> Synthesizer:
        """Look at the records privately and fit a generator to what was released.

        X: images N×H×W, N×C×H×W or N×H×W×C (uint8, or floats in [0, 1]), a DataFrame, or an array N×columns; or a Ray
        data set or Spark DataFrame, whose records are counted where they lie (dpot/spread.py).
        y: N labels of any kind, or the column of labels in a data set of Ray or Spark; None: no labels.
        """
        self._types: Facts = []
        if is_spread(X):
            spread = spread_of(X, y, self.schema, self.shape, self.classes)
            return self.fit_records(spread, None, spread.decode.classes, spread.decode.coding)
        if self.schema is not None:
            return self._fit_declared(Schema.of(self.schema), X, y)
        X, self._types, ranges, categories = typed(X, self.ranges, self.categories)
        values, coding, conditions = recognised(X, ranges, categories)
        names: list[Any] = []
        numbers = torch.zeros(len(values), dtype=torch.int64)
        if y is not None:
            numbers, names = numbered_labels(y, len(values), self.classes)
            if self.classes is None:
                conditions.append("which classes there are: they were taken from the labels")
        return self.fit_records(coding.encode(values), numbers, names, coding, conditions=conditions)

    def _fit_declared(self, schema: Schema, X: Any, y: Any) -> Synthesizer:
        """fit for a table with a schema: nothing is taken from the records."""
        if any(given is not None for given in (self.ranges, self.categories, self.classes)):
            raise UsageError("schema: it declares ranges, categories and classes; leave these out")
        frame, array = as_frame(X)
        if y is not None:
            if schema.label is None:
                raise UsageError("schema: there are labels, and it declares no label")
            frame = frame.assign(**{schema.label: np.asarray(y)})
        values, coding = schema.conform(frame), replace(schema.coding, array=array)
        numbers = torch.zeros(len(values), dtype=torch.int64)
        if schema.label is not None:
            numbers = torch.from_numpy(schema.class_numbers(values))
        return self.fit_records(coding.encode(values), numbers, schema.classes, coding)

    @suited_convolutions()
    def fit_records(
        self,
        records: Tensor | Spread,
        labels: Tensor | None,
        classes: Sequence[Any],
        coding: Coding,
        *,
        generator: Generator | None = None,
        budget: Budget | None = None,
        sketch: Sketch | None = None,
        notes: Sequence[str] = (),
        conditions: Sequence[str] = (),
        **problem: Any,
    ) -> Synthesizer:
        """fit for records (N, C, H, W) in [0, 1] with class numbers, or for some that lie elsewhere.

        problem: checkpoints, fingerprint, max_steps.
        notes: what no ε covers. conditions: what was taken from the records and has to be public.
        """
        budget = budget or Budget(self.epsilon, self.delta, conversion="tight")
        if budget.epsilon is None or budget.delta is None:
            raise UsageError("privacy.epsilon: synthesis needs a budget")
        if len(records) < 2:
            raise PrivacyError(f"there is nothing to learn from {len(records)} records")
        if "account" not in problem and isinstance(records, Tensor) and labels is not None:
            problem["account"] = account_of(records, labels)
        by_rule = generator is None and (sketch is None or vars(sketch) == vars(Sketch()))
        tabular = suited(coding, len(records), max(1, len(classes)), budget, self.rounds) if by_rule else None
        place = torch.device("cpu") if tabular else _device(self.device)  # marginals gain nothing on a GPU
        task = self._problem(records, labels, max(1, len(classes)), budget, generator, place, **problem)
        for note in notes:
            task.ledger.note_uncovered(note)
        for condition in conditions:
            task.ledger.note_condition(condition)
        method = sketch or Sketch(rounds=self.rounds)
        self.outcome_ = (tabular or method).fit(task)
        found = released_by(tabular, task) if tabular else method.release
        assert found is not None
        extra = {"coding": coding.to_dict(), "class_names": list(classes)}
        if getattr(self, "_types", None):
            extra["types"] = self._types
        self._take(replace(found, extra=extra, statement=task.statement().to_dict()), task.generator)
        again = warning_of(task.account, self.statement_.total) if task.account and "kept" not in problem else None
        if again:
            log.warning("%s", again)
        return self

    def sample(self, n: int, seed: int | None = None) -> tuple[Any, Any]:
        """n synthetic records in the form that fit was given, and their labels (None if there were none).

        Labels are drawn with the released shares of the classes; costs nothing.
        """
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise UsageError(f"n={n}: give a whole number of records, at least 1")
        records, numbers = self.draw(int(n), seed)
        values, types = self.coding_.decode(records), self.release_.extra.get("types")
        return given_back(values, types) if types else values, self.named(numbers)

    def named(self, numbers: Tensor) -> np.ndarray | None:
        """Class numbers as the labels that fit was given."""
        return np.array(self.classes_)[numbers.cpu().numpy()] if self.classes_ else None

    @torch.no_grad()
    def draw(self, n: int, seed: int | None = None) -> tuple[Tensor, Tensor]:
        """n records (n, C, H, W) in [0, 1] with class numbers, as tensors on the device."""
        self._check_fitted()
        model = self.generator_.eval()
        if seed is not None:
            self._random.manual_seed(seed)
        shares = self.release_.shares.to(self._random.device)
        if isinstance(model, ProductMixture):
            return model.draw(n, shares, self._random)
        labels = torch.multinomial(shares, n, replacement=True, generator=self._random)
        parts = [model(model.code(len(p), self._random, p.device), p) for p in labels.split(CHUNK)]
        return torch.cat(parts), labels

    def save(self, path: str | Path) -> None:
        """Write release, statement and generator as one file; nothing else of the records is in it."""
        self._check_fitted()
        model = self.generator_
        if not isinstance(model, SketchDCGAN | TableGenerator | ProductMixture):
            raise UsageError(f"{type(model).__name__}: only the sketch's own generators are kept in a file")
        size = {"code_size": model.code_size} if isinstance(model, TableGenerator) else model.size
        if isinstance(model, SketchDCGAN):
            size = {"code_size": model.code_size, **size}
        extra = {**self.release_.extra, "generator": size}
        replace(self.release_, extra=extra, generator=model.state_dict()).save(Path(path))

    @classmethod
    def load(cls, path: str | Path, *, seed: int = 0, device: str = "auto") -> Synthesizer:
        """Read what save wrote, ready to sample."""
        own, release = cls._opened(path, seed, device)
        if not release.generator:
            raise DataError(f"{path}: holds a release and no generator; Synthesizer.from_release fits one")
        try:
            size = release.extra["generator"]
            if size.get("blocks", 0) > len(release.generator):  # each has several tensors
                raise DataError(f"it asks for {size['blocks']} blocks and holds {len(release.generator)} tensors")
            with torch.device("meta"):  # takes no memory, whatever sizes a file asks for
                outline = _generator(release.shape, release.classes, **size).state_dict()
            if {n: t.shape for n, t in outline.items()} != {n: t.shape for n, t in release.generator.items()}:
                raise DataError("its tensors have other names or shapes than its sizes say")
            model = _generator(release.shape, release.classes, **size)
            model.load_state_dict(release.generator)
            if isinstance(release, TableRelease):
                release.check_generator(model)
        except Exception as error:  # a file that somebody made: whatever is wrong with it, it is one line
            line = (str(error).splitlines() or [type(error).__name__])[0][:300]
            raise DataError(f"{path}: its generator cannot be read ({line})") from None
        return own._take(release, model.to(_device(device)))

    @classmethod
    def from_release(
        cls,
        path: str | Path,
        *,
        steps: int | None = None,
        seed: int = 0,
        device: str = "auto",
        progress: Literal["auto", "silent"] = "silent",
    ) -> Synthesizer:
        """Fit a fresh generator to a released sketch: without the records, without any further cost."""
        own, release = cls._opened(path, seed, device)
        if isinstance(release, TableRelease):
            own, release = cls._opened(path, seed, "cpu")
        own.set_params(steps=steps, progress=progress)
        budget = Budget(own.epsilon, own.delta, conversion="tight")
        nothing = torch.empty(0, *release.shape), torch.empty(0, dtype=torch.int64)
        task = own._problem(*nothing, release.classes, budget, None, _device(own.device))
        own.outcome_ = refit(release, task) if isinstance(release, TableRelease) else Sketch().refit(task, release)
        return own._take(replace(release, generator={}), task.generator)

    @classmethod
    def _opened(cls, path: str | Path, seed: int, device: str) -> tuple[Synthesizer, Release | TableRelease]:
        """A release that was read and checked: digest, statement, tensors, and that its records can be written."""
        release = load_release(Path(path), _device(device))
        if not release.statement:
            raise DataError(f"{path}: the release carries no privacy statement")
        try:
            coding, names = _coding_of(release)
            coding.decode(torch.zeros(1, *release.shape))
            named = release.classes if names or release.classes > 1 else 0
            if "class_names" not in release.extra or coding.shape != release.shape or len(names) != named:
                raise DataError("they do not fit its shape or its number of classes")
            if not all(isinstance(name, str | int) for name in names):
                raise DataError("a class is neither a word nor a whole number")
        except Exception as error:
            line = (str(error).splitlines() or [type(error).__name__])[0][:300]
            raise DataError(f"{path}: its columns or classes cannot be read ({line})") from None
        terms = Statement.from_dict(release.statement)
        if terms.budget is None:
            raise DataError(f"{path}: its privacy statement has no budget")
        return cls(terms.budget, terms.delta, seed=seed, device=device), release

    def _problem(
        self,
        records: Tensor | Spread,
        labels: Tensor | None,
        classes: int,
        budget: Budget,
        generator: Generator | None,
        device: torch.device,
        **more: Any,
    ) -> Problem:
        torch.manual_seed(self.seed)
        shape = tuple(records.shape[1:])
        model = generator or _generator((shape[0], shape[1], shape[2]), classes)
        kind: Any = Problem
        if isinstance(records, Spread):
            kind, more["spread"] = SpreadProblem, records
            records = torch.empty(0, *shape)
        return kind(
            images=records.to(device),
            labels=(torch.zeros(len(records), dtype=torch.int64) if labels is None else labels).to(device),
            classes=classes,
            generator=model.to(device),
            budget=budget,
            ledger=Ledger.of(budget),
            noise=NoiseSource(device=device),
            random=torch.Generator(device).manual_seed(self.seed),
            progress=more.pop("progress", None) or Progress(self.progress),
            name=more.pop("name", "synthesis"),
            max_steps=more.pop("max_steps", None) or self.steps,
            **more,
        )

    def _take(self, release: Release | TableRelease, model: Generator) -> Synthesizer:
        self.release_, self.generator_ = release, model
        self._random = torch.Generator(next(model.parameters()).device).manual_seed(self.seed)
        self.statement_ = Statement.from_dict(release.statement)
        self.coding_, self.classes_ = _coding_of(release)
        self.remarks_ = remarks(release, self.classes_)
        for remark in self.remarks_:
            log.warning("%s", remark)
        return self

    def _check_fitted(self) -> None:
        if not hasattr(self, "release_"):
            raise UsageError("this Synthesizer has not been fitted: call fit(X, y) first")


def synthesize(
    X: Any, y: Any = None, *, epsilon: float, delta: float, n: int | None = None, **settings: Any
) -> tuple[Any, Any]:
    """n synthetic records (as many as there are, unless said) and their labels, under (ε, δ).

    `settings` are those of Synthesizer; use it to keep the statement and the release.
    """
    synthesizer = Synthesizer(epsilon, delta, **settings).fit(X, y)
    return synthesizer.sample(n or len(X))


def _generator(shape: tuple[int, int, int], classes: int, **size: Any) -> Generator:
    if not is_table(shape):
        return SketchDCGAN(classes, shape, **size)
    return (ProductMixture if "bins" in size else TableGenerator)(classes, shape, **size)


def _coding_of(release: Release | TableRelease) -> tuple[Coding, list[Any]]:
    """How records are written, and the names of the classes."""
    found = release.extra.get("coding")
    coding = load_coding(found) if found else _plain_coding(release.shape)
    return coding, list(release.extra.get("class_names", []))


def _plain_coding(shape: tuple[int, int, int]) -> Coding:
    if is_table(shape):
        return TableCoding(tuple(Number(str(i), 0.0, 1.0) for i in range(shape[0])), array=True)
    return ImageCoding("NCHW", shape, "float32")


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device("cuda:0" if name == "cuda" else name)
