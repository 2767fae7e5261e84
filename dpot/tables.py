"""Which columns a coded table has for the marginal sketch, when that sketch is the better one, and what to expect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpot.data.coding import Coding, Number, TableCoding
from dpot.methods.generate.base import Problem
from dpot.methods.sketch.counters import records_of
from dpot.methods.sketch.file import Release
from dpot.methods.sketch.marginals import COUNT_PER_BIN, LEAST_BINS, LEAST_SIGNAL, MarginalSketch, signal
from dpot.methods.sketch.table_file import TableRelease
from dpot.models.product_mixture import Column
from dpot.privacy import calibration
from dpot.privacy.budget import Budget
from dpot.privacy.events import Gaussian
from dpot.privacy.statement import Statement
from dpot.training.engine import Outcome

ONE_BY_ONE = 128  # whole numbers of a range that is no longer than this are cells of their own
CELLS = 256  # of other numbers
LEAST_LINES_SIGNAL = 30  # records of a class times μ: scikit-learn's small tables are at chance below it


def columns_of(coding: TableCoding) -> list[Column]:
    """Where each column stands in encoded records: numbers, marks of gaps in numbers, values of categories."""
    found: list[Column] = []
    gap, at = len(coding.numbers), len(coding.numbers) + sum(number.missing for number in coding.numbers)
    for place, number in enumerate(coding.numbers):
        cells = _whole_cells(number)
        mark = gap if number.missing else None
        found.append(Column(place, cells or CELLS, whole=bool(cells), gap=mark))
        gap += number.missing
    for category in coding.categories:
        cells, size = len(category.choices), category.places
        found.append(Column(at, cells, size=size, whole=size == 1, named=size == 1))
        at += size
    return found


def suited(coding: Coding, records: int, classes: int, budget: Budget, rounds: int = 2) -> MarginalSketch | None:
    """The marginal sketch, where the records are enough for it; only public numbers decide.

    It needs 12 noise deviations per class in a block of two columns, for 4 bins a column or more. With fewer, as in a
    table of a few hundred records and many columns, the lines of the sliced sketch say more.
    """
    if not isinstance(coding, TableCoding):
        return None
    columns = columns_of(coding)
    mu = 1 / calibration.find_sigma(Gaussian, 1, budget)
    if signal(records, classes, len(columns), mu) < LEAST_SIGNAL:
        return None
    return MarginalSketch(columns, rounds=rounds)


def released_by(method: MarginalSketch, problem: Problem) -> TableRelease:
    """What it took from the records of this problem."""
    assert method.released is not None
    return TableRelease(
        shape=problem.generator.shape,
        classes=problem.classes,
        records=records_of(problem),
        counts=method.sizes,
        deviation=method.released.cell_deviation,
        columns=method.columns,
        marginals=method.released,
    )


def remarks(release: Release | TableRelease, classes: Sequence[Any]) -> list[str]:
    """What the user should know of the result's quality: from public numbers and what was released."""
    found = []
    few = [str(classes[index]) if classes else str(index) for index in release.uncertain]
    if few:
        found.append(
            f"class {', '.join(few)}: the noisy number of records does not stand out of the noise "
            f"(deviation {release.deviation:.3g} records); none are synthesized"
        )
    if isinstance(release, TableRelease) and len(release.columns) > 1:
        held = release.records / release.classes / release.marginals.deviation / LEAST_BINS**2
        if held < COUNT_PER_BIN:
            found.append(
                f"too many columns for so few records: the noise in the counts of two columns is {1 / held:.2g} times "
                "their average, and weak relations between columns are lost; leave out columns, or raise epsilon"
            )
    elif isinstance(release, Release):
        terms = Statement.from_dict(release.statement)
        if terms.budget is not None and terms.delta:
            mu = 1 / calibration.find_sigma(Gaussian, 1, Budget(terms.budget, terms.delta, conversion="tight"))
            if (held := release.records / release.classes * mu) < LEAST_LINES_SIGNAL:
                found.append(
                    f"few records for this epsilon: those of an average class are worth {held:.2g} deviations of the "
                    f"noise, and below {LEAST_LINES_SIGNAL} little more than the shares of classes is learned"
                )
    return found


def refit(release: TableRelease, problem: Problem) -> Outcome:
    """A fresh generator for problem, fitted to what was released: no records, nothing to charge."""
    return MarginalSketch(release.columns).fit_to(problem, release.marginals)


def _whole_cells(number: Number) -> int:
    """How many whole numbers its range has, where they are cells of their own; otherwise 0."""
    count = number.upper - number.lower + 1
    if number.dtype == "float64" or count > ONE_BY_ONE or count % 1 or number.lower % 1:
        return 0
    return int(count)
