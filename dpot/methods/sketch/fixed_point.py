"""Small networks computed in whole numbers: the same features to the bit on every device and for every batch.

Weights are rounded to multiples of 2⁻ᵇ and what a layer gives to multiples of 2⁻¹⁴, so that every product is a sum of
whole numbers. b is chosen so that no such sum can reach 2⁵³: double precision then holds it exactly, and the order in
which a library adds does not matter. Between the layers a value is scaled and rounded by itself, which IEEE 754 fixes.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpot.models.feature_network import FeatureNetwork

PARTS = 2**14  # what a layer gives is rounded to multiples of 2⁻¹⁴, and
LARGEST = 2**23  # cut to 512 in absolute value
FINEST = 16  # b at most
AT_ONCE = 1 << 24  # numbers of one layer's windows


class WholeProduct:
    """records @ weights for whole-number records of at most LARGEST: exact."""

    def __init__(self, weights: Tensor, finest: int = FINEST) -> None:
        """Weights (inputs, outputs)."""
        weights = torch.nan_to_num(weights.detach().double(), nan=0.0, posinf=0.0, neginf=0.0)
        largest = len(weights) * float(weights.abs().max())  # of the sum of a column's absolute values
        self.bits = min(finest, 28 - math.frexp(largest)[1])  # 2²⁸ · LARGEST = 2⁵¹
        self.unit = 2.0**self.bits
        self.weights = (weights * self.unit).round()

    def __call__(self, whole: Tensor) -> Tensor:
        """In 1/unit of the records' unit."""
        return whole @ self.weights


class WholeNetwork:
    """The hidden units of a network, in 2⁻¹⁴, of records in whole numbers of 1/grid."""

    def __init__(self, network: FeatureNetwork, grid: int) -> None:
        trunk = network.trunk
        self.grid = grid
        self.layers = [trunk] if isinstance(trunk, nn.Linear) else list(trunk.children())
        self._products = {
            index: WholeProduct(layer.weight.flatten(1).T)
            for index, layer in enumerate(self.layers)
            if isinstance(layer, nn.Linear | nn.Conv2d)
        }

    def __call__(self, whole: Tensor) -> Tensor:
        """(n, d) → (n, hidden units), float64 that holds whole numbers."""
        widest = max(1, 4 * whole.shape[1], *(len(product.weights) for product in self._products.values()))
        return torch.cat([self._part(part) for part in whole.split(max(1, AT_ONCE // (16 * widest)))])

    def _part(self, values: Tensor) -> Tensor:
        unit = float(self.grid)
        for index, layer in enumerate(self.layers):
            if isinstance(layer, nn.ReLU):
                values = values.clamp(min=0)
            elif index in self._products:
                values, unit = self._layer(layer, self._products[index], values, unit), float(PARTS)
            elif not isinstance(layer, nn.Dropout):  # it is off: networks are in evaluation mode
                values = layer(values)
        return values

    def _layer(self, layer: nn.Module, product: WholeProduct, values: Tensor, unit: float) -> Tensor:
        assert isinstance(layer, nn.Linear | nn.Conv2d)
        assert layer.bias is not None
        scale = unit * product.unit
        bias = (layer.bias.detach().double() * scale).round()
        if isinstance(layer, nn.Linear):
            return _rounded(product(values) + bias, PARTS / scale)
        height, width = values.shape[2:]
        size, stride, padding = (int(pair[0]) for pair in (layer.kernel_size, layer.stride, layer.padding))
        windows = F.unfold(values, size, padding=padding, stride=stride)
        found = _rounded(product.weights.T @ windows + bias[:, None], PARTS / scale)
        rows, columns = ((side + 2 * padding - size) // stride + 1 for side in (height, width))
        return found.view(len(values), -1, rows, columns)


def _rounded(values: Tensor, scale: float) -> Tensor:
    return (values * scale).round_().clamp_(-LARGEST, LARGEST)
