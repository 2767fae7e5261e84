"""Textures for the sliced sketch: how strongly small filters answer, wherever in the image.

Lines look at one place or at all of the image at once, and smoothly; nothing in them sees the grain of single pixels.
A texture is a filter of a few pixels, tried at every place of a grid; the record's answers, squeezed into (-1, 1) by
r/(|r| + a), go into soft bins, and the bins are averaged over the places. A mean of weights that are non-negative and
sum to 1 is such a set of weights itself, so a texture costs what a line costs: sensitivity √2 for a replaced record.
The filters may look at the image at half its size, too, where they see coarser grain, and may be averaged over the
places of each cell of a coarse grid instead of all of them: a texture in a cell then costs what a line costs. A pair of
filters at the same place is counted over a plane, and costs the same.
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
STRIDE = 3  # pixels between places; not even, so that patterns of two or four pixels are seen in every phase
PLANE_KNOTS = Layout.plane_knots
SQUEEZE = 0.15  # a: an answer of this size lies half way between nothing and everything
PARTS = 16  # whole-number weight of one place
PARTS_PER_AXIS = 4  # of a pair: 4² = PARTS


@dataclass(frozen=True)
class Pooled(Layout):
    """`lines` textures with `knots` bins each and `planes` pairs, averaged over `places`."""

    places: int = 1

    @property
    def unit(self) -> int:
        """Whole-number weight of one record on one texture."""
        return PARTS * self.places

    @property
    def positions(self) -> int:
        """How many positions a record has."""
        return (self.lines + 2 * self.planes) * self.places

    def means(self, positions: Tensor) -> Tensor:
        """(groups, samples, places·positions) → (groups, bins)."""
        return super().means(positions.reshape(len(positions), -1, self.lines + 2 * self.planes))

    def count(self, counts: Tensor, positions: Tensor, labels: Tensor) -> None:
        """Add the records' answers to counts (classes, bins) of whole numbers."""
        own = counts.new_zeros(len(counts), self.lines, self.knots)
        lines, across, along = self._split(positions.reshape(-1, self.lines + 2 * self.planes))
        labels, edge = labels.repeat_interleave(self.places), self.lines * self.knots
        soft_bins.count_lines(own, lines, labels, PARTS)
        counts[:, :edge] += own.flatten(1)
        if self.planes:
            on_planes = counts.new_zeros(len(counts), self.planes, self.plane_knots**2)
            soft_bins.count_planes(on_planes, across, along, labels, PARTS_PER_AXIS)
            counts[:, edge:] += on_planes.flatten(1)


@dataclass(frozen=True)
class Look:
    """Where and how filters are tried: at the image's size over `scale`, in cells² cells, squeezed by `squeeze`.

    The last 2·pairs of the filters are counted two by two.
    """

    scale: int = 1
    cells: int = 1
    squeeze: float = SQUEEZE
    pairs: int = 0
    stride: int = 2  # of files that name none

    def grid(self, shape: ImageShape) -> tuple[int, int]:
        """Places of a cell, down and sideways; 0 where the image is too small."""
        down, sideways = (self._places(side) for side in shape[1:])
        return down, sideways

    def _places(self, side: int) -> int:
        return max(0, (side // self.scale - max(SIZES)) // self.stride + 1) // self.cells

    def layout(self, textures: int, knots: int, shape: ImageShape) -> Pooled:
        """How so many filters are counted."""
        lines, planes = textures * self.cells**2, self.pairs * self.cells**2
        return Pooled(lines, knots, planes, places=math.prod(self.grid(shape)))


def places_of(shape: ImageShape) -> int:
    """At how many places of an image the filters are tried; 0 for tables and for images that are too small."""
    return math.prod(Look().grid(shape))


class TextureMap:
    """Positions of the squeezed answers of all filters at all places, in knots: (n, places·textures).

    Filters and records are whole numbers and the squeezing is one division, so the counts do not depend on the device.
    """

    def __init__(self, filters: Tensor, shape: ImageShape, knots: int, grid: int, look: Look | None = None) -> None:
        """Whole-number filters (textures, channels·size·size), size the largest of SIZES, smaller ones padded."""
        self.filters, self.shape, self.knots, self.grid = filters.to(torch.int16), shape, knots, grid
        self.look = look or Look()
        self._whole = self.filters.double().T.contiguous()
        self._float = (self._whole / WEIGHT_GRID).float()

    @classmethod
    def draw(
        cls,
        textures: int,
        shape: ImageShape,
        knots: int,
        grid: int,
        random: torch.Generator,
        look: Look | None = None,
    ) -> TextureMap:
        """Random filters without mean, of unit length; in colour the same for all channels, or differing."""
        size, device, textures = max(SIZES), random.device, textures + 2 * (look.pairs if look else 0)
        noise = torch.randn(textures, shape[0], size, size, generator=random, device=device)
        for index, small in enumerate(SIZES):
            edge = (size - small) // 2
            if edge:
                inside = torch.zeros(size, size, device=device)
                inside[edge:-edge, edge:-edge] = 1
                noise[index :: len(SIZES)] *= inside
        taps = (noise != 0).float()
        noise = noise - taps * (noise.sum((1, 2, 3), keepdim=True) / taps.sum((1, 2, 3), keepdim=True))
        return cls((unit_rows(noise.flatten(1)) * WEIGHT_GRID).round(), shape, knots, grid, look)

    def __call__(self, records: Tensor, chosen: Tensor | None = None) -> Tensor:
        if chosen is not None:
            raise ValueError("textures are few: all of them are looked at in every step")
        return self._squeezed(self._windows(records) @ self._float / self.look.scale**2)

    def exactly(self, records: Tensor) -> Tensor:
        whole = whole_records(records, self.grid)
        return self._squeezed((self._windows(whole) @ self._whole) / (WEIGHT_GRID * self.grid * self.look.scale**2))

    def tensors(self) -> dict[str, Tensor]:
        return {"filters": self.filters}

    def to(self, device: torch.device) -> TextureMap:
        return TextureMap(self.filters.to(device), self.shape, self.knots, self.grid, self.look)

    def _windows(self, records: Tensor) -> Tensor:
        """(n, places, cells, channels·size·size): what each place shows of each record, summed over scale² pixels."""
        size, scale, cells = max(SIZES), self.look.scale, self.look.cells
        down, sideways = self.look.grid(self.shape)
        images = records.view(-1, *self.shape)
        if scale > 1:
            height, width = (side // scale * scale for side in self.shape[1:])
            parts = images[:, :, :height, :width].unflatten(3, (-1, scale)).unflatten(2, (-1, scale))
            images = parts.sum((3, 5))
        stride = self.look.stride
        windows = images.unfold(2, size, stride).unfold(3, size, stride)[:, :, : cells * down, : cells * sideways]
        in_cells = windows.unflatten(3, (cells, sideways)).unflatten(2, (cells, down))
        ordered = in_cells.permute(0, 3, 5, 2, 4, 1, 6, 7)
        return ordered.reshape(len(records), down * sideways, cells**2, self.shape[0] * size * size)

    def _squeezed(self, answers: Tensor) -> Tensor:
        inside = answers / (answers.abs() + self.look.squeeze)
        pairs = self.look.pairs
        lines, across, along = ((inside + 1) / 2).split([inside.shape[-1] - 2 * pairs, pairs, pairs], -1)
        parts = [lines.flatten(2) * (self.knots - 1)]
        if pairs:
            parts += [part.flatten(2) * (PLANE_KNOTS - 1) for part in (across, along)]
        return torch.cat(parts, 2).flatten(1) if pairs else parts[0].flatten(1)
