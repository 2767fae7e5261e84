"""The blur behind a doubling beside torch's own convolution, on the CPU by Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from dpot.kernels.blur import blur
from dpot.models.layers import SmoothDoubling


@pytest.mark.parametrize(
    ("count", "channels", "height", "width"), [(2, 5, 6, 5), (1, 64, 5, 5), (2, 70, 3, 4), (2, 1, 9, 8)]
)
def test_values_and_gradients_are_those_of_a_convolution_by_channel(
    count: int, channels: int, height: int, width: int
) -> None:
    torch.manual_seed(count)
    x = torch.randn(count, channels, height, width, requires_grad=True)
    kernel = torch.outer(*[torch.tensor([1.0, 3.0, 3.0, 1.0]) / 4] * 2).expand(channels, 1, 4, 4)
    expected = functional.conv2d(x, kernel, padding=1, groups=channels)
    ours = blur(x)
    assert ours.shape == (count, channels, height - 1, width - 1)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)
    slope = torch.randn_like(expected)
    (wanted,) = torch.autograd.grad(expected, x, slope)
    (found,) = torch.autograd.grad(ours, x, slope)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_a_doubling_in_two_steps_is_the_one_in_one() -> None:
    torch.manual_seed(0)
    doubling, x = SmoothDoubling(6, 4), torch.randn(2, 6, 5, 7)
    in_two = blur(functional.conv_transpose2d(x, doubling.weight, stride=2))
    torch.testing.assert_close(in_two, doubling(x), rtol=1e-5, atol=1e-5)
