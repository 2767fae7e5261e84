"""A fitted synthesizer as people meet it in Python: pickled, printed, looked at, judged, fitted twice."""

from __future__ import annotations

import logging
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

from dpot import Synthesizer
from dpot.errors import DataError, UsageError
from dpot.privacy.gaussian import gaussian_epsilon, gaussian_noise_multiplier

DIGITS = load_digits()
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def images() -> Synthesizer:
    own = Synthesizer(10, 1e-5, classes=range(10), rounds=1, steps=2, device="cpu")
    return own.fit(DIGITS.images[:400] / 16, DIGITS.target[:400])


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    return pd.DataFrame({"age": RNG.integers(18, 90, 2000), "work": RNG.choice(["state", "private"], 2000)})


@pytest.fixture(scope="module")
def table(people: pd.DataFrame) -> Synthesizer:
    return make_table().fit(people, people["age"] > 50)


def make_table() -> Synthesizer:
    return Synthesizer(2, 1e-5, ranges={"age": (0, 120)}, categories={"work": ["state", "private", "none"]}, steps=10)


def test_it_pickles(images: Synthesizer, table: Synthesizer) -> None:
    for own in (images, table):
        again = pickle.loads(pickle.dumps(own))
        for seed in (3, None):  # from a seed, and where the generator stood
            (x, y), (u, v) = own.sample(7, seed=seed), again.sample(7, seed=seed)
            assert np.array_equal(np.asarray(x), np.asarray(u))
            assert np.array_equal(y, v)
        assert again.statement_.to_dict() == own.statement_.to_dict()


def test_it_says_what_it_guarantees(table: Synthesizer) -> None:
    headline = table.statement_.headline()
    assert repr(table).endswith(headline)
    assert repr(table).startswith("Synthesizer(")
    assert headline in table._repr_html_()
    fresh = clone(table)
    assert "differentially private" not in repr(fresh) + fresh._repr_html_()
    table.remarks_.append("class <script>")
    assert "<script>" not in table._repr_html_()
    assert "class &lt;script&gt;" in table._repr_mimebundle_()["text/html"]
    table.remarks_.pop()


def test_looking_at_it_changes_nothing(images: Synthesizer, table: Synthesizer, tmp_path) -> None:
    for own in (images, table):
        own.sample(1, seed=5)
        expected = own.sample(4)[0]
        own.sample(1, seed=5)
        own.preview()
        own.report(tmp_path / "page.html")
        assert np.array_equal(np.asarray(expected), np.asarray(own.sample(4)[0]))
    assert "What was released is" in (tmp_path / "page.html").read_text()
    assert images.preview().size[1] == 10 * (8 + 2) + 2  # a row for each class
    assert list(table.preview().columns) == ["age", "work"]


def test_scores_on_real_records(table: Synthesizer, people: pd.DataFrame, images: Synthesizer) -> None:
    """Age decides the label, and the class of a synthetic record follows its age: a judge learns it from them."""
    found = table.evaluate(people, people["age"] > 50)
    assert found["accuracy"] > found["chance"] + 10
    assert found["accuracy"] > 85
    assert 0 <= found["sliced_wasserstein"] < 0.2
    assert set(images.evaluate(DIGITS.images[400:500] / 16)) == {"sliced_wasserstein"}  # without labels
    with pytest.raises(DataError, match="another size"):
        images.evaluate(np.zeros((3, 9, 9)))


def test_a_second_fit_says_that_epsilon_adds_up(people: pd.DataFrame, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="dpot"):
        first = make_table().fit(people)
        assert "adds up" not in caplog.text
        assert "in 1 release." in first.statement_.total
        second = make_table().set_params(seed=1).fit(people)
    assert "adds up" in caplog.text
    twice = gaussian_epsilon(gaussian_noise_multiplier(2, 1e-5) / np.sqrt(2), 1e-5)  # the exact trade-off
    assert f"ε = {twice:.4g} at" in second.statement_.total
    caplog.clear()
    make_table().fit(people[:1999])  # other records
    assert "adds up" not in caplog.text


@pytest.mark.parametrize("n", [2.5, 0, -1, "3", True, None])
def test_a_number_of_records_is_a_whole_number(table: Synthesizer, n: object) -> None:
    with pytest.raises(UsageError, match="whole number"):
        table.sample(n)
    assert len(table.sample(np.int64(2))[0]) == 2
