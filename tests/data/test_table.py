"""The user's own table."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpot.data.base import Dataset
from dpot.data.table import Table, class_numbers, numeric, read_table
from dpot.errors import DataError, UsageError

WHERE = Path("t.csv")


def load(path: Path, **options: Any) -> Dataset:
    return Table(str(path), **options).load()


def rows(data: Dataset) -> list[tuple[float, ...]]:
    """Every record with its label, sorted: the split reorders them."""
    assert data.train.y is not None
    assert data.test.y is not None
    x = np.concatenate([data.train.x.numpy(), data.test.x.numpy()])
    y = np.concatenate([data.train.y.numpy(), data.test.y.numpy()])
    return sorted(map(tuple, np.column_stack([x, y]).tolist()))


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
def test_formats(tmp_path: Path, name: str) -> None:
    table = pd.DataFrame(
        {
            "age": [31, 42, 53, 64],
            "pay": [1.5, 2.5, 3.5, 4.5],
            "fit": [True, False, True, True],
            "label": [5, 7, 5, 7],
        }
    )
    path = tmp_path / name
    table.to_parquet(path) if name.endswith("parquet") else table.to_csv(path, index=False)
    data = load(path)
    assert data.columns == ("age", "pay", "fit")
    assert data.class_names == ("5", "7")
    assert rows(data) == [(31, 1.5, 1, 0), (42, 2.5, 0, 1), (53, 3.5, 1, 0), (64, 4.5, 1, 1)]
    assert data.kind == "table"


def test_a_private_table_has_no_plain_checksum_and_says_what_its_records_decided(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("age,label\n31,a\n42,b\n")
    data = load(path)
    assert data.checksum.startswith("hmac-sha256:")
    assert [note.partition(":")[0] for note in data.taken] == [
        "which classes there are",
        "the columns and their types, whole numbers or not",
    ]
    assert [note.partition(":")[0] for note in data.uncovered] == ["which records are held out, or left out by a limit"]
    path.write_text("age,label\n31,a\n43,b\n")
    assert load(path).checksum != data.checksum


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(2, 20), st.integers(1, 5)),
        elements=st.floats(-1e30, 1e30, allow_subnormal=False),
    ),
    st.sampled_from(["csv", "parquet"]),
)
def test_any_finite_table_comes_back(values: np.ndarray, ending: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t.{ending}"
        table = pd.DataFrame(values, columns=[f"c{i}" for i in range(values.shape[1])])
        table.to_parquet(path) if ending == "parquet" else table.to_csv(path, index=False)
        read = numeric(read_table(path), path)
    np.testing.assert_array_equal(read, values.astype(np.float32))


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_table_or_a_data_error(junk: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for ending in ("csv", "parquet"):
            path = Path(folder) / f"t.{ending}"
            path.write_bytes(junk)
            try:
                values = numeric(read_table(path), path)
            except DataError:
                continue
            assert np.isfinite(values).all()


@given(st.lists(st.sampled_from(["b", "a", "c"]), min_size=6, max_size=30))
def test_classes_are_numbered_in_sorted_order(words: list[str]) -> None:
    numbers, names = class_numbers(pd.Series(words, name="label"), WHERE)
    assert [names[n] for n in numbers] == words
    assert list(names) == sorted(set(words))


def test_whole_floats_are_classes() -> None:
    numbers, names = class_numbers(pd.Series([2.0, 10.0, 2.0, 10.0]), WHERE)
    assert names == ("2", "10")  # by number, not by spelling
    assert numbers.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a,label\n1,0\n,1\n3,0\n4,1\n", "column 'a' has no value in record 2"),
        ("a,label\n1,0\nNaN,1\n3,0\n4,1\n", "column 'a' has no value in record 2"),
        ("a,label\n1,0\ninf,1\n3,0\n4,1\n", "record 1 holds a value that is not a finite number"),
        ("a,label\n1,0\n1e300,1\n3,0\n4,1\n", "record 1 holds a value that is not a finite number"),
        ("a,city,label\n1,x,0\n2,y,1\n3,x,0\n4,y,1\n", "column 'city' is not numeric"),
        ("a,label\n1,\n2,1\n3,0\n4,1\n", "mislabelled: record 1 has no label"),
        ("a,label\n1,0.5\n2,1\n3,0\n4,1\n", "mislabelled: column 'label' holds fractions"),
        ("a,label\n1,5\n2,6\n3,7\n4,8\n", "mislabelled: column 'label' has 4 values in 4 records"),
        ("a,a,label\n1,2,0\n3,4,1\n", "two columns named 'a'"),
        ("a,label\n1,0,9\n2,1,9\n", "not a readable table"),
        ("a,label\n1,0\n2,1,9\n", "not a readable table"),
        ("a,label\n", "holds 0 records"),
        ("a,label\n1,0\n", "holds 1 records"),
        ("label\n0\n1\n0\n1\n", "no column beside the label"),
        ("", "not a readable table"),
    ],
)
def test_refused_by_name(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "people.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=rf"people\.csv.*{why}"):
        load(path)


def test_damaged_files(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": np.arange(50.0), "label": np.arange(50) % 2})
    for name in ("t.parquet", "t.csv.gz"):
        path = tmp_path / name
        table.to_parquet(path) if name.endswith("parquet") else path.write_bytes(gzip.compress(table.to_csv().encode()))
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(DataError, match=name):
            load(path)


def test_label_column(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n3,4\n5,6\n")
    with pytest.raises(UsageError, match=r"dataset\.label=label: .* has the columns a, b"):
        load(path)
    data = load(path, label=None)
    assert data.train.y is None
    assert data.classes == 1
    assert data.shape == (2,)


def test_categories_that_come_with_a_parquet_file_are_not_taken_to_be_declared(tmp_path: Path) -> None:
    frame = pd.DataFrame({"age": [1, 2, 3, 4], "work": pd.Series(["a", "b", "a", "astronaut"], dtype="category")})
    frame.to_parquet(tmp_path / "t.parquet")
    found = load(tmp_path / "t.parquet", label=None, bounds={"age": [0, 9]}).taken
    assert [note.partition(":")[0] for note in found][1:] == ["the values of work"]
    known = {"work": ["a", "b", "astronaut"]}
    given = load(tmp_path / "t.parquet", label=None, bounds={"age": [0, 9]}, categories=known).taken
    assert [note.partition(":")[0] for note in given] == ["the columns and their types, whole numbers or not"]


def test_bounds_scale_without_looking_at_the_data(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b,label\n-5,0,0\n0,10,1\n5,20,0\n10,40,1\n")
    one = load(path, bounds=[0.0, 10.0])
    assert rows(one) == [(0, 0, 0), (0, 1, 1), (0.5, 1, 0), (1, 1, 1)]
    per_column = load(path, bounds=[[-10.0, 10.0], [0.0, 40.0]])
    assert rows(per_column) == [(0.25, 0, 0), (0.5, 0.25, 1), (0.75, 0.5, 0), (1, 1, 1)]
    assert "dataset.bounds" in load(path).note
    assert "dataset.bounds" not in one.note
    for wrong in ([1.0, 1.0], [[0.0, 1.0]], [0.0, float("inf")], [1.0, 2.0, 3.0]):
        with pytest.raises(UsageError, match=r"dataset\.bounds"):
            load(path, bounds=wrong)


def test_paths(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"dataset\.path"):
        Table().load()
    with pytest.raises(DataError, match="is not a file"):
        load(tmp_path / "gone.csv")
    (tmp_path / "t.xlsx").touch()
    with pytest.raises(UsageError, match=r"a table is a \.csv"):
        load(tmp_path / "t.xlsx")
