"""Two parties from a data set, as the distances between them are published and attacked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor

from dpot import config
from dpot.data.base import Dataset, Documents, Pair, Split, signed_range
from dpot.errors import UsageError
from dpot.methods.distance.parties import Party
from dpot.profiles import Profile
from dpot.transport.otdd import Statistics, augmented

NOISE_MEAN = 2.0  # of the noisy rows, as TriangleWad states it
MOST_POINTS = {"smoke": 40, "quick": 100, "short": 500}  # of a party, below the paper profile


@dataclass(frozen=True)
class Side:
    """The records of one party before they become its secret."""

    x: Tensor
    y: Tensor | None
    classes: int

    def party(self, name: str, statistics: Statistics = "none") -> Party:
        """The party that holds them."""
        return Party(name, augmented(self.x, self.y, statistics), labels=self.y, classes=self.classes)

    def with_noise(self, rows: int, std: float, random: torch.Generator) -> Side:
        """The first `rows` records replaced by noise, N(2, std²) in every entry."""
        noise = NOISE_MEAN + std * torch.randn((rows, self.x.shape[1]), generator=random, dtype=self.x.dtype)
        return Side(torch.cat((noise, self.x[rows:])), self.y, self.classes)


def two_sides(data: Any, size: int, second_size: int | None, random: torch.Generator) -> tuple[Side, Side]:
    """The first party: records drawn at random from the train part. The second: the first records of the test part.

    That is what a shuffling and a plain loader give, and what the published distances fit; MNIST's first test images
    are other writers than its train images. Of a pair of data sets each party has one.
    """
    if isinstance(data, Documents):
        raise UsageError(
            "dataset=bbc: texts are compared by paper=triangle_wad figure=6; choose images, features, a table"
        )
    if isinstance(data, Pair):
        return (
            _side(data.source.train, size, data.source.classes, random),
            _side(data.target.train, second_size or size, data.target.classes, random),
        )
    first = _side(data.train, size, data.classes, random)
    second = _side(data.test, second_size or size, data.classes, None)
    return first, second


def _side(split: Split, size: int, classes: int, random: torch.Generator | None) -> Side:
    if size > len(split):
        raise UsageError(f"task.size={size}: there are {len(split)} records; ask for at most so many")
    rows = torch.arange(size) if random is None else torch.randperm(len(split), generator=random)[:size]
    x = split.x[rows]
    flat = (signed_range(x) if x.ndim == 4 else x).double().flatten(1)
    return Side(flat, None if split.y is None else split.y[rows], classes if split.y is not None else 0)


def loaded(cfg: DictConfig, profile: Profile) -> Any:
    """The data set (or pair) a config names, cut to the profile."""
    data = config.instantiate(cfg.dataset, "dataset").load(cfg.data_root)
    return data.limited(profile.records) if profile.records and isinstance(data, Dataset) else data


def points_allowed(size: int, profile: Profile) -> int:
    """The size of a party, cut to the profile."""
    return min(size, MOST_POINTS.get(profile.name, size))


def few(wanted: int, profile: Profile) -> int:
    """A number of repetitions: 2 in the smallest profile."""
    return min(wanted, 2) if profile.name == "smoke" else wanted
