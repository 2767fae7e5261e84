"""Tables as people have them: gaps, dates, decimals, columns of many values; and what is said about the result."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpot.data.coding import TableCoding
from dpot.errors import UsageError
from dpot.models.product_mixture import ProductMixture
from dpot.synthesis import Synthesizer


def visits(count: int = 4000) -> pd.DataFrame:
    """A table of visits that no rule was made for."""
    random = np.random.default_rng(5)
    ill = random.random(count) < 0.3
    fever = np.where(ill, 38.5, 36.8) + 0.4 * random.normal(size=count)
    return pd.DataFrame(
        {
            "day": pd.to_datetime(random.integers(18_000, 18_365, count), unit="D").astype("datetime64[ns]"),
            "fever": np.where(random.random(count) < 0.25, np.nan, fever.round(1)),
            "paid": pd.array(random.integers(0, 60, count), "Int16"),
            "ward": pd.Categorical(np.where(ill, "A", random.choice(["B", "C"], count)), ["A", "B", "C", "D"]),
            "word": random.choice(np.array(["yes", "no", None], object), count),
            "insured": pd.array(random.random(count) < 0.8, "boolean"),
        }
    ).mask(random.random((count, 6)) < [[0, 0, 0.1, 0.1, 0, 0.1]])


RANGES: dict[str, Any] = {"day": ("2019-01-01", "2021-01-01"), "fever": (34, 43), "paid": (0, 100)}


@pytest.fixture(scope="module")
def made() -> Synthesizer:
    return Synthesizer(3, 1e-5, ranges=RANGES, categories={"word": ["yes", "no", None]}, steps=80, device="cpu").fit(
        visits()
    )


def test_gaps_dates_and_types_come_back_without_a_schema(made: Synthesizer) -> None:
    given, (found, _) = visits(), made.sample(4000)
    types = given.dtypes.to_dict()
    assert found.dtypes.to_dict() == types
    for name in given:
        assert found[name].isna().mean() == pytest.approx(given[name].isna().mean(), abs=0.04), name
    assert found["day"].between("2019-01-01", "2021-01-01").all()
    assert set(found["word"].dropna()) == {"yes", "no"}
    warm = found.groupby("ward", observed=True)["fever"].mean()
    assert warm["A"] > warm["B"] + 0.8
    assert any("that there are gaps in fever, paid, ward, insured" in c for c in made.statement_.conditions)


def test_two_accountants_confirm_what_was_released(made: Synthesizer) -> None:
    found = made.statement_.accountants
    assert len(made.statement_.entries) == 3
    for name in ("analytic_gaussian", "dp_accounting_pld"):
        assert found[name]["epsilon"] == pytest.approx(3, abs=1e-4)


def test_a_column_of_ten_thousand_values_takes_one_place() -> None:
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"shop": random.zipf(1.5, 5000).clip(max=10_000) - 1, "size": random.integers(0, 9, 5000)})
    settings: dict[str, Any] = {"categories": {"shop": range(10_000)}, "ranges": {"size": (0, 9)}}
    coding = TableCoding.of(frame, settings["ranges"], settings["categories"])
    assert coding.shape == (2, 1, 1)
    pd.testing.assert_frame_equal(coding.decode(coding.encode(frame)), frame)
    made = Synthesizer(3, 1e-6, **settings, steps=50, device="cpu").fit(frame)
    assert isinstance(made.generator_, ProductMixture)
    found = made.sample(5000)[0]["shop"]
    for shop in (0, 1, 2):  # those that stand out of the noise keep their shares
        assert (found == shop).mean() == pytest.approx((frame["shop"] == shop).mean(), abs=0.03)


def test_rounds_are_honoured_or_refused() -> None:
    frame = visits(1500)[["fever", "paid", "ward"]]
    settings: dict[str, Any] = {"ranges": {k: RANGES[k] for k in ("fever", "paid")}, "steps": 1, "device": "cpu"}
    for rounds, entries in ((1, 2), (2, 3)):
        assert len(Synthesizer(3, 1e-5, rounds=rounds, **settings).fit(frame).statement_.entries) == entries
    with pytest.raises(UsageError, match="rounds=3: this table is released by its marginals, in 1 or 2"):
        Synthesizer(3, 1e-5, rounds=3, **settings).fit(frame)


def test_too_little_signal_is_said() -> None:
    random = np.random.default_rng(0)
    wide = Synthesizer(1, 1e-5, ranges=(0, 1), steps=1, device="cpu").fit(random.random((2000, 12)))
    assert any("too many columns for so few records" in remark for remark in wide.remarks_)
    few = Synthesizer(0.5, 1e-4, ranges=(0, 1), steps=1, rounds=1, device="cpu").fit(random.random((150, 3)))
    assert any("few records for this epsilon" in remark for remark in few.remarks_)
    enough = Synthesizer(10, 1e-5, ranges=(0, 1), steps=1, device="cpu").fit(random.random((4000, 3)))
    assert not enough.remarks_
