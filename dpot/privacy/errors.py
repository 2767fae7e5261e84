"""What can be wrong with a privacy argument, each with a name; and the checks that raise it."""

from __future__ import annotations

import math
import numbers

from dpot.errors import PrivacyError
from dpot.ranges import Range


class InvalidParameter(PrivacyError):
    """A parameter outside its range: δ = 0, α ≤ 1, k = 0, q > 1, NaN."""

    exit_code = 2  # what was asked for is impossible, as with any wrong setting


class AdjacencyMismatch(PrivacyError):
    """Guarantees for different neighbouring relations cannot be added up."""


class SamplerMismatch(PrivacyError):
    """The sampler that ran is not the sampler the event is priced with."""


class BudgetExceeded(PrivacyError):
    """The charge would spend more than the budget; nothing was done."""


class UnsupportedEvent(PrivacyError):
    """This accountant has no valid bound for the event; the message says why."""


class UnknownEvent(PrivacyError):
    """A stored event that this version cannot read."""


class CalibrationFailed(PrivacyError):
    """No value of the missing parameter reaches the target."""


class LedgerMismatch(PrivacyError):
    """A stored ledger was kept under other terms than the one that should continue it."""


POSITIVE = Range(above=0)
COUNT = Range(at_least=1)
PROBABILITY = Range(above=0, below=1)
RATE = Range(above=0, at_most=1)
ORDER = Range(above=1)


def number(name: str, value: object, admitted: Range, *, finite: bool = True) -> float:
    """The value as a float inside the range, or InvalidParameter that names it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidParameter(f"{name} must be a number, got {value!r}")
    result = float(value)
    if not admitted.holds(result) or (finite and math.isinf(result)):
        raise InvalidParameter(f"{name} must be {admitted.describe()} and finite, got {value}")
    return result


def whole(name: str, value: object, admitted: Range = COUNT) -> int:
    """The value as an integer inside the range, or InvalidParameter that names it."""
    result = number(name, value, admitted)
    if not result.is_integer():
        raise InvalidParameter(f"{name} must be a whole number, got {value}")
    return int(result)
