"""The kernels of a convolution to a few channels beside torch's own, on the CPU by Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from dpot.kernels.narrow_conv import narrow_conv

LAST = torch.channels_last


@pytest.mark.parametrize(
    ("count", "channels", "height", "width", "outputs", "kernel"),
    [(3, 64, 7, 7, 1, 3), (2, 5, 9, 4, 3, 3), (1, 16, 1, 1, 1, 3), (2, 3, 6, 6, 2, 5), (4, 33, 3, 8, 1, 1)],
)
@pytest.mark.parametrize("laid_out", [LAST, torch.contiguous_format])
def test_values_and_gradients_are_torchs(
    count: int, channels: int, height: int, width: int, outputs: int, kernel: int, laid_out: torch.memory_format
) -> None:
    torch.manual_seed(channels)
    x = torch.randn(count, channels, height, width).to(memory_format=LAST).requires_grad_()
    weight = torch.randn(outputs, channels, kernel, kernel).to(memory_format=laid_out).requires_grad_()
    bias = torch.randn(outputs, requires_grad=True)
    twins = [one.detach().double().requires_grad_() for one in (x, weight, bias)]
    ours, theirs = narrow_conv(x, weight, bias), F.conv2d(*twins, padding=kernel // 2)
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-5)
    slope = torch.randn_like(theirs)
    ours.backward(slope.float())
    theirs.backward(slope)
    for found, wanted in zip((x, weight, bias), twins, strict=True):
        assert found.grad is not None
        assert wanted.grad is not None
        torch.testing.assert_close(found.grad.double(), wanted.grad, rtol=1e-4, atol=1e-4)


def test_half_the_bits_in_and_out_but_single_precision_between() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 8, 5, 5).to(torch.bfloat16, memory_format=LAST).requires_grad_()
    weight, bias = torch.randn(1, 8, 3, 3), torch.randn(1)
    y = narrow_conv(x, weight, bias)
    torch.testing.assert_close(y, F.conv2d(x.detach().float(), weight, bias, padding=1), rtol=1e-5, atol=1e-5)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.bfloat16
