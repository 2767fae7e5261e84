"""The kernels of group norm and SiLU beside torch's own layers, on the CPU by Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from dpot.kernels import group_norm

LAST = torch.channels_last


@pytest.mark.parametrize(("images", "channels", "size"), [(3, 8, 3), (1, 96, 9), (2, 64, 4)])
@pytest.mark.parametrize(("shifted", "act"), [(True, True), (False, False)])
def test_values_and_gradients_are_torchs(images: int, channels: int, size: int, shifted: bool, act: bool) -> None:
    torch.manual_seed(channels)
    x = (torch.randn(images, channels, size, size) * 2 + 1).to(memory_format=LAST)
    shift = torch.randn(images, channels) if shifted else None
    weight, bias = torch.randn(channels), torch.randn(channels)
    y, mean, inverse = group_norm.forward(x, shift, weight, bias, 4, 1e-5, act)
    slope = torch.randn_like(x)
    found, sums = group_norm.backward(x, shift, weight, bias, mean, inverse, slope, 4, act)

    # torch's layer with weights of its own for every image, so that each has its own gradient
    own = [one.double().expand(images, -1).clone().requires_grad_() for one in (weight, bias)]
    moved = (torch.zeros(images, channels) if shift is None else shift).double().requires_grad_()
    exact = x.double().requires_grad_()
    normal = F.group_norm(exact + moved[:, :, None, None], channels // 4, eps=1e-5)
    expected = normal * own[0][:, :, None, None] + own[1][:, :, None, None]
    expected = F.silu(expected) if act else expected
    torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-4)
    wanted = torch.autograd.grad((expected * slope).sum(), (exact, *own, moved))
    torch.testing.assert_close(found.double(), wanted[0], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(sums[0].double(), wanted[1], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(sums[1].double(), wanted[2], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(sums[2].double(), wanted[3], rtol=1e-3, atol=2e-3)
