"""Known limitations that a statement can have, each with a test of whether it has it.

docs/limitations.md says of each how severe it is, what is affected and what to do; its headings are these names. A
statement lists those that apply to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpot.privacy.events import CountGaussian, DiscreteGaussian, Event, NonPrivate, Sampled

if TYPE_CHECKING:
    from dpot.privacy.statement import Statement

PAGE = "docs/limitations.md"


@dataclass(frozen=True)
class Limitation:
    """Its heading on the page, how severe it is, and which statements have it."""

    name: str
    severity: str  # high, medium, low
    applies: Callable[[Statement], bool]


def applying(told: Statement) -> list[Limitation]:
    """Those that this statement has."""
    return [one for one in LIMITATIONS if told.entries and one.applies(told)]


def _parts(told: Statement) -> list[Event]:
    """What was released, without its samplers."""
    atoms = [atom for entry in told.entries for atom, _ in Event.from_dict(entry["event"]).atoms()]
    insides = [atom.event if isinstance(atom, Sampled) else atom for atom in atoms]
    return [part for inside in insides for part, _ in inside.atoms()]


def _continuous(told: Statement) -> bool:
    return any(not isinstance(part, CountGaussian | DiscreteGaussian | NonPrivate) for part in _parts(told))


def _sampled(told: Statement) -> bool:
    return any(entry["sampler"] != "full" for entry in told.entries)


LIMITATIONS = (
    Limitation("Noise in floating point", "medium", _continuous),
    Limitation("Generators that are not cryptographic", "medium", lambda told: _continuous(told) or _sampled(told)),
    Limitation("The sensitivity is stated by the method", "medium", lambda told: True),
    Limitation("A bound whose proof is not published", "medium", lambda told: told.bound == "sharp"),
    Limitation("Settings chosen by looking at data", "medium", lambda told: True),
    Limitation("One record is not one person", "medium", lambda told: True),
    Limitation("Only runs on this machine are added up", "low", lambda told: True),
    Limitation("Time and memory", "low", lambda told: True),
)
