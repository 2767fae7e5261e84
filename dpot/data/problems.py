"""Everything that is wrong with a table without a schema, at once: who mends a file wants one list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpot.data.coding import Categories, Ranges
from dpot.data.files import printable
from dpot.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

MOST = 20


def problems(frame: pd.DataFrame, ranges: Ranges, categories: Categories) -> list[str]:
    """Columns without a range or values, gaps, values that are not among those given; a line for each."""
    given = dict(categories or {})
    return [
        f"column '{printable(str(name))}': {problem}"
        for name in frame.columns
        for problem in _of_column(frame[name], given.get(name), isinstance(ranges, Mapping) and name not in ranges)
    ]


def _of_column(values: pd.Series, known: Sequence[Any] | None, unbounded: bool) -> Iterator[str]:
    import pandas as pd

    kinds, shown = pd.api.types, printable(str(values.name))
    if known is not None:
        strange = ~(values.isna() | values.isin(list(known))).to_numpy()
        if strange.any():
            yield f"{strange.sum()} cells are not among its values, the first in record {np.argmax(strange)}"
    elif not isinstance(values.dtype, pd.CategoricalDtype):
        if not kinds.is_numeric_dtype(values):
            yield f"words: give dataset.categories={{{shown}:[…]}}, or leave it out, dataset.exclude=[{shown}]"
        elif unbounded and not kinds.is_bool_dtype(values):
            yield f"no public range: give dataset.bounds={{{shown}:[lower,upper]}}, or leave it out"
    if gaps := int(values.isna().sum()):
        yield f"no value in {gaps} records: fill them, or use a schema with missing: true"


def refuse_all(found: Sequence[str], path: Path) -> None:
    """One error with all of them below it, if there is more than one; a single one is told where it is found."""
    if len(found) < 2:
        return
    error = DataError(f"{printable(path)} has {len(found)} problems; a schema declares all columns (dpot task=schema):")
    error.listed = [*found[:MOST], *([f"and {len(found) - MOST} more"] if len(found) > MOST else [])]
    raise error
