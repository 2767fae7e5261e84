"""TriangleWad (Li, Huang, Wang & Pang 2024): the distance through a third measure γ, the defence data.

Each party sends its interpolation with γ, η_μ = (1 - t)·μ + t·γ along an optimal plan, and W_p(η_μ, η_ν)/(1 - t) is the
estimate (dpot/transport/geodesic.py says how good it is). There is no ε: dpot/papers/triangle_wad/attacks
shows what the messages give away. With secret=false γ is public, as when a server hands it out; with secret=true only
the two parties know it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch

from dpot.errors import DataError, UsageError
from dpot.methods.distance.direct_wad import Order
from dpot.methods.distance.parties import SERVER, Distance, Estimate, Log, Party, check_together
from dpot.privacy.budget import Budget
from dpot.ranges import Count, NonNegative, Range
from dpot.regular import open_regular
from dpot.transport.checks import check_cloud
from dpot.transport.exact import Measure
from dpot.transport.geodesic import Scale, Support, measure, scaled_back, triangle_error_bound, wasserstein

Defence = Literal["ones", "random", "given"]
Time = Annotated[float, Range(above=0, below=1)]


class TriangleWad(Distance):
    """One exchange: γ to both parties, η_μ and η_ν back.

    gamma: `ones` (the constant data of the published zero-gap rows), `random` (N(0, sigma²)) or `given` (the argument
    `defence`: a measure, or the name of a .npy file of points). scale: `right` divides by 1 - t, `printed` by t^p as
    the paper has it.
    """

    def __init__(
        self,
        p: Order = 2.0,
        t: Time = 0.5,
        gamma: Defence = "random",
        sigma: NonNegative = 1.0,
        size: Count | None = None,
        secret: bool = False,
        scale: Scale = "right",
        support: Support = "barycentric",
        defence: str | Measure | None = None,
    ) -> None:
        if (gamma == "given") != (defence is not None):
            raise UsageError("loss.gamma=given and loss.defence (a .npy file of points) go together")
        self.p, self.t, self.gamma, self.sigma, self.size = p, t, gamma, sigma, size
        self.secret, self.scale, self.support = secret, scale, support
        self.defence = _read(defence) if isinstance(defence, str) else defence

    def estimate(self, first: Party, second: Party, random: torch.Generator, budget: Budget) -> Estimate:
        """Draw γ, interpolate on both sides, compare what was sent."""
        check_together(first, second)
        log, both = Log(), (first.name, second.name)
        maker = first.name if self.secret else SERVER
        readers: tuple[str, ...] = (second.name,) if self.secret else both
        gamma = log.send(maker, readers, "gamma", self._draw(first, random))
        log.send(maker, (*readers, SERVER), "t", self.t)
        assert isinstance(gamma, Measure)
        etas = []
        for party in (first, second):
            release = party.release_bare(budget, "its interpolation with γ")
            shared = release.bare(party.towards(gamma, self.t, self.p, self.support))
            eta = log.send(
                party.name, (*(name for name in both if name != party.name), SERVER), f"eta {party.name}", shared
            )
            assert isinstance(eta, Measure)
            etas.append(eta)
        value = scaled_back(wasserstein(etas[0], etas[1], self.p), self.t, self.p, self.scale)
        return Estimate(
            value,
            self.p,
            log,
            details={"transports": 3, "error_bound": triangle_error_bound(self.t, gamma, self.p)},
        )

    def _draw(self, first: Party, random: torch.Generator) -> Measure:
        if self.defence is not None:
            if (columns := self.defence.points.shape[1]) != first.dimension:
                raise UsageError(f"loss.defence has {columns} columns, the parties' points have {first.dimension}")
            return self.defence
        shape = (self.size or first.size, first.dimension)
        if self.gamma == "ones":
            return measure(torch.ones(shape, dtype=torch.float64))
        return measure(self.sigma * torch.randn(shape, generator=random, dtype=torch.float64))


def _read(path: str) -> Measure:
    """Defence data from a file: an array (m, d) as NumPy saves it."""
    try:
        with open_regular(Path(path)) as file:
            points = torch.from_numpy(np.load(file, allow_pickle=False).astype(np.float64))
    except (DataError, OSError, ValueError, AttributeError, TypeError) as error:
        raise DataError(f"loss.defence={path}: no array of numbers could be read ({error})") from None
    check_cloud(points, f"loss.defence={path}", dims=(2,))
    return measure(points)
