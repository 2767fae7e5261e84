"""What an engine is: it maps a counter over partitions and adds up vectors of whole numbers.

    total = engine.total(count, partitions)      # the sum of count(partition.read()) over all partitions

An engine knows nothing of noise or ledger. A partition is read, decoded and counted where the engine likes, again after
a worker has died; its vector is a value that is returned, never a variable that is added to, so that however often a
partition is counted it is added once. Sums of whole numbers do not depend on the order, so the total is the same to the
bit for every engine and every way to cut the records into partitions.

What is wrong with a partition (a damaged file, one that has gone) is returned like a vector, and wins over all vectors
it is added to: the driver says it in one line, and no engine tries again what cannot succeed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import numpy as np

from dpot.errors import DataError, DpotError

Count = Callable[[Iterable[Any]], np.ndarray]  # batches of one partition → whole numbers
NOTHING = np.zeros(0, np.int64)


class Partition(Protocol):
    """A part of the records that can be read anywhere, each time anew. It can be sent to another process."""

    name: str

    def read(self) -> Iterator[Any]:
        """Its batches, one after the other."""


@dataclass(frozen=True)
class Part:
    """What some partitions gave: the sum of their vectors, or why there is none."""

    counts: np.ndarray
    problem: str = ""


def counted(count: Count, batches: Callable[[], Iterable[Any]], name: str) -> Part:
    """Count one partition, where it is read. Whatever goes wrong is one line."""
    try:
        return Part(count(batches()))
    except DpotError as error:
        return Part(NOTHING, str(error))
    except MemoryError:
        return Part(NOTHING, f"{name}: a worker has not enough memory for it; cut it into smaller partitions")
    except Exception as error:  # of any library that reads or decodes
        line = (str(error).strip().splitlines() or [""])[0][:300]
        return Part(NOTHING, f"{name}: cannot be counted ({type(error).__name__}: {line})")


def count_partitions(count: Count, partitions: Sequence[Partition]) -> Part:
    """Several partitions, one after the other."""
    return added(*(counted(count, partition.read, partition.name) for partition in partitions))


def added(*parts: Part) -> Part:
    """The sum; of several problems the first in the order of words, so that it is the same whoever was first."""
    problems = [part.problem for part in parts if part.problem]
    if problems:
        return Part(NOTHING, min(problems))
    vectors = [part.counts for part in parts if len(part.counts)]
    return Part(reduce(np.add, vectors) if vectors else NOTHING)


def settled(part: Part) -> np.ndarray:
    """The total, or the error that stands in its place."""
    if part.problem:
        raise DataError(part.problem)
    return part.counts


class Engine(ABC):
    """Maps a counter over partitions and adds up. Its parameters are those of conf/engine/."""

    name: str
    device = "cpu"  # where workers count

    @abstractmethod
    def total(self, count: Count, source: Any) -> np.ndarray:
        """The sum over all partitions of the source: a sequence of them, or a data set of the engine's own."""

    def close(self) -> None:  # noqa: B027 (most engines have nothing to let go of)
        """Let go of the workers that this engine has started."""


def chunks(partitions: Sequence[Partition], most: int) -> list[Sequence[Partition]]:
    """At most so many groups of neighbouring partitions."""
    size = -(-len(partitions) // max(1, most))
    return [partitions[at : at + size] for at in range(0, len(partitions), size)]
