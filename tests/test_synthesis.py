"""Synthesizer and dpot.synthesize: every kind of input works or is refused in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

import dpot
from dpot import Synthesizer
from dpot.data.coding import ImageCoding, TableCoding, load_coding
from dpot.errors import DataError, DpotError, PrivacyError, UsageError
from dpot.models import generator, sketch_dcgan
from dpot.privacy.statement import Statement

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generators and statements of a size for tests: the code path is the real one."""
    monkeypatch.setattr(sketch_dcgan, "WIDTH_ON_CPU", 4)
    monkeypatch.setattr(generator, "STATISTICS_BATCHES", 3)
    whole = Statement.of
    monkeypatch.setattr(Statement, "of", lambda ledger, noise, _=None: whole(ledger, noise, ["analytic_gaussian"]))


def tiny(**settings: Any) -> Synthesizer:
    return Synthesizer(**({"epsilon": 10.0, "delta": 1e-5, "rounds": 1, "steps": 2, "device": "cpu"} | settings))


def images(count: int, *shape: int) -> np.ndarray:
    return RNG.integers(0, 256, (count, *shape), dtype=np.uint8)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (images(80, 8, 8), np.arange(80) % 2),
        (images(80, 27, 31), None),
        (images(60, 3, 32, 32), np.array(["cat", "dog"])[np.arange(60) % 2]),
        (images(60, 64, 64, 3), None),
        (RNG.random((80, 8, 8)), np.zeros(80, int)),  # one class only
        (torch.rand(80, 1, 8, 8), torch.arange(80) % 2),
        (np.full((80, 8, 8), 128, np.uint8), np.arange(80) % 2),  # all alike
        (np.zeros((50, 8, 8), np.uint8), None),  # N = 50, black
    ],
    ids=["bytes", "odd size", "colour 32", "colour 64", "one class", "torch", "constant", "fifty black"],
)
def test_images_come_back_in_the_form_they_came_in(x: Any, y: Any) -> None:
    made, labels = tiny().fit(x, y).sample(9)
    assert made.shape == (9, *x.shape[1:])
    assert made.dtype == (np.uint8 if getattr(x, "dtype", None) == np.uint8 else np.float32)
    assert (labels is None) == (y is None)
    if labels is not None:
        assert set(labels.tolist()) <= set(np.asarray(y).tolist())


def table(count: int = 300) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "work": RNG.choice(["state", "private"], count),
            "age": RNG.integers(18, 90, count),
            "pay": RNG.random(count) * 5e4,
            "member": RNG.random(count) > 0.5,
            "size": pd.Categorical(RNG.choice(["S", "M"], count), categories=["S", "M", "L"]),
        }
    )


PUBLIC = {"ranges": {"age": (0, 120), "pay": (0, 1e5)}, "categories": {"work": ["state", "private", "none"]}}


def test_tables_come_back_as_tables() -> None:
    given = table()
    made, labels = tiny(**PUBLIC, rounds=2).fit(given, np.array(["no", "yes"])[RNG.integers(0, 2, 300)]).sample(40)
    assert list(made.columns) == list(given.columns)
    assert made["age"].dtype == np.int64
    assert made["member"].dtype == bool
    assert made["age"].between(0, 120).all()
    assert made["pay"].between(0, 1e5).all()
    assert set(made["work"]) <= {"state", "private", "none"}
    assert set(made["size"]) <= {"S", "M", "L"}
    assert set(labels) <= {"no", "yes"}


def test_an_array_of_numbers_comes_back_as_one() -> None:
    made, _ = tiny(ranges=[(0, 1), (-5, 5)]).fit(np.column_stack([RNG.random(200), RNG.normal(size=200)])).sample(30)
    assert made.shape == (30, 2)
    assert made[:, 0].min() >= 0
    assert np.abs(made[:, 1]).max() <= 5


REFUSED: dict[str, tuple[dict[str, Any], Any, Any, type[DpotError], str]] = {
    "no range": ({}, table()[["age"]], None, UsageError, "'age' has no public range"),
    "words": ({}, table()[["work"]], None, UsageError, "'work' holds words"),
    "unknown category": ({"categories": {"work": ["state", "x"]}}, table()[["work"]], None, DataError, "not one of"),
    "unknown column": ({"ranges": {"Age": (0, 9)}}, table()[["age"]], None, UsageError, "no column 'Age'"),
    "range upside down": ({"ranges": (1, 0)}, RNG.random((50, 2)), None, UsageError, "lower must be below upper"),
    "gap in a label": ({}, images(3, 8, 8), [0, None, 1], DataError, "1 labels are gaps, the first in record 1"),
    "no label": ({}, images(3, 8, 8), np.array([0, 1, np.nan]), DataError, "gaps, the first in record 2"),
    "nan pixel": ({}, np.where(np.arange(640).reshape(10, 8, 8) == 70, np.nan, 0.5), None, DataError, "record 1 has"),
    "out of range": ({}, np.full((10, 8, 8), 255.0), None, DataError, r"outside \[0, 1\]"),
    "integers": ({}, np.zeros((10, 8, 8), np.int64), None, DataError, "uint8"),
    "four channels": ({}, images(10, 4, 8, 8), None, DataError, "C being 1 or 3"),
    "too small": ({}, images(10, 3, 2), None, DataError, "at least 4×4"),
    "empty": ({}, images(0, 8, 8), None, DataError, "empty"),
    "labels missing": ({}, images(10, 8, 8), np.arange(9), DataError, "10 records need 10 labels"),
    "labels are numbers": ({}, images(10, 8, 8), RNG.random(10), DataError, "words or whole numbers"),
    "labels are names": ({}, images(10, 8, 8), np.arange(10), DataError, "are these classes"),
    "strange label": ({"classes": [0, 1]}, images(10, 8, 8), np.arange(10) % 3, DataError, "label 2 is not one"),
    "few for the noise": (
        {"epsilon": 3.0},
        images(50, 8, 8),
        np.arange(50) % 10,
        UsageError,
        "50 records in 10 classes",
    ),
    "delta": ({"delta": 0.1}, images(50, 8, 8), None, PrivacyError, "below 1/records"),
    "epsilon": ({"epsilon": -1.0}, images(50, 8, 8), None, PrivacyError, "epsilon"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_in_one_line(case: str) -> None:
    settings, x, y, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words) as caught:
        tiny(**settings).fit(x, y)
    assert "\n" not in str(caught.value)


def test_a_class_with_few_records_is_said_and_not_synthesized() -> None:
    y = np.zeros(300, int)
    y[:1] = 1
    fitted = tiny().fit(images(300, 8, 8), y)
    assert fitted.release_.uncertain == [1]
    assert "class 1" in fitted.remarks_[0]
    assert set(fitted.sample(200)[1].tolist()) == {0}


def test_labels_follow_the_released_shares() -> None:
    y = np.repeat([0, 1], [240, 60])
    fitted = tiny().fit(images(300, 8, 8), y)
    share = float(np.mean(fitted.sample(4000)[1]))
    assert share == pytest.approx(float(fitted.release_.shares[1]), abs=0.03)
    assert share == pytest.approx(0.2, abs=0.06)


def test_saved_and_loaded_and_fitted_anew_without_records(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    fitted = tiny(classes=["a", "b"]).fit(images(80, 8, 8), np.array(["a", "b"])[np.arange(80) % 2])
    fitted.save(path)
    loaded = Synthesizer.load(path, device="cpu")
    for one, two in zip(fitted.sample(20, seed=3), loaded.sample(20, seed=3), strict=True):
        assert (one == two).all()
    assert loaded.statement_ == fitted.statement_
    assert loaded.epsilon == 10
    anew = Synthesizer.from_release(path, steps=2, seed=5, device="cpu")
    assert anew.statement_ == fitted.statement_  # nothing more was spent
    made, labels = anew.sample(5)
    assert made.shape == (5, 8, 8)
    assert set(labels) <= {"a", "b"}
    fitted.release_.save(path)
    with pytest.raises(DataError, match="from_release"):
        Synthesizer.load(path)


def test_the_statement_says_what_it_covers() -> None:
    fitted = tiny(epsilon=3.0).fit(images(200, 8, 8), np.arange(200) % 2)
    statement = fitted.statement_
    assert statement.epsilon is not None
    assert statement.epsilon <= 3
    assert statement.verdict == "conditional"
    assert any("taken from the labels" in item for item in statement.not_covered)
    assert "on condition that" in statement.headline()
    assert "Rigorous: **conditional**" in statement.to_markdown()
    told = tiny(classes=[0, 1]).fit(images(200, 8, 8), np.arange(200) % 2).statement_
    assert (told.rigorous, told.verdict) == (True, "yes")
    assert not any("taken from the labels" in item for item in told.not_covered)


def test_what_a_table_brings_with_it_is_a_condition_and_with_a_schema_there_is_none() -> None:
    frame = pd.DataFrame({"age": np.arange(200) % 90, "work": np.array(["state", "private"])[np.arange(200) % 2]})
    frame["work"] = frame["work"].astype("category")  # lists what occurs
    brought = tiny(ranges={"age": (0, 120)}).fit(frame)
    assert brought.statement_.verdict == "conditional"
    assert [c.partition(":")[0] for c in brought.statement_.conditions] == [
        "the columns and their types, whole numbers or not",
        "the values of work",
    ]
    assert set(brought.statement_.conditions) <= set(brought.statement_.not_covered)
    declared = {
        "label": "work",
        "columns": {
            "age": {"kind": "integer", "range": [0, 120]},
            "work": {"kind": "category", "values": ["state", "private", "none"]},
        },
    }
    astronaut = frame.astype({"work": str, "age": float})
    astronaut.loc[0] = [41.5, "astronaut"]
    fitted = [tiny(schema=declared).fit(data) for data in (frame, astronaut)]
    for one in fitted:
        assert (one.statement_.rigorous, one.statement_.verdict, one.statement_.conditions) == (True, "yes", [])
        assert one.classes_ == ["state", "private", "none"]
        assert one.sample(5)[0]["age"].dtype == np.int64
    assert fitted[0].coding_ == fitted[1].coding_
    assert fitted[0].release_.shape == fitted[1].release_.shape
    apart = tiny(schema=declared).fit(frame[["age"]], frame["work"])
    assert apart.statement_.verdict == "yes"
    with pytest.raises(UsageError, match="leave these out"):
        tiny(schema=declared, ranges=(0, 1)).fit(frame)


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(DataError, match="two columns named 'a'"):
        tiny(ranges=(0, 1)).fit(pd.DataFrame(np.zeros((9, 2)), columns=["a", "a"]))


def test_it_is_a_scikit_learn_estimator() -> None:
    synthesizer = tiny(ranges=(0, 2))
    assert clone(synthesizer).get_params() == synthesizer.get_params()
    with pytest.raises(UsageError, match="call fit"):
        synthesizer.sample(3)
    with pytest.raises(UsageError, match="at least 1"):
        tiny(ranges=(0, 1)).fit(RNG.random((50, 2))).sample(0)


def test_one_call() -> None:
    made, labels = dpot.synthesize(
        images(60, 8, 8), np.arange(60) % 2, epsilon=10.0, delta=1e-5, n=7, rounds=1, steps=2, device="cpu"
    )
    assert len(made) == len(labels) == 7


def test_importing_dpot_stays_light() -> None:
    code = "import sys, dpot; dpot.__version__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    with pytest.raises(AttributeError):
        dpot.nothing  # noqa: B018


@pytest.mark.parametrize("shape", [(5, 6, 7), (5, 3, 6, 7), (5, 6, 7, 3)])
def test_image_coding_is_lossless(shape: tuple[int, ...]) -> None:
    x = images(*shape)
    coding = ImageCoding.of(x)
    records = coding.encode(x)
    assert records.shape[2:] == (6, 7)
    assert (load_coding(coding.to_dict()).decode(records) == x).all()


def test_table_coding_is_lossless_within_its_ranges() -> None:
    given = table(50)
    coding = TableCoding.of(given, PUBLIC["ranges"], PUBLIC["categories"])
    records = coding.encode(given)
    assert records.shape == (50, len(coding.names), 1, 1)
    assert coding.names[:3] == ["age", "pay", "member"]  # numbers first
    back = load_coding(coding.to_dict()).decode(records)
    assert isinstance(back, pd.DataFrame)
    for column in ("work", "age", "member"):
        assert (back[column] == given[column]).all()
    assert (back["size"] == given["size"].astype(str)).all()
    np.testing.assert_allclose(back["pay"], given["pay"], rtol=1e-5, atol=0.05)
    beyond = coding.decode(coding.encode(given.assign(age=500)))
    assert isinstance(beyond, pd.DataFrame)
    assert (beyond["age"] == 120).all()  # cut to the public range
