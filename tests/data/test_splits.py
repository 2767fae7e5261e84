"""Who is held out."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dpot.data.splits import (
    evenly_spaced,
    hold_out,
    hold_out_fraction,
    hold_out_per_class,
    in_hash_order,
    position_hash,
    share,
)


def test_position_hash_is_splitmix64() -> None:
    # the first outputs of the reference generator (Vigna's splitmix64.c) seeded with 0
    reference = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert position_hash(4).tolist() == reference


@given(st.integers(1, 300), st.data())
def test_hold_out_is_a_partition(count: int, data: st.DataObject) -> None:
    held = data.draw(st.integers(0, count))
    train, test = hold_out(count, held)
    assert len(test) == held
    assert sorted([*train, *test]) == list(range(count))


@given(st.integers(2, 300), st.floats(0, 1, exclude_min=True, exclude_max=True))
def test_neither_side_is_empty(count: int, fraction: float) -> None:
    train, test = hold_out_fraction(count, fraction)
    assert len(train) >= 1
    assert len(test) >= 1
    assert abs(len(test) - count * fraction) <= 1


@given(st.lists(st.integers(0, 4), min_size=2, max_size=200), st.floats(0.1, 0.5))
def test_per_class(labels: list[int], fraction: float) -> None:
    y = np.array(labels)
    train, test = hold_out_per_class(y, fraction)
    assert sorted([*train, *test]) == list(range(len(y)))
    for label in set(labels):
        in_class = (y == label).sum()
        assert (y[train] == label).any()
        if in_class > 1:
            assert abs((y[test] == label).sum() - in_class * fraction) <= 1


@given(st.integers(1, 10_000), st.data())
def test_evenly_spaced(count: int, data: st.DataObject) -> None:
    wanted = data.draw(st.integers(1, count))
    rows = evenly_spaced(count, wanted)
    gaps = np.diff(rows)
    assert rows[0] == 0
    assert rows[-1] < count
    assert len(rows) == wanted
    assert not len(gaps) or (gaps.min() >= 1 and gaps.max() - gaps.min() <= 1)


names = st.text("abc/.0", min_size=1, max_size=6)


@given(st.sets(names, min_size=3, max_size=60), names, st.data())
def test_by_name_one_record_replaced_is_one_training_record_replaced(before: set[str], new: str, data) -> None:
    gone = data.draw(st.sampled_from(sorted(before)))
    after = (before - {gone}) | ({new} if new not in before else {gone})
    held = data.draw(st.integers(1, len(before) - 1))
    limit = data.draw(st.integers(1, len(before)))
    one, other = (set(in_hash_order(kept)[held:][:limit]) for kept in (before, after))
    assert len(one) == len(other)
    assert len(one - other) <= 1


@given(st.sets(names, min_size=3, max_size=60), st.data())
def test_by_name_one_record_less_is_one_training_record_less(before: set[str], data) -> None:
    after = before - {data.draw(st.sampled_from(sorted(before)))}
    held = share(len(before), 0.1)
    one, other = set(in_hash_order(before)[held:]), set(in_hash_order(after)[share(len(after), 0.1) :])
    if held == share(len(after), 0.1):
        assert other < one
    else:  # the number held out is rounded to another one
        assert len(other - one) <= 1
    assert len(one - other) <= 1
