"""The kernels of batch norm and ReLU beside torch's own layers, on the CPU by Triton's interpreter."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from dpot.kernels import norm_relu
from dpot.kernels.norm_relu import fused

LAST = torch.channels_last


def a_norm(channels: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(channels, eps=1e-3, momentum=0.3)
    for tensor in (norm.weight, norm.bias, norm.running_mean):
        assert tensor is not None
        nn.init.normal_(tensor)
    return norm


@pytest.mark.parametrize(
    ("count", "channels", "height", "width"), [(3, 5, 4, 6), (2, 64, 7, 7), (5, 70, 9, 3), (1, 3, 2, 1)]
)
@pytest.mark.parametrize(("past", "leak"), [(False, 0.0), (True, 0.0), (False, 0.2)])
def test_values_gradients_and_running_statistics_are_torchs(
    count: int, channels: int, height: int, width: int, past: bool, leak: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(norm_relu, "PROGRAMS", 3)  # each takes several blocks, the last not all
    torch.manual_seed(channels)
    norm = a_norm(channels)
    twin = nn.BatchNorm2d(channels, eps=1e-3, momentum=0.3).double()
    twin.load_state_dict(norm.state_dict())
    x = (torch.randn(count, channels, height, width) * 2 + 30).to(memory_format=LAST)
    ours, theirs = x.clone(memory_format=LAST).requires_grad_(), x.double().requires_grad_()
    y, same = fused(ours, norm, leak)
    expected = nn.functional.leaky_relu(twin(theirs), leak)
    torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-4)
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        ours_now, theirs_now = getattr(norm, name).double(), getattr(twin, name).double()
        torch.testing.assert_close(ours_now, theirs_now, rtol=1e-4, atol=1e-4)
    slope, beside = torch.randn_like(expected), torch.randn_like(expected)
    ((y * slope).sum() + (same * beside).sum() * past).backward()
    ((expected * slope).sum() + (theirs * beside).sum() * past).backward()
    for found, wanted in ((ours, theirs), (norm.weight, twin.weight), (norm.bias, twin.bias)):
        assert found.grad is not None
        assert wanted.grad is not None
        torch.testing.assert_close(found.grad.double(), wanted.grad, rtol=1e-3, atol=1e-3)


def test_a_channel_without_spread_and_one_with_a_nan() -> None:
    norm = nn.BatchNorm2d(3)
    x = torch.randn(2, 3, 4, 4).contiguous(memory_format=LAST)
    x[:, 0] = 7.3
    x[0, 1, 2, 2] = math.nan
    y, _ = fused(x, norm)
    assert (y[:, 0] == 0).all()  # as far as rounding goes: the mean itself, and a bias of 0
    assert y[:, 1].isnan().all()
    assert not y[:, 2].isnan().any()


def test_only_the_input_is_used() -> None:
    norm, x = a_norm(4), torch.randn(2, 4, 3, 3).contiguous(memory_format=LAST).requires_grad_()
    _, same = fused(x, norm)
    same.sum().backward()
    assert (x.grad == 1).all()
    assert norm.weight.grad is None


def test_one_value_per_channel_is_refused_as_torch_does() -> None:
    with pytest.raises(ValueError, match="more than one value per channel"):
        fused(torch.randn(1, 4, 1, 1).contiguous(memory_format=LAST), a_norm(4))
