"""The gate: the one place where something computed from private records becomes something released.

    release = problem.release(event, sampler=sampler, steps=steps)   # what leaves, from which records, how often

    def step():
        rows = sampler.draw().rows(private)
        noisy = release(rows.sum(0), sensitivity)                    # the noise is drawn here and nowhere else
        ...

    problem.engine(step, steps=steps, before=release.charge, ...)    # entered in the ledger before the steps are made

A release that is made once needs no `steps` and no hook: the call itself enters it. What the gate holds to:

- The sampler's own facts (kind, rate, batch, population, class sizes) are those of the event; in paper mode a
  difference is a stated unsound step. Without a sampler every record is looked at.
- Nothing passes before it is in the ledger. Whether all steps fit the budget is said before the first.
- The noise is the event's: its multiplier times the sensitivity that the method states, the σ of a projection, exact
  whole numbers for counts; drawn in double precision from the run's own source. NonPrivate passes without noise, so
  that a method and its private twin share their step.
- A tape, where one is laid, keeps what passed for audits and replays; without one nothing is copied.

A step is captured on a GPU and replayed, so a call does nothing on the host but check that steps were entered. On a CPU
calls are counted as well: one more than was entered is an error.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

import torch
from torch import Tensor

from dpot.errors import PrivacyError
from dpot.methods.kept import Kept
from dpot.methods.tape import Passed, Tape
from dpot.privacy.counts import check_drawable, count_deviation
from dpot.privacy.errors import POSITIVE, InvalidParameter, SamplerMismatch, number
from dpot.privacy.events import (
    CountGaussian,
    Event,
    FixedSizeSampled,
    Gaussian,
    NonPrivate,
    PoissonSampled,
    ProjectionGaussian,
    Sampled,
    StratifiedSampled,
)
from dpot.privacy.events import Sampler as Kind
from dpot.privacy.failures import failure_of
from dpot.privacy.ledger import Entry, Ledger
from dpot.privacy.noise import NoiseSource
from dpot.privacy.spending import Account
from dpot.record import name_of_code
from dpot.training.samplers import Sampler

Value = TypeVar("Value")
By = Callable[[Tensor, Tensor], Tensor]  # (value, noise in double precision) → the value made safe
SOME = 8  # of the releases that a rehearsal repeats are made one by one
SAME = 1e-9  # relative difference of two sampling rates that were computed in different ways


@dataclass(kw_only=True)
class Gate:
    """A ledger and the noise that goes with it: what whoever holds private records has."""

    ledger: Ledger
    noise: NoiseSource
    tape: Tape | None = None
    kept: Kept | None = None  # where releases that are made once lie; none: nowhere
    account: Account | None = None  # of these data over all runs, for other releases; none where they are public
    large_delta: bool = False  # run although δ is not below 1/records

    def __post_init__(self) -> None:
        records = self.private_records()
        if records:
            self.ledger.guard(records, self.large_delta)

    def private_records(self) -> int | None:
        """How many there are behind this gate; None: not known."""
        return None

    def release(
        self,
        event: Event,
        *,
        sampler: Sampler | None = None,
        steps: int = 1,
        source: str | None = None,
        unaccounted: float = 0.0,
    ) -> Release:
        """Open the gate for so many releases of the event.

        sampler: what draws the records of each; None: all of them are looked at. source: what the ledger calls it, by
        default the file that asks. unaccounted: a noise multiplier for NonPrivate, noise that no ε stands behind.
        """
        if source is None:
            asking = sys._getframe(1).f_globals.get("__name__", "unknown")
            source = f"{asking.replace('.', '/')}.py"
        return Release(self, event, sampler, steps, source, unaccounted)

    def keep_release(
        self,
        name: str,
        releases: Sequence[Release],
        make: Callable[[], dict[str, Tensor]],
        facts: dict[str, Any] | None = None,
    ) -> dict[str, Tensor]:
        """What `make` lets out through these releases: made once, and read back by every run that releases the same.

        They are entered in the ledger either way, and before anything is made. It holds whatever belongs to the release
        (public directions too: on another device the seed would give others). `facts` are kept beside it; those of a
        release that is read back take their place.
        """
        for release in releases:
            release.charge(1, kept=True)
        if self.kept is None:
            return make()
        facts = {} if facts is None else facts
        with self.kept.place(name, [release.entry(1) for release in releases]) as place:
            found = place.find()
            if found is None:
                place.begin()
                tensors = make()
                place.put(tensors, {"code": name_of_code(), "facts": facts})
            else:
                tensors, told = found
                facts.update(told["facts"])
                note_other_code(self.ledger, f"the release {name}", told["code"])
                for release in releases:
                    release._made += 1
        return {key: tensor.to(self.noise.device) for key, tensor in tensors.items()}


class Release:
    """A way out of the gate for one kind of value; call it with what should leave.

    noise_multiplier: noise over sensitivity; 0 without noise.
    """

    def __init__(
        self, gate: Gate, event: Event, sampler: Sampler | None, steps: int, source: str, unaccounted: float
    ) -> None:
        self.event, self.steps, self.source, self._gate = event, steps, source, gate
        self._bare = isinstance(event, NonPrivate)
        if unaccounted and not self._bare:
            raise InvalidParameter(f"{source}: the noise of {type(event).__name__} is the event's own")
        inside = event.event if isinstance(event, Sampled) else event
        self._whole = isinstance(inside, CountGaussian)
        self._sigma: float | None = None  # where the event has it, and the sensitivity with it
        if isinstance(inside, NonPrivate):
            self.noise_multiplier = unaccounted
        elif isinstance(inside, Gaussian):
            self.noise_multiplier = inside.noise_multiplier
        elif isinstance(inside, ProjectionGaussian):
            self.noise_multiplier, self._sigma = inside.sigma / inside.diameter, inside.sigma
        else:
            raise InvalidParameter(f"{source}: the gate draws no noise for {type(inside).__name__}")
        self._drawn, self._sampler = self._agreed(sampler), sampler
        if gate.tape is not None and sampler is not None:
            gate.tape.watch(sampler)
        self._failure = 0.0 if sampler is None or self._bare else failure_of(sampler.facts())
        self._charged = self._made = 0
        ledger = gate.ledger
        priced = steps > 1 and not self._bare and ledger.budget.epsilon is not None
        if priced and not ledger.affords(event, steps, self._failure):
            raise PrivacyError(
                f"{steps} steps with this noise exceed the budget of epsilon={ledger.budget.epsilon:g}, which allows "
                f"{ledger.affordable(event, self._failure)}: take fewer steps, more noise (or let it be calibrated), "
                "or raise privacy.epsilon"
            )

    def _agreed(self, sampler: Sampler | None) -> Kind:
        """How the records are drawn, held against the event."""
        event, ledger = self.event, self._gate.ledger
        sound = ledger.budget.mode == "sound"
        drawn = Kind.FULL if sampler is None else Kind(sampler.name)
        if self._bare:
            return event.sampler if sound else drawn  # no noise: no sampler helps
        if drawn is not event.sampler:
            if sound:
                raise SamplerMismatch(
                    f"{self.source}: records are drawn by {drawn} sampling and priced as {event.sampler} sampling; "
                    "price the sampler that runs"
                )
            return drawn  # the ledger states it
        facts = {} if sampler is None else sampler.facts()
        for name, priced in _priced(event).items():
            if not _same(facts[name], priced):
                reason = f"{self.source}: the sampler has {name}={facts[name]} and is priced as {name}={priced}"
                if sound:
                    raise SamplerMismatch(f"{reason}; price the sampler that runs")
                ledger.note_unsound(reason)
        return drawn

    def charge(self, count: int, *, kept: bool = False) -> None:
        """Enter so many releases that are about to be made: the engine's `before`.

        The first time, all steps are entered in the account of these data, unless whoever keeps the release does it.
        """
        self._gate.ledger.charge(
            self.event, count=count, source=self.source, sampler=self._drawn, failure=self._failure
        )
        if self._gate.account and not kept and not self._charged:
            self._gate.account.begin(self._gate.account.numbered(self.source), [self.entry(max(count, self.steps))])
        self._charged += count

    def entry(self, count: int) -> Entry:
        """So many of these releases, as a ledger has them."""
        return Entry(self.event, self.source, self._drawn, count)

    def deviation(self, sensitivity: float | None = None) -> float:
        """The standard deviation of the noise on a value that one record moves by so much at most."""
        if self._sigma is not None:
            return self._sigma
        if not self.noise_multiplier:
            return 0.0
        bound = number("sensitivity", sensitivity, POSITIVE)
        return count_deviation(bound, self.noise_multiplier) if self._whole else self.noise_multiplier * bound

    @overload
    def __call__(
        self,
        value: Tensor,
        sensitivity: float | None = None,
        *,
        by: By | None = None,
        rows: int | None = None,
        bounded: Tensor | None = None,
        public: Mapping[str, Tensor] | None = None,
    ) -> Tensor: ...

    @overload
    def __call__(
        self, value: Mapping[str, Tensor], sensitivity: float | Mapping[str, float] | None = None
    ) -> dict[str, Tensor]: ...

    def __call__(self, value: Any, sensitivity: Any = None, **more: Any) -> Any:
        """The value with its noise. Several tensors are one value: one record moves all of them together.

        sensitivity: how far one record moves the value, in L2 norm; the event has it for projections. Tensors with a
        sensitivity each are moved by 1 together when each is measured in its own.
        by: clips, or projects, and adds the noise in one go. rows: only so many of the first rows get noise; the others
        must not depend on a record. bounded, public: for the tape (see Passed).
        """
        if self._whole:  # before it is in the ledger
            for one in sensitivity.values() if isinstance(sensitivity, Mapping) else (sensitivity,):
                check_drawable(self.deviation(one), self.source)
        if isinstance(value, Tensor):
            self._admit(value.is_cuda)
            return self._pass(value, sensitivity, **more)
        self._admit(any(part.is_cuda for part in value.values()))
        if isinstance(sensitivity, Mapping):
            return self._parts(value, sensitivity)
        return _split(self._pass(_joined(value), sensitivity, by=_rounded_once), value)

    def again(self, value: Mapping[str, Tensor], sensitivity: float) -> dict[str, Tensor]:
        """Noise of the same size on what has left already: post-processing, which costs nothing."""
        self._admit(replayed=True)
        whole = _joined(value)
        return _split(_rounded_once(whole, self._noise(whole, self.deviation(sensitivity))), value)

    def bare(self, value: Value) -> Value:
        """Anything, as it is, under an event that says so."""
        if not self._bare:
            raise PrivacyError(f"{self.source}: {type(self.event).__name__} does not pass without noise")
        self._admit(replayed=True)
        return value

    def _admit(self, replayed: bool) -> None:
        """Nothing passes that is not in the ledger. `replayed`: calls cannot be counted."""
        if not self._charged:
            if self.steps > 1:
                raise PrivacyError(
                    f"{self.source}: a release that is not in the ledger; give the engine before=release.charge"
                )
            self.charge(1)
        if replayed or self._bare or torch.compiler.is_compiling():
            return
        self._made += 1
        if self._made > self._charged:
            raise PrivacyError(f"{self.source}: {self._made} releases were made and {self._charged} are in the ledger")

    def _noise(self, like: Tensor, deviation: float) -> Tensor:
        if self._whole:
            if like.dtype.is_floating_point:
                raise InvalidParameter("only whole numbers can be released as counts")
            return self._gate.noise.discrete_gaussian(like.shape, deviation)
        if not deviation:
            return torch.zeros(like.shape, dtype=torch.float64, device=like.device)
        return self._gate.noise.normal(like.shape, deviation, torch.float64)

    def _pass(
        self,
        value: Tensor,
        sensitivity: float | None,
        *,
        by: By | None = None,
        rows: int | None = None,
        bounded: Tensor | None = None,
        public: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        deviation, tape = self.deviation(sensitivity), self._gate.tape
        if by is None and tape is None and not deviation:
            return value
        noise, by = self._noise(value[:rows], deviation), by or _plainly
        if tape is None:
            return by(value, noise)
        clean = by(value.detach(), torch.zeros_like(noise))[:rows]
        noisy = tape.answer(by(value, tape.heard(noise)))
        left = noisy[:rows].detach().clone()
        if sensitivity is None:  # the event has it
            sensitivity = deviation / self.noise_multiplier if deviation else 1.0
        moved = clean if bounded is None else bounded.detach().clone()
        whole, safe = value.detach().clone(), by

        def again(count: int, values: Tensor | None = None) -> Tensor:
            drawn = tape.heard(self._noise(clean.expand(count, *clean.shape), deviation))
            added = _rounded_once((clean if values is None else values).expand(drawn.shape).contiguous(), drawn)
            if safe in (_plainly, _rounded_once):
                return added
            some = torch.stack([safe(whole, one)[:rows] for one in drawn[:SOME]])
            if torch.allclose(some, added[:SOME]):  # it clips the value and adds the noise, one after the other
                return added
            return torch.cat([some, *(safe(whole, one)[None, :rows] for one in drawn[SOME:])])

        given = dict(public or {})
        kept = Passed(self.event, self.source, clean, left, sensitivity, deviation, moved, given, self._sampler, again)
        tape.keep(kept)
        return noisy

    def _parts(self, values: Mapping[str, Tensor], sensitivities: Mapping[str, float]) -> dict[str, Tensor]:
        tape, noisy = self._gate.tape, {}
        for name, value in values.items():
            noise = self._noise(value, self.deviation(sensitivities[name]))
            noisy[name] = _plainly(value, noise if tape is None else tape.heard(noise))
        if tape is None:
            return noisy
        clean, left = _joined(values), tape.answer(_joined(noisy))
        units = _joined(
            {name: torch.full_like(part, sensitivities[name], dtype=torch.float64) for name, part in values.items()}
        )

        def again(count: int, _: Tensor | None = None) -> Tensor:
            parts = [
                _plainly(value, tape.heard(self._noise(value.expand(count, *value.shape), self.deviation(bound))))
                for value, bound in ((value, sensitivities[name]) for name, value in values.items())
            ]
            return torch.cat([part.flatten(1) for part in parts], 1)

        kept = Passed(
            self.event, self.source, clean, left, units, self.noise_multiplier, clean, {}, self._sampler, again
        )
        tape.keep(kept)
        return _split(left, values)


def _plainly(value: Tensor, noise: Tensor) -> Tensor:
    return value + noise.to(value)


def _rounded_once(value: Tensor, noise: Tensor) -> Tensor:
    """The sum in double precision, rounded to the value's."""
    return torch.add(value, noise, out=torch.empty_like(value))


def _joined(parts: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([part.flatten() for part in parts.values()])


def _split(whole: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    pieces = whole.split([part.numel() for part in like.values()])
    return {name: piece.view_as(part) for (name, part), piece in zip(like.items(), pieces, strict=True)}


def _priced(event: Event) -> dict[str, Any]:
    """What an event says of how its records are drawn, by the names of a sampler's facts."""
    if isinstance(event, PoissonSampled):
        return {"rate": event.rate}
    if isinstance(event, FixedSizeSampled):
        return {"batch": event.batch, "population": event.population}
    if isinstance(event, StratifiedSampled):
        return {"per_class": list(event.batches), "class_sizes": list(event.class_sizes)}
    return {}


def _same(found: Any, priced: Any) -> bool:
    return math.isclose(found, priced, rel_tol=SAME) if isinstance(priced, float) else bool(found == priced)


def note_other_code(ledger: Ledger, what: str, code: str | None) -> None:
    """Say that something in this statement was made by other code than the present, if it was."""
    if code != name_of_code():
        made = f"{what}, made by other code ({code or 'not known which'})"
        ledger.note_uncovered(f"{made}: noise and samplers are described as the present code has them")
