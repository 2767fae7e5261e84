"""DirectWad: one party sends its points to the other, which computes W_p. The reference, and no privacy at all."""

from __future__ import annotations

from typing import Annotated

import torch

from dpot.methods.distance.parties import Distance, Estimate, Log, Party, check_together
from dpot.privacy.budget import Budget
from dpot.ranges import Range
from dpot.transport.exact import Measure

Order = Annotated[float, Range(at_least=1)]


class DirectWad(Distance):
    """W_p(μ, ν) by exact transport on the raw points."""

    def __init__(self, p: Order = 2.0) -> None:
        self.p = p

    def estimate(self, first: Party, second: Party, random: torch.Generator, budget: Budget) -> Estimate:
        """The first party's points go to the second."""
        check_together(first, second)
        log = Log()
        given = first.release_bare(budget, "all its points").bare(first.points())
        points = log.send(first.name, (second.name,), "points", given)
        assert isinstance(points, Measure)
        value = second.release_bare(budget, "the distance").bare(second.distance_to(points, self.p))
        log.send(second.name, (first.name,), "distance", value)
        return Estimate(value, self.p, log, details={"transports": 1})
