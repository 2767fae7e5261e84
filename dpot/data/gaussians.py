"""Synthetic Gaussians, one per class: the data set whose every distance is known in closed form."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import torch

from dpot.data.base import Dataset, Source, Split
from dpot.ranges import Count, NonNegative, NonNegativeInt, Positive


class Gaussians(Source):
    """Class c is N(separation·u_c, scale²·I) in d dimensions, u_c uniform on the unit sphere.

    All is drawn from `seed` of the config node, not of the experiment: repeated runs see the same data.
    """

    name = "gaussians"
    licence = "none needed"
    source = "generated"

    def __init__(
        self,
        d: Count = 5,
        classes: Count = 2,
        n: Count = 1000,
        n_test: Count = 1000,
        separation: NonNegative = 3.0,
        scale: Positive = 1.0,
        seed: NonNegativeInt = 0,
        limit: Count | None = None,
        limit_test: Count | None = None,
    ) -> None:
        super().__init__(limit, limit_test)
        self.d = d
        self.classes = classes
        self.n = n
        self.n_test = n_test
        self.separation = separation
        self.scale = scale
        self.seed = seed

    def means(self) -> np.ndarray:
        """The class means, classes×d."""
        directions = self._generator(0).standard_normal((self.classes, self.d))
        return self.separation * directions / np.linalg.norm(directions, axis=1, keepdims=True)

    def whole(self, data_root: str | Path | None, *, download: bool, verify: bool) -> Dataset:
        train, test = self._draw(1, self.n), self._draw(2, self.n_test)
        digest = hashlib.sha256(train.x.numpy().tobytes() + test.x.numpy().tobytes()).hexdigest()
        return Dataset(
            name=self.name,
            train=train,
            test=test,
            classes=self.classes,
            kind="features",
            checksum=f"sha256:{digest}",
            licence=self.licence,
            source=self.source,
            note="synthetic",
            comparable=False,
        )

    def _draw(self, stream: int, count: int) -> Split:
        """count records, classes in turn; train and test have streams of their own, so n changes only one."""
        labels = np.arange(count, dtype=np.int64) % self.classes
        noise = self._generator(stream).standard_normal((count, self.d))
        x = self.means()[labels] + self.scale * noise
        return Split(torch.from_numpy(x.astype(np.float32)), torch.from_numpy(labels))

    def _generator(self, stream: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, stream])
