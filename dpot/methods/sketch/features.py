"""What the sliced sketch looks at in a record: positions on lines and planes, and how they are counted.

A *map* takes records to positions in units of knots; a *layout* says which positions are lines (counted in soft bins
one by one) and which are pairs spanning planes. A record's soft-bin weights on one line or plane are non-negative and
sum to 1, so whatever the map, replacing one record, label and all, moves the counts of k lines and planes by at most
√(2k) in L2 (by √2 on each: two non-negative vectors of norm at most 1, in the same class or in two). A record more or
less moves them by at most √k.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from dpot.methods.sketch.fixed_point import PARTS, WholeNetwork, WholeProduct
from dpot.models.feature_network import FeatureNetwork
from dpot.transport import soft_bins

UNIT = 256  # whole-number weight of one record on one line or plane
PLANE_PARTS = 16  # per axis: 16² = UNIT
SPAN = 3.5  # a grid reaches this many standard deviations to both sides
WEIGHT_GRID = 4096  # directions are rounded to multiples of 1/4096
RECORD_GRID = 255  # records are rounded to multiples of 1/255 before networks look at them
FINEST_MIXTURE = 20  # mixtures of hidden units are rounded to multiples of 2⁻²⁰, or more coarsely


@dataclass(frozen=True)
class Layout:
    """`lines` positions with `knots` bins each, then `planes` pairs of positions with plane_knots² bins each."""

    lines: int
    knots: int
    planes: int = 0
    plane_knots: int = 8
    hard: bool = False  # records are counted at the nearest knot; generated ones always softly, to have derivatives

    @property
    def pieces(self) -> int:
        """k: lines and planes together."""
        return self.lines + self.planes

    @property
    def bins(self) -> int:
        """How many numbers per class."""
        return self.lines * self.knots + self.planes * self.plane_knots**2

    @property
    def sensitivity(self) -> float:
        """√(2k)·unit: the most that the counts move, in L2, when one record is replaced."""
        return self.reach(2)

    def reach(self, moved: int) -> float:
        """The same for `moved` records that come or go: 2 where one is replaced, 1 where one is more or less."""
        return self.unit * math.sqrt(moved * self.pieces)

    @property
    def unit(self) -> int:
        """Whole-number weight of one record on one line or plane."""
        return UNIT

    @property
    def positions(self) -> int:
        """How many positions a record has."""
        return self.lines + 2 * self.planes

    def spacing(self, device: torch.device | str = "cpu") -> Tensor:
        """Knots per standard deviation, one value per position."""
        line, plane = ((n - 1) / (2 * SPAN) for n in (self.knots, self.plane_knots))
        return torch.cat([torch.full((self.lines,), line), torch.full((2 * self.planes,), plane)]).to(device)

    def centre(self, device: torch.device | str = "cpu") -> Tensor:
        """The middle of each grid, in knots."""
        line, plane = ((n - 1) / 2 for n in (self.knots, self.plane_knots))
        return torch.cat([torch.full((self.lines,), line), torch.full((2 * self.planes,), plane)]).to(device)

    def means(self, positions: Tensor) -> Tensor:
        """(groups, samples, positions) → (groups, bins): differentiable mean weights."""
        lines, across, along = self._split(positions)
        found = soft_bins.line_means(lines, self.knots).flatten(1)
        if not self.planes:
            return found
        return torch.cat([found, soft_bins.plane_means(across, along, self.plane_knots).flatten(1)], 1)

    def count(self, counts: Tensor, positions: Tensor, labels: Tensor) -> None:
        """Add the records at (records, positions) to counts (classes, bins) of whole numbers."""
        lines, across, along = self._split(positions.round() if self.hard else positions)
        edge = self.lines * self.knots
        classes = len(counts)
        on_lines = counts.new_zeros(classes, self.lines, self.knots)
        soft_bins.count_lines(on_lines, lines, labels, UNIT)
        counts[:, :edge] += on_lines.flatten(1)
        if self.planes:
            on_planes = counts.new_zeros(classes, self.planes, self.plane_knots**2)
            soft_bins.count_planes(on_planes, across, along, labels, PLANE_PARTS)
            counts[:, edge:] += on_planes.flatten(1)

    def _split(self, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        lines, across, along = positions.split([self.lines, self.planes, self.planes], dim=-1)
        return lines, across, along

    def to_dict(self) -> dict[str, int]:
        """The layout as JSON-able data."""
        return asdict(self)


class RecordMap(Protocol):
    """From records (n, d) with values in [0, 1] to positions (n, positions) in knots."""

    def __call__(self, records: Tensor, chosen: Tensor | None = None) -> Tensor:
        """Differentiable, for generated records; of the chosen positions only, where some are given."""

    def exactly(self, records: Tensor) -> Tensor:
        """For private records, to be counted."""

    def tensors(self) -> dict[str, Tensor]:
        """Everything the map is made of (public)."""

    def to(self, device: torch.device) -> RecordMap:
        """The same map on another device."""


class LinearMap:
    """Projections on public directions: position = (u·x - centre)/deviation, in knots.

    Directions and records are rounded to whole numbers (1/4096 and 1/grid), so that u·x is computed exactly in double
    precision, and the counts are the same on every device and however the records are split.
    """

    def __init__(self, weights: Tensor, stretch: Tensor, shift: Tensor, grid: int) -> None:
        """position = (weights · whole record)·stretch - shift, with whole-number weights (positions, d)."""
        self.weights, self.grid = weights.to(torch.int16), grid
        self.stretch, self.shift = stretch.double(), shift.double()
        self._slope = (self.weights.double() * self.stretch[:, None] * grid).T.float().contiguous()
        self._whole = self.weights.double().T.contiguous()
        self._shift = self.shift.float()

    @classmethod
    def of(cls, directions: Tensor, centres: Tensor, deviations: Tensor, layout: Layout, grid: int) -> LinearMap:
        """Unit directions (positions, d) with the centre and the deviation of the projections on each."""
        device = directions.device
        knots_per_unit = layout.spacing(device).double() / deviations.double()
        weights = (directions * WEIGHT_GRID).round()
        stretch = knots_per_unit / (WEIGHT_GRID * grid)
        return cls(weights, stretch, centres.double() * knots_per_unit - layout.centre(device).double(), grid)

    def __call__(self, records: Tensor, chosen: Tensor | None = None) -> Tensor:
        if chosen is None:
            return records @ self._slope - self._shift
        return records @ self._slope[:, chosen] - self._shift[chosen]

    def exactly(self, records: Tensor) -> Tensor:
        whole = whole_records(records, self.grid)
        return (whole @ self._whole) * self.stretch - self.shift

    def tensors(self) -> dict[str, Tensor]:
        return {"weights": self.weights, "stretch": self.stretch, "shift": self.shift}

    def to(self, device: torch.device) -> LinearMap:
        if device == self.weights.device:
            return self
        return LinearMap(self.weights.to(device), self.stretch.to(device), self.shift.to(device), self.grid)

    def __reduce__(self) -> tuple[Any, ...]:
        """What is sent to another process: an eighth of what is held here."""
        return LinearMap, (self.weights, self.stretch, self.shift, self.grid)


class LearnedMap:
    """Projections of what small networks see, networks that were trained on synthetic records only.

    position = (a·h(x))·… - shift with h the hidden units of all networks. Whatever the networks are, the sensitivity is
    that of the soft bins. For private records h and the product are computed in whole numbers (fixed_point.py), so that
    the counts are the same on every device and however the records are split.
    """

    def __init__(self, networks: list[FeatureNetwork], weights: Tensor, shift: Tensor) -> None:
        self.networks, self.weights, self.shift = networks, weights, shift

    def __call__(self, records: Tensor, chosen: Tensor | None = None) -> Tensor:
        if chosen is None:
            return hidden(self.networks, records) @ self.weights - self.shift
        return hidden(self.networks, records) @ self.weights[:, chosen] - self.shift[chosen]

    @torch.no_grad()
    def exactly(self, records: Tensor) -> Tensor:
        whole = whole_records(records, RECORD_GRID)
        seen = torch.cat([network(whole) for network in self._whole], 1)
        return self._product(seen) / (PARTS * self._product.unit) - self.shift.double()

    @cached_property
    def _whole(self) -> list[WholeNetwork]:
        return [WholeNetwork(network, RECORD_GRID) for network in self.networks]

    @cached_property
    def _product(self) -> WholeProduct:
        return WholeProduct(self.weights, FINEST_MIXTURE)

    def tensors(self) -> dict[str, Tensor]:
        own = {"weights": self.weights, "shift": self.shift}
        for index, network in enumerate(self.networks):
            own |= {f"network.{index}.{name}": value for name, value in network.state_dict().items()}
        return own

    def to(self, device: torch.device) -> LearnedMap:
        if device == self.weights.device:
            return self
        networks = [deepcopy(network).to(device) for network in self.networks]
        return LearnedMap(networks, self.weights.to(device), self.shift.to(device))

    def __reduce__(self) -> tuple[Any, ...]:
        return LearnedMap, (self.networks, self.weights, self.shift)


def hidden(networks: list[FeatureNetwork], records: Tensor) -> Tensor:
    """The hidden units of all networks side by side."""
    return torch.cat([network.features(records) for network in networks], 1)


def whole_records(records: Tensor, grid: int) -> Tensor:
    """Values in [0, 1] as whole numbers 0 … grid, in double precision; what is not a number counts as 0."""
    return torch.nan_to_num(records.double() * grid, nan=0.0).round_().clamp_(0, grid)


def freeze(network: FeatureNetwork) -> FeatureNetwork:
    """In evaluation mode, without gradients of its own."""
    network.eval()
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    assert isinstance(network, nn.Module)
    return network
