"""Records that are too many for one process: where they lie, how they are decoded, and the engine that counts them.

    spread = Spread.of(engine, partitions, TableDecoder(schema))
    Synthesizer(epsilon=1, delta=1e-9).fit(spread)

The driver holds counters, noise, ledger and what was released. Workers get a counter, read and decode partitions, and
give back whole numbers. Each pass must count as many records as the first: one that misses a partition, or reads other
data than those before, is refused before anything of it is released.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpot.data.coding import ImageCoding
from dpot.data.decoding import Decoder, ImageDecoder, TableDecoder
from dpot.data.schema import Schema
from dpot.engines.base import Engine
from dpot.errors import DataError, UsageError
from dpot.methods.sketch.counters import Counter

AT_ONCE = 4096  # records that are counted at a time


@dataclass(frozen=True)
class Counted:
    """What a worker does with the batches of a partition: decode, count, and say how many records there were."""

    counter: Counter | None
    decode: Decoder
    device: str = "cpu"

    def __call__(self, batches: Iterable[Any]) -> np.ndarray:
        seen = 0
        device = torch.device(self.device)

        def parts() -> Iterator[tuple[Tensor, Tensor]]:
            nonlocal seen
            for batch in batches:
                records, labels = self.decode(batch)
                seen += len(records)
                yield from zip(records.to(device).split(AT_ONCE), labels.to(device).split(AT_ONCE), strict=True)

        counts = np.zeros(0, np.int64)
        if self.counter is None:
            seen = sum(len(batch) for batch in batches)
        else:
            counts = self.counter.on(device)(parts()).cpu().numpy()
        return np.append(counts, seen)


@dataclass(frozen=True)
class Spread:
    """So many records in the partitions of `source`, for the sketch to count."""

    engine: Engine
    source: Any  # a list of partitions, or a data set of the engine's own
    decode: Decoder
    size: int

    @classmethod
    def of(cls, engine: Engine, source: Any, decode: Decoder, size: int | None = None) -> Spread:
        """With the number of records, which is public: counted first, unless it is known."""
        if size is None:
            size = int(engine.total(Counted(None, decode), source)[-1])
        return cls(engine, source, decode, size)

    def __len__(self) -> int:
        return self.size

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all records, as a tensor would have it."""
        return (self.size, *self.decode.coding.shape)

    def total(self, counter: Counter) -> Tensor:
        """A counter's sum over all records."""
        sums = self.engine.total(Counted(counter, self.decode, self.engine.device), self.source)
        if sums[-1] != self.size:
            raise DataError(
                f"this pass over the records has found {int(sums[-1]):,} of them, and there are {self.size:,}: a "
                "partition is missing, or the data are changing; nothing of this pass was released"
            )
        return torch.from_numpy(sums[:-1].copy())


def is_spread(X: Any) -> bool:
    """Whether this is a data set of Ray or Spark."""
    return type(X).__module__.startswith(("ray.data", "pyspark.sql")) or isinstance(X, Spread)


def spread_of(X: Any, label: Any, schema: Any, shape: Sequence[int] | None, classes: Sequence[Any] | None) -> Spread:
    """A Ray data set or Spark DataFrame: a table by its schema, or images of one shape by their classes."""
    if isinstance(X, Spread):
        return X
    if label is not None and not isinstance(label, str):
        raise UsageError("y: name the column of the labels, which are in the data set")
    if schema is not None:
        decode: Decoder = TableDecoder(Schema.of(schema))
    elif shape is None:
        raise UsageError("a data set of Ray or Spark needs schema=…, or shape=… for images in its column 'image'")
    else:
        if (label is None) != (classes is None):
            raise UsageError("images of Ray or Spark: give y='column' and classes=[…], or none of both")
        coding = ImageCoding.of(np.zeros((1, *shape), np.uint8))
        decode = ImageDecoder(coding, tuple(classes or ()), label)
    on_ray = type(X).__module__.startswith("ray.data")
    there = list(X.schema().names if on_ray else X.columns)
    absent = next((name for name in decode.columns if name not in there), None)
    if absent is not None:
        raise UsageError(f"the data set has no column '{absent}'; it has {', '.join(there)[:300]}")
    if on_ray:
        from dpot.engines.ray import RayEngine

        return Spread.of(RayEngine(), X.select_columns(decode.columns), decode)
    from dpot.engines.spark import SparkEngine

    return Spread.of(SparkEngine(), X.select(*(f"`{name}`" for name in decode.columns)), decode)
