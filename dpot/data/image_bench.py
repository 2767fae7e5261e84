"""DPImageBench's splits: a part of the official training images is held out for validation, the rest is private.

The benchmark (Gong et al. 2025, github.com/2019ChenGong/DPImageBench) splits by torch's random_split with seed 0. It
learns from the first part, chooses the epochs of its classifiers on the second and reports the official test images.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from dpot.data.base import Dataset, Source, Split, Status, join_notes
from dpot.data.celeba import CelebA
from dpot.data.cifar10 import CIFAR10
from dpot.data.mnist import MNIST, FashionMNIST
from dpot.ranges import Count

SOURCES = {"mnist": MNIST, "fashion_mnist": FashionMNIST, "cifar10": CIFAR10, "celeba32": CelebA}
HELD_OUT = {"mnist": (5_000, 60_000), "fashion_mnist": (5_000, 60_000), "cifar10": (5_000, 50_000)}
HELD_OUT["celeba32"] = (17_706, 162_770)


class BenchSplit(Source):
    """One of the data sets that the benchmark knows, split as it does.

    train: the private records, N = 55,000 (MNIST, Fashion-MNIST), 45,000 (CIFAR-10) or 145,064 (CelebA). validation:
    the held-out ones. Of a subset the same part is held out, and it is not comparable.
    """

    def __init__(
        self,
        of: Literal["mnist", "fashion_mnist", "cifar10", "celeba32"],
        limit: Count | None = None,
        limit_test: Count | None = None,
    ) -> None:
        super().__init__(limit, limit_test)
        self.inner = SOURCES[of]()
        self.of, self.name = of, f"bench_{of}"
        self.licence, self.source = self.inner.licence, self.inner.source

    def whole(self, data_root: str | Path | None, *, download: bool, verify: bool) -> Dataset:
        data = self.inner.whole(data_root, download=download, verify=verify)
        held, of = HELD_OUT[self.of]
        kept, validation = random_split(data.train, round(len(data.train) * held / of))
        data = replace(data, name=self.name, train=kept, validation=validation)
        if self.of != "celeba32":
            return data
        note = join_notes(data.note, "faces are resized whole, where the benchmark crops them to a square first")
        return replace(data, note=note, comparable=False)

    def status(self, data_root: str | Path | None = None) -> Status:
        return self.inner.status(data_root)

    def fetch(self, data_root: str | Path | None = None) -> list[Path]:
        return self.inner.fetch(data_root)


def random_split(split: Split, held: int) -> tuple[Split, Split]:
    """What torch.utils.data.random_split gives with seed 0: (all but `held` of the records, the others)."""
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(0))
    parts = order[: len(split) - held], order[len(split) - held :]
    one, other = (Split(split.x[rows], None if split.y is None else split.y[rows]) for rows in parts)
    return one, other
