"""The generator the sliced sketch is fitted with: transposed convolutions, for images of any size and colour."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from dpot.models.generator import Generator, one_hot
from dpot.ranges import Count

WIDTH_ON_GPU, WIDTH_ON_CPU = 128, 32  # the wide one takes hours on a CPU


class Modulated(nn.Module):
    """Batch normalisation whose scale and shift depend on code and label, then a ReLU."""

    def __init__(self, inputs: int, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, affine=False)
        self.style = nn.Linear(inputs, 2 * channels)
        nn.init.normal_(self.style.weight, std=0.02)
        nn.init.zeros_(self.style.bias)

    def forward(self, x: Tensor, joined: Tensor) -> Tensor:
        """(N, channels, H, W), (N, inputs) → (N, channels, H, W)."""
        scale, shift = self.style(joined)[:, :, None, None].chunk(2, 1)
        return torch.relu(self.norm(x) * (1 + scale) + shift)


class Doubling(nn.Module):
    """One doubling: normalise, double; where it is deep, a further convolution beside the way."""

    def __init__(self, inputs: int, before: int, after: int, deep: bool) -> None:
        super().__init__()
        self.enter = Modulated(inputs, before)
        self.widen = nn.ConvTranspose2d(before, after, 4, 2, 1, bias=False)
        self.inside = Modulated(inputs, after) if deep else None
        self.mix = nn.Conv2d(after, after, 3, padding=1, bias=False) if deep else None

    def forward(self, x: Tensor, joined: Tensor) -> Tensor:
        """(N, before, H, W) → (N, after, 2H, 2W)."""
        x = self.widen(self.enter(x, joined))
        return x if self.mix is None or self.inside is None else x + self.mix(self.inside(x, joined))


class SketchDCGAN(Generator):
    """code + label → s×s (2·width) → doubled until the image's size is reached, channels halved, not below width/2.

    s·2^u is the smallest size of that form, s from 4 to 7, that holds the image; what is too much is cropped. For
    28×28: 7×7 (256) → 14×14 (128) → 28×28 (64) → sigmoid. Code and label enter at every normalisation again. Matrix
    units work in bfloat16 on a GPU.
    """

    def __init__(
        self,
        classes: int,
        shape: tuple[int, int, int],
        code_size: Count = 32,
        width: Count | None = None,
        modulated: bool = False,
        deep: bool = False,
    ) -> None:
        super().__init__(code_size, classes, shape)
        channels, height, sideways = shape
        doublings, start = grid_of(max(height, sideways))
        if width is None:
            width = WIDTH_ON_GPU if torch.cuda.is_available() else WIDTH_ON_CPU
        widths = [max(2 * width >> i, width // 2, 1) for i in range(doublings + 1)]
        inputs = code_size + classes
        self.first = nn.Linear(inputs, widths[0] * start * start, bias=False)
        self.start = (widths[0], start, start)
        self.parts = nn.ModuleList()
        if modulated or deep:
            self.parts.extend(Doubling(inputs, before, after, deep) for before, after in itertools.pairwise(widths))
            self.parts.append(Modulated(inputs, widths[-1]))
            self.net = nn.Sequential(nn.Conv2d(widths[-1], channels, 3, padding=1))
        else:
            layers: list[nn.Module] = []
            for before, after in itertools.pairwise(widths):
                layers += [nn.BatchNorm2d(before), nn.ReLU(), nn.ConvTranspose2d(before, after, 4, 2, 1, bias=False)]
            layers += [nn.BatchNorm2d(widths[-1]), nn.ReLU(), nn.Conv2d(widths[-1], channels, 3, padding=1)]
            self.net = nn.Sequential(*layers)
        self.to(memory_format=torch.channels_last)

    def forward(self, code: Tensor, labels: Tensor) -> Tensor:
        """(N, code_size), (N,) → (N, C, H, W) in [0, 1]."""
        joined = torch.cat([code, one_hot(labels, self.classes)], 1)
        with torch.autocast(code.device.type, dtype=torch.bfloat16, enabled=code.device.type == "cuda"):
            x = self.first(joined).unflatten(1, self.start).contiguous(memory_format=torch.channels_last)
            for part in self.parts:
                x = part(x, joined)
            logits = self.net(x)
        _, height, width = self.shape
        top, left = (logits.shape[2] - height) // 2, (logits.shape[3] - width) // 2
        return torch.sigmoid(logits.float())[:, :, top : top + height, left : left + width]


def grid_of(size: int) -> tuple[int, int]:
    """(u, s): s·2^u ≥ size with s from 4 to 7, or no doubling for images smaller than 8."""
    doublings = 0
    while size > 7 * 2**doublings:
        doublings += 1
    return doublings, -(-size // 2**doublings)
