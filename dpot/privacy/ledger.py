"""The ledger: every access to private data, entered by the code that makes it, before it is made.

    ledger = Ledger(delta=1e-5, epsilon=10)
    ledger.charge(event, count=100, source="dp_swd: noisy projections", sampler="fixed-size")
    ...                                                  # now do these 100 releases

A charge that would exceed the budget is refused and nothing changes. What samplers may fail by is taken off δ. The same
release charged again costs a few vector additions: its Rényi curve is computed once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dpot.errors import PrivacyError
from dpot.privacy.accountants import own_epsilon, renyi_epsilon
from dpot.privacy.budget import Budget, Mode
from dpot.privacy.calibration import find_steps
from dpot.privacy.conversion import Conversion
from dpot.privacy.errors import (
    BudgetExceeded,
    InvalidParameter,
    LedgerMismatch,
    SamplerMismatch,
    UnknownEvent,
    whole,
)
from dpot.privacy.events import Adjacency, Event, Sampler, common_relation
from dpot.privacy.sensitivity import SOUND_BOUNDS, Bound

_VERSION = 1


@dataclass(frozen=True)
class Entry:
    """One kind of access: what was released, by which code, with which sampler, how often."""

    event: Event
    source: str
    sampler: Sampler
    count: int

    def to_dict(self) -> dict[str, Any]:
        """The entry as JSON-able data."""
        return {
            "event": self.event.to_dict(),
            "source": self.source,
            "sampler": str(self.sampler),
            "count": self.count,
        }


class Ledger:
    """What has been released so far, what it costs, and what may still be released."""

    def __init__(
        self,
        delta: float,
        epsilon: float | None = None,
        bound: Bound = "exact",
        conversion: Conversion = "tight",
        mode: Mode = "sound",
    ) -> None:
        """A ledger with a budget of ε at δ; epsilon=None only counts."""
        if mode == "sound" and bound not in SOUND_BOUNDS:
            raise InvalidParameter(
                f"bound={bound} is no proof of privacy: use bound=exact, or mode=paper to do what the paper did"
            )
        if delta is None:
            raise InvalidParameter("a ledger needs a delta: set privacy.delta")
        self.budget = Budget(epsilon, delta, bound, conversion, mode)
        self._counts: dict[tuple[Event, str, Sampler], int] = {}
        self._unsound: dict[str, None] = {}  # ordered, without repetition
        self._uncovered: dict[str, None] = {}
        self._conditions: dict[str, None] = {}
        self._proved: list[tuple[dict[Event, int], float]] = []  # what is known to keep the budget, and its failure
        self.failure = 0.0  # the probability that a sampler fails, over all releases
        self.records: int | None = None  # how many private ones there are, where this is known

    @classmethod
    def of(cls, budget: Budget) -> Ledger:
        """The ledger of a configured budget."""
        return cls(**asdict(budget))

    def guard(self, records: int, large_delta: bool = False) -> None:
        """Say how many records this ledger is about, before the first charge.

        With δ ≥ 1/records, publishing a record drawn at random satisfies the definition, whatever ε is. This is refused
        where there is a budget to keep, unless it is asked for. Paper mode asks for it. The statement warns of it.
        """
        self.records = records
        if self.large_delta and self.budget.mode == "sound" and self.budget.epsilon is not None and not large_delta:
            raise PrivacyError(
                f"delta={self.budget.delta:g} with {records} records: it must be below 1/records, or publishing one of "
                "them at random would satisfy it; lower privacy.delta (large_delta=true: run it, and say so in the "
                "statement)"
            )

    @property
    def large_delta(self) -> bool:
        """Whether δ is so large that it would allow a record to be published."""
        assert self.budget.delta is not None
        return bool(self.records) and self.budget.delta * (self.records or 0) >= 1

    def charge(
        self,
        event: Event,
        count: int = 1,
        *,
        source: str,
        sampler: str | Sampler,
        failure: float = 0.0,
    ) -> None:
        """Enter `count` releases of the event that are about to happen, or refuse them by name.

        `source` says which code releases what; `sampler` is how that code draws its records, and `failure` how likely
        one draw of it is to fail. In paper mode a sampler other than the event's is entered as an unsound step, in
        sound mode it is an error.
        """
        times = whole("count", count)
        drawn = _sampler(sampler)
        common_relation([event, *(entry.event for entry in self.entries)])
        mismatch = ""
        if drawn is not event.sampler:
            mismatch = f"{source}: records were drawn by {drawn} sampling and priced as {event.sampler} sampling"
            if self.budget.mode == "sound":
                raise SamplerMismatch(f"{mismatch}; charge the event of the sampler that runs")
        failing = self.failure + times * failure
        if self.budget.epsilon is not None:
            after = self.spending()
            after[event] = after.get(event, 0) + times
            if not self._keeps(after, failing):
                cost = self._epsilon(after, failing)
                raise BudgetExceeded(
                    f"{source}: {times} more would bring epsilon to {cost:.8g} of {self.budget.epsilon:g} "
                    f"at delta={self.budget.delta:g}; stop here, add noise or raise privacy.epsilon"
                )
        key = (event, source, drawn)
        self._counts[key] = self._counts.get(key, 0) + times
        self.failure = failing
        if mismatch:
            self.note_unsound(mismatch)

    def note_unsound(self, reason: str) -> None:
        """Something was done that the stated ε does not cover as a proof would need (paper mode)."""
        self._unsound[reason] = None

    def note_uncovered(self, what: str) -> None:
        """Something outside the stated ε, to be disclosed: a search over settings, public labels, ..."""
        self._uncovered[what] = None

    def note_condition(self, what: str) -> None:
        """Something that was taken from the records and must have been public: the ε holds on that condition."""
        self._conditions[what] = None

    @property
    def entries(self) -> list[Entry]:
        """All accesses, in the order of their first charge."""
        return [Entry(event, source, sampler, n) for (event, source, sampler), n in self._counts.items()]

    @property
    def adjacency(self) -> Adjacency | None:
        """The neighbouring relation all entries share; None before the first private one."""
        return common_relation(entry.event for entry in self.entries)

    @property
    def releases(self) -> int:
        """How many single releases were entered."""
        return sum(e.count * times for e in self.entries for _, times in e.event.atoms())

    @property
    def unsound(self) -> list[str]:
        """Why the ε may not be a proof."""
        return list(self._unsound)

    @property
    def conditions(self) -> list[str]:
        """What was taken from the records without noise, and is taken to be public."""
        return list(self._conditions)

    @property
    def uncovered(self) -> list[str]:
        """What the ε does not cover."""
        return list(self._uncovered)

    def spending(self) -> dict[Event, int]:
        """The events with their counts, whoever released them."""
        total: dict[Event, int] = {}
        for entry in self.entries:
            total[entry.event] = total.get(entry.event, 0) + entry.count
        return total

    def epsilon(self) -> float:
        """ε spent so far, at the ledger's δ."""
        return self._epsilon(self.spending(), self.failure)

    def affordable(self, event: Event, failure: float = 0.0) -> int:
        """How many more releases of the event the budget allows, if a draw of its sampler fails so likely."""
        return find_steps(event, self.budget, self.spending(), lambda n: self._left(self.failure + n * failure))

    def affords(self, event: Event, steps: int, failure: float = 0.0) -> bool:
        """Whether the budget allows so many more releases of the event."""
        after = self.spending()
        after[event] = after.get(event, 0) + steps
        return self._keeps(after, self.failure + steps * failure)

    def _keeps(self, spending: dict[Event, int], failure: float) -> bool:
        """Whether all this keeps the budget; what is part of something that does, does."""
        assert self.budget.epsilon is not None
        if any(
            failure <= most and all(whole.get(event, 0) >= times for event, times in spending.items())
            for whole, most in self._proved
        ):
            return True
        left, terms = self._left(failure), (self.budget.bound, self.budget.conversion)
        # a loss distribution takes a second, and is asked where the curve does not do
        kept = left > 0 and (
            (self.budget.conversion == "pld" and renyi_epsilon(spending, left, *terms) <= self.budget.epsilon)
            or self._epsilon(spending, failure) <= self.budget.epsilon
        )
        if kept and self.budget.conversion == "pld":
            self._proved.append((spending, failure))
        return kept

    @property
    def delta(self) -> float:
        """What is left of δ for pricing, beside the failures of samplers; 0 if nothing is."""
        return self._left(self.failure)

    def _left(self, failure: float) -> float:
        assert self.budget.delta is not None
        return self.budget.delta if self.budget.mode == "paper" else max(0.0, self.budget.delta - failure)

    def _epsilon(self, spending: Mapping[Event, int], failure: float) -> float:
        left = self._left(failure)
        return own_epsilon(spending, left, self.budget.bound, self.budget.conversion) if left else math.inf

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on after a restart, as JSON-able data."""
        return {
            "version": _VERSION,
            "budget": asdict(self.budget),
            "entries": [entry.to_dict() for entry in self.entries],
            "unsound": self.unsound,
            "uncovered": self.uncovered,
            "conditions": self.conditions,
            "failure": self.failure,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a stored ledger, kept under the same terms; the budget itself may have been raised.

        What this run has noted before it resumed is kept beside what was stored.
        """
        try:
            terms, entries = dict(state["budget"]), list(state["entries"])
            if state["version"] != _VERSION:
                raise LedgerMismatch(f"the stored ledger has version {state['version']}, not {_VERSION}")
            for name in ("delta", "bound", "conversion", "mode"):
                if terms[name] != getattr(self.budget, name):
                    raise LedgerMismatch(
                        f"the stored ledger has {name}={terms[name]}, this run {getattr(self.budget, name)}"
                    )
            counts: dict[tuple[Event, str, Sampler], int] = {}
            for entry in entries:
                key = (Event.from_dict(entry["event"]), str(entry["source"]), _sampler(entry["sampler"]))
                counts[key] = counts.get(key, 0) + whole("count", entry["count"])
            unsound, uncovered = dict.fromkeys(state["unsound"]), dict.fromkeys(state["uncovered"])
            conditions = dict.fromkeys(state.get("conditions", ()))
            failure = float(state.get("failure", 0.0))
        except (KeyError, TypeError) as error:
            raise UnknownEvent(f"not a stored ledger: {type(error).__name__} {error}") from None
        self._counts, self.failure = counts, failure
        self._unsound, self._uncovered = unsound | self._unsound, uncovered | self._uncovered
        self._conditions = conditions | self._conditions


def _sampler(name: str | Sampler) -> Sampler:
    try:
        return Sampler(name)
    except ValueError:
        raise InvalidParameter(f"sampler must be one of {', '.join(Sampler)}, got {name!r}") from None
