"""A batch norm and the ReLU behind it, leaky or not, as one on a GPU: half the passes over memory.

As layers of torch they and the sums of gradients around them were 3.0 of the 6.7 ms of a step of the sketch's first
fit on an H200; here they are 1.4 of 5.1.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpot.precision import has_triton

BLOCK, BLOCK_C = 64, 64  # pixels and channels a program works on at once
PROGRAMS = 1024  # how many add up
TILE = {"BLOCK": BLOCK, "BLOCK_C": BLOCK_C, "num_warps": 8}


class Normed(nn.Sequential):
    """A Sequential whose ReLUs all stand right behind batch norms."""

    def forward(self, x: Tensor) -> Tensor:
        """Of images (N, C, H, W)."""
        for layer, behind in itertools.pairwise([*self, None]):
            if isinstance(layer, nn.BatchNorm2d):
                x, _ = norm_relu(x, layer, behind.negative_slope if isinstance(behind, nn.LeakyReLU) else 0.0)
            elif not isinstance(layer, nn.ReLU | nn.LeakyReLU):
                x = layer(x)
        return x


def norm_relu(x: Tensor, norm: nn.BatchNorm2d, leak: float = 0.0) -> tuple[Tensor, Tensor]:
    """ReLU(norm(x)), and x itself: who uses that one too has the two gradients added up on the way.

    leak: the slope below zero.
    """
    if not (_fits(x) and _learns(norm)):
        return F.leaky_relu(norm(x), leak), x
    return fused(x, norm, leak)


def _fits(x: Tensor) -> bool:
    return x.is_cuda and has_triton() and x.is_contiguous(memory_format=torch.channels_last)


def _learns(norm: nn.BatchNorm2d) -> bool:
    """By the batch's statistics, and moves its running ones: not in evaluation, nor where samples leave them alone."""
    return norm.training and norm.track_running_stats and norm.momentum is not None and norm.affine


def fused(x: Tensor, norm: nn.BatchNorm2d, leak: float = 0.0) -> tuple[Tensor, Tensor]:
    """The same by our kernels, for a norm in training with weights and running statistics, on images channels last."""
    moved = (norm.running_mean, norm.running_var, norm.num_batches_tracked)
    y, same = _NormReLU.apply(x, norm.weight, norm.bias, norm.eps, norm.momentum, leak, *moved)
    return y, same


class _NormReLU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, momentum: float, leak: float, *moved: Tensor
    ) -> tuple[Tensor, Tensor]:
        from dpot.models.triton_norm_relu import norm_relu_kernel, sums_kernel

        ctx.rows, ctx.eps, ctx.leak = x.numel() // x.shape[1], eps, leak
        if ctx.rows < 2:
            raise ValueError(f"a batch norm needs more than one value per channel in training, got {tuple(x.shape)}")
        every, some, steps = _grids(ctx.rows, x.shape[1])
        partial = x.new_empty(2 * x.shape[1], some[0], dtype=torch.float32)
        sums_kernel[some](x, partial, ctx.rows, steps, CHANNELS=x.shape[1], **TILE)
        sums, y = partial.sum(1), torch.empty_like(x)
        norm_relu_kernel[every](
            x, y, sums, weight, bias, *moved, ctx.rows, eps, momentum, leak, CHANNELS=x.shape[1], **TILE
        )
        ctx.save_for_backward(x, sums, weight, bias)
        ctx.set_materialize_grads(False)
        return y, x

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor | None) -> tuple[Tensor | None, ...]:
        from dpot.models.triton_norm_relu import norm_relu_slope_kernel, slope_sums_kernel

        x, sums, weight, bias = ctx.saved_tensors
        slope, beside = (None if one is None else one.contiguous(memory_format=torch.channels_last) for one in slopes)
        if slope is None:
            return beside, *(None,) * 8
        channels = x.shape[1]
        every, some, steps = _grids(ctx.rows, channels)
        partial = x.new_empty(2 * channels, some[0], dtype=torch.float32)
        slope_sums_kernel[some](
            x, slope, sums, weight, bias, partial, ctx.rows, ctx.eps, ctx.leak, steps, CHANNELS=channels, **TILE
        )
        of_both, found = partial.sum(1), torch.empty_like(x)
        norm_relu_slope_kernel[every](
            x, slope, found if beside is None else beside, found, sums, of_both, weight, bias, ctx.rows, ctx.eps,
            ctx.leak, CHANNELS=channels, BESIDE=beside is not None, **TILE,
        )  # fmt: skip
        return found, of_both[channels:], of_both[:channels], *(None,) * 6


def _grids(rows: int, channels: int) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Programs for every tile; programs that share the tiles, and how many each takes."""
    blocks, groups = -(-rows // BLOCK), -(-channels // BLOCK_C)
    sharing = min(blocks, max(1, PROGRAMS // groups))
    return (blocks, groups), (sharing, groups), -(-blocks // sharing)
