"""Parties that hold data and exchange messages; every message is logged, and the log is what an attacker gets.

A `Party` keeps its points to itself: its methods compute on them and give back only what the protocol sends. Nothing
reaches another party except through `Log.send`, which copies it. `Log.view(reader)` is the threat model: what somebody
who follows the protocol, and then is curious, has seen.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from dpot.errors import PrivacyError, UsageError
from dpot.methods.gate import Gate, Release
from dpot.methods.work import Loss, statement_of
from dpot.privacy.budget import Budget
from dpot.privacy.events import NonPrivate
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.privacy.spending import Account
from dpot.privacy.statement import Statement
from dpot.transport.checks import check_cloud, normalised_weights
from dpot.transport.exact import Measure
from dpot.transport.geodesic import Support, interpolate, measure, wasserstein

SERVER = "server"
Content = Measure | Tensor | float


@dataclass(frozen=True)
class Message:
    """Who sent what to whom."""

    sender: str
    receivers: tuple[str, ...]
    name: str
    content: Content

    def describe(self) -> dict[str, Any]:
        """The envelope without the content."""
        content = self.content
        shape = list(content.points.shape) if isinstance(content, Measure) else list(getattr(content, "shape", ()))
        return {"from": self.sender, "to": list(self.receivers), "what": self.name, "shape": shape}


class Log:
    """All messages of a protocol, in order."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def send(self, sender: str, receivers: tuple[str, ...], name: str, content: Content) -> Content:
        """Log a message and hand a copy of its content to the receivers."""
        if isinstance(content, Measure):
            content = Measure(content.points.clone(), content.weights.clone())
        elif isinstance(content, Tensor):
            content = content.clone()
        self.messages.append(Message(sender, receivers, name, content))
        return content

    def view(self, reader: str) -> dict[str, Content]:
        """What `reader` sent or received; of messages with the same name, the last."""
        return {m.name: m.content for m in self.messages if reader == m.sender or reader in m.receivers}

    def describe(self) -> list[dict[str, Any]]:
        """The envelopes, for a record."""
        return [message.describe() for message in self.messages]


class Party:
    """Somebody with private points, their weights and labels, and a gate of their own with its ledger."""

    def __init__(
        self, name: str, points: Tensor, weights: Tensor | None = None, labels: Tensor | None = None, classes: int = 0
    ) -> None:
        points = points.double()
        check_cloud(points, f"points of {name}", dims=(2,))
        if labels is not None and labels.shape != points.shape[:1]:
            raise UsageError(f"labels of {name} have shape {tuple(labels.shape)}: give one per point, ({len(points)},)")
        self.name = name
        self.size, self.dimension = points.shape
        # a negative weight would outweigh `heaviest`, on which the noise of a release rests
        public = None if weights is None else normalised_weights(weights.double(), points, f"weights of {name}")
        self._data = measure(points, public)
        self._labels = labels
        self.classes = classes or (0 if labels is None else int(labels.max()) + 1)  # public
        self.heaviest = float(self._data.weights.max())  # the weights are public
        self.gate: Gate | None = None
        self.account: Account | None = None  # of these records over all runs; none where they are public
        self.made: dict[str, Any] = {}  # what was released once and is used again, by its name

    def open_gate(self, budget: Budget, noise: NoiseSource) -> Gate:
        """The gate of this party: one ledger for all that is ever released about its records.

        Another ε is taken as a budget that was raised (or lowered); on other terms releases do not add up.
        """
        if self.gate is None:
            self.gate = Gate(ledger=Ledger.of(budget), noise=noise, account=self.account)
        elif budget != self.gate.ledger.budget:
            ledger = Ledger.of(budget)
            ledger.load_state_dict(self.gate.ledger.state_dict())
            self.gate.ledger = ledger
        if noise.reproducible != self.gate.noise.reproducible:
            raise PrivacyError(f"{self.name}: noise with a fixed seed and noise without one, in one statement")
        self.gate.noise = noise
        self.gate.ledger.guard(self.size)
        return self.gate

    def release_bare(self, budget: Budget, what: str) -> Release:
        """Open the gate for `what` without any noise: no ε covers it."""
        return self.open_gate(budget, NoiseSource()).release(NonPrivate(what), source=f"{self.name}: {what}")

    @property
    def ledger(self) -> Ledger:
        """What was released about this party's records, once its gate was opened."""
        assert self.gate is not None
        return self.gate.ledger

    def statement(self) -> Statement:
        """What was released about this party."""
        assert self.gate is not None
        return statement_of(self.gate.ledger, self.gate.noise, [], self.account)

    def points(self) -> Measure:
        """The data themselves, for DirectWad only: everything is given away."""
        return self._data

    def clipped(self, norm: float) -> Measure:
        """The data with every record scaled down to the norm, for a noisy release of the party itself."""
        return clipped(self._data, norm)

    def labelled(self, scale: float | None, classes: int) -> Measure:
        """The data with scale·onehot(label) beside them, for a release of the party itself; without: the data."""
        if scale is None:
            return self._data
        if self._labels is None:
            raise UsageError(f"{self.name} has no labels: leave label_scale out")
        onehot = torch.nn.functional.one_hot(self._labels, classes).double()
        return Measure(torch.cat((self._data.points, scale * onehot), 1), self._data.weights)

    def towards(self, other: Measure, t: float, p: float, support: Support) -> Measure:
        """The interpolation between the own data (t = 0) and `other` (t = 1)."""
        return interpolate(self._data, other, t, p, support)

    def distance_to(self, other: Measure, p: float) -> float:
        """W_p between the own data and `other`."""
        return wasserstein(self._data, other, p)


@dataclass
class Estimate:
    """What a protocol found: a distance of order p with its root taken, perhaps with a bracket, and the log."""

    value: float
    p: float
    log: Log
    low: float | None = None  # the bracket, where there is one
    high: float | None = None
    rate: float | None = None  # how often the bracket covers the truth
    truth: str = "W_p of the two clouds"
    details: dict[str, Any] = field(default_factory=dict)


class Distance(Loss, ABC):
    """A method that estimates a distance between two parties: what `loss=` names for task=distance."""

    tasks: ClassVar[tuple[str, ...]] = ("distance",)
    private: ClassVar[bool] = False  # whether it keeps an ε

    @abstractmethod
    def estimate(self, first: Party, second: Party, random: torch.Generator, budget: Budget) -> Estimate:
        """Run the protocol. `random` follows the seed of the experiment, privacy noise never does."""


def clipped(data: Measure, norm: float) -> Measure:
    """Every point scaled down to a norm of at most `norm`."""
    factors = (norm / data.points.norm(dim=1).clamp(min=norm)).unsqueeze(1)
    return Measure(data.points * factors, data.weights)


def check_together(first: Party, second: Party) -> None:
    """Refuse clouds of different dimension."""
    if first.dimension != second.dimension:
        raise UsageError(
            f"{first.name} has {first.dimension} columns and {second.name} {second.dimension}: no distance between them"
        )
