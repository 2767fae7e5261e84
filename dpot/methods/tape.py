"""The tape: what passed the gate (gate.py), for audits and replays. None is laid unless an audit does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dpot.privacy.events import Event
from dpot.training.samplers import Draw, Sampler

Again = Callable[..., Tensor]  # (count, values=None) → so many more releases of the value, or of others like it


@dataclass(frozen=True)
class Passed:
    """One release as the gate saw it. Holds private values."""

    event: Event
    source: str
    value: Tensor  # before the noise
    noisy: Tensor  # as it left
    sensitivity: float | Tensor  # as stated; of parts with one each, that of every number
    deviation: float  # of the noise, as stated; of such parts, in units of their sensitivities
    bounded: Tensor  # what one record moves by the sensitivity at most: the value, unless the method names another
    public: Mapping[str, Tensor]  # what is known beside it, such as the directions of a projection
    sampler: Sampler | None  # what drew its records; None: all of them were looked at
    again: Again  # the same code with other noise: a rehearsal, which no ledger enters

    def in_units(self, numbers: Tensor) -> Tensor:
        """Numbers like the value: parts with a sensitivity each are divided by it, anything else is left as it is."""
        numbers = numbers.double().flatten()
        return numbers / self.sensitivity if isinstance(self.sensitivity, Tensor) else numbers


class Ended(Exception):
    """All that was to be heard of a run has passed."""


@dataclass
class Tape:
    """What passed, in order.

    strength: of the noise; 1 is as the event says, 0 is off. answers: what another run let out; it leaves here in the
    place of the run's own, so that a method whose later questions depend on earlier answers asks the same ones.
    ends: the last of the answers ends the run. draw: what every sampler draws, instead of drawing.
    """

    strength: float = 1.0
    answers: Sequence[Tensor] | None = None
    ends: bool = False
    draw: Draw | None = None
    passed: list[Passed] = field(default_factory=list)

    def watch(self, sampler: Sampler) -> None:
        """Let the sampler draw what the tape says, where it says something."""
        if (fixed := self.draw) is not None:
            sampler.draw = lambda: fixed  # type: ignore[method-assign]

    def keep(self, one: Passed) -> None:
        """Put a release on the tape."""
        self.passed.append(one)
        if self.ends and self.answers is not None and len(self.passed) == len(self.answers):
            raise Ended

    def heard(self, noise: Tensor) -> Tensor:
        """The noise at the tape's strength."""
        return noise if self.strength == 1 else (noise * self.strength).to(noise.dtype)

    def answer(self, own: Tensor) -> Tensor:
        """What leaves: the run's own value, or in its first rows the next answer of the other run."""
        if self.answers is None:
            return own
        given = self.answers[len(self.passed)].flatten()
        return torch.cat([given, own.flatten()[len(given) :]]).view_as(own)
