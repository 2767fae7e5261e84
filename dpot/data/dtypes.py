"""The types of a DataFrame's columns: plain ones for a coding, and back again.

plain, facts = plainly(frame)          # names as words, times as days since 1970
again = given_back(synthetic, facts)   # the names and types that came in
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dpot.data.files import printable
from dpot.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

DAY = 86_400e9  # nanoseconds
Facts = list[dict[str, Any]]  # one per column, JSON-able


def plainly(frame: pd.DataFrame) -> tuple[pd.DataFrame, Facts]:
    """The frame with words as names and numbers in the place of times, and what given_back needs."""
    import pandas as pd

    names = [str(name) for name in frame.columns]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"there are two columns named '{printable(twice)}'")
    facts: Facts = []
    columns = {}
    for index, name in enumerate(names):
        values = frame.iloc[:, index]
        fact: dict[str, Any] = {"name": name, "dtype": str(values.dtype)}
        if isinstance(frame.columns[index], int | np.integer):
            fact["number"] = int(frame.columns[index])
        if isinstance(values.dtype, pd.CategoricalDtype):
            fact |= {"dtype": "category", "ordered": bool(values.cat.ordered)}
        elif pd.api.types.is_datetime64_any_dtype(values):
            values = pd.Series(days(values), index=values.index)
        columns[name] = values
        facts.append(fact)
    return pd.DataFrame(columns, index=frame.index), facts


def typed(values: Any, ranges: Any, categories: Any) -> tuple[Any, Facts, Any, Any]:
    """A DataFrame, ranges and categories with plain names and types, and what the types were; others as they are."""
    import pandas as pd

    if not isinstance(values, pd.DataFrame):
        return values, [], ranges, categories
    frame, facts = plainly(values)
    for fact in facts:
        if fact["dtype"] == "category":
            fact["values"] = frame[fact["name"]].cat.categories.tolist()
    named = {str(name): own for name, own in categories.items()} if categories else categories
    return frame, facts, plain_ranges(ranges, values), named


def days(times: Any) -> np.ndarray:
    """Times as days since 1970, in float64; a gap is not a number."""
    import pandas as pd

    found = pd.to_datetime(pd.Series(times).reset_index(drop=True), utc=True).astype("datetime64[ns, UTC]")
    return np.where(found.isna(), np.nan, found.astype("int64") / DAY)


def plain_ranges(ranges: Any, frame: pd.DataFrame) -> Any:
    """Ranges by name with words as names, and with days in the place of times."""
    import pandas as pd

    if not isinstance(ranges, Mapping):
        return ranges
    times = {str(name) for name in frame.columns if pd.api.types.is_datetime64_any_dtype(frame[name])}
    return {
        str(name): tuple(days(list(pair)).tolist()) if str(name) in times else pair for name, pair in ranges.items()
    }


def given_back(frame: pd.DataFrame, facts: Facts) -> pd.DataFrame:
    """Synthetic columns in the types and under the names that came in."""
    import pandas as pd

    columns: dict[Any, Any] = {}
    for fact in facts:
        values, dtype = frame[fact["name"]], fact["dtype"]
        if dtype == "category":
            kept = pd.CategoricalDtype(fact["values"], fact["ordered"]) if "values" in fact else "category"
            values = values.astype(kept)
        elif dtype.startswith("datetime64"):
            nanoseconds = (pd.Series(values, dtype="float64") * DAY).round().astype("Int64")
            values = pd.to_datetime(nanoseconds, utc=True)
            values = values.dt.tz_convert(None).astype(dtype) if "," not in dtype else values.astype(dtype)
        elif values.isna().any() and (dtype == "bool" or dtype[:3] in ("int", "uin")):
            pass  # gaps have no place in such a type
        else:
            values = _within(values, dtype).astype(dtype)
        columns[fact.get("number", fact["name"])] = values
    return pd.DataFrame(columns)


def _within(values: pd.Series, dtype: str) -> pd.Series:
    """Numbers cut to what a small type of whole numbers holds: a public range may reach further."""
    plain = dtype.lower()
    if not plain.startswith(("int", "uint")):
        return values
    limits = np.iinfo(plain)
    return values.clip(int(limits.min), int(limits.max))


def as_frame(X: Any) -> tuple[Any, bool]:
    """X as a DataFrame, and whether it was an array."""
    import pandas as pd

    if isinstance(X, pd.DataFrame):
        return X, False
    X = np.asarray(X)
    if not len(X.shape) or 0 in X.shape:
        raise DataError(f"X is empty, of shape {X.shape}")
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise DataError(f"X of shape {X.shape} and type {X.dtype}: give images, a DataFrame, or numbers N×columns")
    return pd.DataFrame(X, columns=[str(i) for i in range(X.shape[1])]), True


def numbered_labels(y: Any, count: int, classes: Sequence[Any] | None) -> tuple[Tensor, list[Any]]:
    """(class number per record, classes in sorted order or as given)."""
    import pandas as pd

    values = np.asarray(y.detach().cpu().numpy() if isinstance(y, Tensor) else y)
    if values.shape != (count,):
        raise DataError(f"{count} records need {count} labels, got {values.shape}")
    gap = np.asarray(pd.isna(values))
    if gap.any():
        raise DataError(f"{int(gap.sum())} labels are gaps, the first in record {gap.argmax()}: fill or drop them")
    if values.dtype.kind == "O":
        if not all(isinstance(v, str) for v in values):
            raise DataError("labels must be words or whole numbers")
        values = values.astype(str)
    if values.dtype.kind == "f" and (values % 1 == 0).all():
        values = values.astype(np.int64)
    if values.dtype.kind not in "iubU":
        raise DataError(f"labels of type {values.dtype}: give words or whole numbers")
    known = np.unique(values) if classes is None else np.asarray(classes)
    if classes is None and len(known) > max(2, count // 2):
        raise DataError(f"{len(known)} different labels in {count} records: are these classes?")
    place = {value: index for index, value in enumerate(known.tolist())}
    try:
        numbers = [place[value] for value in values.tolist()]
    except KeyError as error:
        raise DataError(f"label {error} is not one of the given classes") from None
    return torch.tensor(numbers, dtype=torch.int64), known.tolist()
