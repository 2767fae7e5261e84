"""The tables of the benchmark, each with what is public about it: ranges, values, and the bins it is judged in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpot.data.files import given_root
from dpot.data.table import read_table
from dpot.errors import DataError, UsageError

if TYPE_CHECKING:
    import pandas as pd

TEST_SHARE, SPLIT_SEED = 0.2, 0
BINS = 20  # of equal width, for numbers
ADULT_SIZES = {
    "age": 85,
    "workclass": 9,
    "fnlwgt": 100,
    "education-num": 16,
    "marital-status": 7,
    "occupation": 15,
    "relationship": 6,
    "race": 5,
    "sex": 2,
    "capital-gain": 100,
    "capital-loss": 100,
    "hours-per-week": 99,
    "native-country": 42,
    "income>50K": 2,
}
ADULT_NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")


@dataclass(frozen=True)
class TableSet:
    """A table whose columns are numbers or codes 0, 1, …; the label is a column of codes."""

    name: str
    train: pd.DataFrame
    test: pd.DataFrame
    label: str
    ranges: dict[str, tuple[float, float]]  # of the numbers
    categories: dict[str, int]  # how many codes, the label included
    widths: dict[str, float]  # of the bins of numbers, for judging and for methods that need bins
    whole: frozenset[str]  # numbers that are whole
    groups: tuple[str, ...] = ()  # columns whose worst group is looked at

    @property
    def columns(self) -> list[str]:
        """In the order of the table."""
        return list(self.train.columns)

    @property
    def sizes(self) -> list[int]:
        """How many bins or codes each column has."""
        return [self.categories.get(c) or self._bins(c) for c in self.columns]

    @property
    def ordered(self) -> list[bool]:
        """Which columns are numbers."""
        return [c in self.ranges for c in self.columns]

    def _bins(self, column: str) -> int:
        lower, upper = self.ranges[column]
        return max(1, int(np.ceil((upper - lower + (column in self.whole)) / self.widths[column] - 1e-9)))

    def binned(self, frame: pd.DataFrame) -> NDArray[np.int64]:
        """A code per column: numbers by their bin."""
        return self._codes(frame, self.widths, self.sizes)

    def fine(self, frame: pd.DataFrame) -> tuple[NDArray[np.int64], list[int]]:
        """The same at full resolution: whole numbers one by one, others in 200 bins. And how many there are."""
        widths = {c: 1.0 if c in self.whole else (u - v) / 200 for c, (v, u) in self.ranges.items()}
        sizes = [
            self.categories.get(c) or (int(self.ranges[c][1] - self.ranges[c][0]) + 1 if c in self.whole else 200)
            for c in self.columns
        ]
        return self._codes(frame, widths, sizes), sizes

    def _codes(self, frame: pd.DataFrame, widths: dict[str, float], sizes: list[int]) -> NDArray[np.int64]:
        found = []
        for column, size in zip(self.columns, sizes, strict=True):
            values = frame[column].to_numpy()
            if column in self.ranges:
                values = np.floor((values - self.ranges[column][0]) / widths[column] + 1e-9)
            found.append(values.astype(np.int64).clip(0, size - 1))
        return np.stack(found, 1)

    def unbinned(self, codes: NDArray[np.int64], random: np.random.Generator) -> pd.DataFrame:
        """Numbers spread evenly over their bins, for methods that only know bins."""
        import pandas as pd

        found: dict[str, Any] = {}
        for column, own in zip(self.columns, codes.T, strict=True):
            if column not in self.ranges:
                found[column] = own
                continue
            lower, upper = self.ranges[column]
            values = lower + (own + random.random(len(own))) * self.widths[column]
            values = np.floor(values) if column in self.whole else values
            found[column] = values.clip(lower, upper)
        return pd.DataFrame(found)


def load(name: str, data_root: str | None = None) -> TableSet:
    """adult (from the data root), breast_cancer, digits, wine or diabetes (from scikit-learn)."""
    if name == "adult":
        return _adult(data_root)
    from sklearn import datasets

    makers = {"breast_cancer": "load_breast_cancer", "digits": "load_digits", "wine": "load_wine"}
    if name not in (*makers, "diabetes"):
        raise UsageError(f"there is no table '{name}'; there are adult, {', '.join(makers)} and diabetes")
    bunch = getattr(datasets, makers.get(name, "load_diabetes"))(as_frame=True)
    frame, target = bunch.data.copy(), bunch.target
    if name == "diabetes":  # is the disease further along than in half of the patients?
        target = (target > 140).astype(int)
    frame["label"] = target.astype(int)
    # what scikit-learn's description of a set says about the least and the largest value is public
    ranges = {c: (float(frame[c].min()), float(frame[c].max())) for c in bunch.data.columns if frame[c].nunique() > 1}
    frame = frame[[*ranges, "label"]]
    whole = frozenset(ranges) if name == "digits" else frozenset[str]()
    widths = {c: 1.0 if c in whole else (upper - lower) / BINS for c, (lower, upper) in ranges.items()}
    return _split(name, frame, "label", ranges, {"label": int(target.max()) + 1}, widths, whole)


def _adult(data_root: str | None) -> TableSet:
    root = given_root(data_root)
    path = Path(root or ".") / "adult" / "adult.csv.gz"
    if not path.is_file():
        raise DataError("adult: put adult/adult.csv.gz under the folder that data_root or DPOT_DATA names")
    frame = read_table(path)
    ranges = {c: (0.0, ADULT_SIZES[c] - 1.0) for c in ADULT_NUMBERS}
    widths = {c: 1.0 if c == "education-num" else 5.0 for c in ADULT_NUMBERS}
    codes = {c: n for c, n in ADULT_SIZES.items() if c not in ADULT_NUMBERS}
    return _split("adult", frame, "income>50K", ranges, codes, widths, frozenset(ADULT_NUMBERS), ("race", "sex"))


def _split(name: str, frame: pd.DataFrame, label: str, *public: Any) -> TableSet:
    order = np.random.default_rng(SPLIT_SEED).permutation(len(frame))
    edge = round(len(frame) * (1 - TEST_SHARE))
    train, test = (frame.iloc[rows].reset_index(drop=True) for rows in (order[:edge], order[edge:]))
    return TableSet(name, train, test, label, *public)
