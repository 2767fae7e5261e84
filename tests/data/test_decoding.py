"""Batches decoded by workers are the records that the in-memory path makes of the same cells."""

import datetime
import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from dpot.data.coding import ImageCoding
from dpot.data.decoding import ImageDecoder, TableDecoder
from dpot.data.partitions import _place, checksum, image_partitions, table_partitions
from dpot.data.schema import Schema
from dpot.data.table import Table, read_table
from dpot.errors import DataError

SCHEMA = Schema.of(
    {
        "label": "y",
        "columns": {
            "whole": {"kind": "integer", "range": [0, 10]},
            "part": {"kind": "decimal", "range": [-1, 1], "missing": True},
            "word": {"kind": "category", "values": ["a", "1", "true"], "missing": True},
            "day": {"kind": "date", "range": ["1990-01-01", "2020-12-31"]},
            "y": {"kind": "category", "values": ["no", "yes"]},
        },
    }
)
NUMBERS = st.none() | st.integers(-20, 20) | st.floats(allow_nan=True, allow_infinity=True)
WORDS = st.none() | st.sampled_from(["a", " a", "1", "1.0", "True", "true", "", "?", "é"])
DAYS = st.none() | st.sampled_from(["2001-02-03", "1890-01-01", "2030-01-01", "never"])


def held(frame):
    """As the in-memory path has them."""
    fitting = SCHEMA.conform(frame)
    return SCHEMA.coding.encode(fitting).flatten(1), torch.from_numpy(SCHEMA.class_numbers(fitting))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS, WORDS, DAYS, WORDS), min_size=1, max_size=8))
def test_odd_cells_are_read_by_the_rule_of_the_schema(rows):
    names = ["whole", "part", "word", "day", "y"]
    cells = dict(zip(names, zip(*rows, strict=True), strict=True))
    typed = {"whole": pa.float64(), "part": pa.float64(), "word": pa.string(), "day": pa.string(), "y": pa.string()}
    batch = pa.table({name: pa.array([_as(typed[name], c) for c in cells[name]], typed[name]) for name in names})
    records, labels = TableDecoder(SCHEMA)(batch)
    expected, classes = held(batch.to_pandas())
    assert torch.equal(records, expected)
    assert torch.equal(labels, classes)


def _as(kind, cell):
    return float(cell) if cell is not None and kind == pa.float64() else cell


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("whole", pa.array([1, None, 300], pa.int16())),
        ("whole", pa.array(["3", "x", None])),
        ("part", pa.array([True, False, None])),
        ("word", pa.array([1, 2, None])),
        ("word", pa.array(["a", None, "1"]).dictionary_encode()),
        ("word", pa.array([True, None, False])),
        ("day", pa.array([datetime.date(2001, 2, 3), None, datetime.date(1800, 1, 1)])),
        ("day", pa.array([datetime.datetime(2001, 2, 3, 4, 5), None, datetime.datetime(2040, 1, 1)])),
    ],
)
def test_columns_of_any_type_are_read_as_pandas_would_have_them(name, column):
    base = {"whole": [1, 2, 3], "part": [0.0, 0.5, 1.0], "word": ["a", "1", "?"], "day": ["2001-01-01"] * 3}
    batch = pa.table(base | {"y": ["no", "yes", "no"]} | {name: column})
    plain = pa.table(base | {"y": ["no", "yes", "no"]}).to_pandas()
    plain[name] = pd.Series(column.to_pylist(), dtype=object)
    assert torch.equal(TableDecoder(SCHEMA)(batch)[0], held(plain)[0])


def test_a_csv_gives_the_records_and_the_checksum_that_it_has_in_memory(tmp_path):
    lines = ["whole,part,word,day,y", "3,0.5, a,2001-02-03,yes", 'x,,"a",never,no', "12,-7,true,2001-02-04,maybe"]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines))
    decode = TableDecoder(SCHEMA)
    (part,), rows = table_partitions(str(path), decode.columns)
    assert rows is None
    (batch,) = part.read()
    records, labels = decode(batch)
    expected, classes = held(read_table(path, as_words=True))
    assert torch.equal(records, expected)
    assert torch.equal(labels, classes)
    there = Table(str(path), schema={"columns": {"whole": {"kind": "integer", "range": [0, 9]}}}).load()
    assert checksum(str(path), (".csv",)) == there.checksum


def test_images_are_the_same_encoded_and_as_arrays():
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (5, 8, 8), np.uint8)
    buffers = [io.BytesIO() for _ in images]
    for image, buffer in zip(images, buffers, strict=True):
        Image.fromarray(image).save(buffer, "png")
    decode = ImageDecoder(ImageCoding.of(images), ("cat", "dog"), "label")
    labels = ["dog", "cat", "cat", "dog", "dog"]
    encoded = pa.table({"image": [buffer.getvalue() for buffer in buffers], "label": labels})
    nested = pa.table({"image": images.astype(int).tolist(), "label": labels})
    for batch in (encoded, nested):
        records, numbers = decode(batch)
        assert torch.equal(records, torch.from_numpy(images).flatten(1).float() / 255)
        assert numbers.tolist() == [1, 0, 0, 1, 1]
    with pytest.raises(DataError, match="label 'cow' is not one of the given classes"):
        decode(encoded.set_column(1, "label", pa.array(["cow"] * 5)))
    with pytest.raises(DataError, match="do not have 8×8 pixels"):
        decode(pa.table({"image": images[:, :7].astype(int).tolist(), "label": labels}))


@pytest.mark.parametrize(
    ("path", "inside", "place"),
    [
        ("s3://bucket/people/", "bucket/people/a.csv", "s3://bucket/people/a.csv"),
        ("s3://bucket/people?region=eu", "bucket/people/a.csv", "s3://bucket/people/a.csv?region=eu"),
        ("gs://bucket/x", "bucket/x/a.csv", "gs://bucket/x/a.csv"),
        ("hdfs://node:8020/people", "/people/a.csv", "hdfs://node:8020/people/a.csv"),
        ("file:///data", "/data/a.csv", "file:///data/a.csv"),
        ("/data", "/data/a.csv", "/data/a.csv"),
    ],
)
def test_a_file_has_a_name_that_another_machine_can_open(path, inside, place):
    assert _place(path, inside) == place


def test_files_are_listed_without_hidden_ones_and_both_kinds_are_refused(tmp_path):
    for name in ("a.csv", ".b.csv", "_c.csv"):
        (tmp_path / name).write_text("x\n1\n")
    parts, _ = table_partitions(f"file://{tmp_path}", ["x"])
    assert [part.name for part in parts] == [f"file://{tmp_path}/a.csv"]
    assert next(parts[0].read()).to_pydict() == {"x": ["1"]}
    (tmp_path / "d.parquet").write_bytes(b"")
    with pytest.raises(DataError, match="holds both CSV and Parquet files"):
        table_partitions(str(tmp_path), ["x"])
    with pytest.raises(DataError, match="does not exist"):
        table_partitions(str(tmp_path / "no"), ["x"])
    with pytest.raises(DataError, match="holds no file that ends in"):
        image_partitions(str(tmp_path))
