"""The forms in which people hand over records in memory: arrays and DataFrames."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from dpot.data.coding import Categories, Coding, ImageCoding, Ranges, TableCoding, taken_from
from dpot.data.dtypes import as_frame
from dpot.data.files import printable
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
    coding, gaps = replace(TableCoding.of(frame, ranges, categories), array=array).with_gaps(frame)
    conditions = list(taken_from(frame, categories))
    if gaps:
        conditions.append(f"that there are gaps in {printable(', '.join(gaps)[:300])}: it was seen in the table")
    return frame, coding, conditions
