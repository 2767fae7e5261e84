"""Batches of a pyarrow table to records in [0, 1] with class numbers, as workers do it.

A table is read by its schema alone, cell by cell, and gives the very records of `Schema.conform` and
`TableCoding.encode`. Columns of numbers are taken as they are; of others each different cell is read once. Images come
encoded (PNG, JPEG) or as arrays of numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from dpot.data.coding import Category, Coding, ImageCoding, Number
from dpot.data.files import printable
from dpot.data.images import decode_image
from dpot.data.schema import Schema, _numbers, _word, _words
from dpot.errors import DataError


class Decoder(Protocol):
    """From a batch to records (n, d) in [0, 1] and labels (n,). It can be sent to another process."""

    @property
    def coding(self) -> Coding:
        """Of the records."""

    @property
    def classes(self) -> Sequence[Any]:
        """Those that a label may have; none without labels."""

    @property
    def columns(self) -> list[str]:
        """What it reads of a batch."""

    def __call__(self, batch: pa.Table) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True)
class TableDecoder:
    """By a schema."""

    schema: Schema

    @property
    def coding(self) -> Coding:
        return self.schema.coding

    @property
    def classes(self) -> Sequence[Any]:
        return self.schema.classes

    @property
    def columns(self) -> list[str]:
        return [column.name for column in self.schema.columns]

    def __call__(self, batch: pa.Table) -> tuple[Tensor, Tensor]:
        coding = self.schema.coding
        records = np.zeros((len(batch), coding.shape[0]), np.float32)
        gap = len(coding.numbers)
        for place, number in enumerate(coding.numbers):
            values = _cells(number, _column(batch, number.name))
            gone = np.isnan(values)
            values = np.rint(values) if number.dtype == "int64" else values
            kept = np.where(gone, number.lower, values).clip(number.lower, number.upper)
            records[:, place] = (kept - number.lower) / (number.upper - number.lower)
            if number.missing:
                records[:, gap] = gone
                gap += 1
        at, rows = gap, np.arange(len(batch))
        for category in coding.categories:
            records[rows, at + _chosen(category, _column(batch, category.name))] = 1
            at += len(category.choices)
        label = next((column for column in self.schema.columns if column.name == self.schema.label), None)
        labels = np.zeros(len(batch), np.int64)
        if isinstance(label, Category):
            labels = _chosen(label, _column(batch, label.name))
        return torch.from_numpy(records), torch.from_numpy(labels)


@dataclass(frozen=True)
class ImageDecoder:
    """Images of one form in the column `image`, encoded or as arrays, with a label among `names`."""

    coding: ImageCoding
    names: tuple[Any, ...] = ()
    label: str | None = None
    image: str = "image"

    @property
    def classes(self) -> Sequence[Any]:
        return self.names

    @property
    def columns(self) -> list[str]:
        return [self.image, *([self.label] if self.label else [])]

    def __call__(self, batch: pa.Table) -> tuple[Tensor, Tensor]:
        column = _column(batch, self.image)
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            records = self._decoded(column)
        else:
            records = self.coding.encode(self._array(column, len(batch)))
        labels = torch.zeros(len(batch), dtype=torch.int64)
        if self.label is not None:
            labels = torch.from_numpy(self._numbers(_column(batch, self.label)))
        return records.flatten(1), labels

    def _decoded(self, column: pa.Array) -> Tensor:
        channels, height, width = self.coding.shape
        if height != width:
            raise DataError(f"encoded images are stretched to squares; {height}×{width} was given")
        found = [
            decode_image(image, f"image {index} of a batch", height, channels == 1)
            for index, image in enumerate(column.to_pylist())
        ]
        pixels = np.stack(found) if found else np.zeros((0, *self.coding.shape), np.uint8)
        return torch.from_numpy(pixels).float() / 255

    def _array(self, column: pa.Array, count: int) -> np.ndarray:
        """Numbers in any nesting of lists, or a tensor column of Ray."""
        inner: Any = column.storage if isinstance(column, pa.ExtensionArray) else column
        if pa.types.is_struct(inner.type):  # Ray's images of different sizes: data and shape
            inner = inner.field("data")
        while not pa.types.is_primitive(inner.type):
            inner = inner.flatten()
        values = inner.to_numpy(zero_copy_only=False)
        channels, height, width = self.coding.shape
        form = {"NHW": (height, width), "NHWC": (height, width, channels), "NCHW": (channels, height, width)}
        if len(values) != count * channels * height * width:
            raise DataError(f"the images of a batch do not have {height}×{width} pixels in {channels} channels each")
        if self.coding.dtype == "uint8":
            values = values.astype(np.uint8)
        return values.reshape(count, *form[self.coding.layout])

    def _numbers(self, column: pa.Array) -> np.ndarray:
        place = {_word(name): index for index, name in enumerate(self.names)}
        cells, at = _different(column)
        known = [place.get(_word(cell), -1) for cell in cells]
        wrong = next((cell for cell, index in zip(cells, known, strict=True) if index < 0), None)
        if wrong is not None or (at < 0).any():
            raise DataError(f"label {printable(str(wrong))!r} is not one of the given classes")
        return np.array(known, np.int64)[at]


def _column(batch: pa.Table, name: str) -> Any:
    if name not in batch.column_names:
        there = printable(", ".join(batch.column_names)[:300])
        raise DataError(f"a part of the data has no column '{printable(name)}'; it has {there}")
    column = batch.column(name)
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _different(column: Any) -> tuple[list[Any], np.ndarray]:
    """The different cells, and for each row which of them it has, -1 where there is none."""
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    at = coded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    return coded.dictionary.to_pylist(), at


def _cells(number: Number, column: Any) -> np.ndarray:
    """A column of numbers as float64; what is missing or cannot be read is not a number."""
    import pandas as pd

    plain = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if plain and number.dtype != "date":
        return np.asarray(column.cast(pa.float64(), safe=False).fill_null(np.nan))
    cells, at = _different(column)
    read = _numbers(number, pd.Series(cells, dtype=object))
    return np.append(read, np.nan)[at]


def _chosen(category: Category, column: Any) -> np.ndarray:
    """Which of the choices each row has; what is missing or unknown by the rule of the schema."""
    import pandas as pd

    cells, at = _different(column)
    gone = len(category.values) if category.missing else 0
    place = {value: index for index, value in enumerate(category.values)}
    found = [place.get(word, gone) for word in _words(category, pd.Series(cells, dtype=object))]
    return np.array([*found, gone], np.int64)[at]
