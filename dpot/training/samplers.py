"""Samplers that draw the batch of a step on the device, with fixed shapes and no synchronisation.

Privacy amplification is proved for a particular way of drawing, so each sampler names itself and its
numbers: the ledger accounts for the sampler that ran. The drawing must be as secret as the noise; give it a
generator that does not follow the experiment seed.

Drawing a uniform subset of B out of N without sorting N keys. Draw M iid uniform numbers and keep, in order
of drawing, the first B distinct ones: an iid sequence without its repeats is a uniform sequence without
replacement, so the result is exactly uniform, given that M draws hold B distinct values. While fewer than B
values have been seen, a draw is new with probability at least 1 - (B-1)/N, hence

    P(fewer than B distinct) ≤ P(Binomial(M, (B-1)/N + N/2^63) > M - B),

and M is the smallest number that puts this below FAILURE = 2^-64 (M = 112 for B=100, N=60,000). In that
event a value is repeated. It has nothing to do with the records, and otherwise the subset is exactly uniform, so that T
steps cost T·2^-64 of δ (dpot/privacy/failures.py), which is taken off before the noise is calibrated.
If M is large (a batch that is no small part of the population), all N keys are sorted instead.
The iid numbers are 63-bit integers modulo N. Those beyond the last whole multiple of N would favour the small values;
they are left out as repeats are, which happens with probability N/2^63 and is counted with them.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import scipy.stats
import torch
from torch import Tensor

from dpot.errors import UsageError
from dpot.ranges import Count, Probability

FAILURE = 2.0**-64
STEPS_AHEAD = 500  # of shuffled epochs, at most, unless one has more
MOST_DRAWS = 2048  # repeats are found by comparing all pairs: beyond this, sorting is cheaper
_LAST = torch.iinfo(torch.int64).max


@dataclass(frozen=True)
class Draw:
    """The rows of one step: their indices, and which of them count (None: all), those before the others."""

    index: Tensor
    mask: Tensor | None = None

    def rows(self, data: Tensor) -> Tensor:
        """The drawn rows of `data`; those that do not count are zero, never a record."""
        rows = data.index_select(0, self.index)
        if self.mask is None:
            return rows
        return torch.where(self.mask.reshape(-1, *[1] * (rows.dim() - 1)), rows, torch.zeros_like(rows))


@lru_cache(maxsize=256)
def draws_needed(batch: int, population: int) -> int | None:
    """The smallest M of the module docstring; None if it would exceed MOST_DRAWS."""
    if batch > MOST_DRAWS:
        return None
    m = np.arange(batch, MOST_DRAWS + 1)
    fails = scipy.stats.binom.sf(m - batch, m, min(1.0, (batch - 1) / population + population * 2.0**-63))
    enough = np.flatnonzero(fails < FAILURE)
    return int(m[enough[0]]) if len(enough) else None


class _Distinct:
    """Uniform ordered samples of `batch` without replacement from each of several ranges: start + 0..population-1."""

    def __init__(
        self, populations: Sequence[int], batch: int, generator: torch.Generator, starts: Sequence[int] = (0,)
    ) -> None:
        self.batch, self.generator, self.device = batch, generator, generator.device
        self.populations = torch.tensor(populations, device=self.device).unsqueeze(1)
        self.starts = torch.tensor(starts, device=self.device).unsqueeze(1)
        self.groups, self.width = len(populations), max(populations)
        needed = [draws_needed(batch, population) for population in populations]
        self.draws = None if None in needed else max(m for m in needed if m is not None)
        last = [(1 << 63) // population * population - 1 for population in populations]
        self._last_multiple = torch.tensor(last, device=self.device).unsqueeze(1)
        self._padding = torch.arange(self.width, device=self.device) >= self.populations

    @property
    def failure(self) -> float:
        """The probability that a draw is not a uniform sample without replacement."""
        return self.groups * (FAILURE if self.draws is not None else self.width**2 * 2.0**-127)

    def draw(self) -> Tensor:
        """Indices of shape (groups, batch)."""
        if self.draws is None:
            return self._by_sorting()
        return self.first_distinct(self._random(self.draws))

    def _random(self, count: int) -> Tensor:
        """Uniform integers in 0..2^63-1."""
        empty = torch.empty(self.groups, count, dtype=torch.int64, device=self.device)
        return empty.random_(generator=self.generator)

    def draw_many(self, count: int) -> Tensor:
        """As many draws at once, by sorting: indices of shape (count, groups, batch)."""
        populations, starts = self.populations.flatten().tolist(), self.starts.expand(self.groups, 1).flatten().tolist()
        wide = _Distinct(populations * count, self.batch, self.generator, starts * count)
        return wide._by_sorting().view(count, self.groups, self.batch)

    def first_distinct(self, bits: Tensor) -> Tensor:
        """The first `batch` distinct values of each row of bits modulo its population."""
        uneven = bits > self._last_multiple
        drawn = torch.where(uneven, -1, bits % self.populations + self.starts)
        repeats = (drawn.unsqueeze(2) == drawn.unsqueeze(1)).tril_(-1).any(2) | uneven
        # The i-th distinct value goes to slot i; repeats and what is left over to a last, discarded slot.
        slot = (~repeats).cumsum(1) - 1
        slot = torch.where(repeats, self.batch, slot.clamp_(max=self.batch))
        chosen = (
            drawn[:, :1].maximum(self.starts).repeat(1, self.batch + 1)
        )  # what a slot holds if there are too few distinct
        return chosen.scatter_(1, slot, drawn)[:, : self.batch]

    def _by_sorting(self) -> Tensor:
        # Two 63-bit keys, the second breaking the ties of the first: a tie of both has P < N²/2^127.
        minor = self._random(self.width).masked_fill_(self._padding, _LAST)
        major = self._random(self.width).masked_fill_(self._padding, _LAST)
        order = minor.argsort(dim=1, stable=True)
        order = order.gather(1, major.gather(1, order).argsort(dim=1, stable=True))[:, : self.batch]
        return order + self.starts


class Sampler(ABC):
    """Draws the rows of each step out of `population`; `rate` is a record's chance to be among them.

    name: which sampling theorem applies. Accounting must use it (see `facts`).
    """

    name: ClassVar[str]
    population: int
    batch: int  # rows per draw, padding included
    rate: float

    @abstractmethod
    def draw(self) -> Draw:
        """The rows of the next step; capturable."""

    def draw_many(self, count: int) -> list[Draw]:
        """The rows of so many steps, for a host that wants them all at once."""
        return [self.draw() for _ in range(count)]

    def facts(self) -> dict[str, Any]:
        """What the ledger needs to know of how records were drawn."""
        return {"sampler": self.name, "population": self.population, "batch": self.batch, "rate": self.rate}


class FixedSize(Sampler):
    """A uniform subset of exactly `batch` records, drawn afresh at each step (subsampling without
    replacement: Wang, Balle, Kasiviswanathan 2019, Theorem 9; replace-one adjacency)."""

    name = "fixed-size"

    def __init__(self, population: Count, batch: Count, generator: torch.Generator) -> None:
        if batch > population:
            raise UsageError(f"a batch of {batch} cannot be drawn from {population} records")
        self.population, self.batch, self.rate = population, batch, batch / population
        self._distinct = _Distinct([population], batch, generator)

    def draw(self) -> Draw:
        return Draw(self._distinct.draw()[0])

    def draw_many(self, count: int) -> list[Draw]:
        return [Draw(index) for index in self._distinct.draw_many(count)[:, 0]]

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"failure": self._distinct.failure}


class Poisson(Sampler):
    """Each record is in independently with probability `rate` (add/remove adjacency), padded to a fixed size.

    The number of records is K ~ Binomial(N, rate), drawn by inversion of its survival function from 63
    random bits; then K records are a uniform subset: the same law as N coins, without N coins. The batch has
    room for the smallest number `batch` with P(K > batch) ≤ overflow; should more be drawn, a uniform subset
    of them is kept. Whether that happens depends on no record's value, so that T steps cost T·overflow of δ
    (dpot/privacy/failures.py). As everywhere with this adjacency, N and the rate count as public.
    """

    name = "poisson"

    def __init__(
        self,
        population: Count,
        rate: Probability,
        generator: torch.Generator,
        overflow: Probability = FAILURE,
    ) -> None:
        self.population, self.rate, self.overflow = population, rate, overflow
        law = scipy.stats.binom(population, rate)
        room = int(law.mean() + 1)
        while law.sf(room) > overflow:
            room += 1
        self.batch = min(room, population)
        # K = number of k with u < P(K > k): survival values keep their precision in the far tail. They fall with k,
        # so that slot k counts, k < K, exactly when u < P(K > k).
        survival = [min(int(float(p) * 2.0**63), _LAST) for p in law.sf(np.arange(self.batch))]
        self._survival = torch.tensor(survival, dtype=torch.int64, device=generator.device)
        self._distinct = _Distinct([population], self.batch, generator)
        self._generator = generator

    def draw(self) -> Draw:
        u = torch.empty(1, dtype=torch.int64, device=self._survival.device).random_(generator=self._generator)
        return Draw(self._distinct.draw()[0], u < self._survival)

    def draw_many(self, count: int) -> list[Draw]:
        u = torch.empty(count, 1, dtype=torch.int64, device=self._survival.device).random_(generator=self._generator)
        both = zip(self._distinct.draw_many(count)[:, 0], u < self._survival, strict=True)
        return [Draw(index, mask) for index, mask in both]

    def facts(self) -> dict[str, Any]:
        batch = self.population * self.rate
        return super().facts() | {"batch": batch, "failure": self._distinct.failure, "overflow": self.overflow}


class Stratified(Sampler):
    """`per_class` records of each class, a uniform subset within the class, drawn afresh at each step.

    Labels are public (adjacency: replace a record, keep its label). The rows come class by class, in the
    order of the labels; a record of class c is in with probability B_c/N_c, and `rate` is the largest.
    """

    name = "stratified"

    def __init__(self, labels: Tensor, per_class: int | Sequence[int], generator: torch.Generator) -> None:
        classes, counts = labels.detach().cpu().unique(return_counts=True)
        sizes = [int(n) for n in counts]
        per = [per_class] * len(sizes) if isinstance(per_class, int) else list(per_class)
        if len(per) != len(sizes) or any(not 1 <= b <= n for b, n in zip(per, sizes, strict=False)):
            raise UsageError(f"cannot draw {per} records from classes of {sizes} records")
        self.population, self.batch = len(labels), sum(per)
        self.class_sizes, self.per_class = sizes, per
        self.rate = max(b / n for b, n in zip(per, sizes, strict=True))
        device = generator.device
        self.classes = classes.to(device)
        self.labels = self.classes.repeat_interleave(torch.tensor(per, device=device))
        self._members = labels.detach().to(device).argsort(stable=True)
        starts = [0, *itertools.accumulate(sizes[:-1])]
        self._distinct = _Distinct(sizes, max(per), generator, starts)
        # The first B_c of a longer uniform sequence without replacement are one themselves.
        kept = torch.arange(max(per), device=device) < torch.tensor(per, device=device).unsqueeze(1)
        self._kept = None if len(set(per)) == 1 else kept.flatten().nonzero().squeeze(1)

    def draw(self) -> Draw:
        return self._of(self._distinct.draw())

    def draw_many(self, count: int) -> list[Draw]:
        return [self._of(one) for one in self._distinct.draw_many(count)]

    def _of(self, inside: Tensor) -> Draw:
        inside = inside.flatten()
        if self._kept is not None:
            inside = inside.index_select(0, self._kept)
        return Draw(self._members.index_select(0, inside))

    def facts(self) -> dict[str, Any]:
        classes = {"per_class": self.per_class, "class_sizes": self.class_sizes}
        return super().facts() | classes | {"failure": self._distinct.failure}


class FullBatch(Sampler):
    """Every record at every step: no amplification."""

    name = "full"

    def __init__(self, population: Count, device: torch.device | str) -> None:
        self.population = self.batch = population
        self.rate = 1.0
        self._index = torch.arange(population, device=device)

    def draw(self) -> Draw:
        return Draw(self._index)


class ShuffledEpochs(Sampler):
    """A shuffled order cut into batches, incomplete last batch dropped: what the papers' code ran.

    **Not a random subset per step**: no subsampling theorem covers it, and within an epoch each record is
    used once. Accounting it as fixed-size or Poisson is the papers' mistake, kept for reproduction only.
    Short epochs are shuffled several at once, for the host interrupts the device to do it.
    Give the engine `every={sampler.period: sampler.reshuffle}` and `tensors=sampler.tensors`.
    """

    name = "shuffled"

    def __init__(
        self, population: Count, batch: Count, generator: torch.Generator, steps_ahead: Count = STEPS_AHEAD
    ) -> None:
        if batch > population:
            raise UsageError(f"a batch of {batch} cannot be drawn from {population} records")
        self.population, self.batch, self.rate = population, batch, batch / population
        self.steps_per_epoch = population // batch
        epochs = max(1, steps_ahead // self.steps_per_epoch)
        self.period = epochs * self.steps_per_epoch  # after so many steps the orders are used up
        self._shuffle = _Distinct([population] * epochs, population, generator)
        self.tensors = {
            "order": self._batches(),
            "turn": torch.zeros(1, dtype=torch.int64, device=generator.device),
        }

    def reshuffle(self, step: int = 0) -> None:
        """New epochs; called on the host between steps. Without it a period ends in an index out of range."""
        self.tensors["order"].copy_(self._batches())
        self.tensors["turn"].zero_()

    def draw(self) -> Draw:
        turn = self.tensors["turn"]
        index = self.tensors["order"].index_select(0, turn).squeeze(0)
        turn.add_(1)
        return Draw(index)

    def _batches(self) -> Tensor:
        """New orders, as (period, batch)."""
        orders = self._shuffle.draw()[:, : self.steps_per_epoch * self.batch]
        return orders.reshape(self.period, self.batch)
