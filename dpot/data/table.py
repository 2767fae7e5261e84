"""The user's own table: a CSV or Parquet file of numbers and categories, one column of which may be the label."""

from __future__ import annotations

import csv
import io
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpot.data.base import Status, join_notes
from dpot.data.cache import Builder
from dpot.data.coding import TableCoding, taken_from
from dpot.data.files import Layout, Wanted, first_line, inflated, open_regular, printable, refuse, unpacked_at_most
from dpot.data.formats import check_features, read_plain
from dpot.data.schema import Schema
from dpot.data.source import BY_PLACE, Facts, FileSource
from dpot.data.splits import hold_out_fraction
from dpot.errors import DataError, UsageError
from dpot.ranges import Count, Probability

if TYPE_CHECKING:
    import pandas as pd

TABLE_AT_MOST = 4 << 30
HEADER_AT_MOST = 1 << 20
COLUMNS_AT_MOST = 100_000  # gene expression tables have 20,000 to 60,000
CSV_ENDINGS = (".csv", ".csv.gz")
PARQUET_ENDINGS = (".parquet", ".pq")


class Table(FileSource):
    """float32 N×d. Values are left as they are, unless `bounds` gives their range beforehand.

    bounds=[lower, upper] (or one such pair per column, or {column: [lower, upper]}) clips and scales to [0, 1].
    Bounds must be known without looking at the data: the minimum and maximum of private columns are themselves
    private, which is why nothing here normalises by what it sees. A column of words needs its values in
    categories={column: [value, …]} and becomes one 0/1 column per value. A schema (dpot/data/schema.py) declares all of
    this, and the types and classes too, so that nothing is taken from the records. A share test_fraction is held out by
    position.
    """

    name = "table"
    licence = "yours"
    source = "your own file"
    public = False
    decoder = 2

    def __init__(
        self,
        path: str | None = None,
        label: str | None = "label",
        bounds: list[float] | list[list[float]] | dict[str, list[float]] | None = None,
        categories: dict[str, list[Any]] | None = None,
        schema: str | dict[str, Any] | None = None,
        test_fraction: Probability = 0.1,
        limit: Count | None = None,
        limit_test: Count | None = None,
        streamed: bool = False,
    ) -> None:
        super().__init__(limit, limit_test)
        self.streamed = streamed  # not read here, but by an engine
        self.path = path
        self.label = label
        self.bounds = bounds
        self.categories = categories
        self.schema = None if schema is None else Schema.of(schema)
        if self.schema is not None and (bounds is not None or categories):
            raise UsageError(
                "dataset.schema: it declares ranges and categories; leave dataset.bounds and categories out"
            )
        self.test_fraction = test_fraction

    def options(self) -> dict[str, object]:
        own = {"label": self.label, "bounds": self.bounds, "test_fraction": self.test_fraction}
        declared = {"schema": repr(self.schema)} if self.schema is not None else {}
        return own | ({"categories": self.categories} if self.categories else {}) | declared

    def taken(self, facts: Facts) -> tuple[str, ...]:
        return super().taken(facts) if self.schema is None else ()

    def uncovered(self, facts: Facts) -> tuple[str, ...]:
        return (BY_PLACE,)

    def layouts(self) -> tuple[Layout, ...]:
        return (Layout("full", (Wanted("table", ()),)),)

    def resolve(self, data_root: str | Path | None, download: bool) -> tuple[Layout, dict[str, Path]]:
        if not self.path:
            raise UsageError("dataset.path: must be given, the path of a .csv or .parquet file")
        path = Path(self.path).expanduser()
        if not path.is_file():
            raise DataError(f"{printable(path)} is not a file: set dataset.path to a .csv or .parquet file")
        return self.layouts()[0], {"table": path}

    def status(self, data_root: str | Path | None = None) -> Status:
        return Status(False, place="set dataset.path to a .csv or .parquet file of your own")

    def fetch(self, data_root: str | Path | None = None) -> list[Path]:
        raise UsageError(f"{self.name}: there is nothing to fetch; set dataset.path to your own file")

    def decode(self, layout: Layout, paths: Mapping[str, Path], builder: Builder) -> Facts:
        path = paths["table"]
        if self.schema is not None:
            return self._declared(self.schema, read_table(path, as_words=True), builder)
        table = read_table(path)
        labels: np.ndarray | None = None
        names: tuple[str, ...] = ()
        if self.label is not None:
            if self.label not in table.columns:
                raise UsageError(
                    f"dataset.label={self.label}: {printable(path)} has the columns "
                    f"{printable(', '.join(map(str, table.columns))[:500])} (null: no label)"
                )
            labels, names = class_numbers(table.pop(self.label), path)
        note, coding, columns = "", {}, list(map(str, table.columns))
        if self.categories or isinstance(self.bounds, dict):
            coded = TableCoding.of(table, self.bounds, self.categories)
            x, columns, coding = coded.encode(table).flatten(1).numpy(), coded.names, coded.to_dict()
        elif self.bounds is not None:
            x = self._scale(numeric(table, path))
            coding = TableCoding.of(table, self.bounds).to_dict()
        else:
            x = numeric(table, path)
            note = "values as they are: give dataset.bounds for a method that needs a bounded range"
        taken = taken_from(table, self.categories)
        return self._put(
            builder, x, labels, class_names=names, columns=tuple(columns), coding=coding, note=note, taken=taken
        )

    def _declared(self, schema: Schema, table: pd.DataFrame, builder: Builder) -> Facts:
        """The table as its schema reads it."""
        fitting = schema.conform(table)
        labels = None if schema.label is None else schema.class_numbers(fitting)
        coding, names = schema.coding, tuple(map(str, schema.classes))
        x = coding.encode(fitting).flatten(1).numpy()
        return self._put(
            builder,
            x,
            labels,
            class_names=names,
            columns=tuple(coding.names),
            coding=coding.to_dict(),
            note="by its schema",
        )

    def _put(self, builder: Builder, x: np.ndarray, labels: np.ndarray | None, *, note: str, **more: Any) -> Facts:
        """Keep both parts of the table, and what is to be known of it."""
        for part, rows in zip(("train", "test"), hold_out_fraction(len(x), self.test_fraction), strict=True):
            builder.put(f"{part}_x", x[rows])
            if labels is not None:
                builder.put(f"{part}_y", labels[rows])
        classes = max(len(more["class_names"]), 1)
        return Facts(classes, "table", note=join_notes("your own table", note), comparable=False, **more)

    def _scale(self, x: np.ndarray) -> np.ndarray:
        bounds = np.asarray(self.bounds, np.float64)
        if bounds.shape == (2,):
            bounds = np.broadcast_to(bounds, (x.shape[1], 2))
        if bounds.shape != (x.shape[1], 2) or not np.isfinite(bounds).all() or (bounds[:, 0] >= bounds[:, 1]).any():
            raise UsageError(
                f"dataset.bounds: give [lower,upper] with lower < upper, or {x.shape[1]} such pairs, one per column"
            )
        lower, upper = bounds.T
        return ((x.clip(lower, upper) - lower) / (upper - lower)).astype(np.float32)


def read_table(path: Path, as_words: bool = False) -> pd.DataFrame:
    """The table with its own column types; refused if ragged, empty or with a column named twice.

    as_words: the cells of a CSV stay words, so that none of them decides how another one is read.
    """
    import pandas as pd
    import pyarrow

    name = path.name.lower()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
            if name.endswith(PARQUET_ENDINGS):
                table = _read_parquet(path)
            elif name.endswith(CSV_ENDINGS):
                data = read_plain(path, TABLE_AT_MOST)
                _check_names(_header(data, path), path)  # pandas would rename the second of two
                words: dict[str, Any] = {"dtype": str, "keep_default_na": False} if as_words else {}
                table = pd.read_csv(
                    io.BytesIO(data), index_col=False, float_precision="round_trip", skipinitialspace=True, **words
                )
            else:
                raise UsageError(f"{printable(path)}: a table is a .csv, .csv.gz or .parquet file")
    except (
        *(ValueError, OSError, LookupError, TypeError, AttributeError, NotImplementedError),  # by pandas' metadata
        *(pd.errors.ParserError, pd.errors.ParserWarning, pyarrow.ArrowException, csv.Error),
    ) as error:
        raise refuse(path, f"is not a readable table ({first_line(error)})") from None
    if len(table) < 2 or table.columns.empty:
        raise refuse(path, f"holds {len(table)} records; at least 2 are needed")
    _check_names(map(str, table.columns), path)
    return table


def column_names(path: Path) -> list[str]:
    """The names of the columns of a file, without a look at its records."""
    import pyarrow.parquet

    name = path.name.lower()
    if not name.endswith((*PARQUET_ENDINGS, *CSV_ENDINGS)):
        raise UsageError(f"{printable(path)}: a table is a .csv, .csv.gz or .parquet file")
    try:
        if name.endswith(PARQUET_ENDINGS):
            with open_regular(path) as f:
                names = pyarrow.parquet.read_schema(f).names
        else:
            names = _header(read_plain(path, TABLE_AT_MOST), path)
    except (ValueError, OSError, pyarrow.ArrowException, csv.Error) as error:
        raise refuse(path, f"is not a readable table ({first_line(error)})") from None
    _check_names(names, path)
    return names


def _check_names(names: Iterable[str], path: Path) -> None:
    counts = Counter(names)
    if counts.total() > COLUMNS_AT_MOST:
        raise refuse(path, f"has {counts.total():,} columns, more than the {COLUMNS_AT_MOST:,} that are read")
    twice = next((name for name, times in counts.items() if times > 1), None)
    if twice is not None:
        raise refuse(path, f"has two columns named '{twice}'")


def _header(data: bytes, path: Path) -> list[str]:
    """The names of the columns of a CSV, which must stand at the beginning: pandas has no bound for them."""
    rows = csv.reader(
        io.StringIO(data[:HEADER_AT_MOST].decode("utf-8-sig", "replace"), newline=""), skipinitialspace=True
    )
    names = next((row for row in rows if row), [])
    if len(data) > HEADER_AT_MOST and next(rows, None) is None:
        raise refuse(path, f"does not end its first line within {HEADER_AT_MOST:,} bytes")
    return names


def _read_parquet(path: Path) -> pd.DataFrame:
    """A Parquet file whose footer promises a bounded table. Its pages' checksums are compared where it has any.

    Words are read as references to the different ones, and written out when their size is known.
    """
    import pyarrow.compute
    import pyarrow.parquet

    with open_regular(path) as f:
        size = os.fstat(f.fileno()).st_size
        bound = min(TABLE_AT_MOST, unpacked_at_most(size))
        footer = pyarrow.parquet.read_metadata(f)
        packed = sum(footer.row_group(i).total_byte_size for i in range(footer.num_row_groups))
        if max(packed, 8 * footer.num_rows * footer.num_columns) > bound:
            raise inflated(path, size)
        schema = footer.schema.to_arrow_schema()
        words = [i for i, field in enumerate(schema) if field.type in (pyarrow.string(), pyarrow.large_string())]
        names = [schema.field(i).name for i in words]
        file = pyarrow.parquet.ParquetFile(f, read_dictionary=names, page_checksum_verification=True)
        table = file.read()
    written_out = 0
    for i in words:
        for chunk in table.column(i).chunks:
            lengths = pyarrow.compute.binary_length(chunk.dictionary)
            written_out += pyarrow.compute.sum(lengths.take(chunk.indices)).as_py() or 0
    if written_out > bound:
        raise inflated(path, size)
    for i in words:
        table = table.set_column(i, schema.field(i), table.column(i).cast(schema.field(i).type))
    return table.to_pandas()


def numeric(table: pd.DataFrame, path: Path) -> np.ndarray:
    """The columns as float32 N×d; a text column, a gap or an infinite value is refused by column and row."""
    import pandas as pd

    for column in table.columns:
        values = table[column]
        if not pd.api.types.is_numeric_dtype(values) or pd.api.types.is_complex_dtype(values):
            shown = printable(str(column))
            raise DataError(
                f"{printable(path)}: column '{shown}' is not numeric: give dataset.categories={{{shown}:[...]}} or "
                "leave it out"
            )
        gaps = np.flatnonzero(values.isna().to_numpy())
        if len(gaps):
            raise refuse(path, f"column '{column}' has no value in record {gaps[0] + 1}: fill or drop it")
    if not len(table.columns):
        raise refuse(path, "has no column beside the label")
    return check_features(table.to_numpy(np.float64), path)


def class_numbers(values: pd.Series, path: Path) -> tuple[np.ndarray, tuple[str, ...]]:
    """(class numbers, class names in sorted order) of a label column of whole numbers, booleans or words."""
    import pandas as pd

    gaps = np.flatnonzero(values.isna().to_numpy())
    if len(gaps):
        raise refuse(path, f"mislabelled: record {gaps[0] + 1} has no label")
    if pd.api.types.is_float_dtype(values):
        if not np.isfinite(values).all() or (values % 1 != 0).any():
            raise refuse(path, f"mislabelled: column '{values.name}' holds fractions, not classes")
        values = values.astype(np.int64)
    elif not pd.api.types.is_integer_dtype(values):
        values = values.astype(str)
    names, numbers = np.unique(values.to_numpy(), return_inverse=True)
    if len(names) > max(2, len(values) // 2):
        raise refuse(path, f"mislabelled: column '{values.name}' has {len(names)} values in {len(values)} records")
    return numbers.astype(np.int64), tuple(map(str, names))
