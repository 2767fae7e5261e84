"""The digits embedded in scikit-learn."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits

from dpot.data.digits import Digits


def test_original_size_has_the_original_levels() -> None:
    data = Digits(size=8).load()
    truth = load_digits()
    assert data.train.y is not None
    assert data.test.y is not None
    x = torch.cat([data.train.x, data.test.x]).double() / 255 * 16
    levels = x.round()
    assert (x - levels).abs().max() < 0.04  # 17 levels survive the byte
    ours = np.column_stack([levels.flatten(1).numpy(), torch.cat([data.train.y, data.test.y]).numpy()])
    theirs = np.column_stack([truth.data, truth.target])
    assert sorted(map(tuple, ours.tolist())) == sorted(map(tuple, theirs.tolist()))


def test_default() -> None:
    data = Digits().load()
    assert data.shape == (1, 28, 28)
    assert data.train.x.dtype == torch.uint8
    assert data.test.y is not None
    per_class = torch.bincount(data.test.y)
    assert per_class.min() >= 34
    assert per_class.max() <= 37  # a fifth of 174 to 183
    assert not data.comparable
    assert data.checksum == Digits(size=8).load().checksum
    assert Digits().status().built_in
