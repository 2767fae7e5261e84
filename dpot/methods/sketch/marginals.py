"""Tables by their marginals: all histograms of one and of two columns, released once, then fitted freely.

1. Each column's histogram over its finest cells (ages one by one, every country): bins follow from what was released.
2. Within each class of the label, the counts of every pair of columns over these bins.
3. Once more, over all classes, the counts of those pairs that are related, as 2 shows: at most half of them.
4. A mixture of product distributions per class (dpot/models/product_mixture.py) is fitted to all of it.

Only 1 to 3 touch the records, as whole numbers with discrete Gaussian noise. One record is in exactly one cell of a
histogram or of a pair, whatever its class, so replacing it moves k of them by √(2k) in L2 at most, and one record more
moves them by √k. The releases compose exactly to the noise multiplier that the budget allows. Which pairs are related
is read from what was released, and costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from dpot.errors import UsageError
from dpot.methods.generate.base import Method, Problem
from dpot.methods.sketch.blocks import (
    class_sizes,
    histograms,
    make_bins,
    nearest_histogram,
    related_pairs,
    shares_inside,
    smoothed,
)
from dpot.methods.sketch.counters import Cells, Pairs, records_of, total_of
from dpot.models.product_mixture import Column, ProductMixture
from dpot.privacy import calibration
from dpot.privacy.events import Adjacency, CountGaussian, Gaussian
from dpot.ranges import Count, Fraction, NonNegative, Positive
from dpot.training.engine import Outcome
from dpot.training.schedules import Cosine

ROUNDING = 1 + 1e-9  # shares are split in double precision
HISTOGRAM_SHARE, SECOND_SHARE = 0.3, 0.3
COUNT_PER_BIN = 3  # an average cell of a pair's block, in noise deviations: decides the number of bins
MOST_BINS, LEAST_BINS, ALL_BINS = 20, 4, 800  # of a column; of all columns together
LEAST_SIGNAL = COUNT_PER_BIN * LEAST_BINS  # below this the lines of the sliced sketch say more
RARE = 3  # deviations: fewer records in a cell than this could be noise
STEPS, LEAST_STEPS, MOST_STEPS = 14, 300, 600  # by the root of the signal
COMPONENTS, WORK = 500, 2e8  # components of all classes together, fewer where there are many bins
INFORMATION = 600  # what a nat of dependence between columns costs, in units of the log-likelihood
FLOOR, SPREAD = 1e-4, 0.5  # of the first probabilities; of the first logits
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
    pooled: Tensor  # (bins, bins), noisy, over all classes; zero for pairs that are not `related`
    related: Tensor  # pairs of the second round, a·columns + b for a < b; empty: there was none
    pooled_deviation: float

    @property
    def edges(self) -> list[slice]:
        """Where each column's bins lie."""
        ends = [0]
        for count in self.bins:
            ends.append(ends[-1] + count)
        return [slice(*pair) for pair in pairwise(ends)]

    def is_related(self) -> Tensor:
        """(bins, bins): which entries of `pooled` were released."""
        return entries_of(self.bins, self.related.tolist())


class MarginalSketch(Method):
    """Release and fit, for a table whose encoded records have these columns (dpot/models/product_mixture.py).

    share, second: of the budget (of μ²) for the histograms and for the second round; rounds=1 leaves it out.
    most: bins of a column. steps, components, information: of the fit.
    neighbours: replace-one, or add-remove; with the latter too the number of records is taken to be public.
    """

    tasks = ("synthesize",)

    def __init__(
        self,
        columns: Sequence[Column],
        share: Fraction = HISTOGRAM_SHARE,
        second: Fraction = SECOND_SHARE,
        rounds: Count = 2,
        most: Count | None = None,
        steps: Count | None = None,
        components: Count = COMPONENTS,
        information: NonNegative = INFORMATION,
        learning_rate: Positive = 0.2,
        neighbours: Adjacency = Adjacency.REPLACE_ONE,
    ) -> None:
        if rounds > 2:
            raise UsageError(f"rounds={rounds}: this table is released by its marginals, in 1 or 2 rounds")
        self.columns, self.share, self.most, self.steps = list(columns), share, most, steps
        self.second = second if rounds == 2 and len(columns) > 2 else 0.0  # a single pair is not chosen
        self.components, self.information = components, information
        self.learning_rate, self.neighbours = learning_rate, neighbours
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
        """All looks at the records."""
        multiplier = calibration.find_sigma(Gaussian, 1, problem.budget) * ROUNDING
        columns, classes, records = self.columns, problem.classes, records_of(problem)
        most = self.most or self.bins_by_rule(records, classes, 1 / multiplier)
        pairs = len(columns) * (len(columns) - 1) // 2
        blocks = len(columns) + (classes > 1)
        share = self.share if pairs else 1.0
        moved = 2 if self.neighbours is Adjacency.REPLACE_ONE else 1
        for_cells = self._open(problem, multiplier / math.sqrt(share), "histograms of single columns")
        reach, pair_reach = math.sqrt(moved * blocks), math.sqrt(moved * pairs)
        releases = [for_cells]
        if pairs:
            own = multiplier / math.sqrt(1 - share - self.second)
            releases.append(self._open(problem, own, "pairs of columns by class"))
        if self.second:
            releases.append(self._open(problem, multiplier / math.sqrt(self.second), "related pairs of columns"))
        deviation = for_cells.deviation(reach)

        def make() -> dict[str, Tensor]:
            counted = self._count_cells(problem)
            noisy = for_cells(counted, reach)
            bin_of = self._bins(noisy, most, deviation, records)
            if not pairs:
                return {"cells": noisy, "bin_of": bin_of}
            gram, bins = self._count_pairs(problem, bin_of), self._bin_counts(bin_of)
            above, out = entries_of(bins), torch.zeros_like(gram)
            out[:, above] = releases[1](gram[:, above], pair_reach)
            if not self.second:
                return {"cells": noisy, "bin_of": bin_of, "gram": out}
            first = self._marginals(records, noisy, bin_of, out, deviation, releases[1].deviation(pair_reach))
            sizes, marginals, _ = self._histograms(first, classes)
            related = related_pairs(first.gram, first.edges, first.deviation, sizes, marginals, math.ceil(pairs / 2))
            again, pooled = entries_of(bins, related), torch.zeros_like(gram[0])
            pooled[again] = releases[2](gram.sum(0)[again], math.sqrt(moved * len(related)))
            return {"cells": noisy, "bin_of": bin_of, "gram": out, "pooled": pooled, "related": torch.tensor(related)}

        kept = problem.keep_release("marginals", releases, make)
        bins = self._bin_counts(kept["bin_of"])
        gram = kept.get("gram", torch.zeros(classes, sum(bins), sum(bins), dtype=torch.int64, device=problem.device))
        noise = releases[1].deviation(pair_reach) if pairs else deviation
        found = self._marginals(records, kept["cells"], kept["bin_of"], gram, deviation, noise)
        if not self.second:
            return found
        pooled, related = kept["pooled"], kept["related"]
        noise = releases[2].deviation(math.sqrt(moved * len(related)))
        return replace(found, pooled=(pooled + pooled.T).double(), related=related, pooled_deviation=noise)

    def _marginals(
        self, records: int, cells: Tensor, bin_of: Tensor, gram: Tensor, cell_deviation: float, deviation: float
    ) -> Marginals:
        """What was released, without a second round."""
        return Marginals(
            records=records,
            cells=cells,
            gram=(gram + gram.transpose(1, 2)).double(),
            bin_of=bin_of,
            bins=self._bin_counts(bin_of),
            cell_deviation=cell_deviation,
            deviation=deviation,
            pooled=torch.zeros(gram.shape[1:], dtype=torch.float64, device=gram.device),
            related=torch.zeros(0, dtype=torch.int64, device=gram.device),
            pooled_deviation=deviation,
        )

    def bins_by_rule(self, records: int, classes: int, mu: float) -> int:
        """So many bins per column that an average cell of a block holds 3 noise deviations; fewer in wide tables."""
        strength = signal(records, classes, len(self.columns), mu)
        most = round(math.sqrt(strength / COUNT_PER_BIN))
        return max(LEAST_BINS, min(MOST_BINS, most, ALL_BINS // len(self.columns)))

    def fit_to(self, problem: Problem, released: Marginals) -> Outcome:
        """A fresh mixture for problem.generator; no records are looked at."""
        sizes, marginals, own = self._histograms(released, problem.classes)
        self.sizes = sizes
        model = self._model(problem, released, marginals, sizes)
        strength = released.records / problem.classes / released.deviation
        steps = max(LEAST_STEPS, min(MOST_STEPS, round(STEPS * math.sqrt(strength))))
        outcome = self._train(problem, model, released, marginals, sizes, own, problem.steps(self.steps or steps))
        problem.generator = model
        return outcome

    def _histograms(self, released: Marginals, classes: int) -> tuple[Tensor, Tensor, Tensor]:
        """Sizes of the classes, their histograms over bins, and the histograms of single columns alone, noisy."""
        columns, edges, records = self.columns, released.edges, released.records
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
        else:
            sizes = nearest_histogram(first, records).clamp(min=1e-6 * records)
            marginals = sizes[:, None] / records * nearest_histogram(own[0], records)[None]
        return sizes, marginals, torch.cat(own)

    def _train(
        self,
        problem: Problem,
        model: ProductMixture,
        released: Marginals,
        marginals: Tensor,
        sizes: Tensor,
        own: Tensor,
        steps: int,
    ) -> Outcome:
        """Minimise minus the log-likelihood of all noisy counts + information · Σ_columns KL(component ‖ class).

        The noise is Gaussian with a known deviation, so that the first is half a sum of squares in units of it. The
        second is what a record's component tells of its columns: it is worth paying for only where columns depend on
        each other, and keeps the fit from learning the noise.
        """
        records = released.records
        between = entries_of(released.bins)
        between = (between | between.T).float()
        shares = (sizes / records).float()[:, None, None]
        wanted, pooled = (released.gram / records).float(), (released.pooled / records).float()
        weight = between * (records / released.deviation) ** 2
        again = released.is_related()
        again_weight = (again | again.T).float() * (records / released.pooled_deviation) ** 2
        cells = torch.cat([torch.bincount(m) for m in released.bin_of.split([c.values for c in self.columns])])
        own, own_weight = (own / records).float(), (records / released.cell_deviation) ** 2 / cells.float()
        base = (marginals / sizes[:, None]).clamp(min=FLOOR).log().float()
        base = torch.cat([part.log_softmax(1) for part in base.split(released.bins, 1)], 1)[:, None]
        optimizer = torch.optim.Adam(model.parameters(), lr=self.learning_rate)

        def step() -> dict[str, Tensor]:
            logs = model.log_probabilities()
            p = logs.exp()
            pairs = (p.transpose(1, 2) @ p) * (shares / model.components)
            loss = (weight * (pairs - wanted).square()).sum() / 4  # each pair is there twice
            if len(released.related):
                loss = loss + (again_weight * (pairs.sum(0) - pooled).square()).sum() / 4
            single = (shares[:, 0] * p.mean(1)).sum(0)
            loss = loss + (own_weight * (single - own).square()).sum() / 2
            loss = loss + self.information * (shares * p * (logs - base)).sum() / model.components
            loss.backward()
            optimizer.step()
            return {"loss": loss}

        return problem.build_engine(
            step, modules={"generator": model}, steps=steps, optimizer=optimizer, schedule=Cosine(steps)
        ).run()

    def _model(self, problem: Problem, released: Marginals, marginals: Tensor, sizes: Tensor) -> ProductMixture:
        components = min(self.components, int(WORK / sum(released.bins) ** 2)) // problem.classes
        model = ProductMixture(
            problem.classes, problem.generator.shape, self.columns, released.bins, max(20, components)
        )
        start = (marginals / sizes[:, None]).clamp(min=FLOOR).log().float()
        noise = torch.randn(model.logits.shape, generator=problem.random, device=problem.device)
        values = [c.values for c in self.columns]
        maps, cells = released.bin_of.split(values), released.cells.double().split(self._sizes(released.cells))
        inside = []
        for column, noisy, bins in zip(self.columns, cells, maps, strict=False):  # the label's cells come last
            clean = self._clean(column, noisy, released.cell_deviation)
            inside.append(shares_inside(clean, bins, 0.0 if column.ordered else released.cell_deviation))
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
            found.append(make_bins(shares, column.ordered, most, RARE * deviation / records, column.gap is not None))
        return torch.cat(found)

    def _clean(self, column: Column, noisy: Tensor, deviation: float) -> Tensor:
        """The column's histogram with less noise; a gap is no neighbour of a number."""
        clean = smoothed(noisy[: column.cells], deviation, column.ordered)
        return torch.cat([clean, noisy[column.cells :].double()])

    def _sizes(self, noisy: Tensor) -> list[int]:
        sizes = [column.values for column in self.columns]
        return sizes + ([len(noisy) - sum(sizes)] if len(noisy) > sum(sizes) else [])

    def _count_pairs(self, problem: Problem, bin_of: Tensor) -> Tensor:
        """(classes, bins, bins): how many records of the class are in both bins."""
        counted = total_of(problem)(Pairs(columns=self.columns, classes=problem.classes, bin_of=bin_of))
        bins = sum(self._bin_counts(bin_of))
        above = counted.view(problem.classes, bins, bins)
        return above + above.transpose(1, 2).tril(-1)

    def _bin_counts(self, bin_of: Tensor) -> list[int]:
        return [int(m.max()) + 1 for m in bin_of.split([c.values for c in self.columns])]


def entries_of(bins: Sequence[int], pairs: Sequence[int] | None = None) -> Tensor:
    """Which entries of a Gram matrix belong to a pair of different columns, each pair once; or to these pairs only."""
    column_of = torch.repeat_interleave(torch.arange(len(bins)), torch.tensor(bins))
    first, second = column_of[:, None], column_of[None]
    if pairs is None:
        return first < second
    chosen = torch.zeros(len(bins), len(bins), dtype=torch.bool)
    chosen.view(-1)[list(pairs)] = True
    return chosen[first, second]
