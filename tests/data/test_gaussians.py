"""Synthetic Gaussians."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dpot.data.gaussians import Gaussians
from dpot.errors import UsageError


def test_moments() -> None:
    source = Gaussians(d=3, classes=4, n=40_000, separation=2.0, scale=0.5)
    data = source.load()
    means = source.means()
    np.testing.assert_allclose(np.linalg.norm(means, axis=1), 2.0)
    assert data.train.y is not None
    for c in range(4):
        x = data.train.x[data.train.y == c]
        assert len(x) == 10_000
        torch.testing.assert_close(x.mean(0), torch.tensor(means[c]).float(), atol=0.02, rtol=0)
        torch.testing.assert_close(torch.cov(x.T), 0.25 * torch.eye(3), atol=0.02, rtol=0)


def test_the_seed_decides() -> None:
    first, again, other = (Gaussians(seed=s).load() for s in (1, 1, 2))
    assert first.train.x.equal(again.train.x)
    assert first.checksum == again.checksum
    assert first.checksum != other.checksum
    assert not first.train.x.equal(other.train.x)


def test_train_and_test_are_independent_draws() -> None:
    data = Gaussians(separation=0.0).load()
    correlation = torch.corrcoef(torch.stack([data.train.x.flatten(), data.test.x.flatten()]))[0, 1]
    assert abs(correlation) < 0.06  # 4 standard errors of 5000 pairs


def test_nothing_to_fetch() -> None:
    with pytest.raises(UsageError, match="nothing to fetch"):
        Gaussians().fetch()
