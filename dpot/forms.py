"""The forms in which people hand over records in memory: arrays, DataFrames, labels of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpot.data.coding import Categories, Coding, ImageCoding, Ranges, TableCoding, taken_from
from dpot.data.dtypes import as_frame
from dpot.errors import DataError


def recognised(X: Any, ranges: Ranges, categories: Categories) -> tuple[Any, Coding, list[str]]:
    """X as an array of images or a DataFrame, its coding, and what of this was taken from the records."""
    if isinstance(X, Tensor):
        X = X.detach().cpu().numpy()
    if np.ndim(X) in (3, 4):
        X = np.asarray(X)
        if 0 in X.shape:
            raise DataError(f"X is empty, of shape {X.shape}")
        return X, ImageCoding.of(X, ranges), []
    frame, array = as_frame(X)
    coding = replace(TableCoding.of(frame, ranges, categories), array=array)
    return frame, coding, list(taken_from(frame, categories))


def class_numbers(y: Any, count: int, classes: Sequence[Any] | None) -> tuple[Tensor, list[Any]]:
    """(class number per record, classes in sorted order or as given)."""
    values = np.asarray(y.detach().cpu().numpy() if isinstance(y, Tensor) else y)
    if values.shape != (count,):
        raise DataError(f"{count} records need {count} labels, got {values.shape}")
    if values.dtype.kind == "O":
        if not all(isinstance(v, str) for v in values):
            raise DataError("labels must be words or whole numbers, without gaps")
        values = values.astype(str)
    if values.dtype.kind == "f" and (values % 1 == 0).all():
        values = values.astype(np.int64)
    if values.dtype.kind not in "iubU":
        raise DataError(f"labels of type {values.dtype}: give words or whole numbers")
    known = np.unique(values) if classes is None else np.asarray(classes)
    if classes is None and len(known) > max(2, count // 2):
        raise DataError(f"{len(known)} different labels in {count} records: are these classes?")
    place = {value: index for index, value in enumerate(known.tolist())}
    try:
        numbers = [place[value] for value in values.tolist()]
    except KeyError as error:
        raise DataError(f"label {error} is not one of the given classes") from None
    return torch.tensor(numbers, dtype=torch.int64), known.tolist()
