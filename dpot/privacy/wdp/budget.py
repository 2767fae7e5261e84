"""What the Wasserstein and Bayesian accountants return: budgets of their own, no ε, that refuse to act as one.

A WDP budget is a transport distance in the unit of the output; an ε is a log-likelihood ratio. Adding, comparing or
converting them is a mistake of units, and a TypeError here. Neither can be made without saying what ε the same run
has (`Beside`), and printing one prints it.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from dpot.privacy.accountants import accounts, composed
from dpot.privacy.errors import InvalidParameter
from dpot.privacy.events import Event

EPSILON_ACCOUNTANTS = ("dpot_rdp_tight", "dp_accounting_pld")


@dataclass(frozen=True)
class Beside:
    """The ε of the same run: by each accountant that has one, or why none exists."""

    epsilons: Mapping[str, float]
    delta: float
    reason: str = ""

    @classmethod
    def of(cls, spending: Mapping[Event, int], delta: float) -> Beside:
        """RDP and PLD on the releases of a ledger."""
        if not spending:
            return cls({}, delta, "nothing was released")
        asked = accounts(composed(spending), delta, names=EPSILON_ACCOUNTANTS)
        found = {name: account.epsilon for name, account in asked.items() if account.epsilon is not None}
        reasons = "; ".join(dict.fromkeys(account.reason for account in asked.values() if account.reason))
        return cls(found, delta, "" if found else reasons)

    @classmethod
    def none(cls, reason: str, delta: float = 1e-5) -> Beside:
        """There is no ε, and why."""
        return cls({}, delta, reason)

    def __post_init__(self) -> None:
        if not self.epsilons and not self.reason:
            raise InvalidParameter("say what ε the run has, or why it has none")

    def __str__(self) -> str:
        if not self.epsilons:
            return f"no (ε, δ) guarantee exists: {self.reason}"
        words = {"dpot_rdp_tight": "RDP", "dp_accounting_pld": "PLD"}
        named = ", ".join(f"{words.get(name, name)} ε = {value:.4g}" for name, value in self.epsilons.items())
        return f"the same run has {named} at δ = {self.delta:g}"

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able data."""
        return {"epsilon": dict(self.epsilons), "delta": self.delta} | ({"reason": self.reason} if self.reason else {})


class NotAnEpsilon:
    """Refuses whatever would take it for an ε; budgets of one kind, order and terms can be compared."""

    what: ClassVar[str] = ""
    __hash__ = object.__hash__
    __array_ufunc__ = None  # numpy must ask us too

    @property
    def amount(self) -> float:
        """The number, for who knows what it is."""
        raise NotImplementedError

    def terms(self) -> tuple[Any, ...]:
        """What two budgets must share to be compared at all."""
        raise NotImplementedError

    def _refuse(self, doing: str, other: object = None) -> NoReturn:
        with_what = "" if other is None else f" with {type(other).__name__} {other!r}"
        raise TypeError(
            f"cannot {doing} a {self.what}{with_what}: it is not an ε and no valid conversion exists "
            f"({type(self).__name__}.beside holds the ε of the same run; docs/wdp.md)"
        )

    def _same(self, other: object) -> NotAnEpsilon:
        if type(other) is not type(self) or not isinstance(other, NotAnEpsilon):
            self._refuse("compare", other)
        if other.terms() != self.terms():
            raise TypeError(f"cannot compare budgets on different terms: {self.terms()} and {other.terms()}")
        return other

    def __eq__(self, other: object) -> bool:
        if isinstance(other, numbers.Number):
            self._refuse("compare", other)
        return type(other) is type(self) and self.__dict__ == other.__dict__

    def __lt__(self, other: object) -> bool:
        return self.amount < self._same(other).amount

    def __le__(self, other: object) -> bool:
        return self.amount <= self._same(other).amount

    def __gt__(self, other: object) -> bool:
        return self.amount > self._same(other).amount

    def __ge__(self, other: object) -> bool:
        return self.amount >= self._same(other).amount

    def __add__(self, other: object) -> NoReturn:
        self._refuse("add", other)

    def __sub__(self, other: object) -> NoReturn:
        self._refuse("subtract", other)

    def __mul__(self, other: object) -> NoReturn:
        self._refuse("multiply", other)

    def __truediv__(self, other: object) -> NoReturn:
        self._refuse("divide", other)

    __radd__, __rsub__, __rmul__, __rtruediv__ = __add__, __sub__, __mul__, __truediv__

    def __float__(self) -> NoReturn:
        self._refuse("convert to a number")

    def __int__(self) -> NoReturn:
        self._refuse("convert to a number")

    def __format__(self, spec: str) -> str:
        if spec:
            self._refuse(f"format as a number ({spec})")
        return str(self)


@dataclass(frozen=True, eq=False)
class WassersteinBudget(NotAnEpsilon):
    """(μ, W)-WDP after composition, with the tail −ln δ/β of Theorem 1 where δ is given: W is in output units.

    What the paper calls its (ε, δ). Theorem 1 does not hold (dpot/papers/wdp/claims.py), so this is for reproduction
    only.
    """

    what: ClassVar[str] = "Wasserstein budget"
    order: float
    distance: float
    beside: Beside
    delta: float | None = None
    beta: float | None = None

    @property
    def amount(self) -> float:
        """The printed number: W, or W − ln δ/β."""
        return self.distance + self.floor

    @property
    def floor(self) -> float:
        """−ln δ/β: what the formula gives at no distance at all, whatever the noise."""
        return 0.0 if self.delta is None or self.beta is None else -math.log(self.delta) / self.beta

    def terms(self) -> tuple[Any, ...]:
        """Order and tail."""
        return self.order, self.delta, self.beta

    def __str__(self) -> str:
        tail = f", of which the floor −ln δ/β = {self.floor:.4g} (δ = {self.delta}, β = {self.beta})"
        return (
            f"Wasserstein budget {self.amount:.4g} of order μ = {self.order:g} in output units"
            f"{tail if self.floor else ''}; not an ε, not a guarantee. Beside it: {self.beside}"
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able data; no key of it is called epsilon but that of the same run's ε."""
        own = {"kind": "wasserstein", "order": self.order, "distance": self.distance, "floor": self.floor}
        return own | {"delta": self.delta, "beta": self.beta, "amount": self.amount, "beside": self.beside.to_dict()}


@dataclass(frozen=True, eq=False)
class BayesianBudget(NotAnEpsilon):
    """(ε_μ, δ_μ)-Bayesian DP (Triastcyn & Faltings 2020): holds on average over the data distribution that was sampled.

    Not an ε either: a record that the distribution finds unlikely has no protection stated.
    """

    what: ClassVar[str] = "Bayesian budget"
    order: int
    bayesian_epsilon: float
    delta: float
    confidence: float
    beside: Beside

    @property
    def amount(self) -> float:
        """ε_μ."""
        return self.bayesian_epsilon

    def terms(self) -> tuple[Any, ...]:
        """Order and δ_μ."""
        return self.order, self.delta, self.confidence

    def __str__(self) -> str:
        return (
            f"Bayesian budget ε_μ = {self.bayesian_epsilon:.4g} at δ_μ = {self.delta:g} (order λ = {self.order:g}), on "
            f"average over the sampled gradients; not an ε. Beside it: {self.beside}"
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able data."""
        own = {"kind": "bayesian", "order": self.order, "bayesian_epsilon": self.bayesian_epsilon, "delta": self.delta}
        return own | {"confidence": self.confidence, "beside": self.beside.to_dict()}


@dataclass(frozen=True, eq=False)
class ClaimedEpsilon(NotAnEpsilon):
    """What the paper says ε would be, by a step that does not hold."""

    what: ClassVar[str] = "claimed ε"
    claimed: float
    by: str
    beside: Beside

    @property
    def amount(self) -> float:
        """The claim."""
        return self.claimed

    def terms(self) -> tuple[Any, ...]:
        """Who claims it."""
        return (self.by,)

    def __str__(self) -> str:
        return f"ε = {self.claimed:.4g} claimed by {self.by}, which is false. Beside it: {self.beside}"
