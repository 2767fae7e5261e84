"""Textures for the sliced sketch: how strongly small filters answer, wherever in the image.

Lines look at one place or at all of the image at once, and smoothly; nothing in them sees the grain of single pixels.
A texture is a filter of a few pixels, tried at every place of a grid; the record's answers, squeezed into (-1, 1) by
r/(|r| + a), go into soft bins, and the bins are averaged over the places. A mean of weights that are non-negative and
sum to 1 is such a set of weights itself, so a texture costs what a line costs: sensitivity √2 for a replaced record.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dpot.methods.sketch.features import WEIGHT_GRID, Layout, whole_records
from dpot.transport import soft_bins
from dpot.transport.directions import ImageShape, unit_rows

SIZES = (3, 5)  # pixels, sideways and down; as many filters of each
STRIDE = 2
SQUEEZE = 0.15  # a: an answer of this size lies half way between nothing and everything
PARTS = 16  # whole-number weight of one place


@dataclass(frozen=True)
class Pooled(Layout):
    """`lines` textures with `knots` bins each, averaged over `places`."""

    places: int = 1

    @property
    def unit(self) -> int:
        """Whole-number weight of one record on one texture."""
        return PARTS * self.places

    @property
    def positions(self) -> int:
        """How many positions a record has."""
        return self.lines * self.places

    def means(self, positions: Tensor) -> Tensor:
        """(groups, samples, places·textures) → (groups, bins)."""
        groups = len(positions)
        return soft_bins.line_means(positions.reshape(groups, -1, self.lines), self.knots).flatten(1)

    def count(self, counts: Tensor, positions: Tensor, labels: Tensor) -> None:
        """Add the records' answers to counts (classes, bins) of whole numbers."""
        own = counts.new_zeros(len(counts), self.lines, self.knots)
        places = positions.reshape(-1, self.lines)
        soft_bins.count_lines(own, places, labels.repeat_interleave(self.places), PARTS)
        counts += own.flatten(1)


def places_of(shape: ImageShape) -> int:
    """At how many places of an image the filters are tried; 0 for tables and for images that are too small."""
    return math.prod(len(range(0, side - max(SIZES) + 1, STRIDE)) for side in shape[1:])


class TextureMap:
    """Positions of the squeezed answers of all filters at all places, in knots: (n, places·textures).

    Filters and records are whole numbers and the squeezing is one division, so the counts do not depend on the device.
    """

    def __init__(self, filters: Tensor, shape: ImageShape, knots: int, grid: int) -> None:
        """Whole-number filters (textures, channels·size·size), size the largest of SIZES, smaller ones padded."""
        self.filters, self.shape, self.knots, self.grid = filters.to(torch.int16), shape, knots, grid
        self._whole = self.filters.double().T.contiguous()
        self._float = (self._whole / WEIGHT_GRID).float()

    @classmethod
    def draw(cls, textures: int, shape: ImageShape, knots: int, grid: int, random: torch.Generator) -> TextureMap:
        """Random filters without mean, of unit length; in colour the same for all channels, or differing."""
        size, device = max(SIZES), random.device
        noise = torch.randn(textures, shape[0], size, size, generator=random, device=device)
        for index, small in enumerate(SIZES):
            edge = (size - small) // 2
            if edge:
                inside = torch.zeros(size, size, device=device)
                inside[edge:-edge, edge:-edge] = 1
                noise[index :: len(SIZES)] *= inside
        taps = (noise != 0).float()
        noise = noise - taps * (noise.sum((1, 2, 3), keepdim=True) / taps.sum((1, 2, 3), keepdim=True))
        return cls((unit_rows(noise.flatten(1)) * WEIGHT_GRID).round(), shape, knots, grid)

    def __call__(self, records: Tensor, chosen: Tensor | None = None) -> Tensor:
        if chosen is not None:
            raise ValueError("textures are few: all of them are looked at in every step")
        return self._squeezed(self._windows(records) @ self._float)

    def exactly(self, records: Tensor) -> Tensor:
        whole = whole_records(records, self.grid)
        return self._squeezed((self._windows(whole) @ self._whole) / (WEIGHT_GRID * self.grid))

    def tensors(self) -> dict[str, Tensor]:
        return {"filters": self.filters}

    def to(self, device: torch.device) -> TextureMap:
        return TextureMap(self.filters.to(device), self.shape, self.knots, self.grid)

    def _windows(self, records: Tensor) -> Tensor:
        """(n, places, channels·size·size): what each place shows of each record."""
        size = max(SIZES)
        windows = records.view(-1, *self.shape).unfold(2, size, STRIDE).unfold(3, size, STRIDE)
        return windows.permute(0, 2, 3, 1, 4, 5).reshape(len(records), -1, self.shape[0] * size * size)

    def _squeezed(self, answers: Tensor) -> Tensor:
        inside = answers / (answers.abs() + SQUEEZE)
        return ((inside + 1) * ((self.knots - 1) / 2)).flatten(1)
