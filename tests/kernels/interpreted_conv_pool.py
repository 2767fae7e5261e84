"""The kernels of the fused convolution and pooling beside torch's own layers, on the CPU by Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from dpot.kernels import conv_pool
from dpot.kernels.conv_pool import fused
from dpot.models.pooling import ChannelDropout, ConvPoolFirst

CASES = [  # images, height, width, channels, kernel, padding, channels last: many cells, odd sizes, channels left over
    (1, 14, 14, 16, 5, 0, False),
    (1, 14, 14, 16, 3, 1, True),
    (1, 9, 12, 3, 3, 0, True),
    (9, 11, 8, 9, 2, 0, False),
    (2, 6, 6, 8, 5, 0, False),
    (2, 7, 10, 9, 5, 2, False),
    (2, 12, 12, 40, 3, 0, True),
]


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize(("count", "height", "width", "channels", "kernel", "padding", "channels_last"), CASES)
def test_values_and_gradients_are_those_of_the_layers(
    count: int,
    height: int,
    width: int,
    channels: int,
    kernel: int,
    padding: int,
    channels_last: bool,
    dropped: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conv_pool, "PROGRAMS", 2)  # each takes several blocks, the last not all
    torch.manual_seed(count)
    x = torch.randn(count, 1, height, width)
    weight = torch.randn(channels, 1, kernel, kernel, requires_grad=True)
    bias = torch.randn(channels, requires_grad=True)
    expected = functional.relu(functional.max_pool2d(functional.conv2d(x, weight, bias, padding=padding), 2))
    factor = 2.0 * torch.randint(2, (count, channels, 1, 1)) if dropped else None
    expected = expected if factor is None else expected * factor
    slope = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, (weight, bias), slope)
    ours = fused(x, weight, bias, factor, padding, channels_last)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    assert ours.is_contiguous(memory_format=layout)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)
    for mine, other in zip(torch.autograd.grad(ours, (weight, bias), slope), wanted, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)


def test_of_equal_values_the_first_wins_and_nothing_flows_back_from_what_is_cut_off() -> None:
    x = torch.ones(2, 1, 8, 8)
    x[1] = -1
    weight, bias = torch.ones(2, 1, 3, 3, requires_grad=True), torch.tensor([0.0, 1.0], requires_grad=True)
    ours = fused(x, weight, bias)
    assert torch.equal(ours[0], torch.tensor([9.0, 10.0])[:, None, None].expand(2, 3, 3))
    assert torch.equal(ours[1], torch.zeros(2, 3, 3))
    of_weight, of_bias = torch.autograd.grad(ours.sum(), (weight, bias))
    assert torch.equal(of_weight, torch.full((2, 1, 3, 3), 9.0))
    assert torch.equal(of_bias, torch.full((2,), 9.0))


def test_what_is_not_a_number_is_passed_on() -> None:
    x = torch.zeros(1, 1, 6, 6)
    ours = fused(x, torch.full((1, 1, 3, 3), torch.nan), torch.zeros(1))
    assert ours.isnan().all()


@pytest.mark.parametrize("training", [False, True])
def test_dropout_behind_the_three_is_part_of_them(training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network gives what its layers give one by one, with the same channels dropped; in use none is."""
    layers = ConvPoolFirst(nn.Conv2d(1, 9, 3), nn.MaxPool2d(2), nn.ReLU(), ChannelDropout(0.5), nn.Flatten())
    layers.train(training)
    x = torch.randn(6, 1, 10, 10)
    torch.manual_seed(0)
    expected = nn.Sequential(*layers)(x)
    monkeypatch.setattr(ConvPoolFirst, "_takes", lambda *_: True)
    torch.manual_seed(0)
    torch.testing.assert_close(layers(x), expected)
    whole = expected.view(6, 9, -1)
    assert bool((whole.amax(2) == 0).any()) == training
