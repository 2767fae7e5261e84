"""Records in files for the tests of engines, and a decoder under which workers die. Workers import this file."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dpot.data.coding import ImageCoding
from dpot.data.decoding import ImageDecoder, TableDecoder
from dpot.data.schema import Schema

SCHEMA = {
    "label": "income",
    "columns": {
        "age": {"kind": "integer", "range": [0, 120]},
        "pay": {"kind": "decimal", "range": [0, 1e5], "missing": True},
        "work": {"kind": "category", "values": ["state", "private", "none"], "missing": True},
        "income": {"kind": "category", "values": ["low", "high"]},
    },
}
TABLE = TableDecoder(Schema.of(SCHEMA))
IMAGES = ImageDecoder(ImageCoding.of(np.zeros((1, 8, 8), np.uint8)), (0, 1, 2), "label")


def people(count: int = 2000, seed: int = 0) -> pd.DataFrame:
    """A table with odd cells in it."""
    random = np.random.default_rng(seed)
    work = random.choice(["state", "private", "none", " none ", "astronaut", None], count)
    income = random.choice(["low", "high"], count)
    pay = random.normal(4e4, 3e4, count).round(2)
    pay[::17] = np.nan
    return pd.DataFrame({"age": random.integers(-3, 130, count), "pay": pay, "work": work, "income": income})


def digits(count: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Small images that differ between three classes, and their labels."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, count)
    patterns = random.integers(0, 200, (3, 8, 8))
    return (patterns[labels] + random.integers(0, 56, (count, 8, 8))).astype(np.uint8), labels


def write_people(folder: Path, frame: pd.DataFrame, files: int, group: int) -> Path:
    """The table in so many Parquet files with row groups of this size."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(np.array_split(np.arange(len(frame)), files)):
        table = pa.Table.from_pandas(frame.iloc[rows], preserve_index=False)
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=group, write_page_checksum=True)
    return folder


def image_table(images: np.ndarray, labels: np.ndarray) -> pa.Table:
    """Images as lists of bytes."""
    flat = pa.FixedSizeListArray.from_arrays(pa.array(images.reshape(-1)), images[0].size)
    return pa.table({"image": flat, "label": labels})


@dataclass(frozen=True)
class Deadly:
    """A decoder under which the first worker that comes to its second batch is killed, or every one."""

    inner: Any
    flag: str
    always: bool = False

    @property
    def coding(self):
        return self.inner.coding

    @property
    def classes(self):
        return self.inner.classes

    @property
    def columns(self):
        return self.inner.columns

    def __call__(self, batch):
        try:
            os.close(os.open(f"{self.flag}.first", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            try:
                os.close(os.open(self.flag, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                if not self.always:
                    return self.inner(batch)
            os.kill(os.getpid(), signal.SIGKILL)
        return self.inner(batch)


@dataclass(frozen=True)
class Hungry(Deadly):
    """A decoder that asks for more memory than there is."""

    def __call__(self, batch):
        raise MemoryError
