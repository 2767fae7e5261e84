"""Between the form in which people keep records and tensors (N, C, H, W) with values in [0, 1].

Nothing is learned from the records. The shape and the types are taken to be public; value ranges and categories must be
given where the type does not fix them, for the least and the largest value of a private column are private.
A table becomes (N, columns, 1, 1): numbers scaled by their range, categories as one 0/1 column per value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
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
        return cls(layout, shape, "float32", *(_interval(ranges, "ranges") if ranges is not None else (0.0, 1.0)))

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
    """A column of numbers: a public range, the type it is given back in."""

    name: str
    lower: float
    upper: float
    dtype: str = "float64"


@dataclass(frozen=True)
class Category:
    """A column that holds one of these values."""

    name: str
    values: tuple[Any, ...]


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
        return [f"{c.name}={v}" if v is not None else c.name for c, v in self._encoded()]

    def _encoded(self) -> list[tuple[Number | Category, Any]]:
        parts: list[tuple[Number | Category, Any]] = [(c, None) for c in self.columns if isinstance(c, Number)]
        return parts + [(c, v) for c in self.columns if isinstance(c, Category) for v in c.values]

    @classmethod
    def of(cls, frame: pd.DataFrame, ranges: Ranges = None, categories: Categories = None) -> TableCoding:
        """Every column is a number with a range, or has its values given (a pandas Categorical brings its own)."""
        import pandas as pd

        columns: list[Number | Category] = []
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
                columns.append(_category(str(name), known))
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

    def encode(self, frame: pd.DataFrame) -> Tensor:
        """float32 N×columns×1×1; numbers are cut to their range, a gap or an unknown category is refused."""
        import pandas as pd

        parts: list[np.ndarray] = []
        for column in sorted(self.columns, key=lambda c: isinstance(c, Category)):  # numbers first
            values = frame[column.name]
            gaps = np.flatnonzero(values.isna().to_numpy())
            if len(gaps):
                raise DataError(f"column '{printable(column.name)}' has no value in record {gaps[0]}: fill or drop it")
            if isinstance(column, Number):
                x = values.to_numpy(np.float64).clip(column.lower, column.upper)
                parts.append(((x - column.lower) / (column.upper - column.lower))[:, None])
                continue
            at = pd.Index(column.values).get_indexer(pd.Index(values))
            strange = np.flatnonzero(at < 0)
            if len(strange):
                known = printable(", ".join(map(str, column.values))[:200])
                raise DataError(
                    f"column '{printable(column.name)}' of record {strange[0]} is not one of its values ({known})"
                )
            parts.append(np.eye(len(column.values))[at])
        return torch.from_numpy(np.concatenate(parts, 1).astype(np.float32))[:, :, None, None]

    def decode(self, records: Tensor) -> pd.DataFrame | np.ndarray:
        """The inverse: whole numbers rounded, of a category's columns the largest."""
        import pandas as pd

        x = records.flatten(1).clamp(0, 1).cpu().numpy().astype(np.float64)
        found: dict[str, Any] = {}
        at = 0
        for column in sorted(self.columns, key=lambda c: isinstance(c, Category)):
            if isinstance(column, Number):
                values = x[:, at] * (column.upper - column.lower) + column.lower
                found[column.name] = (values if column.dtype == "float64" else np.rint(values)).astype(column.dtype)
                at += 1
            else:
                chosen = x[:, at : at + len(column.values)].argmax(1)
                found[column.name] = np.array(column.values)[chosen]
                at += len(column.values)
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
        columns.append(
            Number(**fields) if column["kind"] == "number" else Category(fields["name"], tuple(fields["values"]))
        )
    return TableCoding(tuple(columns), content["array"])


def _category(name: str, values: Sequence[Any]) -> Category:
    plain = tuple(v.item() if isinstance(v, np.generic) else v for v in values)
    if len(set(plain)) != len(plain) or len(plain) < 2 or not all(isinstance(v, str | int | float) for v in plain):
        raise UsageError(f"categories of column '{name}': give at least 2 different words or numbers")
    return Category(name, plain)


def _range_of(ranges: Ranges, name: Any, index: int, count: int) -> tuple[float, float]:
    if isinstance(ranges, Mapping):
        if name in ranges:
            return _interval(ranges[name], f"range of column '{name}'")
    elif ranges is not None:
        if len(ranges) == 2 and all(isinstance(end, int | float | np.number) for end in ranges):
            return _interval(ranges, "ranges")
        if len(ranges) != count:
            raise UsageError(f"ranges: give one pair (lower, upper), or {count}, one per column")
        return _interval(ranges[index], f"range of column '{name}'")
    shown = printable(str(name))
    raise UsageError(
        f"column '{shown}' has no public range: give ranges={{'{shown}': (lower, upper)}}, on the command line "
        f"dataset.bounds={{{shown}:[lower,upper]}}; its own minimum and maximum are private"
    )


def _interval(pair: Any, what: str) -> tuple[float, float]:
    try:
        lower, upper = map(float, pair)
    except (TypeError, ValueError):
        raise UsageError(f"{what}: give (lower, upper), got {pair!r}") from None
    if not (lower < upper and math.isfinite(lower) and math.isfinite(upper)):
        raise UsageError(f"{what}: lower must be below upper, got {pair!r}")
    return lower, upper
