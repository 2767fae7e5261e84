"""Splits, data sets, pairs."""

from __future__ import annotations

import pytest
import torch

from dpot.data.base import Dataset, Documents, Pair, Split, join_notes, signed_range, unit_range
from dpot.errors import DataError


def make(n: int = 10, classes: int = 2, shape: tuple[int, ...] = (1, 4, 4), **fields: object) -> Dataset:
    split = Split(torch.zeros(n, *shape, dtype=torch.uint8), torch.arange(n) % classes)
    kind = "images" if len(shape) == 3 else "features"
    given = {"name": "toy", "train": split, "test": split, "classes": classes, "kind": kind}
    return Dataset(**{**given, "checksum": "", "licence": "", "source": "", **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "labels", [torch.zeros(9, dtype=torch.int64), torch.zeros(10, dtype=torch.int32), torch.zeros(10, 1).long()]
)
def test_labels_must_be_one_int64_per_record(labels: torch.Tensor) -> None:
    with pytest.raises(DataError, match="10 int64 labels"):
        Split(torch.zeros(10, 1, 4, 4), labels)


@pytest.mark.parametrize("bad", [-1, 2])
def test_label_range(bad: int) -> None:
    split = Split(torch.zeros(1, 3), torch.tensor([bad]))
    with pytest.raises(DataError, match=r"0\.\.1"):
        make(shape=(3,), test=split)


def test_images_have_four_dimensions() -> None:
    with pytest.raises(DataError, match="shape"):
        make(shape=(3,), kind="images")


def test_splits_share_a_shape() -> None:
    with pytest.raises(DataError, match="differ in shape"):
        make(test=Split(torch.zeros(2, 1, 5, 5), torch.zeros(2).long()))


def test_take_keeps_the_proportions_of_sorted_classes() -> None:
    sorted_labels = torch.arange(4).repeat_interleave(25)
    small = Split(torch.arange(100)[:, None], sorted_labels).take(20)
    assert small.y is not None
    assert torch.bincount(small.y).tolist() == [5, 5, 5, 5]
    assert (small.x[:, 0] // 25 == small.y).all()


def test_limited_says_so() -> None:
    whole = make(10, note="a note")
    small = whole.limited(3)
    assert len(small.train) == 3
    assert len(small.test) == 10
    assert small.note == "a note; 3 of 10 train records"
    assert not small.comparable
    assert whole.limited(10, None) is whole


def test_ranges() -> None:
    pixels = torch.tensor([0, 51, 255], dtype=torch.uint8)
    torch.testing.assert_close(unit_range(pixels), torch.tensor([0.0, 0.2, 1.0]))
    torch.testing.assert_close(signed_range(pixels), torch.tensor([-1.0, -0.6, 1.0]))
    floats = torch.tensor([0.25, 1.0])
    assert unit_range(floats).equal(floats)


@pytest.mark.parametrize("other", [{"classes": 3}, {"shape": (1, 5, 5)}])
def test_a_pair_must_fit(other: dict[str, object]) -> None:
    with pytest.raises(DataError, match="cannot be adapted"):
        Pair("p", make(), make(**other))  # type: ignore[arg-type]


def test_a_pair_is_as_comparable_as_its_sides() -> None:
    pair = Pair("p", make(note="x"), make(name="other", comparable=False, note="y"))
    assert not pair.comparable
    assert pair.note == "toy: x; other: y"
    assert Pair("p", make(), make()).comparable


def test_cloud_leaves_the_padding_out() -> None:
    fields = {f: getattr(make(shape=(3,)), f) for f in Dataset.__dataclass_fields__}
    documents = Documents(**fields, vectors=torch.eye(4), words=("a", "b", "c", "d"))
    assert documents.cloud(torch.tensor([2, 0, 2, -1, -1])).equal(torch.eye(4)[[2, 0, 2]])


def test_join_notes() -> None:
    assert join_notes("", "a", "", "b") == "a; b"
