"""Counting: everything that the sketch computes of private records, as sums of whole numbers.

    total(counter)      # of all records, wherever they lie

A *counter* takes parts of records, one after the other, to a flat vector of whole numbers. The sum over any split of
the records is the same to the bit: all arithmetic is on whole numbers, or on one record by itself in an order that is
fixed. A counter can be sent to another process or machine, and knows nothing of noise; the noise is drawn where the
sums come together (release.py, marginals.py). Records that are not in this process lie in a `Spread` (dpot/spread.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from dpot.methods.generate.base import Problem
from dpot.methods.sketch.directions import public_basis
from dpot.methods.sketch.features import UNIT, WEIGHT_GRID, Layout, RecordMap, whole_records
from dpot.models.product_mixture import Column
from dpot.transport.directions import ImageShape
from dpot.transport.soft_bins import count_lines

Parts = Iterable[tuple[Tensor, Tensor]]  # records (n, d) in [0, 1] with labels (n,)
Stream = Callable[[], Iterator[tuple[Tensor, Tensor]]]  # such parts, each time anew
COEFFICIENT_GRID = 64  # coefficients of the subspace are cut to multiples of 1/64, or more coarsely (coefficient_grid)
NORM_KNOTS = 64
POSITIONS_AT_ONCE = 20_000_000
CHUNK = 4096
CPU = torch.device("cpu")
C = TypeVar("C", bound="Counter")


@dataclass(frozen=True, kw_only=True)
class Counter:
    """Parts of records → whole numbers, on a device."""

    device: torch.device = CPU

    def __call__(self, parts: Parts) -> Tensor:
        """The sums over these parts, int64."""
        raise NotImplementedError

    def on(self: C, device: torch.device) -> C:
        """The same counter for records on another device."""
        return replace(self, device=device)

    def zeros(self, *shape: int) -> Tensor:
        """Where sums begin."""
        return torch.zeros(*shape, dtype=torch.int64, device=self.device)


Total = Callable[[Counter], Tensor]  # a counter's sum over all records


class Elsewhere(Protocol):
    """Records that are not in this process."""

    def __len__(self) -> int: ...

    def total(self, counter: Counter) -> Tensor:
        """Its sum over all records."""


@dataclass(kw_only=True)
class SpreadProblem(Problem):
    """A problem whose records lie elsewhere; `images` has none, and shows their shape."""

    spread: Elsewhere

    def private_records(self) -> int:
        return len(self.spread)


def records_of(problem: Problem) -> int:
    """How many private records there are."""
    return len(problem.spread) if isinstance(problem, SpreadProblem) else len(problem.images)


def total_of(problem: Problem) -> Total:
    """How the problem's records are counted."""
    if isinstance(problem, SpreadProblem):
        spread, device = problem.spread, problem.device
        return lambda counter: spread.total(counter).to(device)

    def parts() -> Iterator[tuple[Tensor, Tensor]]:
        yield from zip(problem.images.flatten(1).split(CHUNK), problem.labels.split(CHUNK), strict=True)

    return over(parts, problem.device)


def over(stream: Stream, device: torch.device = CPU) -> Total:
    """The total over a stream in this process, whose records are on this device."""
    return lambda counter: counter.on(device)(stream())


@dataclass(frozen=True, kw_only=True)
class Coefficients(Counter):
    """What counters of the public subspace share; records are rounded to multiples of 1/grid."""

    shape: ImageShape
    grid: int

    def coefficients(self, records: Tensor, weights: Tensor, parts: int) -> Tensor:
        """Coefficients in the public subspace as whole numbers of 1/parts, exactly the same on every device."""
        return ((whole_records(records, self.grid) @ weights) * (parts / (WEIGHT_GRID * self.grid))).trunc()

    def weights(self) -> Tensor:
        """(d, functions): the basis of the subspace in whole numbers of 1/4096."""
        return (public_basis(self.shape).double() * WEIGHT_GRID).round().T.contiguous().to(self.device)


@dataclass(frozen=True, kw_only=True)
class Lengths(Coefficients):
    """A soft histogram of the records' lengths in the subspace: 256 parts per record."""

    def __call__(self, parts: Parts) -> Tensor:
        reach, weights, counts = math.sqrt(math.prod(self.shape)), self.weights(), self.zeros(1, 1, NORM_KNOTS)
        for records, _ in parts:
            cut = self.coefficients(records, weights, COEFFICIENT_GRID)
            lengths = cut.square().sum(1).sqrt() / COEFFICIENT_GRID
            one_class = torch.zeros(len(records), dtype=torch.int64, device=self.device)
            count_lines(counts, lengths[:, None] / reach * (NORM_KNOTS - 1), one_class, UNIT)
        return counts.flatten()


@dataclass(frozen=True, kw_only=True)
class MomentSums(Coefficients):
    """Number of records, Σc and Σccᵀ of the coefficients in 1/parts, cut to the length `limit`."""

    parts: int
    limit: int

    def __call__(self, parts: Parts) -> Tensor:
        weights = self.weights()
        size = weights.shape[1]
        seen, total, square = self.zeros(1), self.zeros(size), self.zeros(size, size)
        for records, _ in parts:
            cut = self.coefficients(records, weights, self.parts)
            lengths = cut.square().sum(1, keepdim=True).sqrt().clamp(min=1)
            cut = (cut * (self.limit * (1 - 1e-12) / lengths).clamp(max=1)).trunc()
            total += cut.sum(0).long()
            square += (cut.T @ cut).round().long()  # whole numbers below 2^53: exact
            seen += len(records)
        return torch.cat([seen, total, square.flatten()])

    @staticmethod
    def split(sums: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
        """Number, Σc, Σccᵀ of `size` coefficients."""
        seen, total, square = sums.split([1, size, size * size])
        return seen, total, square.view(size, size)


@dataclass(frozen=True, kw_only=True)
class Bins(Counter):
    """How the records of each class are spread along lines and over planes, in 1/256 record: (classes, bins), flat."""

    record_map: RecordMap
    layout: Layout
    classes: int

    def on(self, device: torch.device) -> Bins:
        return replace(self, device=device, record_map=self.record_map.to(device))

    def __call__(self, parts: Parts) -> Tensor:
        counts = self.zeros(self.classes, self.layout.bins)
        step = max(1, POSITIONS_AT_ONCE // self.layout.positions)
        for records, labels in parts:
            for part, own in zip(records.split(step), labels.split(step), strict=True):
                self.layout.count(counts, self.record_map.exactly(part), own)
        return counts.flatten()


@dataclass(frozen=True, kw_only=True)
class Cells(Counter):
    """Histograms of all columns of a table over their finest cells, then of the label where there are classes."""

    columns: list[Column]
    classes: int

    def __call__(self, parts: Parts) -> Tensor:
        counts = [self.zeros(column.values) for column in self.columns]
        labelled = self.zeros(self.classes)
        for records, labels in parts:
            for column, count in zip(self.columns, counts, strict=True):
                count += torch.bincount(column.cells_of(records), minlength=column.values)
            labelled += torch.bincount(labels, minlength=self.classes)
        return torch.cat([*counts, *([labelled] if self.classes > 1 else [])])


@dataclass(frozen=True, kw_only=True)
class Pairs(Counter):
    """(classes, bins, bins), flat: how many records of a class are in both bins; on the diagonal and above it only."""

    columns: list[Column]
    classes: int
    bin_of: Tensor  # of every cell of every column

    def __call__(self, parts: Parts) -> Tensor:
        maps = [m.numpy() for m in self.bin_of.cpu().split([column.values for column in self.columns])]
        bins = [int(m.max()) + 1 for m in maps]
        blocks: dict[tuple[int, int], Any] = {
            (i, j): np.zeros(self.classes * bins[i] * bins[j], np.int64) for j in range(len(bins)) for i in range(j + 1)
        }
        for records, labels in parts:
            found = [m[c.cells_of(records).cpu().numpy()] for c, m in zip(self.columns, maps, strict=True)]
            classed = [labels.cpu().numpy() * size + own for size, own in zip(bins, found, strict=True)]
            for (i, j), block in blocks.items():
                block += np.bincount(classed[i] * bins[j] + found[j], minlength=len(block))
        starts = np.concatenate([[0], np.cumsum(bins)])
        counts = torch.zeros(self.classes, int(starts[-1]), int(starts[-1]), dtype=torch.int64)
        for (i, j), block in blocks.items():
            rows, columns = slice(*starts[i : i + 2].tolist()), slice(*starts[j : j + 2].tolist())
            counts[:, rows, columns] = torch.from_numpy(block).view(self.classes, bins[i], bins[j])
        return counts.flatten().to(self.device)
