"""Tables as people have them: dialects, columns to leave out, dates and times, several things wrong at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpot import Synthesizer
from dpot.data.schema import Schema
from dpot.data.table import Table, column_names, read_table
from dpot.errors import DataError, UsageError

ROWS = [(20 + i, i / 4, "ab"[i % 2]) for i in range(40)]


def write(place: Path, separator: str, decimal: str = ".") -> Path:
    lines = [f"{age}{separator}{str(pay).replace('.', decimal)}{separator}{label}" for age, pay, label in ROWS]
    place.write_text("\n".join([separator.join(("age", "pay", "label")), *lines]) + "\n")
    return place


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_first_line_says_how_cells_are_separated(tmp_path: Path, separator: str) -> None:
    path = write(tmp_path / "t.csv", separator)
    assert column_names(path) == ["age", "pay", "label"]
    table = read_table(path)
    assert table["pay"].tolist() == [pay for _, pay, _ in ROWS]
    assert table["label"].tolist() == [label for *_, label in ROWS]


def test_a_comma_among_other_characters_is_the_separator(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a;b,c\n1,2\n3,4\n")
    assert list(read_table(tmp_path / "t.csv").columns) == ["a;b", "c"]
    assert list(read_table(tmp_path / "t.csv", separator=";").columns) == ["a", "b,c"]


def test_decimal_commas_with_and_without_a_schema(tmp_path: Path) -> None:
    path = str(write(tmp_path / "t.csv", ";", ","))
    plain = Table(path, bounds={"age": [0, 100], "pay": [0, 10]}, decimal=",").load()
    schema = {
        "label": "label",
        "columns": {
            "age": {"kind": "integer", "range": [0, 100]},
            "pay": {"kind": "decimal", "range": [0, 10]},
            "label": {"kind": "category", "values": ["a", "b"]},
        },
    }
    declared = Table(path, schema=schema, decimal=",").load()
    assert np.allclose(plain.train.x, declared.train.x)
    assert float(plain.train.x[:, 1].max()) == pytest.approx(max(pay for _, pay, _ in ROWS) / 10, abs=0.05)
    with pytest.raises(UsageError, match=r"dataset\.separator"):
        Table(path, separator=";;")


def test_columns_can_be_left_out(tmp_path: Path) -> None:
    path = str(write(tmp_path / "t.csv", ","))
    data = Table(path, bounds={"age": [0, 100]}, exclude=["pay"]).load()
    assert data.columns == ("age",)
    with pytest.raises(UsageError, match="no column 'phone'"):
        Table(path, bounds={"age": [0, 100]}, exclude=["phone"]).load()


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    frame = pd.DataFrame({"age": [1.0, None, 3.0], "name": ["x", "y", "z"], "work": ["a", "b", "?"], "pay": [1, 2, 3]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match="4 problems") as caught:
        Table(str(tmp_path / "t.csv"), None, {"age": [0, 9]}, {"work": ["a", "b"]}).load()
    age, name, work, pay = caught.value.listed
    assert "no value in 1 records" in age
    assert "dataset.exclude=[name]" in name
    assert "1 cells are not among its values, the first in record 2" in work
    assert "dataset.bounds={pay:" in pay


def test_dates_and_times_come_back_as_such() -> None:
    times = {
        "born": {"kind": "date", "range": ["1900-01-01", "2030-12-31"]},
        "seen": {"kind": "datetime", "range": ["2020-01-01T00:00:00", "2020-01-02T00:00:00"], "missing": True},
        "woke": {"kind": "time", "range": ["00:00", "23:59:59"]},
    }
    schema = Schema.of({"columns": times})
    seen = ["2020-01-01T06:30:15", "2019-05-05", "soon", "2020-01-01 12:00"]
    frame = pd.DataFrame({"born": ["1999-12-31"] * 4, "seen": seen, "woke": ["07:05", "23:59:59", "25:00", ""]})
    coding = schema.coding
    back = coding.decode(coding.encode(schema.conform(frame)).double())
    assert [str(day)[:10] for day in back["born"]] == ["1999-12-31"] * 4
    moments = [None if pd.isna(moment) else str(moment) for moment in back["seen"]]
    assert moments == ["2020-01-01 06:30:15", "2020-01-01 00:00:00", None, "2020-01-01 12:00:00"]
    assert list(back["woke"]) == ["07:05:00", "23:59:59", "00:00:00", "00:00:00"]
    for wrong in ({"kind": "time", "range": ["0", "1"]}, {"kind": "datetime", "range": ["x", "y"]}):
        with pytest.raises(UsageError, match="which is written"):
            Schema.of({"columns": {"t": wrong}})


def test_a_table_with_times_is_synthesized() -> None:
    random = np.random.default_rng(0)
    hours = [f"{hour:02d}:30" for hour in random.integers(8, 12, 2000)]
    schema = {"columns": {"woke": {"kind": "time", "range": ["00:00", "23:59:59"]}}}
    made, _ = Synthesizer(5, 1e-5, schema=schema, steps=20).fit(pd.DataFrame({"woke": hours})).sample(500)
    assert made["woke"].str.fullmatch(r"\d\d:\d\d:\d\d").all()
    assert made["woke"].between("08:00", "12:00").mean() > 0.95
