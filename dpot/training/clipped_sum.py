"""Σ_i clip(g_i) of one gradient per record, without holding every record's gradient (DP-SGD on a GPU).

One forward and one backward pass to the outputs of the layers. With a_i the input of a layer and b_i the gradient at
its output, both of record i, the layer's gradient is made of a_i and b_i alone:

    Linear      g_i = b_i a_iᵀ          ‖g_i‖ = ‖a_i‖·‖b_i‖, and Σ_i f_i g_i is one matrix product
    Conv2d      g_i = b_i windows(a_i)  made for every record: few weights, many positions
    GroupNorm   g_i = Σ_positions b_i ∘ normalised(a_i)

so the norms are known before any sum, and the factors f_i = min(1, C/‖g_i‖) go into the sums. For the network of WDP's
Table 2 and 1300 records the gradients of all records would take 3 GB and several passes over them. The bound is that of
dpot/training/sanitise.py, to the rounding of float32 products; a record whose gradient is not finite counts as zero.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpot.errors import UsageError
from dpot.ranges import Positive
from dpot.training.sanitise import _half

LAYERS = (nn.Linear, nn.Conv2d, nn.GroupNorm)
Layer = nn.Linear | nn.Conv2d | nn.GroupNorm


def is_supported(network: nn.Module) -> bool:
    """Whether every trained layer is one of LAYERS in its plain form; others go through per_sample_gradients."""
    return all(_is_plain(layer) for layer in network.modules() if any(True for _ in layer.parameters(recurse=False)))


def _is_plain(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Conv2d):
        plain = layer.groups == 1 and layer.padding_mode == "zeros" and layer.dilation == (1, 1)
        return plain and not isinstance(layer.padding, str)
    if isinstance(layer, nn.GroupNorm):
        return layer.affine
    return type(layer) is nn.Linear


def clipped_sum(
    network: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    clip: Positive,
    inputs: Tensor,
    targets: Tensor,
    mask: Tensor | None = None,
    each_tensor: bool = False,
) -> dict[str, Tensor]:
    """Σ_i min(1, C/‖g_i‖)·g_i by parameter name; `loss` sums over records. mask leaves out the padding of a batch.

    Rows must not depend on each other (no BatchNorm), each layer is used once, Linear layers see one vector a record.
    each_tensor: the norm is that of each parameter by itself, so that a record moves them all by more than C together.
    """
    names = {layer: name for name, layer in network.named_modules() if isinstance(layer, LAYERS)}
    tape: list[tuple[Layer, Tensor, Tensor]] = []
    hooks = [
        layer.register_forward_hook(lambda layer, given, output: tape.append((layer, given[0].detach(), output)))
        for layer in names
    ]
    try:
        total = loss(network(inputs), targets)
    finally:
        for hook in hooks:
            hook.remove()
    if len(tape) != len(names) or not is_supported(network):
        raise UsageError("per-record gradients by layer need plain Linear, Conv2d and GroupNorm layers, each used once")
    gradients = torch.autograd.grad(total, [output for _, _, output in tape])
    parts = [_Part(layer, a, b) for (layer, a, _), b in zip(tape, gradients, strict=True)]
    with torch.no_grad():
        norms = torch.stack([norm for part in parts for norm in part.norms()])
        norms = norms if each_tensor else torch.linalg.vector_norm(norms, dim=0, keepdim=True)
        # One half for a, one for b: the whole factor may underflow. 0 for a record that is not finite.
        halves = torch.nan_to_num(_half(norms, clip), nan=0.0)
        if mask is not None:
            halves = halves * mask
        own = iter(halves.to(inputs.dtype).expand(2 * len(parts), -1))
        sums = {}
        for part, (layer, _, _) in zip(parts, tape, strict=True):
            sums[f"{names[layer]}.weight"] = part.weighted_sum(next(own)).view_as(layer.weight)
            if layer.bias is not None:
                sums[f"{names[layer]}.bias"] = _sum(part.biases, next(own))
    return {name: sums[name] for name, _ in network.named_parameters()}


class _Part:
    """What one layer contributes: its per-record gradients, made or only described."""

    def __init__(self, layer: Layer, a: Tensor, b: Tensor) -> None:
        self.factored = isinstance(layer, nn.Linear)
        self.has_bias = layer.bias is not None
        if isinstance(layer, nn.Linear):
            if a.dim() != 2:
                raise UsageError("a Linear layer on more than one vector a record has no per-record norm here")
            self.a, self.b, self.weights = a, b, b
            self.biases = b
        elif isinstance(layer, nn.Conv2d):
            self.weights = b.flatten(2) @ _windows(a, layer)
            self.biases = b.flatten(2).sum(2)
        else:
            normalised = F.group_norm(a, layer.num_groups, eps=layer.eps)
            self.weights = (b * normalised).flatten(2).sum(2)
            self.biases = b.flatten(2).sum(2)

    def norms(self) -> list[Tensor]:
        """‖g_i‖ of every record, of the weight and of the bias, in float64."""
        weights = _norms(self.a) * _norms(self.b) if self.factored else _norms(self.weights)
        return [weights, _norms(self.biases)] if self.has_bias else [weights]

    def weighted_sum(self, half: Tensor) -> Tensor:
        """Σ_i f_i g_i of the weight, f = half²."""
        if self.factored:
            return _scaled(self.b, half).T @ _scaled(self.a, half)
        return _sum(self.weights, half)


def _windows(a: Tensor, layer: nn.Conv2d) -> Tensor:
    """(records, positions, inputs of one output): what each position of the output saw.

    By views and one copy, for torch's own unfold launches a kernel per record.
    """
    assert not isinstance(layer.padding, str)
    (top, left), (height, width), (down, right) = layer.padding, layer.kernel_size, layer.stride
    seen = F.pad(a, (left, left, top, top)).unfold(2, height, down).unfold(3, width, right)
    return seen.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)


def _norms(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows.flatten(1), dim=1, dtype=torch.float64)


def _scaled(rows: Tensor, half: Tensor) -> Tensor:
    """half_i·row_i; a row that is not finite has a half of 0, and becomes 0."""
    return torch.nan_to_num(rows * half.view(-1, *[1] * (rows.dim() - 1)), nan=0.0)


def _sum(rows: Tensor, half: Tensor) -> Tensor:
    """Σ_i half_i²·row_i."""
    return half @ _scaled(rows.flatten(1), half)
