"""Layers that can leave one gradient for every image instead of one for the batch.

    rows = torch.zeros(images, parameters)
    with one_row_per_image(network, rows):
        loss = ...                       # of images·copies rows, the copies of an image one after the other
        loss.backward()                  # fills rows; no parameter has a gradient

DP-SGD on a diffusion model clips the gradient of an image after it has been averaged over K noisy copies. The copies
are contracted together with the positions: for a convolution with input a and slope b the row of an image is one
product of two matrices with copies·positions rows, and no gradient of a single copy is ever held. A row has the
parameters in the order of network.parameters(), in single precision whatever the activations are.

Convolutions keep the size of the image. On a GPU activations are bfloat16, channels last, and norms and rows are
kernels of our own (dpot/kernels); `fused = False` takes torch's own layers, which torch.func can differentiate.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpot import kernels

LEAST_CHANNELS = 8  # of a convolution on a GPU: libraries spend longer on one channel than on eight
GROUP = 4  # channels that are normalised together
Places = dict[str, Tensor]  # the part of every row that is a parameter's, by its name


class PerImage(nn.Module):
    """A layer with parameters; `places` is where their rows go, None: gradients are the batch's."""

    places: Places | None = None
    fused: bool = True


def use_fused(network: nn.Module, fused: bool) -> None:
    """Whether layers may use what torch.func and hooks cannot see through."""
    for layer in network.modules():
        if isinstance(layer, PerImage):
            layer.fused = fused


@contextmanager
def one_row_per_image(network: nn.Module, rows: Tensor) -> Iterator[None]:
    """Inside, a backward pass fills rows (images, parameters) and leaves no gradient in the parameters."""
    layers, at = [layer for layer in network.modules() if isinstance(layer, PerImage)], 0
    found: dict[int, Tensor] = {}
    for parameter in network.parameters():
        found[id(parameter)] = rows[:, at : at + parameter.numel()].view(len(rows), *parameter.shape)
        at += parameter.numel()
    try:
        for layer in layers:
            layer.places = {name: found.pop(id(p)) for name, p in layer.named_parameters(recurse=False)}
        if found or at != rows.shape[1]:
            raise ValueError("every parameter must be one of a layer that knows its rows, and have its place in them")
        yield
    finally:
        for layer in layers:
            layer.places = None


class Conv(PerImage, nn.Conv2d):
    """A convolution of side 1 or 3 that keeps the size; no bias unless asked for."""

    def __init__(self, inputs: int, outputs: int, side: int, bias: bool = False, zero: bool = False) -> None:
        super().__init__(inputs, outputs, side, padding=side // 2, bias=bias)
        if zero:
            for parameter in self.parameters():
                nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) → (N, outputs, H, W)."""
        weight = self.weight.to(x.dtype)
        if self.places is None:
            y = _convolved(x, weight) if self.fused else F.conv2d(x, weight, padding=self.padding)
        else:
            y = _Conv.apply(x, self.weight, self.places["weight"])
        if self.bias is None:
            return y
        bias = self.bias if self.places is None else _Bias.apply(self.bias, len(x), self.places["bias"])
        return y + bias.to(x.dtype).unflatten(-1, (-1, 1, 1))


class Dense(PerImage, nn.Linear):
    """A matrix on one vector a row."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs) → (N, outputs)."""
        if self.places is None:
            return F.linear(x, self.weight, self.bias)
        y: Tensor = _Dense.apply(x, self.weight, self.places["weight"])
        return y if self.bias is None else y + _Bias.apply(self.bias, len(x), self.places["bias"])


class Norm(PerImage):
    """weight·normalised(x + shift) + bias by groups of GROUP channels, then SiLU if `act`."""

    def __init__(self, channels: int, act: bool = True, eps: float = 1e-5) -> None:
        super().__init__()
        if channels % GROUP:
            raise ValueError(f"{channels} channels cannot be normalised by {GROUP}")
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.groups, self.act, self.eps = channels // GROUP, act, eps

    def forward(self, x: Tensor, shift: Tensor | None = None) -> Tensor:
        """(N, C, H, W), (N, C) → (N, C, H, W)."""
        if self.fused and kernels.run_on(x):
            places = () if self.places is None else (self.places["weight"], self.places["bias"])
            y: Tensor = _Norm.apply(x, shift, self.weight, self.bias, self.eps, self.act, *places)
            return y
        if shift is not None:
            x = x + shift[:, :, None, None].to(x.dtype)
        if self.places is None:
            made = F.group_norm(x, self.groups, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)
        else:
            normal = F.group_norm(x, self.groups, eps=self.eps)
            weight = _Scale.apply(self.weight, normal, self.places["weight"])
            made = weight + _Bias.apply(self.bias, len(x), self.places["bias"]).to(x.dtype)[:, :, None, None]
        return F.silu(made) if self.act else made


def _summed(slopes: Tensor, images: int) -> Tensor:
    """Over the copies of every image."""
    return slopes.unflatten(0, (images, -1)).sum(1)


class _Bias(torch.autograd.Function):
    """A vector, one copy for every row: the rows' gradients are those of the images."""

    @staticmethod
    def forward(ctx: Any, bias: Tensor, count: int, place: Tensor) -> Tensor:
        ctx.place = place
        return bias.expand(count, -1)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[None, None, None]:
        ctx.place.copy_(_summed(slopes[0].to(ctx.place.dtype), len(ctx.place)))
        return None, None, None


class _Scale(torch.autograd.Function):
    """weight·x by channel."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: Tensor, place: Tensor) -> Tensor:
        ctx.save_for_backward(weight, x)
        ctx.place = place
        return x * weight.to(x.dtype)[:, None, None]

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[None, Tensor, None]:
        weight, x = ctx.saved_tensors
        ctx.place.copy_(_summed((slopes[0] * x).sum((2, 3), dtype=ctx.place.dtype), len(ctx.place)))
        return None, slopes[0] * weight.to(x.dtype)[:, None, None], None


class _Dense(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, place: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.place = place
        return x @ weight.T

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        by_image = (len(ctx.place), -1)
        rows = slopes[0].unflatten(0, by_image).transpose(1, 2) @ x.unflatten(0, by_image)
        ctx.place.copy_(rows)
        return slopes[0] @ weight if ctx.needs_input_grad[0] else None, None, None


class _Conv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, place: Tensor) -> Tensor:
        cast = weight.to(x.dtype)
        ctx.save_for_backward(x, cast)
        ctx.place = place
        return _convolved(x, cast)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        slope = slopes[0].contiguous(memory_format=torch.channels_last)
        if kernels.run_on(x):
            kernels.image_rows.conv_rows(x.contiguous(memory_format=torch.channels_last), slope, ctx.place)
        else:
            conv_rows(x, slope, ctx.place)
        if not ctx.needs_input_grad[0]:
            return None, None, None
        # a convolution that keeps the size is turned back by one with its kernel turned round
        return _convolved(slope, weight.transpose(0, 1).flip(2, 3)), None, None


def conv_rows(x: Tensor, slope: Tensor, place: Tensor) -> None:
    """What the kernel of that name does, tap by tap: a product for each, of the slopes and the inputs moved by it."""
    images, side = len(place), place.shape[-1]
    (height, width), half = x.shape[2:], side // 2
    padded = F.pad(x, (half, half, half, half))
    left = slope.unflatten(0, (images, -1)).transpose(1, 2).flatten(2)  # (images, outputs, copies·positions)
    for i in range(side):
        for j in range(side):
            moved = padded[:, :, i : i + height, j : j + width].unflatten(0, (images, -1))
            place[..., i, j] = left @ moved.permute(0, 1, 3, 4, 2).flatten(1, 3)


def _convolved(x: Tensor, weight: Tensor) -> Tensor:
    """With zeros around; on a GPU few channels are filled up with zeros."""
    outputs, inputs, side, _ = weight.shape
    if x.is_cuda:
        few, none = max(0, LEAST_CHANNELS - inputs), max(0, LEAST_CHANNELS - outputs)
        if few:
            x = F.pad(x, (0, 0, 0, 0, 0, few))
        if few or none:
            weight = F.pad(weight, (0, 0, 0, 0, 0, few, 0, none))
        x, weight = (one.contiguous(memory_format=torch.channels_last) for one in (x, weight))
    return F.conv2d(x, weight, padding=side // 2)[:, :outputs]


class _Norm(torch.autograd.Function):
    """The kernel's norm. With places, the gradients of weight and bias go there, image by image."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, shift: Tensor | None, weight: Tensor, bias: Tensor, eps: float, act: bool, *places: Tensor
    ) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        shift = None if shift is None else shift.contiguous()
        y, mean, inverse = kernels.group_norm.forward(x, shift, weight, bias, GROUP, eps, act)
        ctx.save_for_backward(x, shift, weight, bias, mean, inverse)
        ctx.act, ctx.places = act, places
        return y

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        x, shift, weight, bias, mean, inverse = ctx.saved_tensors
        slope = slopes[0].contiguous(memory_format=torch.channels_last)
        found, sums = kernels.group_norm.backward(x, shift, weight, bias, mean, inverse, slope, GROUP, ctx.act)
        of_weight, of_bias, by_shift = sums
        of_shift = None if shift is None else by_shift.to(shift.dtype)
        if not ctx.places:
            return found, of_shift, of_weight.sum(0), of_bias.sum(0), None, None
        for place, by_row in zip(ctx.places, (of_weight, of_bias), strict=True):
            place.copy_(_summed(by_row, len(place)))
        return found, of_shift, None, None, None, None, None, None
