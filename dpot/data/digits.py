"""The digits embedded in scikit-learn: what a machine with no data and no network can still run on."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import torch

from dpot.data.base import Dataset, Source, Split
from dpot.data.images import resize_array
from dpot.data.splits import hold_out_per_class
from dpot.ranges import Count

HELD_OUT = 0.2


class Digits(Source):
    """1797 grey 8×8 digits with 17 levels, enlarged bilinearly to size; a fifth of each class is held out."""

    name = "digits"
    licence = "CC BY 4.0"
    source = "https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits"

    def __init__(self, size: Count = 28, limit: Count | None = None, limit_test: Count | None = None) -> None:
        super().__init__(limit, limit_test)
        self.size = size

    def whole(self, data_root: str | Path | None, *, download: bool, verify: bool) -> Dataset:
        from sklearn.datasets import load_digits

        found = load_digits()
        levels, labels = found.images.astype(np.uint8), found.target.astype(np.int64)
        checksum = hashlib.sha256(levels.tobytes() + labels.tobytes()).hexdigest()
        images = resize_array((levels[:, None] / np.float32(16)), self.size)
        pixels = np.rint(images * 255).astype(np.uint8)
        train, test = (
            Split(torch.from_numpy(pixels[rows]), torch.from_numpy(labels[rows]))
            for rows in hold_out_per_class(labels, HELD_OUT)
        )
        return Dataset(
            name=self.name,
            train=train,
            test=test,
            classes=10,
            kind="images",
            checksum=f"sha256:{checksum}",
            licence=self.licence,
            source=self.source,
            note="the digits embedded in scikit-learn: a demonstration, not comparable",
            comparable=False,
            class_names=tuple("0123456789"),
        )
