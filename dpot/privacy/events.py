"""What was done to the private data: mechanisms described apart from the accountants that price them.

Events are frozen values: equal events are priced once, and a ledger of them is stored as JSON. Each carries
its neighbouring relation, because a noise multiplier means nothing without it. The annotations of their
fields are their schema: a value outside the range is refused by name when the event is made.
"""

from __future__ import annotations

import dataclasses
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, ClassVar

from dpot.privacy.errors import AdjacencyMismatch, InvalidParameter, UnknownEvent, number, whole
from dpot.ranges import Count, Positive, Range

Rate = Annotated[float, Range(above=0, at_most=1)]
Order = Annotated[float, Range(above=1)]


class Adjacency(StrEnum):
    """Which data sets are neighbours."""

    REPLACE_ONE = "replace-one"  # one record is another one; the number of records is public
    ADD_REMOVE = "add-remove"  # one record is there or not
    REPLACE_KEEPING_LABEL = "replace-keeping-label"  # one record is another one of the same, public, class


class Sampler(StrEnum):
    """How the records of one release are drawn."""

    FULL = "full"  # all of them
    POISSON = "poisson"  # each by its own coin, afresh for every release
    FIXED_SIZE = "fixed-size"  # a uniform subset of fixed size, afresh for every release
    STRATIFIED = "stratified"  # such a subset within each public class
    SHUFFLED = "shuffled"  # the next batch of a shuffled epoch: no amplification is proved for it here
    MIXED = "mixed"  # a composition of several


class Event(ABC):
    """Something that touched private data."""

    kinds: ClassVar[dict[str, type[Event]]] = {}

    def __init_subclass__(cls) -> None:
        """Know every event by its name, so that stored ones can be read back."""
        cls.kinds[cls.__name__] = cls

    def __post_init__(self) -> None:
        """Hold every field to its annotation."""
        for name, convert in _schema(type(self)).items():
            object.__setattr__(self, name, convert(name, getattr(self, name)))

    @property
    @abstractmethod
    def relation(self) -> Adjacency | None:
        """The neighbouring relation it is stated for; None if it gives no guarantee under any."""

    @property
    def sampler(self) -> Sampler:
        """How its records are drawn."""
        return Sampler.FULL

    def atoms(self) -> Iterator[tuple[Event, int]]:
        """The single releases it consists of, each with how often it happens."""
        yield self, 1

    def to_dict(self) -> dict[str, Any]:
        """The event as JSON-able data."""
        fields = {f.name: _plain(getattr(self, f.name)) for f in _fields(type(self))}
        return {"kind": type(self).__name__, **fields}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Event:
        """Read an event back; the inverse of to_dict."""
        content = dict(data)
        kind = Event.kinds.get(str(content.pop("kind", None)))
        if kind is None or not _fields(kind) or set(content) != {f.name for f in _fields(kind)}:
            raise UnknownEvent(f"not an event this version knows: {str(dict(data))[:200]}")
        return kind(**{name: _event_or_value(value) for name, value in content.items()})


def _fields(kind: type[Event]) -> tuple[dataclasses.Field[Any], ...]:
    """The fields of an event; the abstract ones have none, so that nothing stored can name them."""
    return dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()


def _plain(value: Any) -> Any:
    if isinstance(value, Event):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, StrEnum) else value


def _event_or_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Event.from_dict(value)
    if isinstance(value, list | tuple):
        return tuple(_event_or_value(item) for item in value)
    return value


@cache
def _schema(kind: type[Event]) -> dict[str, Callable[[str, Any], Any]]:
    """How each field of an event is checked and converted, by its annotation."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {f.name: _converter(hints[f.name]) for f in _fields(kind)}


def _converter(hint: Any) -> Callable[[str, Any], Any]:
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is Annotated:
        kind, admitted = arguments
        check = whole if kind is int else number
        return lambda name, value: check(name, value, admitted)
    if typing.get_origin(hint) is tuple:
        inner = _converter(arguments[0])
        return lambda name, values: tuple(inner(name, value) for value in values)
    return _adjacency if hint is Adjacency else _event if hint is Event else lambda name, value: value


def _adjacency(name: str, value: Any) -> Adjacency:
    try:
        return Adjacency(value)
    except ValueError:
        raise InvalidParameter(f"{name} must be one of {', '.join(Adjacency)}, got {value!r}") from None


def _event(name: str, value: Any) -> Event:
    if not isinstance(value, Event):
        raise InvalidParameter(f"{name} must be an event, got {value!r}")
    return value


class Mechanism(Event):
    """A release on the records it is given, before any sampling."""

    adjacency: Adjacency

    @property
    def relation(self) -> Adjacency:
        """The neighbouring relation of its sensitivity."""
        return self.adjacency


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """f(D) + N(0, σ²I), with noise_multiplier = σ / (L2 sensitivity of f under the adjacency)."""

    noise_multiplier: Positive
    adjacency: Adjacency = Adjacency.REPLACE_ONE


@dataclass(frozen=True)
class CountGaussian(Gaussian):
    """Whole numbers with discrete Gaussian noise that are as private as Gaussian(noise_multiplier).

    dpot/privacy/counts.py says why, and makes the noise; there are no low-order bits to attack.
    """


@dataclass(frozen=True)
class Laplace(Mechanism):
    """f(D) + Laplace noise in each coordinate, noise_multiplier = scale / (L1 sensitivity of f)."""

    noise_multiplier: Positive
    adjacency: Adjacency = Adjacency.REPLACE_ONE


@dataclass(frozen=True)
class DiscreteGaussian(Mechanism):
    """Integer counts + discrete Gaussian noise (Canonne, Kamath & Steinke 2020, Definition 1).

    P(x) ∝ exp(-x²/2σ²) on the integers, independently in each coordinate. One record moves at most
    `coordinates` of them, each by at most `sensitivity`.
    """

    sigma: Positive
    sensitivity: Count = 1
    coordinates: Count = 1
    adjacency: Adjacency = Adjacency.REPLACE_ONE


@dataclass(frozen=True)
class ProjectionGaussian(Mechanism):
    """(U, XU + V): rows projected on k directions, with Gaussian noise (DP-SWD, Algorithm 1).

    The columns of U are independent and uniform on the sphere of R^dimension, drawn afresh and independently
    of the data; V has iid N(0, sigma²) entries. One record moves one row of X by at most `diameter` in L2
    norm (under add-remove: between a row of at most that norm and a row of zeros, the shape being fixed).
    """

    dimension: Count
    projections: Count
    sigma: Positive
    diameter: Positive = 1.0
    adjacency: Adjacency = Adjacency.REPLACE_ONE


@dataclass(frozen=True)
class NonPrivate(Event):
    """An access without any noise: no ε covers it."""

    reason: str = ""

    @property
    def relation(self) -> None:
        """It spoils a guarantee under every relation."""
        return


class Sampled(Event):
    """A mechanism run on a random part of the records, drawn afresh."""

    event: Event

    @property
    def relation(self) -> Adjacency | None:
        """The relation of the mechanism inside."""
        return self.event.relation

    def _check(self, *admitted: Adjacency) -> None:
        if any(not isinstance(atom, Mechanism) for atom, _ in self.event.atoms()):
            raise InvalidParameter(f"{type(self).__name__} takes a mechanism or a composition of mechanisms")
        if self.event.relation not in admitted:
            raise AdjacencyMismatch(
                f"{type(self).__name__} is accounted under {' or '.join(admitted)} adjacency, "
                f"and the mechanism says {self.event.relation}"
            )


@dataclass(frozen=True)
class PoissonSampled(Sampled):
    """Every record takes part with probability `rate`, independently; add-remove adjacency."""

    event: Event
    rate: Rate

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(Adjacency.ADD_REMOVE)

    @property
    def sampler(self) -> Sampler:
        """Poisson."""
        return Sampler.POISSON


@dataclass(frozen=True)
class FixedSizeSampled(Sampled):
    """A uniform subset of `batch` out of `population` records; the population is public (replace-one)."""

    event: Event
    batch: Count
    population: Count

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch > self.population:
            raise InvalidParameter(f"batch must be at most the population of {self.population}, got {self.batch}")
        self._check(Adjacency.REPLACE_ONE, Adjacency.REPLACE_KEEPING_LABEL)

    @property
    def rate(self) -> float:
        """γ: the chance of a record to be in the subset."""
        return self.batch / self.population

    @property
    def sampler(self) -> Sampler:
        """Fixed size, without replacement."""
        return Sampler.FIXED_SIZE


@dataclass(frozen=True)
class StratifiedSampled(Sampled):
    """A uniform subset of batches[c] out of class_sizes[c] records within each public class c.

    A record can only be replaced within its class, so that its own class's ratio is the one that counts, and
    the others' subsets do not depend on it: the worst class bounds everybody.
    """

    event: Event
    batches: tuple[Count, ...]
    class_sizes: tuple[Count, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.batches or len(self.batches) != len(self.class_sizes):
            raise InvalidParameter(f"{len(self.batches)} batch sizes for {len(self.class_sizes)} class sizes")
        if any(b > n for b, n in zip(self.batches, self.class_sizes, strict=True)):
            raise InvalidParameter("a class has fewer records than its share of the batch")
        self._check(Adjacency.REPLACE_KEEPING_LABEL)

    @property
    def rate(self) -> float:
        """γ of the worst class."""
        return max(b / n for b, n in zip(self.batches, self.class_sizes, strict=True))

    @property
    def sampler(self) -> Sampler:
        """Fixed size within each class."""
        return Sampler.STRATIFIED


class Composition(Event):
    """Several releases that together make one event."""

    @property
    def relation(self) -> Adjacency | None:
        """The relation all of them share."""
        return common_relation(atom for atom, _ in self.atoms())

    @property
    def sampler(self) -> Sampler:
        """The sampler all of them share, or `mixed`."""
        samplers = {atom.sampler for atom, _ in self.atoms()}
        return samplers.pop() if len(samplers) == 1 else Sampler.MIXED


@dataclass(frozen=True)
class SelfComposed(Composition):
    """The same event `count` times; what is asked may depend on earlier answers, the noise may not."""

    event: Event
    count: Count

    def atoms(self) -> Iterator[tuple[Event, int]]:
        """Those of the event, `count` times."""
        return ((atom, times * self.count) for atom, times in self.event.atoms())


@dataclass(frozen=True)
class Composed(Composition):
    """Events one after the other; what is asked may depend on earlier answers, the noise may not."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.events:
            raise InvalidParameter("a composition needs at least one event")
        common_relation(self.events)

    def atoms(self) -> Iterator[tuple[Event, int]]:
        """Those of every event in turn."""
        return (atom for event in self.events for atom in event.atoms())


@dataclass(frozen=True)
class AdaptiveSequence(Event):
    """Events whose very noise was chosen after seeing earlier answers, behind a privacy filter.

    The filter has one order and one `budget`, the largest ε(order) of all of them together, both fixed before the first
    event; it lets an event pass only while the running sum stays within the budget. The sequence then is worth the
    budget at that order (Feldman & Zrnic 2021, Theorem 3.1). It is never worth the sum that was reached, because where
    the sequence ended depends on the answers. At larger orders nothing is claimed.
    """

    events: tuple[Event, ...]
    order: Order
    budget: Positive

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.events:
            raise InvalidParameter("a sequence needs at least one event")
        common_relation(self.events)

    @property
    def relation(self) -> Adjacency | None:
        """The relation all of them share."""
        return common_relation(self.events)

    @property
    def sampler(self) -> Sampler:
        """The sampler all of them share, or `mixed`."""
        return Composed(self.events).sampler


def common_relation(events: typing.Iterable[Event]) -> Adjacency | None:
    """The one relation of several events; guarantees under different ones do not add up."""
    relations = {event.relation for event in events} - {None}
    if len(relations) > 1:
        raise AdjacencyMismatch(f"events under {' and '.join(sorted(map(str, relations)))} cannot be composed")
    return relations.pop() if relations else None
