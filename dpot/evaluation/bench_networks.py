"""The three classifiers of DPImageBench: a thin deep ResNet, a wide one, and one of grouped convolutions.

Each ends in an average over all places that are left (a quarter of the image each way) and a linear layer. Convolutions
begin with He's normal weights by their outputs (fan-out).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Name = Literal["resnet", "wrn", "resnext"]
GROUPS = 8  # of ResNeXt


def network_of(name: Name, channels: int, classes: int, cifar: bool) -> nn.Module:
    """As the benchmark builds them: others for CIFAR than for all other images."""
    made: nn.Module
    if name == "resnet":  # depth 164 or 110: two convolutions a block, three stages
        made = ResNet(channels, classes, 27 if cifar else 18)
    elif name == "wrn":  # WRN-28-10, WRN-40-4
        made = WideResNet(channels, classes, 4 if cifar else 6, 10 if cifar else 4)
    else:
        made = ResNeXt(channels, classes, 2 if cifar else 3, 10 if cifar else 4)
    for module in made.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return made.to(memory_format=torch.channels_last)


def conv(inside: int, outside: int, size: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """Without a bias: a BatchNorm follows or went before."""
    return nn.Conv2d(inside, outside, size, stride, size // 2, groups=groups, bias=False)


def _shortcut(inside: int, outside: int, stride: int) -> nn.Module:
    if inside == outside and stride == 1:
        return nn.Identity()
    return nn.Sequential(conv(inside, outside, 1, stride), nn.BatchNorm2d(outside))


class Basic(nn.Module):
    """relu(shortcut(x) + norm(conv(relu(norm(conv(x)))))) (He et al. 2015)."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.way = nn.Sequential(
            *(conv(inside, outside, 3, stride), nn.BatchNorm2d(outside), nn.ReLU(inplace=True)),
            *(conv(outside, outside, 3), nn.BatchNorm2d(outside)),
        )
        self.shortcut = _shortcut(inside, outside, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) → (N, C', H/stride, W/stride)."""
        return F.relu(self.way(x) + self.shortcut(x), inplace=True)


class ResNet(nn.Sequential):
    """16, 32 and 64 channels, `blocks` each: depth 6·blocks + 2."""

    def __init__(self, channels: int, classes: int, blocks: int) -> None:
        layers: list[nn.Module] = [conv(channels, 16, 3), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
        for inside, outside in ((16, 16), (16, 32), (32, 64)):
            layers.append(Basic(inside, outside, outside // inside))
            layers += [Basic(outside, outside, 1) for _ in range(blocks - 1)]
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


class Wide(nn.Module):
    """x + conv(dropout(relu(norm(conv(relu(norm(x))))))) (Zagoruyko & Komodakis 2016).

    Where the number of channels changes, what is added is a convolution of relu(norm(x)).
    """

    def __init__(self, inside: int, outside: int, stride: int, dropout: float = 0.3) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.BatchNorm2d(inside), nn.ReLU(inplace=True))
        self.way = nn.Sequential(
            *(conv(inside, outside, 3, stride), nn.BatchNorm2d(outside), nn.ReLU(inplace=True)),
            *(nn.Dropout(dropout), conv(outside, outside, 3)),
        )
        self.shortcut = None if inside == outside else conv(inside, outside, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) → (N, C', H/stride, W/stride)."""
        begun = self.first(x)
        added: Tensor = (x if self.shortcut is None else self.shortcut(begun)) + self.way(begun)
        return added


class WideResNet(nn.Sequential):
    """16·factor, 32·factor and 64·factor channels, `blocks` each: depth 6·blocks + 4."""

    def __init__(self, channels: int, classes: int, blocks: int, factor: int) -> None:
        layers: list[nn.Module] = [conv(channels, 16, 3)]
        inside = 16
        for stage, outside in enumerate((16 * factor, 32 * factor, 64 * factor)):
            layers.append(Wide(inside, outside, 2 if stage else 1))
            layers += [Wide(outside, outside, 1) for _ in range(blocks - 1)]
            inside = outside
        last = [nn.BatchNorm2d(inside), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        head = nn.Linear(inside, classes)
        nn.init.zeros_(head.bias)
        super().__init__(*layers, *last, head)


class Grouped(nn.Module):
    """relu(shortcut(x) + 1×1 of 3×3 in groups of 1×1), a norm behind each (Xie et al. 2017)."""

    def __init__(self, inside: int, outside: int, stride: int, factor: int) -> None:
        super().__init__()
        middle = GROUPS * outside // factor
        self.way = nn.Sequential(
            *(conv(inside, middle, 1), nn.BatchNorm2d(middle), nn.ReLU(inplace=True)),
            *(conv(middle, middle, 3, stride, GROUPS), nn.BatchNorm2d(middle), nn.ReLU(inplace=True)),
            *(conv(middle, outside, 1), nn.BatchNorm2d(outside)),
        )
        self.shortcut = _shortcut(inside, outside, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) → (N, C', H/stride, W/stride)."""
        return F.relu(self.shortcut(x) + self.way(x), inplace=True)


class ResNeXt(nn.Sequential):
    """64·factor, 128·factor and 256·factor channels, `blocks` each."""

    def __init__(self, channels: int, classes: int, blocks: int, factor: int) -> None:
        layers: list[nn.Module] = [conv(channels, 64, 3), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
        inside = 64
        for stage, outside in enumerate((64 * factor, 128 * factor, 256 * factor)):
            layers.append(Grouped(inside, outside, 2 if stage else 1, factor))
            layers += [Grouped(outside, outside, 1, factor) for _ in range(blocks - 1)]
            inside = outside
        head = nn.Linear(inside, classes)
        nn.init.kaiming_normal_(head.weight)
        nn.init.zeros_(head.bias)
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)
