"""Types of DataFrames: what comes in goes out."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpot.data.dtypes import days, given_back, plain_ranges, plainly
from dpot.errors import DataError

WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "Int8", "Int64", "UInt16")
OTHER = ("float32", "float64", "Float32", "bool", "boolean", "datetime64[ns]", "datetime64[s]", "datetime64[ns, UTC]")


WITHOUT_GAPS = ("bool", *(name for name in WHOLE if name.islower()))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(WHOLE + OTHER), min_size=1, max_size=6), st.booleans(), st.booleans())
def test_every_type_comes_back(dtypes, numbered, gaps):
    columns = {i if numbered else f"column {i}": _values(dtype) for i, dtype in enumerate(dtypes)}
    if gaps:
        columns = {name: own if own.dtype in WITHOUT_GAPS else own.mask([True, False]) for name, own in columns.items()}
    frame = pd.DataFrame(columns)
    plain, facts = plainly(frame)
    assert all(isinstance(name, str) for name in plain.columns)
    # a coding gives back numbers in double precision
    coded = pd.DataFrame({name: plain[name].to_numpy("float64", na_value=np.nan) for name in plain.columns})
    again = given_back(coded, facts)
    pd.testing.assert_frame_equal(again, frame)


def _values(dtype):
    if dtype.startswith("datetime"):
        zone = "UTC" if "UTC" in dtype else None
        return pd.Series(pd.to_datetime(["1999-12-31", "2024-02-29"]).tz_localize(zone)).astype(dtype)
    return pd.Series([0, 1]).astype(dtype)


def test_ordered_categories_come_back_in_their_order():
    frame = pd.DataFrame({"size": pd.Categorical(["s", "l"], categories=["s", "m", "l"], ordered=True)})
    _, facts = plainly(frame)
    facts[0]["values"] = ["s", "m", "l"]
    pd.testing.assert_frame_equal(given_back(pd.DataFrame({"size": ["s", "l"]}), facts), frame)


def test_ranges_of_times_are_in_days():
    frame = pd.DataFrame({"born": pd.to_datetime(["1970-01-11"]), 7: [1]})
    ranges = plain_ranges({"born": ("1970-01-02", "1970-02-01"), 7: (0, 9)}, frame)
    assert ranges == {"born": (1.0, 31.0), "7": (0, 9)}
    assert days(frame["born"]).tolist() == [10.0]


def test_small_types_are_not_overrun_and_names_are_told_apart():
    _, facts = plainly(pd.DataFrame({"age": np.array([1], "int8")}))
    assert given_back(pd.DataFrame({"age": [300.0]}), facts)["age"].tolist() == [127]
    with pytest.raises(DataError, match="two columns named '1'"):
        plainly(pd.DataFrame([[1, 2]], columns=[1, "1"]))
