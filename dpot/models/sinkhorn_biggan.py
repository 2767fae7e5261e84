"""DP-Sinkhorn's BigGAN-style generator for CelebA at 32×32 (3,886,595 parameters with two classes)."""

from __future__ import annotations

import contextlib
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import spectral_norm

from dpot.errors import UsageError
from dpot.models.generator import Generator
from dpot.ranges import Count


class ClassConditionalBatchNorm(nn.Module):
    """Batch normalisation whose scale and shift are looked up by class."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.normalise = nn.BatchNorm2d(channels, affine=False)
        self.scale_and_shift = nn.Embedding(classes, 2 * channels)
        with torch.no_grad():
            self.scale_and_shift.weight[:, :channels] = 1
            self.scale_and_shift.weight[:, channels:] = 0

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        normal = self.normalise(x)
        scale, shift = self.scale_and_shift(labels).to(normal.dtype)[:, :, None, None].chunk(2, dim=1)
        return torch.addcmul(shift, normal, scale)


def _convolution(inputs: int, outputs: int, kernel: int) -> nn.Module:
    layer = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)
    nn.init.orthogonal_(layer.weight)
    return spectral_norm(layer)


class UpBlock(nn.Module):
    """ccBN, ReLU, nearest ×2, conv3, ccBN, ReLU, conv3; shortcut nearest ×2, conv1."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.norm1 = ClassConditionalBatchNorm(channels, classes)
        self.norm2 = ClassConditionalBatchNorm(channels, classes)
        self.conv1 = _convolution(channels, channels, 3)
        self.conv2 = _convolution(channels, channels, 3)
        self.shortcut = _convolution(channels, channels, 1)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        h = doubled_and_convolved(torch.relu(self.norm1(x, labels)), cast(nn.Conv2d, self.conv1))
        h = self.conv2(torch.relu(self.norm2(h, labels)))
        # a 1×1 convolution and nearest up-sampling commute: convolve the small image
        return h + doubled(self.shortcut(x))


def doubled(x: Tensor) -> Tensor:
    """Nearest-neighbour ×2."""
    return F.interpolate(x, scale_factor=2, mode="nearest")


def doubled_and_convolved(x: Tensor, convolution: nn.Conv2d) -> Tensor:
    """The 3×3 convolution of the doubled image, without the doubled image.

    A pixel goes to four places and from each to nine: all in all to 4×4, with the sums of the weights on the ways
    there. That is a transposed convolution, four products for a pixel of the result instead of nine.
    """
    ways = F.pad(convolution.weight.flip(2, 3), (1, 1, 1, 1))
    kernel = F.avg_pool2d(ways, 2, 1, divisor_override=1).transpose(0, 1)
    return F.conv_transpose2d(x, kernel, convolution.bias, stride=2, padding=1)


class SinkhornBigGAN(Generator):
    """U(0,1)^32 → spectrally normalised linear → 256×4×4 → up-blocks → BN, ReLU, conv3, tanh."""

    pixel_range = (-1.0, 1.0)

    def __init__(
        self,
        classes: int,
        shape: tuple[int, int, int],
        code_size: Count = 32,
        channels: Count = 256,
        bfloat16: bool = False,
    ) -> None:
        """bfloat16: on a GPU matrix units work in it; weights, their norms, statistics and images are in single."""
        super().__init__(code_size, classes, tuple(shape))  # type: ignore[arg-type]
        self.in_bfloat16 = bfloat16
        colours, height, width = shape
        doublings = (height // 4).bit_length() - 1
        if height != width or height != 4 * 2**doublings:
            raise UsageError(f"generator=sinkhorn_biggan: the side must be 4 times a power of two, not {shape}")
        self.channels = channels
        dense = nn.Linear(code_size, channels * 16)
        nn.init.orthogonal_(dense.weight)
        self.dense = spectral_norm(dense)
        self.blocks = nn.ModuleList(UpBlock(channels, classes) for _ in range(doublings))
        self.norm = nn.BatchNorm2d(channels)
        self.last = _convolution(channels, colours, 3)

    def code(self, count: int, generator: torch.Generator, device: torch.device | str) -> Tensor:
        """Uniform on the unit cube."""
        return torch.rand(count, self.code_size, generator=generator, device=device)

    def forward(self, code: Tensor, labels: Tensor) -> Tensor:
        """Images in [-1, 1]."""
        kind = code.device.type
        with parametrize.cached():  # asked for again, a weight is what it was: its norm is found once a pass
            with torch.autocast(kind, enabled=False):
                for layer in self.modules():
                    if parametrize.is_parametrized(layer, "weight"):
                        _ = layer.weight
            lowered = self.in_bfloat16 and code.is_cuda
            with torch.autocast(kind, dtype=torch.bfloat16) if lowered else contextlib.nullcontext():
                images = self._images(code, labels)
        return torch.tanh(images.float()).contiguous()

    def _images(self, code: Tensor, labels: Tensor) -> Tensor:
        x = self.dense(code).view(-1, self.channels, 4, 4)
        if x.is_cuda:  # the layout that convolutions on a GPU compute in; otherwise each begins with a transposition
            x = x.contiguous(memory_format=torch.channels_last)
        for block in self.blocks:
            x = block(x, labels)
        images: Tensor = self.last(torch.relu(self.norm(x)))
        return images
