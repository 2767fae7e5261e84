"""Soft histograms: how a sample is spread over the knots of a grid, on lines and on planes.

A position t between the knots i and i + 1 gives 1 - f to the one and f to the other, f = t - i (hat functions); beyond
the last knot all goes to it. On a plane the weights are products. Sums of such weights are differentiable almost
everywhere in t, and a record's weights on one line or plane are non-negative and sum to 1, so their L2 norm is at
most 1, whatever the record: that is their sensitivity.

Means are computed by scattering, without the (sample × line × knot) tensor of weights; derivatives by gathering.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def line_means(positions: Tensor, knots: int) -> Tensor:
    """(groups, samples, lines) positions in units of knots → (groups, lines, knots) mean weights."""
    means: Tensor = _LineMeans.apply(positions, knots)
    return means


def plane_means(across: Tensor, along: Tensor, knots: int) -> Tensor:
    """Two (groups, samples, planes) positions → (groups, planes, knots²) mean weights, rows by `across`."""
    means: Tensor = _PlaneMeans.apply(across, along, knots)
    return means


def count_lines(counts: Tensor, positions: Tensor, labels: Tensor, parts: int) -> None:
    """Add each record's weights to counts (classes, lines, knots), in whole numbers: `parts` per record and line.

    Positions (records, lines) are rounded to multiples of 1/parts, so the weights parts - a and a are whole numbers.
    """
    _, lines, knots = counts.shape
    low, part = _cut(positions, knots, parts)
    cell = (labels[:, None] * lines + torch.arange(lines, device=positions.device)) * knots + low
    flat = counts.view(-1)
    flat.scatter_add_(0, cell.flatten(), (parts - part).flatten())
    flat.scatter_add_(0, (cell + 1).flatten(), part.flatten())


def count_planes(counts: Tensor, across: Tensor, along: Tensor, labels: Tensor, parts: int) -> None:
    """The same on planes: counts (classes, planes, knots²), parts² per record and plane."""
    _, planes, cells = counts.shape
    knots = round(cells**0.5)
    (i, a), (j, b) = _cut(across, knots, parts), _cut(along, knots, parts)
    cell = (labels[:, None] * planes + torch.arange(planes, device=across.device)) * cells + i * knots + j
    flat = counts.view(-1)
    corners = ((0, (parts - a) * (parts - b)), (1, (parts - a) * b), (knots, a * (parts - b)), (knots + 1, a * b))
    for step, weight in corners:
        flat.scatter_add_(0, (cell + step).flatten(), weight.flatten())


def _cut(positions: Tensor, knots: int, parts: int) -> tuple[Tensor, Tensor]:
    """(knot below, whole parts above it); a position that is not a number counts as the first knot."""
    whole = torch.nan_to_num(positions * parts, nan=0.0).clamp(0, (knots - 1) * parts).round().long()
    low = (whole // parts).clamp(max=knots - 2)
    return low, whole - low * parts


def _between(positions: Tensor, knots: int) -> tuple[Tensor, Tensor, Tensor]:
    """(knot below, fraction above it, whether the position lies within the grid)."""
    inside = positions.clamp(0, knots - 1)
    low = inside.floor().clamp(max=knots - 2)
    return low.long(), inside - low, inside == positions


def _cells(groups: int, lines: int, cells: int, device: torch.device) -> Tensor:
    """Where the first cell of each (group, 1, line) lies in a flat (groups, lines, cells) tensor."""
    group = torch.arange(groups, device=device)[:, None, None]
    return (group * lines + torch.arange(lines, device=device)) * cells


class _LineMeans(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, positions: Tensor, knots: int) -> Tensor:
        groups, samples, lines = positions.shape
        low, fraction, inside = _between(positions, knots)
        cell = _cells(groups, lines, knots, positions.device) + low
        sums = torch.zeros(groups * lines * knots, device=positions.device, dtype=positions.dtype)
        sums.scatter_add_(0, cell.flatten(), (1 - fraction).flatten())
        sums.scatter_add_(0, (cell + 1).flatten(), fraction.flatten())
        ctx.save_for_backward(cell, inside)
        ctx.samples = samples
        return sums.view(groups, lines, knots) / samples

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:
        cell, inside = ctx.saved_tensors
        slope = slopes[0].contiguous().view(-1)
        return (slope[cell + 1] - slope[cell]) * inside / ctx.samples, None


class _PlaneMeans(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, across: Tensor, along: Tensor, knots: int) -> Tensor:
        groups, samples, planes = across.shape
        (i, f, in_f), (j, g, in_g) = _between(across, knots), _between(along, knots)
        cell = _cells(groups, planes, knots * knots, across.device) + i * knots + j
        sums = torch.zeros(groups * planes * knots * knots, device=across.device, dtype=across.dtype)
        for step, weight in ((0, (1 - f) * (1 - g)), (1, (1 - f) * g), (knots, f * (1 - g)), (knots + 1, f * g)):
            sums.scatter_add_(0, (cell + step).flatten(), weight.flatten())
        ctx.save_for_backward(cell, f, g, in_f, in_g)
        ctx.samples, ctx.knots = samples, knots
        return sums.view(groups, planes, knots * knots) / samples

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor, None]:
        cell, f, g, in_f, in_g = ctx.saved_tensors
        slope = slopes[0].contiguous().view(-1)
        here, right = slope[cell], slope[cell + 1]
        up, both = slope[cell + ctx.knots], slope[cell + ctx.knots + 1]
        d_across = ((up - here) * (1 - g) + (both - right) * g) * in_f / ctx.samples
        d_along = ((right - here) * (1 - f) + (both - up) * f) * in_g / ctx.samples
        return d_across, d_along, None
