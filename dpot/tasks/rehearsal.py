"""A method's releases, repeated many thousand times on two neighbouring data sets.

Given the batch, the public seed and the answers before it, what a step brings to the gate is always the same number.
So the method's own code makes it once for every batch that can be drawn (the tape tells the sampler what to draw and
gives fixed answers, so that every run asks the same questions). Then the parts that are random are repeated as often
as is wanted: the method's own sampler draws, and the gate's own code adds its noise. For projections, fresh directions
are drawn too, by the function that the methods use.

Whoever watches knows all records but the one in question, the public seed, every release, and nothing of the draws and
the noise. The score is the logarithm of the likelihood ratio, summed over the releases: of each release under
all batches, weighted by how often each is drawn, with the record in question (D') against without it (D).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpot.errors import PrivacyError
from dpot.methods.tape import Passed, Tape
from dpot.privacy.events import Adjacency, Event, ProjectionGaussian, Sampled
from dpot.privacy.ledger import Ledger
from dpot.tasks.scenes import Records
from dpot.training.samplers import Draw, Sampler, ShuffledEpochs
from dpot.transport.directions import uniform_directions
from dpot.transport.sliced import project

Batch = tuple[int, ...]  # the positions of the records that were drawn; () where all are looked at
Perform = Callable[[Records, Tape, int], Ledger]  # records, tape, seed of the noise
CANARY = 0  # the position of the record in question
PILOT = 4000  # draws, to know how often each batch comes
AT_ONCE = 5000


@dataclass(frozen=True)
class Neighbours:
    """D' and D, which differ in the first record. Under add-remove D is D' without it: `other` is None."""

    present: Records
    other: Records | None
    name: str = ""

    def side(self, present: bool, batch: Batch, sampled: bool = True) -> tuple[Records, Batch]:
        """The records and the batch of one side, when the sampler has drawn this one; not `sampled`: all are seen."""
        if not sampled and self.other is None:
            return self.present if present else self.present.without(CANARY), ()
        if present or self.other is not None:
            return self.present if present or self.other is None else self.other, batch
        return self.present, tuple(i for i in batch if i != CANARY)


@dataclass
class Cast:
    """One run as it comes, which tells what there is to repeat: releases, sampler, how often each batch is drawn."""

    perform: Perform
    seeds: Iterator[int]
    records: Records
    ledger: Ledger = field(init=False)
    passed: list[Passed] = field(init=False)
    shares: list[Counter[Batch]] = field(init=False)  # of each release: how often each batch was drawn for it

    def __post_init__(self) -> None:
        tape = Tape()
        self.ledger = self.perform(self.records, tape, next(self.seeds))
        self.passed = tape.passed
        self.shares = [Counter(batches) for batches in self.draw(PILOT if self.sampler is not None else 1)]

    @property
    def events(self) -> list[Event]:
        """What was released, in order."""
        return [one.event for one in self.passed]

    @property
    def relation(self) -> Adjacency:
        """Which data sets are neighbours."""
        found = self.ledger.adjacency
        if found is None:
            raise PrivacyError("nothing with noise passed the gate: there is no ε to audit")
        return found

    @property
    def sampler(self) -> Sampler | None:
        """What draws the records; some releases of a method may look at all of them all the same."""
        return next((one.sampler for one in self.passed if one.sampler is not None), None)

    def draw(self, count: int) -> list[list[Batch]]:
        """The batches of all releases, so many times over, by the method's own sampler."""
        sampler = self.sampler
        if sampler is None:
            return [[()] * count for _ in self.passed]
        if not isinstance(sampler, ShuffledEpochs):
            return [
                [()] * count if passed.sampler is None else [batch_of(one) for one in sampler.draw_many(count)]
                for passed in self.passed
            ]
        found: list[list[Batch]] = [[] for _ in self.passed]
        for _ in range(count):  # from epoch to epoch: what is drawn first is not drawn again
            sampler.reshuffle()
            for batches in found:
                batches.append(batch_of(sampler.draw()))
        return found

    def values(self, records: Records, batch: Batch, strength: float = 1.0) -> list[Passed]:
        """What the method brings to the gate on these records, when this batch is drawn at every step."""
        tape = Tape(strength, [one.noisy for one in self.passed], ends=True)
        tape.draw = None if self.sampler is None else draw_of(batch, self.sampler)
        self.perform(records, tape, next(self.seeds))
        return tape.passed


def batch_of(drawn: Draw) -> Batch:
    """Which records were drawn; in order where a row has its place, sorted where a mask says that only sums count."""
    index = drawn.index.tolist()
    return tuple(index) if drawn.mask is None else tuple(sorted(itertools.compress(index, drawn.mask.tolist())))


def draw_of(batch: Batch, sampler: Sampler) -> Draw:
    """A draw of these records, padded as the sampler's are."""
    index = torch.tensor((*batch, *[CANARY] * (sampler.batch - len(batch))), dtype=torch.int64)
    drawn = sampler.draw()
    return Draw(index, None if drawn.mask is None else torch.arange(sampler.batch) < len(batch))


class Rehearsal:
    """Two neighbours, with everything that can come to the gate on either side.

    Directions of projections are drawn anew for every repetition, unless they are known beforehand.
    """

    def __init__(self, cast: Cast, pair: Neighbours, strength: float = 1.0) -> None:
        self.cast, self.pair, self.strength = cast, pair, strength
        self._kept: dict[tuple[bool, Batch], list[Passed]] = {}
        self._secret = torch.Generator().manual_seed(next(cast.seeds))  # of directions

    def values(self, present: bool, batch: Batch) -> list[Passed]:
        """The releases of one side when this batch is drawn; made once, by the method itself."""
        return [self._release(present, batch, i) for i in range(len(self.cast.passed))]

    def _release(self, present: bool, batch: Batch, i: int) -> Passed:
        sampled = self.cast.sampler is None or self.cast.passed[i].sampler is not None
        records, own = self.pair.side(present, batch, sampled)
        key = (records is self.pair.present, own)
        if key not in self._kept:
            self._kept[key] = self.cast.values(records, own, self.strength)
        return self._kept[key][i]

    def signal(self) -> float:
        """Σ over releases of the squared move in units of the noise, on some batches with the record in question."""
        return sum(self._apart(batch) for batch in self.some())

    def largest_moves(self, change: Callable[[Batch], Batch] | None = None) -> list[float]:
        """For each release: how far the record in question moved what is bounded, over the stated sensitivity."""
        moves = [0.0] * len(self.cast.passed)
        for batch in self.some():
            changed = batch if change is None else change(batch)
            both = zip(self.values(True, changed), self.values(False, batch), strict=True)
            for i, (here, there) in enumerate(both):
                if here.bounded.shape != there.bounded.shape:
                    raise PrivacyError(f"{here.source}: the shape of what is released depends on the records")
                apart = float(here.in_units(here.bounded.double() - there.bounded.double()).norm())
                moves[i] = max(moves[i], apart / _stated(here))
        return moves

    def some(self, most: int = 3) -> list[Batch]:
        """The commonest batches that hold the record in question, or the one of all records."""
        if self.cast.sampler is None:
            return [()]
        held = Counter({batch: n for batch, n in sum(self.cast.shares, Counter()).items() if CANARY in batch})
        return [batch for batch, _ in held.most_common(most)]

    def _apart(self, batch: Batch) -> float:
        both = zip(*(self.values(present, batch) for present in (True, False)), strict=True)
        return sum(float(((_compared(a).double() - _compared(b)).flatten() / _unit(a)).square().sum()) for a, b in both)

    def scores(self, present: bool, batches: list[list[Batch]]) -> NDArray[np.float64]:
        """The log likelihood ratios of so many repetitions on one side; `batches` as Cast.draw gives them."""
        total = np.zeros(len(batches[0]))
        for i, drawn in enumerate(batches):
            sides = [self._candidates(i, with_it) for with_it in (True, False)]
            places: dict[Batch, list[int]] = {}
            for position, batch in enumerate(drawn):
                places.setdefault(batch, []).append(position)
            for batch, where in places.items():
                one = self._release(present, batch, i)
                for begin in range(0, len(where), AT_ONCE):
                    chosen = where[begin : begin + AT_ONCE]
                    total[chosen] += self._ratio(one, len(chosen), *sides).numpy()
        return total

    def _ratio(self, one: Passed, count: int, present: tuple[Tensor, Tensor], without: tuple[Tensor, Tensor]) -> Tensor:
        """Draw so many releases of the value; the log likelihood ratio of each."""
        if (projections := _projections(one)) is None:
            seen = one.again(count).double().flatten(1) / _unit(one)
            return _log_mixture(one, seen, *present) - _log_mixture(one, seen, *without)
        size = one.bounded.shape[-1]
        directions = uniform_directions(count * projections, size, self._secret)
        seen = one.again(count, _projected(one.bounded, directions, count)).double().flatten(1) / one.deviation
        sides = []
        for rows, logs in (present, without):
            placed = torch.stack([_projected(row.float(), directions, count).flatten(1) for row in rows], 1)
            placed = placed.double() / one.deviation
            fit = (placed * seen.unsqueeze(1)).sum(2) - placed.square().sum(2) / 2
            sides.append((fit + logs).logsumexp(1))
        return sides[0] - sides[1]

    def _candidates(self, i: int, present: bool) -> tuple[Tensor, Tensor]:
        """All that can come to the gate as release i, each once, and the logarithms of how often it does."""
        seen: dict[bytes, tuple[Tensor, float]] = {}
        for batch, n in self.cast.shares[i].items():
            value = _compared(self._release(present, batch, i)).double()
            key = value.numpy().round(9).tobytes()
            seen[key] = (value, seen.get(key, (value, 0.0))[1] + n)
        values, counts = zip(*seen.values(), strict=True)
        return torch.stack(values), torch.tensor(counts, dtype=torch.float64).log() - math.log(sum(counts))


def _projected(rows: Tensor, directions: Tensor, count: int) -> Tensor:
    """`project` for each repetition's own directions: (count, k, ...)."""
    found = project(rows, directions)
    return found.view(count, len(directions) // count, *found.shape[1:])


def _log_mixture(one: Passed, seen: Tensor, values: Tensor, logs: Tensor) -> Tensor:
    """log Σ_j p_j·N(seen; value_j, 1), up to what both sides share."""
    white = values.flatten(1) / _unit(one)
    return (seen @ white.T - white.square().sum(1) / 2 + logs).logsumexp(1)


def _unit(one: Passed) -> float | Tensor:
    """The standard deviation of the noise on each number."""
    return one.deviation * one.sensitivity if isinstance(one.sensitivity, Tensor) else one.deviation


def _projections(one: Passed) -> int | None:
    """How many directions the release was projected on, if it was."""
    event = one.event.event if isinstance(one.event, Sampled) else one.event
    return event.projections if isinstance(event, ProjectionGaussian) else None


def _compared(one: Passed) -> Tensor:
    """What tells the two sides apart: the value, or the rows before they are projected."""
    return one.value if _projections(one) is None else one.bounded


def _stated(one: Passed) -> float:
    """The sensitivity, in the units of `in_units`."""
    return 1.0 if isinstance(one.sensitivity, Tensor) else float(one.sensitivity)


def always_drawn(batches: list[list[Batch]], sampler: Sampler) -> list[list[Batch]]:
    """The same batches, with the record in question in each: a sampler that does not sample."""
    more = {one: one if CANARY in one else with_it(one, sampler) for drawn in batches for one in set(drawn)}
    return [[more[one] for one in drawn] for drawn in batches]


def drawn_twice(batches: list[list[Batch]], sampler: Sampler) -> list[list[Batch]]:
    """The same batches, with the record in question twice in those that hold it."""
    more = {one: with_it(one, sampler) if CANARY in one else one for drawn in batches for one in set(drawn)}
    return [[more[one] for one in drawn] for drawn in batches]


def with_it(batch: Batch, sampler: Sampler) -> Batch:
    """The record in question once more: beside the others, or in the place of one where there is no room."""
    if sampler.draw().mask is not None and len(batch) < sampler.batch:
        return (CANARY, *batch)
    place = next((i for i, record in enumerate(batch) if record != CANARY), 0)
    return (*batch[:place], CANARY, *batch[place + 1 :])


def measured_noise(one: Passed, numbers: int = 20_000) -> tuple[float, int]:
    """The standard deviation of the noise over the stated sensitivity, and of how many numbers it is."""
    count = max(2, -(-numbers // one.value.numel()))
    drawn = one.again(count).double().flatten(1) - one.value.double().flatten()
    units = one.sensitivity if isinstance(one.sensitivity, Tensor) else float(one.sensitivity)
    return float((drawn / units).square().mean().sqrt()), drawn.numel()


def known_directions(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    """Whether two runs that share nothing but the public seed project on the same directions."""
    return "directions" in first and torch.equal(first["directions"], second["directions"])
