"""The privacy budget of a run, as `privacy=` configures it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from dpot.privacy.conversion import Conversion
from dpot.privacy.errors import POSITIVE, PROBABILITY, InvalidParameter, number
from dpot.privacy.rdp import Pricing
from dpot.privacy.sensitivity import Bound
from dpot.ranges import Positive, Probability

Mode = Literal["sound", "paper"]


@dataclass(frozen=True)
class Budget:
    """What may be spent, and on which terms.

    epsilon: null is no budget: a run without noise, or, for task=calibrate, the value to find.
    delta: null only for task=calibrate, as the value to find.
    bound: how far one record moves its projections; `exact`, `sharp` (less noise for small ε under sampling
        without replacement) and `worst` are sound, the others are the papers'.
    conversion: from Rényi to (ε, δ); `tight` (3-6% less noise at ε = 10), or `mironov` as in the papers; `pld` takes
        the distribution of the loss where there is one: Gaussian noise under Poisson sampling has a smaller ε by it.
    mode: `sound` refuses what no proof covers; `paper` does what the paper did and says so in the statement.
    """

    epsilon: Positive | None = 10.0
    delta: Probability | None = 1e-5
    bound: Bound = "exact"
    conversion: Conversion = "tight"
    mode: Mode = "sound"

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            number("epsilon", self.epsilon, POSITIVE)
        if self.delta is not None:
            number("delta", self.delta, PROBABILITY)
        if self.conversion not in ("mironov", "tight", "pld"):
            raise InvalidParameter(f"conversion must be mironov, tight or pld, got {self.conversion!r}")
        if self.mode not in ("sound", "paper"):
            raise InvalidParameter(f"mode must be sound or paper, got {self.mode!r}")
        Pricing.of(self.bound, 0.5 if self.delta is None else self.delta)

    @property
    def is_private(self) -> bool:
        """Whether there is an ε to keep."""
        return self.epsilon is not None

    def less(self, failure: float) -> Budget:
        """What is left of δ beside the probability that a sampler fails: what noise is calibrated to.

        Paper mode leaves it as it is, for the papers did not look at this.
        """
        if self.mode == "paper" or self.delta is None:
            return self
        if failure >= self.delta:
            raise InvalidParameter(
                f"delta={self.delta:g} does not cover what the samplers may fail by, {failure:.3g}: take fewer steps"
            )
        return replace(self, delta=self.delta - failure)

    @property
    def pricing(self) -> Pricing:
        """How events are priced on these terms."""
        return Pricing.of(self.bound, number("delta", self.delta, PROBABILITY))
