"""Between the form in which people keep records and tensors (N, C, H, W) with values in [0, 1].

Value ranges and categories must be given where the type does not fix them, for the least and the largest value of a
private column are private. What is taken from a table all the same (`taken_from`: its columns, their types, the list of
values that a pandas Categorical brings) must be public, and a statement is conditional on it; with a schema
(dpot/data/schema.py) nothing is taken.
A table becomes (N, columns, 1, 1): numbers scaled by their range, a 0/1 column for each whose value may be missing, and
categories as one 0/1 column per value, or, with more than 256 values, as one column with the place in the list.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from dpot.data.files import printable
from dpot.errors import DataError, UsageError

if TYPE_CHECKING:
    import pandas as pd

Interval = Sequence[float]  # lower, upper
Ranges = Interval | Sequence[Interval] | Mapping[str, Interval] | None
Categories = Mapping[str, Sequence[Any]] | None
ImageLayout = Literal["NHW", "NCHW", "NHWC"]
CHANNELS = (1, 3)
SMALLEST_SIDE = 4
MOST_PLACES = 256  # 0/1 columns of a category: with more values it is one column


@dataclass(frozen=True)
class ImageCoding:
    """Images as an array: how the axes are ordered, what the values mean."""

    layout: ImageLayout
    shape: tuple[int, int, int]  # channels, height, width
    dtype: str  # uint8, or float32 within [lower, upper]
    lower: float = 0.0
    upper: float = 1.0

    @classmethod
    def of(cls, x: np.ndarray, ranges: Ranges = None) -> ImageCoding:
        """The coding of an array N×H×W, N×C×H×W or N×H×W×C (C is 1 or 3); uint8, or floats in [0, 1] or `ranges`."""
        if x.ndim == 3:
            layout: ImageLayout = "NHW"
            shape = (1, *x.shape[1:])
        elif (x.shape[1] in CHANNELS) == (x.shape[3] in CHANNELS):
            raise DataError(f"images of shape {x.shape}: give N×H×W, N×C×H×W or N×H×W×C, C being 1 or 3")
        elif x.shape[1] in CHANNELS:
            layout, shape = "NCHW", x.shape[1:]
        else:
            layout, shape = "NHWC", (x.shape[3], *x.shape[1:3])
        if min(shape[1:]) < SMALLEST_SIDE:
            raise DataError(f"images of {shape[1]}×{shape[2]} pixels: at least {SMALLEST_SIDE}×{SMALLEST_SIDE} needed")
        if x.dtype == np.uint8:
            return cls(layout, shape, "uint8", 0.0, 255.0)
        if x.dtype.kind != "f":
            raise DataError(f"images of type {x.dtype}: give bytes (uint8), or floats in [0, 1]")
        return cls(
            layout, shape, "float32", *(checked_interval(ranges, "ranges") if ranges is not None else (0.0, 1.0))
        )

    def encode(self, x: np.ndarray) -> Tensor:
        """float32 N×C×H×W in [0, 1]; a value that is no number or lies outside the range is refused by record."""
        if self.layout == "NHW":
            x = x[:, None]
        elif self.layout == "NHWC":
            x = x.transpose(0, 3, 1, 2)
        if x.dtype != np.uint8:
            for what, wrong in (
                ("a pixel that is not a number", ~np.isfinite(x)),
                (f"a pixel outside [{self.lower:g}, {self.upper:g}]", (x < self.lower) | (x > self.upper)),
            ):
                rows = np.flatnonzero(wrong.any((1, 2, 3)))
                if len(rows):
                    raise DataError(f"record {rows[0]} has {what}: mend it, or give its public range")
        scaled = (x.astype(np.float32) - self.lower) / (self.upper - self.lower)
        return torch.from_numpy(np.ascontiguousarray(scaled))

    def decode(self, records: Tensor) -> np.ndarray:
        """The inverse: the layout and type that came in."""
        x = records.clamp(0, 1).cpu().numpy() * (self.upper - self.lower) + self.lower
        x = np.rint(x).astype(np.uint8) if self.dtype == "uint8" else x.astype(np.float32)
        return x[:, 0] if self.layout == "NHW" else x.transpose(0, 2, 3, 1) if self.layout == "NHWC" else x

    def to_dict(self) -> dict[str, Any]:
        """The coding as JSON-able data."""
        return {"kind": "images", **asdict(self)}


@dataclass(frozen=True)
class Number:
    """A column of numbers: a public range, the type it is given back in (dates are numbers of days since 1970)."""

    name: str
    lower: float
    upper: float
    dtype: str = "float64"  # or int64, bool, date
    digits: int | None = None  # after the decimal point
    missing: bool = False  # whether there may be gaps


@dataclass(frozen=True)
class Category:
    """A column that holds one of these values."""

    name: str
    values: tuple[Any, ...]
    missing: bool = False

    @property
    def choices(self) -> tuple[Any, ...]:
        """The values, and None where there may be gaps."""
        return (*self.values, None) if self.missing else self.values

    @property
    def places(self) -> int:
        """How many columns of an encoded record it takes."""
        return len(self.choices) if len(self.choices) <= MOST_PLACES else 1


@dataclass(frozen=True)
class TableCoding:
    """The columns of a table; an array's columns are named 0, 1, …"""

    columns: tuple[Number | Category, ...]
    array: bool = False  # given back as an array, not as a DataFrame

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one encoded record."""
        return len(self.names), 1, 1

    @property
    def names(self) -> list[str]:
        """Of the encoded columns."""
        gaps = [f"{column.name} missing" for column in self.numbers if column.missing]
        words = [
            f"{column.name} missing"
            if value is None
            else f"{column.name}={value}"
            if column.places > 1
            else column.name
            for column in self.categories
            for value in column.choices[: column.places]
        ]
        return [column.name for column in self.numbers] + gaps + words

    @property
    def numbers(self) -> list[Number]:
        """The columns of numbers, which are encoded first."""
        return [column for column in self.columns if isinstance(column, Number)]

    @property
    def categories(self) -> list[Category]:
        """The columns of categories."""
        return [column for column in self.columns if isinstance(column, Category)]

    @classmethod
    def of(cls, frame: pd.DataFrame, ranges: Ranges = None, categories: Categories = None) -> TableCoding:
        """Every column is a number with a range, or has its values given (a pandas Categorical brings its own)."""
        import pandas as pd

        columns: list[Number | Category] = []
        if not frame.columns.is_unique:
            twice = printable(str(frame.columns[frame.columns.duplicated()][0]))
            raise DataError(f"there are two columns named '{twice}'")
        given = dict(categories or {})
        unknown = [name for name in given if name not in frame.columns]
        unknown += [name for name in ranges if name not in frame.columns] if isinstance(ranges, Mapping) else []
        if unknown:
            raise UsageError(
                f"there is no column '{unknown[0]}'; there are {printable(', '.join(map(str, frame.columns))[:300])}"
            )
        for index, name in enumerate(frame.columns):
            values = frame[name]
            if name in given or isinstance(values.dtype, pd.CategoricalDtype):
                known = given[name] if name in given else values.cat.categories.tolist()
                columns.append(checked_category(str(name), known))
            elif pd.api.types.is_bool_dtype(values):
                given_range = ranges is not None and not isinstance(ranges, Mapping)
                interval = _range_of(ranges, name, index, len(frame.columns)) if given_range else (0.0, 1.0)
                columns.append(Number(str(name), *interval, "bool"))
            elif pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_complex_dtype(values):
                whole = pd.api.types.is_integer_dtype(values)
                interval = _range_of(ranges, name, index, len(frame.columns))
                columns.append(Number(str(name), *interval, "int64" if whole else "float64"))
            else:
                shown = printable(str(name))
                raise UsageError(
                    f"column '{shown}' holds words: give its values, categories={{'{shown}': […]}}; "
                    "the list of those that occur is private"
                )
        if not columns:
            raise DataError("the table has no column beside the label")
        return cls(tuple(columns))

    def with_gaps(self, frame: pd.DataFrame) -> tuple[TableCoding, list[str]]:
        """The same with a value for gaps in every column that has one, and the names of those that got it."""
        found = [column.name for column in self.columns if not column.missing and frame[column.name].isna().any()]
        columns = tuple(replace(column, missing=column.missing or column.name in found) for column in self.columns)
        return replace(self, columns=columns), found

    def encode(self, frame: pd.DataFrame) -> Tensor:
        """float32 N×columns×1×1; numbers are cut to their range.

        An unknown category is refused, and so is a gap where none may be; a schema's rule leaves neither.
        """
        import pandas as pd

        numbers: list[np.ndarray] = []
        gaps: list[np.ndarray] = []
        words: list[np.ndarray] = []
        for column in self.columns:
            values = frame[column.name]
            gap = values.isna().to_numpy()
            if gap.any() and not column.missing:
                raise DataError(
                    f"column '{printable(column.name)}' has no value in record {gap.argmax()}: fill or drop it"
                )
            if isinstance(column, Number):
                x = np.where(gap, column.lower, values.to_numpy(np.float64, na_value=np.nan)).clip(
                    column.lower, column.upper
                )
                numbers.append((x - column.lower) / (column.upper - column.lower))
                gaps += [gap] if column.missing else []
                continue
            at = np.where(gap, len(column.values), pd.Index(column.values).get_indexer(pd.Index(values)))
            if (at < 0).any():
                known = printable(", ".join(map(str, column.values))[:200])
                place = f"column '{printable(column.name)}' of record {(at < 0).argmax()}"
                raise DataError(f"{place} is not one of its values ({known})")
            last = len(column.choices) - 1
            words.append(np.eye(last + 1, dtype=np.float32)[at] if column.places > 1 else (at / last)[:, None])
        parts = [part[:, None] for part in (*numbers, *gaps)] + words
        found = np.empty((len(frame), len(self.names)), np.float32)
        np.concatenate(parts, 1, out=found, casting="same_kind")
        return torch.from_numpy(found)[:, :, None, None]

    def decode(self, records: Tensor) -> pd.DataFrame | np.ndarray:
        """The inverse: whole numbers rounded, of a category's columns the largest."""
        import pandas as pd

        x = records.flatten(1).clamp(0, 1).cpu().numpy().astype(np.float64)
        sizes = [column.places for column in self.categories]
        gaps = iter(x[:, len(self.numbers) : x.shape[1] - sum(sizes)].T > 0.5)
        found: dict[str, Any] = {}
        for column, own in zip(self.numbers, x.T, strict=False):
            values = _given_back(column, own * (column.upper - column.lower) + column.lower)
            found[column.name] = pd.Series(values).mask(next(gaps)) if column.missing else values
        at = x.shape[1] - sum(sizes)
        for category, size in zip(self.categories, sizes, strict=True):
            chosen = x[:, at : at + size].argmax(1) if size > 1 else (x[:, at] * (len(category.choices) - 1)).round()
            chosen = chosen.astype(np.int64)
            found[category.name] = np.array(category.choices, dtype=object if category.missing else None)[chosen]
            at += size
        frame = pd.DataFrame({column.name: found[column.name] for column in self.columns})
        return frame.to_numpy() if self.array else frame

    def to_dict(self) -> dict[str, Any]:
        """The coding as JSON-able data."""
        kinds = [{"kind": "number" if isinstance(c, Number) else "category", **asdict(c)} for c in self.columns]
        return {"kind": "table", "columns": kinds, "array": self.array}


Coding = ImageCoding | TableCoding


def load_coding(data: Mapping[str, Any]) -> Coding:
    """The inverse of to_dict."""
    content = dict(data)
    if content.pop("kind") == "images":
        return ImageCoding(**{**content, "shape": tuple(content["shape"])})
    columns: list[Number | Category] = []
    for column in content["columns"]:
        fields = {name: value for name, value in column.items() if name != "kind"}
        if column["kind"] == "category":
            fields["values"] = tuple(fields["values"])
        columns.append(Number(**fields) if column["kind"] == "number" else Category(**fields))
    return TableCoding(tuple(columns), content["array"])


def taken_from(frame: pd.DataFrame, categories: Categories = None) -> tuple[str, ...]:
    """What a table's records decided about its coding, in words: it has to be public for an ε to hold."""
    import pandas as pd

    listed = [
        str(name)
        for name in frame.columns
        if name not in (categories or {}) and isinstance(frame[name].dtype, pd.CategoricalDtype)
    ]
    words = (
        f"the values of {printable(', '.join(listed)[:300])}: the list came with the table, and may have been made from"
    )
    form = "the columns and their types, whole numbers or not: they were taken from the table (a schema declares them)"
    return (form, f"{words} what occurs (give categories, or a schema)") if listed else (form,)


def _given_back(column: Number, values: np.ndarray) -> Any:
    """Numbers within the range in the type of their column."""
    import pandas as pd

    if column.dtype == "float64":
        return values if column.digits is None else values.round(column.digits)
    if column.dtype == "date":
        return np.datetime64("1970-01-01", "s") + np.rint(values).astype("timedelta64[D]")
    whole = np.rint(values).astype(column.dtype)
    return pd.array(whole, dtype="Int64") if column.missing and column.dtype == "int64" else whole


def checked_category(name: str, values: Sequence[Any]) -> Category:
    """The column, if its values are different words or numbers; None among them says that there may be gaps."""
    known = [v.item() if isinstance(v, np.generic) else v for v in values]
    plain = tuple(v for v in known if v is not None and v == v)  # None, or not a number, is a gap
    if len(set(plain)) != len(plain) or len(plain) < 2 or not all(isinstance(v, str | int | float) for v in plain):
        raise UsageError(f"categories of column '{name}': give at least 2 different words or numbers")
    return Category(name, plain, missing=len(plain) < len(known))


def _range_of(ranges: Ranges, name: Any, index: int, count: int) -> tuple[float, float]:
    if isinstance(ranges, Mapping):
        if name in ranges:
            return checked_interval(ranges[name], f"range of column '{name}'")
    elif ranges is not None:
        if len(ranges) == 2 and all(isinstance(end, int | float | np.number) for end in ranges):
            return checked_interval(ranges, "ranges")
        if len(ranges) != count:
            raise UsageError(f"ranges: give one pair (lower, upper), or {count}, one per column")
        return checked_interval(ranges[index], f"range of column '{name}'")
    shown = printable(str(name))
    raise UsageError(
        f"column '{shown}' has no public range: give ranges={{'{shown}': (lower, upper)}}, on the command line "
        f"dataset.bounds={{{shown}:[lower,upper]}}; its own minimum and maximum are private"
    )


def checked_interval(pair: Any, what: str) -> tuple[float, float]:
    """(lower, upper), if lower is below upper."""
    try:
        lower, upper = map(float, pair)
    except (TypeError, ValueError):
        raise UsageError(f"{what}: give (lower, upper), got {pair!r}") from None
    if not (lower < upper and math.isfinite(lower) and math.isfinite(upper)):
        raise UsageError(f"{what}: lower must be below upper, got {pair!r}")
    return lower, upper
