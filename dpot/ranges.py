"""Ranges for configuration values, written into the signatures of the components they configure.

`def __init__(self, epsilon: Positive)` is all the schema there is: the launcher reads it and refuses
`epsilon=-1` with one line that names the key (see dpot/config.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True)
class Range:
    """An interval a number must lie in; None is no bound on that side."""

    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None

    def describe(self) -> str:
        """The interval in words: 'more than 0 and less than 1'."""
        parts = [
            f"{word} {bound:g}"
            for word, bound in (
                ("more than", self.above),
                ("at least", self.at_least),
                ("less than", self.below),
                ("at most", self.at_most),
            )
            if bound is not None
        ]
        return " and ".join(parts)

    def holds(self, value: float) -> bool:
        """Whether value lies inside. NaN never does."""
        return not math.isnan(value) and all(
            (
                self.above is None or value > self.above,
                self.at_least is None or value >= self.at_least,
                self.below is None or value < self.below,
                self.at_most is None or value <= self.at_most,
            )
        )


Count = Annotated[int, Range(at_least=1)]
NonNegativeInt = Annotated[int, Range(at_least=0)]
Positive = Annotated[float, Range(above=0)]
NonNegative = Annotated[float, Range(at_least=0)]
Probability = Annotated[float, Range(above=0, below=1)]  # δ, failure probabilities
Fraction = Annotated[float, Range(at_least=0, at_most=1)]  # shares, sampling ratios
