"""What was released of a table by its marginals, in memory and as a file (dpot/methods/sealed.py)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from dpot.errors import DataError, DpotError
from dpot.methods.sealed import read_sealed, seal
from dpot.methods.sketch.file import CERTAIN, Release
from dpot.methods.sketch.marginals import Marginals
from dpot.methods.verify import SAME, conform, verified
from dpot.models.product_mixture import Column, ProductMixture
from dpot.privacy.counts import count_deviation
from dpot.privacy.events import Adjacency, CountGaussian, Event
from dpot.privacy.statement import Statement
from dpot.ranges import Count, Positive
from dpot.record import write_atomically

VERSION, KIND = 2, "marginals"


@dataclass(frozen=True)
class TableRelease:
    """Everything that was released of a table, and nothing else of it."""

    shape: tuple[int, int, int]
    classes: int
    records: int  # public
    counts: Tensor  # (classes,) as all blocks say
    deviation: float  # of the noise in each of `counts`, in records: at most this
    columns: list[Column]
    marginals: Marginals
    generator: dict[str, Tensor] = field(default_factory=dict)
    statement: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    digest: str = field(default="", compare=False)

    @property
    def uncertain(self) -> list[int]:
        """Classes whose count does not stand out of the noise."""
        return torch.nonzero(self.counts < CERTAIN * self.deviation).flatten().tolist() if self.classes > 1 else []

    @property
    def shares(self) -> Tensor:
        """What part of the records each class has; uncertain classes have none, unless all are."""
        counts = self.counts.double().clamp(min=0)
        certain = counts.clone()
        certain[self.uncertain] = 0
        chosen = certain if certain.any() else counts
        return chosen / chosen.sum()

    def save(self, path: Path) -> None:
        """Write it, whole or not at all."""
        own = self.marginals
        tensors = {"counts": self.counts, "cells": own.cells, "gram": own.gram.long(), "bin_of": own.bin_of}
        tensors |= {"pooled": own.pooled.long(), "related": own.related}
        tensors |= {f"generator.{name}": value for name, value in self.generator.items()}
        facts = {
            "version": VERSION,
            "kind": KIND,
            "shape": list(self.shape),
            "classes": self.classes,
            "records": self.records,
            "cell_deviation": own.cell_deviation,
            "block_deviation": own.deviation,
            "pooled_deviation": own.pooled_deviation,
            "columns": [asdict(column) for column in self.columns],
            "statement": self.statement,
            "extra": self.extra,
        }
        write_atomically(path, seal(tensors, facts))

    def check_generator(self, model: Any) -> None:
        """A generator that was kept along draws the columns, bins and cells that were released."""
        own = self.marginals
        if not isinstance(model, ProductMixture) or model.columns != self.columns or model.bins != own.bins:
            raise DataError("its columns or bins are not those of the release")
        if not torch.equal(model.bin_of, own.bin_of.to(model.bin_of)):
            raise DataError("its bins hold other cells than those of the release")
        if not ((model.inside >= 0) & (model.inside <= 1)).all():
            raise DataError("its cells have no shares")
        model.columns = list(self.columns)  # equal, and of the right types: a place that is True is none that is 1

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], digest: str) -> TableRelease:
        """From a file's content, every part of which is held to the others."""
        told = conform(_Facts, facts, "release")
        if told.version != VERSION:
            raise DataError(f"version {told.version}, this is for {VERSION}")
        columns = [conform(Column, column, f"release.columns[{i}]") for i, column in enumerate(told.columns)]
        channels, height, width = told.shape
        if (height, width) != (1, 1):
            raise DataError(f"records of the shape {told.shape}: those of a table are ({channels}, 1, 1)")
        _check_places(columns, channels)
        generator = {n.removeprefix("generator."): t for n, t in tensors.items() if n.startswith("generator.")}
        left = {name: tensor for name, tensor in tensors.items() if not name.startswith("generator.")}
        cells = sum(column.values for column in columns)
        bin_of = _shaped(left.pop("bin_of"), "bin_of", (cells,), torch.int64)
        bins = []
        for own in bin_of.split([column.values for column in columns]):
            if not torch.equal(own.unique(), torch.arange(int(own.max()) + 1, device=own.device)):
                raise DataError("bin_of: a column's bins are not 0, 1, …")
            bins.append(int(own.max()) + 1)
        labels = told.classes if told.classes > 1 else 0
        marginals = Marginals(
            records=told.records,
            cells=_shaped(left.pop("cells"), "cells", (cells + labels,), torch.int64),
            gram=_shaped(left.pop("gram"), "gram", (told.classes, sum(bins), sum(bins)), torch.int64).double(),
            bin_of=bin_of,
            bins=bins,
            cell_deviation=told.cell_deviation,
            deviation=told.block_deviation,
            pooled=_shaped(left.pop("pooled"), "pooled", (sum(bins), sum(bins)), torch.int64).double(),
            related=_related(left.pop("related"), len(columns)),
            pooled_deviation=told.pooled_deviation,
        )
        counts = _shaped(left.pop("counts"), "counts", (told.classes,), torch.float64)
        if left:
            raise DataError(f"the tensor {min(left)[:100]} is not known")
        if not all(tensor.isfinite().all() for tensor in generator.values()):
            raise DataError("a tensor of the generator is not finite")
        statement = verified(told.statement) if told.statement else None
        if statement:
            _agree(statement, marginals, len(columns) + bool(labels), len(columns) * (len(columns) - 1) // 2)
        return cls(
            shape=(channels, height, width),
            classes=told.classes,
            records=told.records,
            counts=counts,
            deviation=told.cell_deviation,
            columns=columns,
            marginals=marginals,
            generator=generator,
            statement=statement.to_dict() if statement else {},
            extra=told.extra,
            digest=digest,
        )


def load_release(path: Path, device: torch.device | str = "cpu") -> Release | TableRelease:
    """A released file of either kind; what is neither, or at odds with itself, is refused in one line."""
    tensors, facts, digest = read_sealed(path, device)
    if facts.get("kind") != KIND:
        return Release.load(path, device)
    try:
        return TableRelease.of(tensors, facts, digest)
    except Exception as error:  # whatever is wrong with it, it is one line
        kind = "" if isinstance(error, DpotError) else f"{type(error).__name__}: "
        line = (str(error).splitlines() or [""])[0][:300]
        raise DataError(f"{path}: not a released table ({kind}{line})") from None


@dataclass(frozen=True)
class _Facts:
    """What a file says beside its tensors, and in which form."""

    version: int
    kind: Literal["marginals"]
    shape: list[Count]
    classes: Count
    records: Count
    cell_deviation: Positive
    block_deviation: Positive
    pooled_deviation: Positive
    columns: list[dict[str, Any]]
    statement: dict[str, Any]
    extra: dict[str, Any]


def _check_places(columns: list[Column], width: int) -> None:
    """Every place of an encoded record belongs to one column."""
    places = [place for c in columns for place in (*range(c.at, c.at + c.size), *([] if c.gap is None else [c.gap]))]
    if sorted(places) != list(range(width)) or any(min(c.cells, c.size) < 1 for c in columns):
        raise DataError("its columns do not fit its shape")
    if any(c.cells != c.size or c.named if not c.is_number else not c.whole and c.cells < 3 for c in columns):
        raise DataError("a column's cells do not fit its kind")


def _related(pairs: Tensor, columns: int) -> Tensor:
    """Different pairs of different columns, a·columns + b for a < b."""
    _shaped(pairs, "related", (len(pairs),), torch.int64)
    named = pairs.tolist()
    if named != sorted(set(named)) or not all(0 <= n < columns**2 and n // columns < n % columns for n in named):
        raise DataError("related: these are no pairs of columns")
    return pairs


def _shaped(tensor: Tensor, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    if tuple(tensor.shape) != shape or tensor.dtype != dtype or not tensor.isfinite().all():
        raise DataError(f"{name}: {tensor.dtype} {tuple(tensor.shape)}, not {dtype} {shape}")
    return tensor


def _agree(statement: Statement, marginals: Marginals, histograms: int, pairs: int) -> None:
    """The noise that the statement accounts for is the noise that the release says it has."""
    related = len(marginals.related)
    stated = [marginals.cell_deviation, *([marginals.deviation] if pairs else [])]
    stated += [marginals.pooled_deviation] if related else []
    if len(statement.entries) != len(stated):
        raise DataError(f"{len(stated)} releases, and {len(statement.entries)} entries in the statement")
    for entry, blocks, deviation in zip(statement.entries, (histograms, pairs, related), stated, strict=False):
        event = Event.from_dict(entry["event"])
        if not isinstance(event, CountGaussian):
            raise DataError(f"the statement has a {type(event).__name__}, a table releases counts")
        moved = 2 if event.adjacency is Adjacency.REPLACE_ONE else 1
        accounted = count_deviation(math.sqrt(moved * blocks), event.noise_multiplier)
        if not math.isclose(accounted, deviation, rel_tol=SAME):
            raise DataError(f"noise of {deviation:.6g} records, the statement accounts for {accounted:.6g}")
