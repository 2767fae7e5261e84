"""Tables by their marginals: all histograms of one and of two columns, released once, then fitted freely.

1. Each column's histogram over its finest cells (ages one by one, every country): bins follow from what was released.
2. Within each class of the label, the counts of every pair of columns over these bins.
3. A mixture of product distributions per class (dpot/models/product_mixture.py) is fitted to both.

Only 1 and 2 touch the records, as whole numbers with discrete Gaussian noise. One record is in exactly one cell of a
histogram or of a pair, whatever its class, so replacing it moves k of them by √(2k) in L2 at most, and one record more
moves them by √k. Both releases compose exactly to the noise multiplier that the budget allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from dpot.methods.generate.base import Method, Problem
from dpot.methods.sketch.blocks import (
    class_sizes,
    denoised,
    histograms,
    make_bins,
    nearest_histogram,
    shares_inside,
    smoothed,
)
from dpot.methods.sketch.counters import Cells, Pairs, records_of, total_of
from dpot.models.product_mixture import Column, ProductMixture
from dpot.privacy import calibration
from dpot.privacy.events import Adjacency, CountGaussian, Gaussian
from dpot.ranges import Count, Fraction, Positive
from dpot.training.engine import Outcome
from dpot.training.schedules import Cosine

ROUNDING = 1 + 1e-9  # shares are split in double precision
HISTOGRAM_SHARE = 0.3
COUNT_PER_BIN = 3  # an average cell of a pair's block, in noise deviations: decides the number of bins
MOST_BINS, LEAST_BINS, ALL_BINS = 20, 4, 800  # of a column; of all columns together
LEAST_SIGNAL = COUNT_PER_BIN * LEAST_BINS  # below this the lines of the sliced sketch say more
RARE = 3  # deviations: fewer records in a cell than this could be noise
STEPS, LEAST_STEPS, MOST_STEPS = 16, 400, 800  # by the root of the signal: a longer fit learns more of the noise
COMPONENTS, WORK = 1000, 2e8  # components of all classes together, fewer where there are many bins
FLOOR, SPREAD = 1e-4, 1.0  # of the first probabilities; of the first logits
SOURCE = "dpot/methods/sketch/marginals.py"


def signal(records: int, classes: int, columns: int, mu: float) -> float:
    """Records of a class over the noise in a cell of a pair's block: public, decides between marginals and lines."""
    pairs = max(1, columns * (columns - 1) // 2)
    return records / classes * mu * math.sqrt((1 - HISTOGRAM_SHARE) / (2 * pairs))


@dataclass(frozen=True)
class Marginals:
    """All that was released of a table."""

    records: int  # public
    cells: Tensor  # the noisy histograms of all columns and of the label, one after the other
    gram: Tensor  # (classes, bins, bins), noisy; zero within a column
    bin_of: Tensor  # of every cell of every column
    bins: list[int]
    cell_deviation: float
    deviation: float  # of the noise in `gram`

    @property
    def edges(self) -> list[slice]:
        """Where each column's bins lie."""
        ends = [0]
        for count in self.bins:
            ends.append(ends[-1] + count)
        return [slice(*pair) for pair in pairwise(ends)]


class MarginalSketch(Method):
    """Release and fit, for a table whose encoded records have these columns (dpot/models/product_mixture.py).

    share: of the budget (of μ²) for the histograms. most: bins of a column. steps, components: of the fit.
    neighbours: replace-one, or add-remove; with the latter too the number of records is taken to be public.
    """

    tasks = ("synthesize",)

    def __init__(
        self,
        columns: Sequence[Column],
        share: Fraction = HISTOGRAM_SHARE,
        most: Count | None = None,
        steps: Count | None = None,
        components: Count = COMPONENTS,
        learning_rate: Positive = 0.1,
        neighbours: Adjacency = Adjacency.REPLACE_ONE,
    ) -> None:
        self.columns, self.share, self.most, self.steps = list(columns), share, most, steps
        self.components, self.learning_rate, self.neighbours = components, learning_rate, neighbours
        self.released: Marginals | None = None
        self.sizes = torch.zeros(0)  # of the classes, as released

    def fit(self, problem: Problem) -> Outcome:
        """Release, then fit; problem.generator becomes the mixture."""
        self.released = self.release_marginals(problem)
        problem.ledger.note_uncovered(
            "the rules that set the marginal sketch's parameters were found on Adult's training records, outside this "
            "budget"
        )
        return self.fit_to(problem, self.released)

    def release_marginals(self, problem: Problem) -> Marginals:
        """Both looks at the records."""
        multiplier = calibration.find_sigma(Gaussian, 1, problem.budget) * ROUNDING
        columns, classes, records = self.columns, problem.classes, records_of(problem)
        most = self.most or self.bins_by_rule(records, classes, 1 / multiplier)
        pairs = len(columns) * (len(columns) - 1) // 2
        blocks = len(columns) + (classes > 1)
        share = self.share if pairs else 1.0
        moved = 2 if self.neighbours is Adjacency.REPLACE_ONE else 1
        for_cells = self._open(problem, multiplier / math.sqrt(share), "histograms of single columns")
        reach = math.sqrt(moved * blocks)
        releases = [for_cells]
        if pairs:
            releases.append(self._open(problem, multiplier / math.sqrt(1 - share), "pairs of columns by class"))
        deviation = for_cells.deviation(reach)

        def make() -> dict[str, Tensor]:
            counted = self._count_cells(problem)
            noisy = for_cells(counted, reach)
            bin_of = self._bins(noisy, most, deviation, records)
            if not pairs:
                return {"cells": noisy, "bin_of": bin_of}
            gram = self._count_pairs(problem, bin_of)
            above = self._above(bin_of)
            out = torch.zeros_like(gram)
            out[:, above] = releases[1](gram[:, above], math.sqrt(moved * pairs))
            return {"cells": noisy, "bin_of": bin_of, "gram": out}

        kept = problem.keep_release("marginals", releases, make)
        bins = [int(part.max()) + 1 for part in kept["bin_of"].split([c.values for c in columns])]
        gram = kept.get("gram", torch.zeros(classes, sum(bins), sum(bins), dtype=torch.int64, device=problem.device))
        return Marginals(
            records=records,
            cells=kept["cells"],
            gram=(gram + gram.transpose(1, 2)).double(),
            bin_of=kept["bin_of"],
            bins=bins,
            cell_deviation=deviation,
            deviation=releases[-1].deviation(math.sqrt(moved * pairs)) if pairs else deviation,
        )

    def bins_by_rule(self, records: int, classes: int, mu: float) -> int:
        """So many bins per column that an average cell of a block holds 3 noise deviations; fewer in wide tables."""
        strength = signal(records, classes, len(self.columns), mu)
        most = round(math.sqrt(strength / COUNT_PER_BIN))
        return max(LEAST_BINS, min(MOST_BINS, most, ALL_BINS // len(self.columns)))

    def fit_to(self, problem: Problem, released: Marginals) -> Outcome:
        """A fresh mixture for problem.generator; no records are looked at."""
        columns, classes, edges = self.columns, problem.classes, released.edges
        records = released.records
        parts = list(released.cells.double().split([c.values for c in columns] + [classes] * (classes > 1)))
        maps = released.bin_of.split([c.values for c in columns])
        first = parts.pop() if classes > 1 else torch.tensor([float(records)], dtype=torch.float64)
        own = [
            torch.zeros(count, dtype=torch.float64).index_add_(0, m, part)
            for count, m, part in zip(released.bins, maps, parts, strict=True)
        ]
        if len(columns) > 1:
            sizes = class_sizes(released.gram, edges, released.deviation, first, released.cell_deviation)
            sizes = nearest_histogram(sizes, records).clamp(min=1e-6 * records)
            variances = [released.cell_deviation**2 * torch.bincount(m).double() for m in maps]
            marginals = histograms(released.gram, edges, released.deviation, sizes, own, variances)
            blocks = denoised(released.gram, edges, released.deviation, sizes, marginals)
        else:
            sizes = nearest_histogram(first, records).clamp(min=1e-6 * records)
            marginals = sizes[:, None] / records * nearest_histogram(own[0], records)[None]
            blocks = torch.zeros_like(released.gram)
        self.sizes = sizes
        model = self._model(problem, released, marginals, sizes, parts, records)
        strength = records / classes / released.deviation
        steps = max(LEAST_STEPS, min(MOST_STEPS, round(STEPS * math.sqrt(strength))))
        outcome = self._train(problem, model, blocks / records, marginals / records, sizes / records, steps)
        problem.generator = model
        return outcome

    def _train(
        self, problem: Problem, model: ProductMixture, blocks: Tensor, marginals: Tensor, sizes: Tensor, steps: int
    ) -> Outcome:
        column_of = torch.repeat_interleave(torch.arange(len(model.bins)), torch.tensor(model.bins))
        between = (column_of[:, None] != column_of[None]).float()
        shares = sizes.float()[:, None, None]
        wanted, histogram = blocks.float() * between, marginals.float()
        optimizer = torch.optim.Adam(model.parameters(), lr=self.learning_rate)

        def step() -> dict[str, Tensor]:
            p = model.probabilities()
            pairs = (p.transpose(1, 2) @ p) * (shares / model.components)
            loss = ((pairs - wanted) * between).square().sum() / 2
            loss = loss + (shares[:, 0] * p.mean(1) - histogram).square().sum()
            loss.backward()
            optimizer.step()
            return {"loss": loss}

        steps = problem.steps(self.steps or steps)
        return problem.build_engine(
            step, modules={"generator": model}, steps=steps, optimizer=optimizer, schedule=Cosine(steps)
        ).run()

    def _model(
        self,
        problem: Problem,
        released: Marginals,
        marginals: Tensor,
        sizes: Tensor,
        cells: list[Tensor],
        records: float,
    ) -> ProductMixture:
        components = min(self.components, int(WORK / sum(released.bins) ** 2)) // problem.classes
        model = ProductMixture(
            problem.classes, problem.generator.shape, self.columns, released.bins, max(20, components)
        )
        start = (marginals / sizes[:, None]).clamp(min=FLOOR).log().float()
        noise = torch.randn(model.logits.shape, generator=problem.random, device=problem.device)
        maps = released.bin_of.split([c.values for c in self.columns])
        inside = []
        for column, noisy, bins in zip(self.columns, cells, maps, strict=True):
            clean = self._clean(column, noisy, released.cell_deviation)
            inside.append(shares_inside(clean, bins, 0.0 if column.is_number else released.cell_deviation))
        with torch.no_grad():
            model.logits.copy_(start[:, None] + SPREAD * noise)
            model.bin_of.copy_(released.bin_of)
            model.inside.copy_(torch.cat(inside))
        return model.to(problem.device)

    def _open(self, problem: Problem, multiplier: float, what: str):  # type: ignore[no-untyped-def]
        return problem.release(CountGaussian(multiplier, self.neighbours), source=f"{SOURCE}: {what}")

    def _count_cells(self, problem: Problem) -> Tensor:
        """Histograms of all columns, then of the label, one after the other."""
        return total_of(problem)(Cells(columns=self.columns, classes=problem.classes))

    def _bins(self, noisy: Tensor, most: int, deviation: float, records: int) -> Tensor:
        found = []
        for column, own in zip(self.columns, noisy.double().split(self._sizes(noisy)), strict=False):
            shares = nearest_histogram(self._clean(column, own, deviation), records) / records
            found.append(make_bins(shares, column.is_number, most, RARE * deviation / records, column.gap is not None))
        return torch.cat(found)

    def _clean(self, column: Column, noisy: Tensor, deviation: float) -> Tensor:
        """The column's histogram with less noise; a gap is no neighbour of a number."""
        clean = smoothed(noisy[: column.cells], deviation, column.is_number)
        return torch.cat([clean, noisy[column.cells :].double()])

    def _sizes(self, noisy: Tensor) -> list[int]:
        sizes = [column.values for column in self.columns]
        return sizes + ([len(noisy) - sum(sizes)] if len(noisy) > sum(sizes) else [])

    def _count_pairs(self, problem: Problem, bin_of: Tensor) -> Tensor:
        """(classes, bins, bins): how many records of the class are in both bins."""
        counted = total_of(problem)(Pairs(columns=self.columns, classes=problem.classes, bin_of=bin_of))
        above = counted.view(problem.classes, *self._above(bin_of).shape)
        return above + above.transpose(1, 2).tril(-1)

    def _above(self, bin_of: Tensor) -> Tensor:
        """Which entries of a Gram matrix belong to a pair of different columns, each pair once."""
        bins = [int(m.max()) + 1 for m in bin_of.split([c.values for c in self.columns])]
        column_of = torch.repeat_interleave(torch.arange(len(bins)), torch.tensor(bins))
        return column_of[:, None] < column_of[None]
