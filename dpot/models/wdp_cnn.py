"""The networks of WDP's Table 2: two 5×5 convolutions of 64 filters and a head of two hidden layers.

conv-ReLU-pool-norm-conv-ReLU-norm-pool, then FC384-SELU-FC192-SELU (grey images) or FC384-ReLU-FC384-ReLU (colour).
The paper normalises by batch; under DP-SGD each record needs a gradient of its own, so the norm is by group there.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from dpot.errors import UsageError
from dpot.ranges import Count

Norm = Literal["batch", "group"]
Head = Literal["auto", "selu", "relu"]
KERNEL = 5
GROUPS = 8


class WdpCNN(nn.Module):
    """Images with pixels in [0, 1] to class scores; they are brought to [-1, 1], a constant of no data."""

    def __init__(
        self, shape: tuple[int, ...], classes: int, norm: Norm, head: Head = "auto", filters: int = 64
    ) -> None:
        super().__init__()
        colours, height, width = shape
        features = [_after(_after(side)) for side in (height, width)]
        if min(features) < 1:
            raise UsageError(f"images of {height}×{width} pixels are too small for two 5×5 convolutions with pooling")
        if head == "auto":
            head = "selu" if colours == 1 else "relu"
        self.features = nn.Sequential(
            FirstConv2d(colours, filters, KERNEL),
            nn.MaxPool2d(2),  # the same as behind the ReLU, on a quarter of the numbers
            nn.ReLU(),
            ChannelsLast(),
            _norm(norm, filters),
            nn.Conv2d(filters, filters, KERNEL),
            nn.ReLU(),
            _norm(norm, filters),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        wide = filters * features[0] * features[1]
        self.head = (
            nn.Sequential(nn.Linear(wide, 384), nn.SELU(), nn.Linear(384, 192), nn.SELU(), nn.Linear(192, classes))
            if head == "selu"
            else nn.Sequential(nn.Linear(wide, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, classes))
        )

    def forward(self, images: Tensor) -> Tensor:
        """(N, C, H, W) → (N, classes)."""
        scores: Tensor = self.head(self.features(images * 2 - 1))
        return scores


class FirstConv2d(nn.Conv2d):
    """A convolution of few input channels as a matrix product with the unfolded image.

    The same map; cuDNN has no good kernel for the weight gradient of one or three channels, and the paper's training
    needs nine of them a step.
    """

    def forward(self, images: Tensor) -> Tensor:
        """Unpadded, stride 1."""
        height, width = images.shape[2] - KERNEL + 1, images.shape[3] - KERNEL + 1
        # views and one copy: torch's own unfold launches a kernel per image
        windows = images.unfold(2, KERNEL, 1).unfold(3, KERNEL, 1).permute(0, 1, 4, 5, 2, 3)
        outputs = self.weight.flatten(1) @ windows.reshape(len(images), -1, height * width)
        if self.bias is not None:
            outputs = outputs + self.bias[:, None]
        return outputs.unflatten(2, (height, width))


class ChannelsLast(nn.Module):
    """The layout in which a GPU convolves 64 channels without rearranging them; no change of values."""

    def forward(self, images: Tensor) -> Tensor:
        """On a GPU only."""
        return images.contiguous(memory_format=torch.channels_last) if images.is_cuda else images


class WdpNetwork:
    """The network as a config node: built when the shape of the images and the method's norm are known."""

    def __init__(self, head: Head = "auto", filters: Count = 64) -> None:
        self.head, self.filters = head, filters

    def build(self, shape: tuple[int, ...], classes: int, norm: Norm) -> nn.Module:
        """The network for these images, its weights drawn from torch's global generator."""
        return WdpCNN(shape, classes, norm, self.head, self.filters)


def _after(side: int) -> int:
    """The side of an image behind an unpadded convolution and a pooling."""
    return (side - KERNEL + 1) // 2


def _norm(kind: Norm, channels: int) -> nn.Module:
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    return nn.GroupNorm(min(GROUPS, channels), channels)
