"""The kernels of pooling, bias and ReLU beside torch's own layers, on the CPU by Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from dpot.kernels import pool_relu
from dpot.kernels.pool_relu import fused

LAST = torch.channels_last


@pytest.mark.parametrize(
    ("count", "channels", "height", "width"), [(2, 64, 14, 14), (3, 130, 7, 7), (9, 5, 5, 8), (1, 3, 1, 1)]
)
@pytest.mark.parametrize("factored", [False, True])
@pytest.mark.parametrize("halves", [False, True])
def test_values_and_gradients_are_those_of_the_layers(
    count: int, channels: int, height: int, width: int, factored: bool, halves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not halves and min(height, width) < 2:
        pytest.skip("no whole cell")
    monkeypatch.setattr(pool_relu, "PROGRAMS", 2)  # each takes several blocks, the last not all
    torch.manual_seed(channels)
    x = torch.randn(count, channels, height, width).contiguous(memory_format=LAST).requires_grad_()
    bias = torch.randn(channels, requires_grad=True)
    factor = torch.randint(2, (count, channels, 1, 1)) * 1.25 if factored else None
    expected = functional.relu(functional.max_pool2d(x, 2, ceil_mode=halves) + bias[:, None, None])
    expected = expected * factor if factor is not None else expected
    ours = fused(x, bias, factor, halves)
    assert ours.is_contiguous(memory_format=LAST)
    torch.testing.assert_close(ours, expected)
    slope = torch.randn_like(expected)
    wanted, found = (torch.autograd.grad(y, (x, bias), slope) for y in (expected, ours))
    for mine, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)


def test_of_equal_values_the_first_wins_and_a_nan_is_passed_on() -> None:
    x, bias = torch.zeros(1, 2, 3, 4).contiguous(memory_format=LAST).requires_grad_(), torch.ones(2)
    (slope,) = torch.autograd.grad(fused(x, bias, None).sum(), x)
    assert torch.equal(slope[0, 0], torch.tensor([[1.0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 1, 0]]))
    broken = torch.zeros(1, 2, 2, 2).contiguous(memory_format=LAST)
    broken[0, 1, 1, 0] = torch.nan
    assert fused(broken, bias, None).isnan().flatten().tolist() == [False, True]
