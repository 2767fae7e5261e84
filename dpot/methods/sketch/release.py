"""The private side of the sliced sketch: records are counted in whole numbers, and the counts are released with noise.

    sketcher = Sketcher(total, shape, classes, plan, noise_multiplier, gate)
    release = sketcher.open(share, "bins")       # a share of the budget
    counts = sketcher.bins(map, layout, release) # how the records are spread along lines and over planes

Three kinds of release, each a Gaussian mechanism on whole numbers (dpot/privacy/counts.py), with the noise multiplier
z/√share, so that together they are one with multiplier z. Neighbours: one record, label included, is another one (or is
there or not, see below).

1. norms, a soft histogram of the records' lengths in the public subspace (1% of the budget): sensitivity √2.
2. moments: c = record in the subspace, clipped to length R. Σc has sensitivity 2R; Σccᵀ has √2·R² in Frobenius norm,
   as ‖ccᵀ - ddᵀ‖² = |c|⁴ + |d|⁴ - 2(c·d)² ≤ 2R⁴. The Frobenius norm counts an entry off the diagonal twice, so noise
   σ on the diagonal and σ/√2 above it is the Gaussian mechanism of scale σ at that sensitivity.
3. bins on lines and planes: √(2k) (features.py).

Where neighbours differ in one record more or less, the number of records is released first, with sensitivity 1, and one
vector in the place of two moves the others: by 1, R, R² and √k.

What is counted, and where the records lie, is a matter of `total` (counters.py): they are read several times as a
stream, by this process or by others. Noise and ledger are here, where the sums come together, and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from dpot.methods.gate import Gate, Release
from dpot.methods.sketch.counters import COEFFICIENT_GRID, NORM_KNOTS, Bins, Lengths, MomentSums, Total
from dpot.methods.sketch.directions import Moments, public_basis
from dpot.methods.sketch.features import UNIT, Layout, RecordMap
from dpot.methods.sketch.rules import Plan
from dpot.privacy.counts import check_drawable, count_deviation
from dpot.privacy.discrete import LARGEST_DEVIATION
from dpot.privacy.events import Adjacency, CountGaussian
from dpot.transport.directions import ImageShape

CLIPPED_SHARE = 1 / 3  # of the records are longer than the clipping bound
MEAN_SHARE = 0.2  # of the moments' budget goes to the mean
SOURCE = "dpot/methods/sketch/release.py"


class Sketcher:
    """Has the records counted and lets the counts out through the gate."""

    def __init__(
        self,
        total: Total,
        shape: ImageShape,
        classes: int,
        plan: Plan,
        noise_multiplier: float,
        gate: Gate,
        grid: int = 255,
    ) -> None:
        """`noise_multiplier` is that of all releases together; records are rounded to multiples of 1/grid."""
        self.total, self.shape, self.classes, self.plan, self.grid = total, shape, classes, plan, grid
        self.noise_multiplier, self.gate = noise_multiplier, gate

    def open(self, share: float, what: str) -> Release:
        """A release of this share of the budget."""
        return open_counts(self.gate, self.noise_multiplier / math.sqrt(share), what, self.plan.moved)

    def check(self, layouts: Sequence[tuple[float, Layout]]) -> None:
        """Refuse, before the first charge, what no exact noise could be drawn for; `layouts` with their shares.

        The clipping bound is not known yet: the largest that `norms` can give stands for all.
        """
        longest, moments = self._bound(NORM_KNOTS), self.plan.moment_share
        grid = coefficient_grid(longest, self.noise_multiplier / math.sqrt(moments * (1 - MEAN_SHARE)))
        for share, sensitivity in [
            (self.plan.norm_share, UNIT * math.sqrt(self.plan.moved)),
            (moments * MEAN_SHARE, float(self.plan.moved * math.floor(longest * grid))),
            (moments * (1 - MEAN_SHARE), _square_sensitivity(longest, grid, self.plan.moved)),
            *((share, layout.reach(self.plan.moved)) for share, layout in layouts),
        ]:
            check_drawable(count_deviation(sensitivity, self.noise_multiplier / math.sqrt(share)), SOURCE)

    def _bound(self, knot: int) -> float:
        return (knot + 1) / (NORM_KNOTS - 1) * math.sqrt(math.prod(self.shape))

    def norms(self, release: Release) -> float:
        """The clipping bound R: the length that two records in three do not exceed, from the noisy histogram."""
        counts = self.total(Lengths(shape=self.shape, grid=self.grid))
        noisy = release(counts, UNIT * math.sqrt(self.plan.moved)).double().clamp(min=0)
        below = noisy.cumsum(0) / noisy.sum().clamp(min=1)
        knot = int((below < 1 - CLIPPED_SHARE).sum())
        return self._bound(knot)

    def moments(self, bound: float, for_mean: Release, for_square: Release) -> tuple[Tensor, Tensor, Tensor]:
        """Noisy sums (number of records, Σc, Σccᵀ) of the coefficients, clipped to length `bound`.

        In units of 1/coefficient_grid and of its square. The number of records is public under replacement.
        """
        grid = coefficient_grid(bound, for_square.noise_multiplier)
        limit = math.floor(bound * grid)
        counter = MomentSums(shape=self.shape, grid=self.grid, parts=grid, limit=limit)
        seen, total, square = MomentSums.split(self.total(counter), len(public_basis(self.shape)))
        total = for_mean(total, self.plan.moved * limit)
        above = torch.triu(torch.ones_like(square, dtype=torch.bool), 1)
        sensitivity = _square_sensitivity(bound, grid, self.plan.moved)
        parts = for_square(
            {"diagonal": square.diagonal().clone(), "above": square[above]},
            {"diagonal": sensitivity, "above": sensitivity / math.sqrt(2)},
        )
        noisy = torch.zeros_like(square)
        noisy[above] = parts["above"]
        return seen, total, noisy + noisy.T + torch.diag(parts["diagonal"])

    def bins(self, record_map: RecordMap, layout: Layout, release: Release) -> Tensor:
        """Noisy counts (classes, bins) in units of 1/256 record."""
        counted = self.total(Bins(record_map=record_map, layout=layout, classes=self.classes))
        return release(counted.view(self.classes, layout.bins), layout.reach(self.plan.moved))


def coefficient_grid(bound: float, noise_multiplier: float) -> int:
    """In how many parts a unit of length is cut: 64, or the largest power of 2 for which exact noise can be drawn.

    The noise on the second moments grows with the square of R in these parts (64×64 colours at ε = 1 are too long for
    64). What is known here has been released, or is public. 1, if none is small enough: `check` refuses it.
    """
    grid = COEFFICIENT_GRID
    while grid > 1 and count_deviation(_square_sensitivity(bound, grid), noise_multiplier) > LARGEST_DEVIATION:
        grid //= 2
    return grid


def _square_sensitivity(bound: float, grid: int, moved: int = 2) -> float:
    """√2·R² in units of 1/grid²: how far one record moves Σccᵀ in Frobenius norm; R² for one more or less."""
    return math.sqrt(moved) * math.floor(bound * grid) ** 2


def open_counts(gate: Gate, noise_multiplier: float, what: str, moved: int) -> Release:
    """A way out for whole numbers, for neighbours that differ in a replaced record (2 moved) or in one more (1)."""
    adjacency = Adjacency.REPLACE_ONE if moved == 2 else Adjacency.ADD_REMOVE
    return gate.release(CountGaussian(noise_multiplier, adjacency), source=f"{SOURCE}: {what}")


def release_number(gate: Gate, records: int, noise_multiplier: float) -> tuple[int, float]:
    """(the number of records with noise, at least 1; the deviation of the noise): it is moved by 1 by one more."""
    release = open_counts(gate, noise_multiplier, "number of records", 1)

    def make() -> dict[str, Tensor]:
        return {"number": release(torch.tensor([records], device=gate.noise.device), 1.0)}

    found = gate.keep_release("sketch-number", [release], make)
    return max(1, int(found["number"])), release.deviation(1.0)


def read_moments(
    released: tuple[Tensor, Tensor, Tensor],
    shape: ImageShape,
    bound: float,
    noise_multiplier: float,
    records: int | None = None,
) -> Moments:
    """Mean and covariance from the noisy sums; `noise_multiplier` is that of the second moments.

    records: as many as the noisy number says, where neighbours differ in the number; then the noise is less, too.
    """
    seen, total, square = released
    count = max(1, int(seen) if records is None else records)
    grid = coefficient_grid(bound, noise_multiplier)
    mean = total.double() / (count * grid)
    second = square.double() / (count * grid**2)
    noise = bound**2 * noise_multiplier / count * (1.0 if records is None else math.sqrt(0.5))
    covariance = second - torch.outer(mean, mean)
    basis = public_basis(shape).to(total.device)
    return Moments(basis, mean.float(), covariance.float(), noise)


def class_counts(noisy: Tensor, layout: Layout, records: int, doubt: float = 0.0) -> Tensor:
    """How many records each class has, as the noisy bins say; together they are the public number of records.

    Every line's and plane's bins sum to 256 per record: k measurements of the same number. What the sum of all
    classes is off is noise, shared out equally (the least-squares answer). doubt: the variance of the noise in
    `records` over that of a class's total; the sum is then drawn to it by as much as least squares says.
    """
    totals = noisy.double().sum(1) / (layout.unit * layout.pieces)
    return totals + (records - totals.sum()) / (len(totals) + doubt)
