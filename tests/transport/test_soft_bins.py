"""Soft histograms against the hat functions they stand for."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dpot.transport.soft_bins import count_lines, count_planes, line_means, plane_means


def hats(positions: Tensor, knots: int) -> Tensor:
    """(…, knots): max(0, 1 - |t - i|) with t held within the grid."""
    held = positions.clamp(0, knots - 1)
    return (1 - (held[..., None] - torch.arange(knots, dtype=positions.dtype)).abs()).clamp(min=0)


def positions(seed: int, *shape: int, reach: float = 8.0) -> Tensor:
    """Positions from -1.5 knots to beyond the last one, none of them near a knot, where the hats have a corner."""
    random = torch.Generator().manual_seed(seed)
    whole, between = torch.rand(2, *shape, generator=random, dtype=torch.float64)
    return (whole * reach - 1.5).floor() + 0.1 + 0.8 * between


@pytest.mark.parametrize("knots", [2, 3, 6])
def test_line_means_are_means_of_hats(knots: int) -> None:
    t = positions(0, 3, 7, 4)
    torch.testing.assert_close(line_means(t, knots), hats(t, knots).mean(1))


@pytest.mark.parametrize("knots", [2, 5])
def test_plane_means_are_means_of_products_of_hats(knots: int) -> None:
    s, t = positions(2, 3, 7, 4), positions(4, 3, 7, 4)
    dense = torch.einsum("gnpi,gnpj->gpij", hats(s, knots), hats(t, knots)) / 7
    torch.testing.assert_close(plane_means(s, t, knots), dense.flatten(2))


def test_derivatives_are_finite_differences() -> None:
    s, t = (positions(seed, 2, 3, 2).requires_grad_() for seed in (6, 8))
    assert torch.autograd.gradcheck(lambda x: line_means(x, 5), s)
    assert torch.autograd.gradcheck(lambda x, y: plane_means(x, y, 5), (s, t))


def test_on_a_knot_and_outside_the_grid() -> None:
    t = torch.tensor([[[0.0], [2.0], [-5.0], [9.0]]], dtype=torch.float64, requires_grad=True)
    found = line_means(t, 3)
    torch.testing.assert_close(found.flatten(), torch.tensor([0.5, 0.0, 0.5], dtype=torch.float64))
    (found * torch.tensor([0.0, 1.0, 5.0])).sum().backward()
    assert t.grad is not None
    assert t.grad[0, 2:].abs().sum() == 0  # nothing moves beyond the ends


def test_counts_are_the_means_in_whole_numbers() -> None:
    """At positions that are multiples of 1/parts nothing is cut: counts are exactly parts·(sum of weights)."""
    parts, knots, classes = 16, 5, 3
    drawn = torch.Generator().manual_seed(0)
    t = torch.randint(-20, 100, (40, 6), generator=drawn) / parts
    labels = torch.randint(classes, (40,), generator=drawn)
    lines = torch.zeros(classes, 6, knots, dtype=torch.int64)
    count_lines(lines, t.double(), labels, parts)
    planes = torch.zeros(classes, 3, knots**2, dtype=torch.int64)
    count_planes(planes, t[:, :3].double(), t[:, 3:].double(), labels, parts)
    for label in range(classes):
        own = t[labels == label].double()[None]
        torch.testing.assert_close(lines[label].double(), parts * own.shape[1] * line_means(own, knots)[0])
        both = plane_means(own[..., :3], own[..., 3:], knots)[0]
        torch.testing.assert_close(planes[label].double(), parts**2 * own.shape[1] * both)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=64), min_size=2, max_size=2), st.integers(2, 9))
def test_every_record_weighs_the_same_whatever_it_is(pair: list[float], knots: int) -> None:
    """Non-negative whole numbers that add up to `parts`: the whole argument for the sensitivity."""
    label = torch.zeros(1, dtype=torch.int64)
    lines = torch.zeros(1, 2, knots, dtype=torch.int64)
    count_lines(lines, torch.tensor([pair], dtype=torch.float64), label, 256)
    plane = torch.zeros(1, 1, knots**2, dtype=torch.int64)
    s, t = (torch.tensor([[value]], dtype=torch.float64) for value in pair)
    count_planes(plane, s, t, label, 16)
    assert (lines >= 0).all()
    assert (plane >= 0).all()
    assert lines.sum(2).tolist() == [[256, 256]]
    assert plane.sum().item() == 256
