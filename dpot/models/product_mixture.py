"""A generator of table rows that draws every column: a mixture of product distributions per class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dpot.models.generator import Generator
from dpot.ranges import Count

CHUNK = 20_000
DRAWS = 3  # random numbers per column: the bin, the cell inside the bin, the place inside the cell


@dataclass(frozen=True)
class Column:
    """A column of a table, as it stands in encoded records, and its finest cells.

    A number in [0, 1] at place `at` has `cells` cells: whole numbers one each (`whole`); others one for each end of the
    range, where values that were cut to it pile up, and between them cells of equal width. A gap of a number is marked
    at the place `gap` and is one more cell. A category is one of `size` 0/1 places from `at` on, a cell for each; with
    many values it is a whole number that is a name (`named`).
    """

    at: int
    cells: int
    size: int = 1
    whole: bool = False
    gap: int | None = None
    named: bool = False

    @property
    def is_number(self) -> bool:
        """Whether it is one number in an encoded record."""
        return self.size == 1

    @property
    def ordered(self) -> bool:
        """Whether its cells have an order."""
        return self.is_number and not self.named

    @property
    def values(self) -> int:
        """How many cells there are with the one for gaps."""
        return self.cells + (self.gap is not None)

    def cells_of(self, records: Tensor) -> Tensor:
        """Encoded records (n, d) → the cell of each. Whatever a record holds, it has exactly one cell."""
        if not self.is_number:
            return records[:, self.at : self.at + self.size].argmax(1)
        value = torch.nan_to_num(records[:, self.at].double(), nan=0.0).clamp(0, 1)
        if self.whole:
            found = (value * (self.cells - 1)).round().long()
        else:
            between = (value * (self.cells - 2)).floor().long().clamp(max=self.cells - 3) + 1
            found = torch.where(value == 0, 0, torch.where(value == 1, self.cells - 1, between))
        return found if self.gap is None else torch.where(records[:, self.gap] > 0.5, self.cells, found)

    def write(self, records: Tensor, cells: Tensor, inside: Tensor) -> None:
        """The inverse: enter cells into encoded records, at places `inside` [0, 1) of a cell that has a width."""
        if not self.is_number:
            records.scatter_(1, (self.at + cells)[:, None], 1.0)
            return
        missing = cells == self.cells
        if self.whole:
            value = cells / max(1, self.cells - 1)
        else:  # never exactly an end, unless it is the end's own cell
            between = (cells - 1 + inside.clamp(1e-3, 1 - 1e-3)) / (self.cells - 2)
            value = torch.where(cells == 0, 0.0, torch.where(cells == self.cells - 1, 1.0, between))
        records[:, self.at] = torch.where(missing, 0.0, value.to(records.dtype))
        if self.gap is not None:
            records[:, self.gap] = missing.to(records.dtype)


class ProductMixture(Generator):
    """label → one of `components` product distributions of that class → a bin of every column → a cell → a value.

    p(row | y) = 1/M Σ_m Π_c softmax(θ_{y,m,c})[bin of column c]. Inside a bin, cells have the shares that the released
    histogram of the column gives them. Since columns are drawn, a spike comes back as a spike and a rare category as
    often as it was released.
    """

    def __init__(
        self,
        classes: int,
        shape: tuple[int, int, int],
        columns: Sequence[Column | Mapping[str, Any]],
        bins: Sequence[int],
        components: Count = 500,
    ) -> None:
        self.columns = [column if isinstance(column, Column) else Column(**column) for column in columns]
        self.bins, self.components = [int(count) for count in bins], components
        super().__init__(1 + DRAWS * len(self.columns), classes, shape)
        self.logits = nn.Parameter(torch.zeros(classes, components, sum(self.bins)))
        cells = sum(column.values for column in self.columns)
        self.bin_of: Tensor
        self.inside: Tensor
        self.register_buffer("bin_of", torch.zeros(cells, dtype=torch.int64))  # of every cell of every column
        self.register_buffer("inside", torch.ones(cells, dtype=torch.float64))  # a cell's share of its bin

    @property
    def size(self) -> dict[str, Any]:
        """What the constructor needs beside classes and shape, as JSON-able data."""
        return {"columns": [asdict(c) for c in self.columns], "bins": self.bins, "components": self.components}

    def code(self, count: int, generator: torch.Generator, device: torch.device | str) -> Tensor:
        """Uniform numbers."""
        return torch.rand(count, self.code_size, generator=generator, device=device, dtype=torch.float64)

    @torch.no_grad()
    def draw(self, count: int, shares: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor]:
        """`count` records in random order, with their classes, as evenly as the number of records allows.

        Classes, components and, within a component, the bins of every column appear as often as they should, up to one
        record. This makes a table closer to the model than independent records would be.
        """
        device = random.device
        wanted = (shares.double() * count).cumsum(0) + torch.rand(1, generator=random, device=device)
        sizes = wanted.floor().diff(prepend=torch.zeros(1, device=device)).long()
        sizes[-1] += count - sizes.sum()
        labels = torch.repeat_interleave(torch.arange(self.classes, device=device), sizes)
        code = self.code(count, random, device)
        rank = torch.cat([torch.arange(int(size), device=device) for size in sizes])
        start = torch.randint(self.components, (self.classes,), generator=random, device=device)
        component = (rank + start[labels]) % self.components
        code[:, 0] = (component + 0.5) / self.components
        group = labels * self.components + component
        held = torch.bincount(group, minlength=self.classes * self.components)
        first = held.cumsum(0) - held
        offsets = torch.rand(len(held), len(self.columns), generator=random, device=device, dtype=torch.float64)
        for index in range(len(self.columns)):
            shuffled = torch.randperm(count, generator=random, device=device)
            order = shuffled[group[shuffled].argsort(stable=True)]
            place = torch.empty_like(order)
            place[order] = torch.arange(count, device=device) - first[group[order]]
            code[:, 1 + DRAWS * index] = (place + offsets[group, index]) / held[group]
        mixed = torch.randperm(count, generator=random, device=device)
        parts = zip(code[mixed].split(CHUNK), labels[mixed].split(CHUNK), strict=True)
        return torch.cat([self(own, label) for own, label in parts]), labels[mixed]

    def log_probabilities(self) -> Tensor:
        """(classes, components, all bins): the exponentials of each column's bins sum to 1."""
        return torch.cat([part.log_softmax(2) for part in self.logits.split(self.bins, 2)], 2)

    def forward(self, code: Tensor, labels: Tensor) -> Tensor:
        """(N, code_size) uniform numbers, (N,) → (N, columns, 1, 1)."""
        component = (code[:, 0] * self.components).long().clamp(max=self.components - 1)
        chosen = self.logits[labels, component].split(self.bins, 1)
        cell_bins = self.bin_of.split([column.values for column in self.columns])
        cell_shares = self.inside.split([column.values for column in self.columns])
        records = torch.zeros(len(code), self.shape[0], device=code.device)
        for index, column in enumerate(self.columns):
            first, second, third = code[:, 1 + DRAWS * index : 1 + DRAWS * (index + 1)].T
            below = chosen[index].double().softmax(1).cumsum(1)
            found = (first[:, None] > below).sum(1).clamp(max=self.bins[index] - 1)
            order = cell_bins[index].argsort(stable=True)
            until = cell_shares[index][order].cumsum(0)  # bin b lies between b and b + 1
            place = torch.searchsorted(until, found + second * (1 - 1e-9)).clamp(max=column.values - 1)
            column.write(records, order[place], third)
        return records.view(-1, *self.shape)
