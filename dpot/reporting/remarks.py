"""What a sheet says of its cells beside their numbers: a part of its yaml, all of it optional.

stands_for: {DP-CGAN: ["DP-CGAN, as coded"]}     # the published row or column: ours that are held against it
noise: {DP-Sinkhorn: {accuracy: 5, from: "three rows, trained twice"}}      # what one training differs by
why: [{rows: [MNIST], columns: [DP], says: other setting, because: docs/wdp.md#table-2}]
departs: [{rows: [SWD], keys: {loss.learning_rate: "1e-4 is printed; ..."}}]     # from the printed settings
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# what a sheet may say of a cell; "outside" gives a miss its reason, "explained" says that runs on record close the gap
SAYINGS = ("other data", "other method", "other setting", "fitted", "explained", "outside")


@dataclass(frozen=True)
class Place:
    """Some cells of a sheet; no rows (columns) means all of them."""

    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    def holds(self, row: str, column: str) -> bool:
        """Whether a cell is one of them."""
        return (not self.rows or row in self.rows) and (not self.columns or column in self.columns)


@dataclass(frozen=True)
class Why:
    """What is said of some cells, and the paragraph that gives the reason (docs/PAGE.md#anchor)."""

    place: Place
    says: str
    because: str


@dataclass(frozen=True)
class Noise:
    """By how much one training of a method differs from the next, in the unit of each metric, and how that is known."""

    spread: Mapping[str, float]
    source: str


@dataclass(frozen=True)
class Departure:
    """Settings of some rows that are not the printed ones: key → what is printed and why it is not what ran."""

    place: Place
    keys: Mapping[str, str]


@dataclass(frozen=True)
class Remarks:
    """All of it."""

    stands_for: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    noise: Mapping[str, Noise] = field(default_factory=dict)
    why: tuple[Why, ...] = ()
    departs: tuple[Departure, ...] = ()

    def published_name(self, name: str) -> tuple[str | None, bool]:
        """The published row (or column) that ours is held against, and whether it is the one that is counted."""
        for printed, ours in self.stands_for.items():
            if name in ours:
                return printed, name == ours[0]
        return (None, True) if name in self.stands_for else (name, True)

    def said(self, row: str, column: str) -> Why | None:
        """The first remark on a cell."""
        return next((why for why in self.why if why.place.holds(row, column)), None)

    def departures(self, row: str, column: str) -> dict[str, str]:
        """Every key in which a cell's runs depart from what is printed, with the reason."""
        found: dict[str, str] = {}
        for departure in self.departs:
            if departure.place.holds(row, column):
                found |= departure.keys
        return found


def of_sheet(body: Mapping[str, Any], names: set[str]) -> Remarks:
    """Those of a sheet's yaml; one that speaks of a row or column that does not exist is refused."""
    stands_for = {str(k): tuple(map(str, v if isinstance(v, list) else [v])) for k, v in _part(body, "stands_for")}
    noise = {}
    for row, said in _part(body, "noise"):
        spread = {str(metric): float(value) for metric, value in said.items() if metric != "from"}
        noise[str(row)] = Noise(spread, str(said["from"]))
    why = []
    for one in body.get("why", ()):
        if one["says"] not in SAYINGS:
            raise ValueError(f"why: says {one['says']}; known: {', '.join(SAYINGS)}")
        why.append(Why(place_of(one), one["says"], str(one["because"])))
    departs = [
        Departure(place_of(one), {str(key): str(reason) for key, reason in one["keys"].items()})
        for one in body.get("departs", ())
    ]
    places = [*(w.place for w in why), *(d.place for d in departs)]
    named = [
        *noise,
        *(n for ours in stands_for.values() for n in ours),
        *(n for p in places for n in p.rows + p.columns),
    ]
    for name in named:
        if names and name not in names:
            raise ValueError(f"there is no row or column {name}, of which something is said")
    return Remarks(stands_for, noise, tuple(why), tuple(departs))


def _part(body: Mapping[str, Any], key: str) -> Iterator[tuple[Any, Any]]:
    yield from (body.get(key) or {}).items()


def place_of(one: Mapping[str, Any]) -> Place:
    """The cells that an entry of a yaml file speaks of."""
    return Place(tuple(map(str, one.get("rows", ()))), tuple(map(str, one.get("columns", ()))))
