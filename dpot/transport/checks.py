"""What every transport function refuses: shapes that do not fit, empty clouds, numbers that are none.

Shapes are always checked. Values are checked on the CPU only: on a GPU reading them would make the host wait for
the device and would be illegal while a CUDA graph is captured. There a NaN runs through to the loss, where the
training loop sees it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dpot.errors import UsageError


def check_cloud(x: Tensor, name: str, dims: tuple[int, ...] = (2, 3)) -> None:
    """One point cloud: (n, d), or (batch, n, d) where `dims` allows it, floating point, not empty, finite."""
    if x.ndim not in dims:
        shapes = {1: "(n,)", 2: "(n, d)", 3: "(batch, n, d)"}
        allowed = " or ".join(shapes[dim] for dim in dims)
        raise UsageError(f"{name} has shape {tuple(x.shape)}: give points as {allowed}")
    if not x.is_floating_point():
        raise UsageError(f"{name} holds {x.dtype}: convert the points to a floating-point type")
    if x.numel() == 0:
        raise UsageError(f"{name} is empty (shape {tuple(x.shape)}): transport needs at least one point")
    check_finite(x, name)


def check_finite(x: Tensor, name: str) -> None:
    """Refuse NaN and infinity in a CPU tensor (the sum is finite exactly when every entry is, overflow apart)."""
    if x.device.type != "cpu":
        return
    wide = torch.float32 if x.element_size() < 4 else x.dtype  # a sum of halves overflows early
    if not torch.isfinite(x.detach().sum(dtype=wide)):
        raise UsageError(f"{name} holds NaN or infinite values: clean or clip it first")


def check_pair(x: Tensor, y: Tensor, dims: tuple[int, ...] = (2, 3)) -> None:
    """Two clouds that can be compared: same number of axes, batch, dimension, type and device."""
    check_cloud(x, "x", dims)
    check_cloud(y, "y", dims)
    if x.ndim != y.ndim or x.shape[-1] != y.shape[-1] or x.shape[:-2] != y.shape[:-2]:
        raise UsageError(
            f"x {tuple(x.shape)} and y {tuple(y.shape)} do not fit: only their numbers of points may differ"
        )
    if x.dtype != y.dtype or x.device != y.device:
        raise UsageError(
            f"x is {x.dtype} on {x.device} and y is {y.dtype} on {y.device}: bring them to the same type and device"
        )


def normalised_weights(weights: Tensor, points: Tensor, name: str) -> Tensor:
    """Weights of the points (..., n), scaled to sum to 1, so that both sides always carry the same mass."""
    if weights.shape != points.shape[:-1] and weights.shape != points.shape[-2:-1]:
        raise UsageError(
            f"{name} has shape {tuple(weights.shape)}: give one weight per point, {tuple(points.shape[:-1])}"
        )
    check_finite(weights, name)
    if weights.device.type == "cpu" and (bool((weights < 0).any()) or not bool((weights.sum(-1) > 0).all())):
        raise UsageError(f"{name} must be non-negative with a positive sum")
    return weights / weights.sum(-1, keepdim=True)


def check_order(q: float) -> None:
    """The order of a Wasserstein distance is at least 1 (below 1 the sorted coupling is not optimal)."""
    if not 1 <= q < float("inf"):
        raise UsageError(f"the order q must be a finite number of at least 1, not {q}")
