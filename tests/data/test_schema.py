"""Schemas: nothing is taken from the records, and a record that does not fit changes itself alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpot.composing import compose_config
from dpot.data.coding import load_coding
from dpot.data.schema import Schema, read, template
from dpot.data.table import Table, column_names
from dpot.errors import UsageError
from dpot.launch import run

PEOPLE = """
label: income
columns:
  age: {kind: integer, range: [0, 120]}
  pay: {kind: decimal, range: [0, 1e5], digits: 2, missing: true}
  work: {kind: category, values: [state, no, 007], missing: true}
  born: {kind: date, range: [1900-01-01, 2030-12-31]}
  income: {kind: category, values: [low, high]}
"""
HEADER = "income,age,pay,work,born,note\n"
ROWS = ["low,30,10.5,state,1990-05-03,x\n", "high,41,,no,2001-01-01,y\n"] * 3


@pytest.fixture
def schema(tmp_path: Path) -> Schema:
    (tmp_path / "people.yaml").write_text(PEOPLE)
    return Schema.of(tmp_path / "people.yaml")


def load(tmp_path: Path, rows: list[str]) -> Any:
    (tmp_path / "people.yaml").write_text(PEOPLE)
    (tmp_path / "t.csv").write_text(HEADER + "".join(rows))
    return Table(str(tmp_path / "t.csv"), schema=str(tmp_path / "people.yaml"), test_fraction=0.2).load()


def test_yaml_takes_no_word_for_something_else(schema: Schema) -> None:
    assert schema.columns[2].values == ("state", "no", "007")  # type: ignore[union-attr]
    assert schema.classes == ("low", "high")
    assert schema.coding.names[:3] == ["age", "pay", "born"]
    assert schema.coding.names[3:] == ["pay missing", "work=state", "work=no", "work=007", "work missing"]


def test_a_table_is_read_as_it_is_declared_and_nothing_is_taken_from_it(tmp_path: Path) -> None:
    data = load(tmp_path, ROWS)
    assert data.taken == ()
    assert data.class_names == ("low", "high")
    assert len(data.uncovered) == 1  # which are held out
    back = load_coding(data.coding).decode(data.train.x[:, :, None, None])
    assert list(back.columns) == ["age", "pay", "work", "born"]  # in the schema's order, without what it leaves out
    assert back["age"].tolist()[:2] == [30, 41]
    assert back["age"].dtype == np.int64
    assert back["pay"].tolist()[0] == 10.5
    assert back["pay"].isna().tolist()[:2] == [False, True]
    assert back["work"].tolist()[:2] == ["state", "no"]
    assert back["born"].dt.strftime("%Y-%m-%d").tolist()[:2] == ["1990-05-03", "2001-01-01"]


@pytest.mark.parametrize(
    ("row", "becomes"),
    [
        ("low,41.5,10.5,state,1990-05-03,\n", {"age": 42}),  # one fraction would make a column of fractions of all
        ("low,-7,2e9,state,1890-01-01,\n", {"age": 0, "pay": 1e5, "born": pd.Timestamp("1900-01-01")}),
        ("low,old,inf,astronaut,soon,\n", {"age": 0, "pay": 1e5, "work": None, "born": pd.Timestamp("1900-01-01")}),
        ("astronaut,30,nan,,1990-05-03,\n", {"pay": np.nan, "work": None}),
    ],
)
def test_a_record_that_does_not_fit_changes_itself_alone(tmp_path: Path, row: str, becomes: dict[str, Any]) -> None:
    usual, odd = load(tmp_path, ROWS), load(tmp_path, [row, *ROWS[1:]])
    assert (odd.coding, odd.columns, odd.class_names, odd.taken) == (usual.coding, usual.columns, usual.class_names, ())
    assert odd.train.x.shape == usual.train.x.shape
    assert (odd.train.x[1:] == usual.train.x[1:]).all()
    assert (odd.train.y == usual.train.y).all()  # a class that is not declared is the first
    record = load_coding(odd.coding).decode(odd.train.x[:1, :, None, None]).iloc[0]
    for name, value in becomes.items():
        assert pd.isna(record[name]) if pd.isna(value) else record[name] == value


cells = st.one_of(st.none(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=4), st.booleans())


@settings(max_examples=25, deadline=None)
@given(cell=cells, column=st.sampled_from(["age", "pay", "work", "born", "income"]))
def test_no_cell_at_all_is_an_error_or_moves_another_record(cell: Any, column: str) -> None:
    declared = {"label": "income", "columns": COLUMNS}
    frame = pd.DataFrame(
        {"age": [1, 2], "pay": [1.0, 2.0], "work": ["a", "b"], "born": ["1990-01-01"] * 2, "income": ["low", "high"]},
        dtype=object,
    )
    schema = Schema.of(declared)
    before = schema.coding.encode(schema.conform(frame))
    frame.loc[0, column] = cell
    fitting = schema.conform(frame)
    after = schema.coding.encode(fitting)
    assert ((after >= 0) & (after <= 1)).all()
    assert (after[1] == before[1]).all()
    assert schema.class_numbers(fitting)[1] == 1


COLUMNS: dict[str, Any] = {
    "age": {"kind": "integer", "range": [0, 120]},
    "pay": {"kind": "decimal", "range": [0, 10], "missing": True},
    "work": {"kind": "category", "values": ["a", "b"]},
    "born": {"kind": "date", "range": ["1900-01-01", "2030-12-31"]},
    "income": {"kind": "category", "values": ["low", "high"]},
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"columns": {}}, "has none"),
        ({"more": 1}, "not more"),
        ({"label": "age"}, "the label 'age' must be"),
        ({"columns": COLUMNS | {"age": {"kind": "???"}}}, "fill in its kind"),
        ({"columns": COLUMNS | {"age": {"kind": "number"}}}, "kind=number; choose from integer"),
        ({"columns": COLUMNS | {"age": {"kind": "integer"}}}, "range is needed for a integer"),
        ({"columns": COLUMNS | {"age": {"kind": "integer", "range": [0, 1.5]}}}, "whole ends"),
        ({"columns": COLUMNS | {"age": {"kind": "integer", "range": [5, 1]}}}, "lower must be below upper"),
        ({"columns": COLUMNS | {"age": {"kind": "integer", "range": [0, 9], "digits": 2}}}, "no digits"),
        ({"columns": COLUMNS | {"work": {"kind": "category", "values": ["a", "a"]}}}, "different words"),
        ({"columns": COLUMNS | {"work": {"kind": "category", "values": [1, 1.0]}}}, "different words|same word"),
        ({"columns": COLUMNS | {"born": {"kind": "date", "range": ["old", "new"]}}}, "no date"),
        ({"columns": COLUMNS | {"pay": {"kind": "decimal", "range": [0, 1], "missing": "maybe"}}}, "missing=maybe"),
    ],
)
def test_what_is_no_schema_is_said_in_one_line(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Schema.of({"label": "income", "columns": COLUMNS} | change)


def test_a_column_that_stands_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("columns:\n  age: {kind: integer, range: [0, 9]}\n  age: {kind: date}\n")
    with pytest.raises(UsageError, match="'age' stands there twice"):
        read(tmp_path / "s.yaml")


def test_a_template_has_the_names_and_nothing_of_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"age": [41], "a: b": [2.5], "no": ["astronaut"], "income": ["poor"]})
    frame.to_csv("t.csv", index=False)
    frame.assign(no=frame["no"].astype("category")).to_parquet("t.parquet")
    assert column_names(Path("t.parquet")) == column_names(Path("t.csv")) == list(frame.columns)
    answer = run(compose_config(["task=schema", "dataset.path=t.csv", "dataset.label=income"]))
    text = Path(answer.data["schema"]).read_text()
    assert not any(value in text for value in ("41", "2.5", "astronaut", "poor"))
    content = read(Path("t.schema.yaml"))
    assert content["label"] == "income"
    assert list(content["columns"]) == list(frame.columns)
    with pytest.raises(UsageError, match="fill in its kind"):
        Schema.of(content)
    with pytest.raises(UsageError, match="there already"):
        run(compose_config(["task=schema", "dataset.path=t.csv"]))
    with pytest.raises(UsageError, match=r"dataset.label=pay: the columns are age, a: b, no, income"):
        run(compose_config(["task=schema", "dataset.path=t.csv", "dataset.label=pay", "task.file=new.yaml"]))
    assert read_back(template("t.csv", ["x\n y", "é"], None)) == ["x\n y", "é"]


def read_back(text: str) -> list[str]:
    Path("other.yaml").write_text(text)
    return list(read(Path("other.yaml"))["columns"])


def test_other_content_of_a_schema_file_is_another_run(tmp_path: Path) -> None:
    from dpot.fingerprint import fingerprint
    from dpot.tasks.synthesize import Synthesize

    found = []
    for text in (PEOPLE, PEOPLE.replace("120", "130"), PEOPLE):
        (tmp_path / "people.yaml").write_text(text)
        cfg = compose_config(["task=synthesize", "dataset=table", f"dataset.schema={tmp_path / 'people.yaml'}"])
        Synthesize().check(cfg)
        found.append(fingerprint(cfg))
    assert found[0] == found[2] != found[1]
