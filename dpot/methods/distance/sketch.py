"""A sliced distance between two parties with an ε: one noisy sketch from each, everything else is post-processing.

Public: k directions u_1..u_k, uniform on the sphere, and a grid of B + 1 knots a distance h apart over [-c, c]. A party
clips its records to ‖x‖ ≤ R and releases, once, for every direction the mean of the hat functions of its projections,

    w_li = Σ_r a_r·φ_i(⟨u_l, x_r⟩) + noise,   Σ_i φ_i = 1,   a_r public weights (1/n).

One record has k feature vectors of norm ≤ 1 and non-negative entries. Replacing it moves the release by at most
√(2k)·max a_r: one Gaussian mechanism, priced exactly, for any number of comparisons with any number of parties. The
size n and the weights are public.

What is compared. The cumulated weights are the averages of the CDF over the cells of the grid, h·F̄_i = ∫_cell F, so
for the noiseless sketch Σ_i h|F̄_i - Ḡ_i| is at most W_1 = ∫|F - G| (Jensen), and less by at most the second term
below.

The bracket for SW_1 = E_u W_1(u#μ, u#ν), u uniform on the sphere, at rate 1 - β. With D̂_l = h Σ_i |F̂_li - Ĝ_li|:

- discretisation: in a cell |∫|F - G| - |∫(F - G)|| ≤ (h/2)·max(f, g) for cell masses f, g, together at most h.
- range: a projection of a fixed unit vector exceeds z/√d with probability at most 2·exp(-(d-1)z²/2d) over the
  direction; c = R·z/√d is chosen so that all k(n + m) projections stay inside except with probability β/10.
- noise bias: E|Δ + N| lies between |Δ| and |Δ| + s√(2/π) for N ~ N(0, s²), so E D̂_l is at most b above the truth, with
  b = h Σ_i s_i √(2/π) known from the noise alone.
- noise and directions: the D̂_l are independent and identically distributed (own direction, own noise). Their mean is
  within q·sd(D̂)/√k of its expectation, q the Student quantile with k - 1 degrees of freedom: a normal approximation
  of a mean of k terms, tested for its coverage, not proved.

So SW_1 is in [D̂ - b - q·sd/√k, D̂ + h + q·sd/√k]. For the average over the k directions in use there is a bracket
without any approximation (`along_low`, `along_high`): D̂ is a Lipschitz function of Gaussian noise and deviates from
its expectation by more than L·τ with probability at most 2exp(-τ²/2) (Tsirelson, Ibragimov & Sudakov 1976).

The value reported is D̂ on the knots that hold mass, after a shrinkage that keeps the frequencies of F - G above the
noise (`window`, `shrunk_length`), put into the bracket: post-processing of the same release. `kind=cramer` reports
the root of E_u ∫(F - G)² instead, whose square is the energy distance up to a constant (Székely & Rizzo 2013): there
the noise bias is subtracted exactly, at the price of a wider allowance for the discretisation: h/4·Σ max(f, g)² ≤ h/2
on the square.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from scipy import stats
from torch import Tensor

from dpot.errors import UsageError
from dpot.methods.distance.parties import SERVER, Distance, Estimate, Log, Party, check_together, clipped
from dpot.privacy.budget import Budget
from dpot.privacy.calibration import find_sigma
from dpot.privacy.events import Gaussian
from dpot.privacy.noise import NoiseSource
from dpot.ranges import Count, Positive, Probability
from dpot.transport.directions import uniform_directions
from dpot.transport.exact import Measure
from dpot.transport.sliced import project, sliced_wasserstein

Kind = Literal["wasserstein", "cramer"]


@dataclass(frozen=True)
class Grid:
    """What both parties agree on beforehand; nothing of it is taken from the data."""

    directions: Tensor  # (k, d), unit rows
    cells: int
    reach: float  # c: the grid covers [-c, c]
    clip: float  # R: records are clipped to this norm

    @property
    def width(self) -> float:
        """h, the distance between knots."""
        return 2 * self.reach / self.cells


@dataclass(frozen=True)
class Made:
    """A sketch that a party has released, and the grid that it lies on."""

    grid: Grid
    noisy: Tensor
    deviation: float


def hat_features(projections: Tensor, grid: Grid) -> Tensor:
    """φ_i of every projection (k, n): (k, n, B + 1), non-negative, summing to 1, at most two neighbours non-zero."""
    position = ((projections.clamp(-grid.reach, grid.reach) + grid.reach) / grid.width).unsqueeze(-1)
    knots = torch.arange(grid.cells + 1, dtype=projections.dtype)
    return (1 - (position - knots).abs()).clamp(min=0)


def sketch(data: Measure, grid: Grid) -> Tensor:
    """The noiseless sketch (k, B + 1): weighted means of the hat functions along every direction."""
    projections = project(clipped(data, grid.clip).points, grid.directions)
    return torch.stack([data.weights @ hat_features(row, grid) for row in projections.split(1)]).flatten(0, -2)


class SketchDistance(Distance):
    """SW_1 (or the sliced Cramér distance) from two one-shot sketches; an ε for each party.

    clip is R, in the units of the data and public; null takes √d, the norm of an image of pixels in [-1, 1]. cells:
    null balances h against the noise by a rule that knows the sizes and ε only.
    """

    private = True

    def __init__(
        self,
        directions: Count = 32,
        cells: Count | None = None,
        clip: Positive | None = None,
        kind: Kind = "wasserstein",
        failure: Probability = 0.05,
        label_scale: Positive | None = None,
        noise_seed: int | None = None,
    ) -> None:
        if directions < 2:
            raise UsageError("directions: at least 2, the bracket needs their spread")
        self.k, self.cells, self.clip, self.kind, self.failure = directions, cells, clip, kind, failure
        self.label_scale, self.noise_seed = label_scale, noise_seed

    def estimate(self, first: Party, second: Party, random: torch.Generator, budget: Budget) -> Estimate:
        """Agree on a grid, release, compare. A sketch that was made before is used again, on its grid."""
        check_together(first, second)
        multiplier = find_sigma(Gaussian, 1, budget)
        name = self._name(multiplier, 0 if self.label_scale is None else max(first.classes, second.classes))
        known = [party.made[name].grid for party in (first, second) if name in party.made]
        if len(known) == 2 and known[0] is not known[1]:
            raise UsageError(
                f"{first.name} and {second.name} have released sketches on different grids, which cannot be compared; "
                "compare both with the same third party first, so that all have one grid"
            )
        grid = known[0] if known else self.grid(first, second, multiplier, random)
        log, both = Log(), (first.name, second.name)
        log.send(SERVER, both, "directions", grid.directions)
        released, deviations = [], []
        for number, party in enumerate((first, second)):
            sent, deviation = self.release(party, grid, multiplier, budget, number)
            log.send(party.name, (SERVER, both[1 - number]), f"sketch {party.name}", sent)
            released.append(sent)
            deviations.append(deviation)
        estimate = self.compare(released[0], released[1], math.hypot(*deviations), grid, log)
        return replace(estimate, rate=1 - self._failure(grid, first.size + second.size))

    def exact(self, first: Party, second: Party, directions: int = 500) -> float:
        """What is estimated, without noise, grid or a bracket: to judge the method, never to be shown to anybody."""
        clip = self._clip(first.dimension)
        classes = max(first.classes, second.classes)
        clouds = [clipped(party.labelled(self.label_scale, classes), clip) for party in (first, second)]
        public = torch.Generator().manual_seed(directions)
        u = uniform_directions(directions, clouds[0].points.shape[1], public, dtype=torch.float64)
        x, y = clouds
        if self.kind == "wasserstein":
            return float(sliced_wasserstein(x.points, y.points, u, 1.0, x.weights, y.weights))
        return float(sliced_cramer(x, y, u))

    def _clip(self, dimension: int) -> float:
        clip = self.clip if self.clip is not None else math.sqrt(dimension)
        return clip if self.label_scale is None else math.hypot(clip, self.label_scale)

    def grid(self, first: Party, second: Party, multiplier: float, random: torch.Generator) -> Grid:
        """The public grid: directions by the seed of the experiment, range and cells by rule."""
        labels = 0 if self.label_scale is None else max(first.classes, second.classes)
        d, total = first.dimension + labels, first.size + second.size
        clip = self._clip(first.dimension)
        # 2·k·N·exp(-(d-1)z²/2d) = β/10; a projection never exceeds the norm itself
        z = math.sqrt(2 * d / max(d - 1, 1) * math.log(20 * self.k * total / self.failure))
        reach = clip * min(1.0, z / math.sqrt(d))
        cells = self.cells
        if cells is None:
            # h/2 = c/B beside b ≈ 2c·.44·√B·(noise of one weight): the sum is least at B^{3/2} = 2/(.88·noise)
            noise = multiplier * math.sqrt(self.k) * math.hypot(first.heaviest, second.heaviest)
            cells = max(8, min(256, round((2 / (0.88 * noise)) ** (2 / 3))))
        return Grid(uniform_directions(self.k, d, random, dtype=torch.float64), cells, reach, clip)

    def _failure(self, grid: Grid, total: int) -> float:
        """How often the bracket fails; a grid that was made for fewer records is too narrow a little more often."""
        d = grid.directions.shape[1]
        z = grid.reach / grid.clip * math.sqrt(d)
        outside = 0.0 if grid.reach >= grid.clip else 2 * self.k * total * math.exp(-(d - 1) * z * z / (2 * d))
        return self.failure if outside <= self.failure / 10 * (1 + 1e-9) else 0.9 * self.failure + outside

    def release(self, party: Party, grid: Grid, multiplier: float, budget: Budget, number: int) -> tuple[Tensor, float]:
        """The noisy sketch of a party and the standard deviation of its noise; charged before it is made, and once."""
        noise = NoiseSource(None if self.noise_seed is None else self.noise_seed + number)
        gate = party.open_gate(budget, noise)
        labels = grid.directions.shape[1] - party.dimension
        name = self._name(multiplier, labels)
        if name not in party.made:
            gate.ledger.note_uncovered("the number of records and their weights, which are public")
            release = gate.release(Gaussian(multiplier), source=f"{party.name}: sketch of {self.k} projections")
            exact = sketch(party.labelled(self.label_scale, labels), grid)
            sensitivity = math.sqrt(2 * self.k) * party.heaviest
            party.made[name] = Made(grid, release(exact, sensitivity), release.deviation(sensitivity))
        made: Made = party.made[name]
        return made.noisy, made.deviation

    def _name(self, multiplier: float, labels: int) -> str:
        """What one sketch of a party has in common with another that may take its place."""
        terms = (self.k, self.cells, self.clip, self.label_scale, labels, multiplier)
        return f"sketch {terms!r}"

    def compare(self, first: Tensor, second: Tensor, deviation: float, grid: Grid, log: Log) -> Estimate:
        """The distance and its bracket from two released sketches; no data are touched any more."""
        difference = first - second
        difference = difference - difference.mean(1, keepdim=True)  # both sum to 1 without noise
        cumulated = difference.cumsum(1)[:, :-1]  # (k, B): F̂ - Ĝ on the cells
        index = torch.arange(1, grid.cells + 1, dtype=torch.float64)
        bridge = deviation * (index * (1 - index / (grid.cells + 1))).sqrt()  # s_i
        if self.kind == "cramer":
            value, low, high, details = self._cramer(cumulated, bridge, grid)
        else:
            start, stop = window(first, second)
            focus = (first - second)[:, start:stop]
            value, low, high, details = self._wasserstein(cumulated, focus, bridge, deviation, grid)
        details |= {"cells": grid.cells, "reach": grid.reach, "noise": deviation, "clip": grid.clip}
        truth = "sliced W_1 of the clipped clouds" if self.kind == "wasserstein" else "sliced Cramér distance"
        return Estimate(value, 1.0, log, low, high, 1 - self.failure, truth, details)

    def _margin(self, values: Tensor, share: float) -> float:
        """q·sd/√k for a two-sided failure of `share`·β."""
        quantile = float(stats.t.ppf(1 - share * self.failure / 2, self.k - 1))
        return quantile * float(values.std()) / math.sqrt(self.k)

    def _wasserstein(
        self, cumulated: Tensor, focus: Tensor, bridge: Tensor, deviation: float, grid: Grid
    ) -> tuple[Any, ...]:
        along = grid.width * cumulated.abs().sum(1)  # D̂_l
        bias = grid.width * float(bridge.sum()) * math.sqrt(2 / math.pi)
        mean, margin = float(along.mean()), self._margin(along, 0.9)
        low, high = max(0.0, mean - bias - margin), mean + grid.width + margin
        shrunk = grid.width * shrunk_length(focus, deviation)
        proved = self._lipschitz(deviation, grid) * math.sqrt(2 * math.log(2 / (0.9 * self.failure)))
        details = {
            "unshrunk": mean,
            "noise_bias_at_most": bias,
            "discretisation_at_most": grid.width,
            "sampling_margin": margin,
            "along_low": max(0.0, mean - bias - proved),
            "along_high": mean + grid.width + proved,
        }
        return min(max(shrunk, low), high), low, high, details

    def _lipschitz(self, deviation: float, grid: Grid) -> float:
        """How much D̂ moves per standard deviation of the noise: h·√B·‖C‖/√k, C the centred cumulated sum."""
        size = grid.cells + 1
        centre = torch.eye(size, dtype=torch.float64) - 1 / size
        cumulate = torch.ones(size, size, dtype=torch.float64).tril()[:-1] @ centre
        norm = float(torch.linalg.matrix_norm(cumulate, 2))
        return grid.width * math.sqrt(grid.cells) * norm * deviation / math.sqrt(self.k)

    def _cramer(self, cumulated: Tensor, bridge: Tensor, grid: Grid) -> tuple[Any, ...]:
        squares = grid.width * (cumulated.square() - bridge.square()).sum(1)  # unbiased along every direction
        mean, margin = float(squares.mean()), self._margin(squares, 0.9)
        allowance = grid.width / 2
        low, high = math.sqrt(max(0.0, mean - margin)), math.sqrt(max(0.0, mean + margin + allowance))
        details = {"square": mean, "sampling_margin": margin, "discretisation_at_most": allowance}
        return min(max(math.sqrt(max(mean, 0.0)), low), high), low, high, details


def sliced_cramer(x: Measure, y: Measure, directions: Tensor) -> Tensor:
    """The root of the mean over directions of ∫(F - G)², exactly, from the merged jumps of both CDFs."""
    values = torch.cat((project(x.points, directions), project(y.points, directions)), 1)
    jumps = torch.cat((x.weights, -y.weights)).expand_as(values)
    order = values.argsort(1)
    difference = jumps.gather(1, order).cumsum(1)[:, :-1]
    gaps = values.gather(1, order).diff(dim=1)
    return (difference.square() * gaps).sum(1).mean().sqrt()


def window(first: Tensor, second: Tensor, tail: float = 0.002) -> tuple[int, int]:
    """The knots that hold all but `tail` of the mass on either side, by the average over directions and parties."""
    profile = ((first + second) / 2).mean(0).clamp(min=0).cumsum(0)
    profile = profile / profile[-1]
    inside = (profile > tail) & (profile < 1 - tail)
    inside = inside.nonzero().flatten()
    if len(inside) < 2:
        return 0, len(profile)
    return max(0, int(inside[0]) - 1), min(len(profile), int(inside[-1]) + 3)


def shrunk_length(difference: Tensor, deviation: float) -> float:
    """Mean over the directions of Σ_i |F_i - G_i| from noisy differences of weights, without most of the noise.

    In the sine basis the noise of a centred cumulated sum (a discrete Brownian bridge) is independent, with variance
    s²/(4 sin²(πm/2(B+1))) at frequency m. A frequency whose energy over all directions is within two standard
    deviations of the noise is left out, the others are scaled by their share of signal (Wiener). What noise is left
    in them still lengthens the differences; by how much is measured by adding fresh noise and shrinking again
    (bootstrap).
    """
    k, knots = difference.shape
    m = torch.arange(1, knots, dtype=torch.float64)
    basis = math.sqrt(2 / knots) * torch.sin(math.pi * m[:, None] * m[None] / knots)  # orthonormal
    noise = (deviation / (2 * torch.sin(math.pi * m / (2 * knots)))).square()

    def shrunk(coefficients: Tensor) -> Tensor:
        energy = coefficients.square().mean(0)
        share = torch.where(energy > noise * (1 + 2 * math.sqrt(2 / k)), (energy - noise) / energy, 0.0)
        return coefficients * share

    centred = (difference - difference.mean(1, keepdim=True)).cumsum(1)[:, :-1]
    kept, public = shrunk(centred @ basis), torch.Generator().manual_seed(0)
    lengths = [
        shrunk(kept + noise.sqrt() * torch.randn(kept.shape, generator=public, dtype=torch.float64)) @ basis
        for _ in range(20)
    ]
    once, again = (kept @ basis).abs().sum(1).mean(), torch.stack(lengths).abs().sum(2).mean()
    return max(0.0, float(2 * once - again))
