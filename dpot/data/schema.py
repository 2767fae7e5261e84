"""A schema: what is public about the columns of a table, declared by its owner. Nothing is taken from the records.

    label: income                      # the column that holds the class, or null
    columns:
      age: {kind: integer, range: [0, 120]}
      pay: {kind: decimal, range: [0, 1e5], digits: 2, missing: true}
      work: {kind: category, values: [state, private, none]}
      born: {kind: date, range: [1900-01-01, 2030-12-31]}
      income: {kind: category, values: [low, high]}

`dpot task=schema` writes a template from the names of the columns. Every cell is read by itself, as its column is
declared, and one rule takes it to an admitted value, whatever the other records are:

- a number or a date outside its range becomes the nearer end of the range, and a whole number is rounded;
- what cannot be read, is not among the values, or is not there is *missing* where the column allows it. Elsewhere it
  becomes the lower end of the range, or the first of the values.

So a record that does not fit changes itself alone, and neighbouring tables stay neighbours. It is never an error, for
whether a run fails is seen by everybody, and no ε would cover it. Columns that are not declared are left out, and the
order is the schema's.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from dpot.data.coding import Category, Number, TableCoding, checked_category, checked_interval
from dpot.data.files import first_line, printable, read_regular
from dpot.errors import DataError, UsageError

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger("dpot.data")
KINDS = {
    "integer": {"range"},
    "decimal": {"range", "digits"},
    "date": {"range"},
    "datetime": {"range"},
    "time": {"range"},
    "category": {"values"},
}
TO_FILL_IN = "???"
MOST_DIGITS = 15
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_ -]*[A-Za-z0-9_]|[A-Za-z_]")  # what needs no quotes in YAML


@dataclass(frozen=True)
class Schema:
    """The declared columns, the label among them."""

    columns: tuple[Number | Category, ...]
    label: str | None = None

    @classmethod
    def of(cls, given: Any) -> Schema:
        """From a mapping, from the path of a YAML file, or as it is."""
        if isinstance(given, Schema):
            return given
        content = given if isinstance(given, Mapping) else read(Path(str(given)))
        unknown = sorted(set(content) - {"columns", "label"})
        if unknown or not isinstance(content.get("columns"), Mapping) or not content["columns"]:
            raise UsageError(
                f"schema: it holds columns and label, {f'not {unknown[0]}' if unknown else 'and has none'}"
            )
        columns = tuple(_column(str(name), one) for name, one in content["columns"].items())
        label = content.get("label")
        label = None if label in (None, "", "null", "~") else str(label)
        classes = next((column for column in columns if column.name == label), None)
        if label is not None and (not isinstance(classes, Category) or classes.missing):
            raise UsageError(
                f"schema: the label '{label}' must be one of the columns, a category without missing: true"
            )
        if len(columns) == (label is not None):
            raise UsageError("schema: there is no column beside the label")
        return cls(columns, label)

    @property
    def coding(self) -> TableCoding:
        """Of the columns beside the label."""
        return TableCoding(tuple(column for column in self.columns if column.name != self.label))

    @property
    def classes(self) -> tuple[Any, ...]:
        """What the label may be; nothing without a label."""
        return next((c.values for c in self.columns if c.name == self.label and isinstance(c, Category)), ())

    def conform(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The declared columns with every cell taken to an admitted value by the rule."""
        import pandas as pd

        frame = frame.rename(columns=str)
        if not frame.columns.is_unique:
            raise DataError("two columns of the table have the same name")
        absent = [column.name for column in self.columns if column.name not in frame.columns]
        if absent:
            raise UsageError(
                f"schema: the table has no column '{printable(absent[0])}'; it has "
                f"{printable(', '.join(frame.columns)[:300])}"
            )
        return pd.DataFrame({c.name: self._cells(c, frame[c.name]) for c in self.columns}, index=frame.index)

    def class_numbers(self, frame: pd.DataFrame) -> np.ndarray:
        """The place of each label among the classes, in a table that conforms."""
        place = {value: index for index, value in enumerate(self.classes)}
        return np.array([place[value] for value in frame[self.label]], np.int64)

    def _cells(self, column: Number | Category, raw: pd.Series) -> Any:
        values = _words(column, raw) if isinstance(column, Category) else _numbers(column, raw)
        gone = np.array([value is None or value != value for value in values])
        if isinstance(column, Number):
            outside = ~gone & ((values < column.lower) | (values > column.upper))
            values = np.rint(values) if column.dtype == "int64" else values
        else:
            outside = np.zeros(len(values), bool)
        if not column.missing:
            values[gone] = column.values[0] if isinstance(column, Category) else column.lower
        if (gone | outside).any():
            log.warning(
                "column '%s': %d of %d cells were taken to other values by the rule of the schema (for you alone: no ε "
                "covers this line)",
                *(printable(column.name), int((gone | outside).sum()), len(values)),
            )
        return values


def _numbers(column: Number, raw: pd.Series) -> np.ndarray:
    import pandas as pd

    if column.dtype == "date":
        days = pd.to_datetime(raw.astype(object), errors="coerce", format="ISO8601", utc=True)
        return np.array([math.nan if day is pd.NaT else day.timestamp() // 86_400 for day in days])
    if column.dtype == "datetime":
        moments = pd.to_datetime(raw.astype(object), errors="coerce", format="ISO8601", utc=True)
        return np.array([math.nan if moment is pd.NaT else moment.timestamp() // 1 for moment in moments])
    if column.dtype == "time":
        return np.array([_second(cell) for cell in raw.astype(object)])
    return pd.to_numeric(raw.astype(object), errors="coerce").astype(float).to_numpy(copy=True)


def _words(column: Category, raw: pd.Series) -> np.ndarray:
    known = {_word(value): value for value in column.values}
    found = np.empty(len(raw), object)
    gaps = raw.isna().to_numpy()
    found[:] = [None if gap else known.get(_word(cell)) for cell, gap in zip(raw.astype(object), gaps, strict=True)]
    return found


def _word(cell: Any) -> str:
    """A cell as it would stand in a file, by itself: 1 and 1.0 are the same, and so are True and true."""
    if isinstance(cell, bool | np.bool_):
        return str(bool(cell)).lower()
    if isinstance(cell, float | np.floating) and float(cell).is_integer():
        return str(int(cell))
    text = str(cell).strip()
    return text.lower() if text in ("True", "False") else text


def _column(name: str, given: Any) -> Number | Category:
    where = f"schema: column '{printable(name)}'"
    if not isinstance(given, Mapping) or given.get("kind") in (None, TO_FILL_IN):
        raise UsageError(f"{where}: fill in its kind ({', '.join(KINDS)})")
    kind = str(given["kind"])
    if kind not in KINDS:
        raise UsageError(f"{where}: kind={kind}; choose from {', '.join(KINDS)}")
    needed = KINDS[kind] - {"digits"}
    unknown = sorted(set(given) - KINDS[kind] - {"kind", "missing"})
    absent = sorted(key for key in needed if given.get(key) in (None, TO_FILL_IN))
    if unknown or absent:
        raise UsageError(
            f"{where}: {f'there is no {unknown[0]} for a' if unknown else f'{absent[0]} is needed for a'} {kind}"
        )
    missing = _truth(given.get("missing", False), where)
    if kind == "category":
        values = given["values"]
        if not isinstance(values, Sequence) or isinstance(values, str):
            raise UsageError(f"{where}: give its values as a list")
        if any("${" in str(value) for value in values):
            raise UsageError(f"{where}: a value must not contain ${{")
        category = checked_category(name, values)
        if len({_word(value) for value in values}) < len(values):
            raise UsageError(f"{where}: two of its values are the same word")
        return Category(name, category.values, missing)
    ends = {"date": _day, "datetime": _moment, "time": _clock}.get(kind)
    interval = [ends(end, where) for end in given["range"]] if ends else given["range"]
    lower, upper = checked_interval(interval, f"{where}: range")
    digits = given.get("digits")
    if digits is not None and (not str(digits).isdecimal() or int(digits) > MOST_DIGITS):
        raise UsageError(f"{where}: digits={digits} must be a whole number from 0 to {MOST_DIGITS}")
    dtype = {"integer": "int64", "decimal": "float64", "date": "date", "datetime": "datetime", "time": "time"}[kind]
    if kind == "integer" and not (lower.is_integer() and upper.is_integer() and max(-lower, upper) < 2**53):
        raise UsageError(f"{where}: the range of an integer has whole ends")
    return Number(name, lower, upper, dtype, None if digits is None else int(digits), missing)


def _truth(given: Any, where: str) -> bool:
    if str(given).lower() not in ("true", "false"):
        raise UsageError(f"{where}: missing={given}; it is true or false")
    return str(given).lower() == "true"


def _day(given: Any, where: str) -> float:
    try:
        return float(np.datetime64(str(given), "D").astype(int))
    except ValueError:
        raise UsageError(f"{where}: {given!r} is no date, which is written 2001-12-31") from None


def _moment(given: Any, where: str) -> float:
    try:
        return float(np.datetime64(str(given), "s").astype(int))
    except ValueError:
        raise UsageError(f"{where}: {given!r} is no moment, which is written 2001-12-31T23:59:59") from None


def _clock(given: Any, where: str) -> float:
    found = _second(given)
    if math.isnan(found):
        raise UsageError(f"{where}: {given!r} is no time of day, which is written '23:59' or '23:59:59'")
    return found


def _second(cell: Any) -> float:
    """The second of the day; not a number where a cell holds no time."""
    parts = re.fullmatch(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?", str(cell).strip())
    if parts is None:
        return math.nan
    hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return float(3600 * hours + 60 * minutes + seconds) if hours < 24 and minutes < 60 and seconds < 60 else math.nan


AT_MOST = 16 << 20  # bytes of a schema file


class _Words(yaml.BaseLoader):
    """Every scalar is a word, so that no, 007 and 1e5 stay what they are; a name that stands twice is refused."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        names = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise yaml.YAMLError(f"'{twice}' stands there twice")
        return super().construct_mapping(node, deep)


def read(path: Path) -> dict[str, Any]:
    """A schema file as plain data."""
    try:
        content = yaml.load(read_regular(path.expanduser(), AT_MOST).decode(), Loader=_Words)
    except (DataError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"schema {printable(path)}: cannot be read ({first_line(error)})") from None
    if not isinstance(content, dict):
        raise UsageError(f"schema {printable(path)}: it holds no columns")
    return content


TEMPLATE = """\
# What is public about the columns of {file}. Fill it in from what you know without looking at the records: nothing but
# the names below was read from it. Then: dpot task=synthesize dataset=table dataset.path=... dataset.schema=...
#
#   kind: integer     range: [0, 120]
#   kind: decimal     range: [0, 1e5]        digits: 2 (optional, after the decimal point)
#   kind: date        range: [1900-01-01, 2030-12-31]
#   kind: datetime    range: [2020-01-01T00:00:00, 2030-12-31T23:59:59]      (UTC, to the second)
#   kind: time        range: ['00:00', '23:59:59']                           (of day)
#   kind: category    values: [state, private, none]
#   missing: true     there may be gaps (false unless said)
#
# A number outside its range becomes the nearer end of it. What cannot be read, is not among the values or is not there
# counts as missing; where missing is false, as the lower end or the first of the values. A column that you delete here
# is left out.
label: {label} # the column that holds the class, a category; null: there is none
columns:
{columns}
"""


def template(file: str, names: Sequence[str], label: str | None) -> str:
    """A schema to be filled in."""
    quoted = {name: name if PLAIN.fullmatch(name) else json.dumps(name, ensure_ascii=False) for name in names}
    kinds = {name: "category\n    values: " if name == label else "" for name in names}
    columns = "\n".join(f"  {quoted[name]}:\n    kind: {kinds[name]}{TO_FILL_IN}" for name in names)
    return TEMPLATE.format(file=printable(file), label=quoted.get(label or "", "null"), columns=columns)
