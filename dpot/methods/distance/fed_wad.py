"""FedWad (Rakotomamonjy, Nadjahi & Ralaivola 2023): the distance through a measure that moves onto the geodesic.

    ξ_μ = between(μ, γ),  ξ_ν = between(γ, ν),  γ ← between(ξ_μ, ξ_ν);   after K rounds  W_p(μ, γ) + W_p(γ, ν)

Each round the server sends γ and gets ξ_μ, ξ_ν; at the end the parties send their two distances. With t fixed at ½,
as in TriangleWad's tables, the estimate stays above the distance; a random t in each round, the authors' own default,
brings it down to it. There is no ε, and at the end γ lies on the geodesic: who knows one end computes the other
(dpot/papers/triangle_wad/attacks).
"""

from __future__ import annotations

import torch

from dpot.methods.distance.direct_wad import Order
from dpot.methods.distance.parties import SERVER, Distance, Estimate, Log, Party, check_together
from dpot.methods.distance.triangle_wad import Time
from dpot.privacy.budget import Budget
from dpot.ranges import Count, NonNegative
from dpot.transport.exact import Measure
from dpot.transport.geodesic import Support, interpolate, measure


class FedWad(Distance):
    """K rounds of three interpolations. t: null draws it uniformly in every round."""

    def __init__(
        self,
        p: Order = 2.0,
        rounds: Count = 20,
        t: Time | None = 0.5,
        size: Count | None = None,
        sigma: NonNegative = 1.0,
        support: Support = "barycentric",
    ) -> None:
        self.p, self.rounds, self.t, self.size, self.sigma, self.support = p, rounds, t, size, sigma, support

    def estimate(self, first: Party, second: Party, random: torch.Generator, budget: Budget) -> Estimate:
        """Iterate, then add the two distances to γ."""
        check_together(first, second)
        bare = {p.name: p.release_bare(budget, "its interpolations with γ in every round") for p in (first, second)}
        log, both = Log(), (first.name, second.name)
        shape = (self.size or first.size, first.dimension)
        gamma = measure(self.sigma * torch.randn(shape, generator=random, dtype=torch.float64))
        for _ in range(self.rounds):
            t = self.t if self.t is not None else 0.05 + 0.9 * float(torch.rand((), generator=random))
            log.send(SERVER, both, "gamma", gamma)
            log.send(SERVER, both, "t", t)
            parts = []
            for party, s in ((first, t), (second, 1 - t)):
                part = bare[party.name].bare(party.towards(gamma, s, self.p, self.support))  # on the party's own points
                sent = log.send(party.name, (SERVER,), f"xi {party.name}", part)
                assert isinstance(sent, Measure)
                parts.append(sent)
            gamma = interpolate(parts[0], parts[1], t, self.p, self.support)
        log.send(SERVER, both, "gamma", gamma)
        halves = []
        for party in (first, second):
            half = bare[party.name].bare(party.distance_to(gamma, self.p))
            log.send(party.name, (SERVER, *(name for name in both if name != party.name)), f"half {party.name}", half)
            halves.append(half)
        return Estimate(sum(halves), self.p, log, details={"transports": 3 * self.rounds + 2, "halves": halves})
