"""The generator the sliced sketch is fitted with: transposed convolutions, for images of any size and colour."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from dpot.models.generator import Generator, one_hot
from dpot.models.layers import NarrowConv2d, Normed, SmoothDoubling, norm_relu
from dpot.ranges import Count, NonNegativeInt

WIDTH_ON_GPU, WIDTH_ON_CPU = 128, 16  # the wide one takes hours on a CPU
BLOCKS_ON_GPU, BLOCKS_ON_CPU = 1, 0  # there, more steps of a smaller one reach more in the same time
COLOUR_BLOCKS_ON_GPU = 2
COLOUR_WIDTH_ON_CPU, COLOUR_BLOCKS_ON_CPU = 24, 1  # for photographs the wide one made narrow: the other is blotchy


class Residual(nn.Module):
    """x + convolution(ReLU(normalised x))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        convolution = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.way = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(), convolution)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) → (N, C, H, W)."""
        norm, _, convolution = self.way
        normed, x = norm_relu(x, norm)  # type: ignore[arg-type]
        added: Tensor = x + convolution(normed)
        return added


class Grain(nn.Module):
    """x + s_c·noise: noise at every place, the same for all channels but for its strength, which is learned.

    The noise is a part of the code, so that the same codes give the same images.
    """

    noise: Tensor  # (N, 1, H, W), set before every pass

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.strength = nn.Parameter(torch.zeros(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) → (N, C, H, W)."""
        grainy: Tensor = x + self.strength.to(x.dtype) * self.noise.to(x.dtype)
        return grainy


class SketchDCGAN(Generator):
    """code + label → s×s (2·width) → doubled until the image's size is reached, channels halved, not below width/2.

    s·2^u is the smallest size of that form, s from 4 to 7, that holds the image; what is too much is cropped. For
    28×28: 7×7 (256) → 14×14 (128) → 28×28 (64) → sigmoid, with `blocks` residual convolutions at every size. Matrix
    units work in bfloat16 on a GPU.
    """

    def __init__(
        self,
        classes: int,
        shape: tuple[int, int, int],
        code_size: Count = 32,
        width: Count | None = None,
        blocks: NonNegativeInt | None = None,
        subpixel: bool | None = None,
        smooth: bool | None = None,
        resized: bool | None = None,
        grain: bool | None = None,
        least_width: Count | None = None,
    ) -> None:
        """subpixel: the last doubling makes the image itself, nothing is computed there; smooth: doublings are blurred;
        resized: they repeat pixels, and an ordinary convolution follows. grain: noise enters behind every doubling.
        least_width: channels at the larger sizes, width/2 by rule.

        None: as large as the device allows. Photographs on a GPU: resized, with grain and two blocks. Other images:
        blurred where something is computed after the last doubling.
        """
        super().__init__(code_size, classes, shape)
        channels, height, sideways = shape
        doublings, start = grid_of(max(height, sideways))
        cuda, colour = torch.cuda.is_available(), channels > 1
        if width is None:
            width = WIDTH_ON_GPU if cuda else COLOUR_WIDTH_ON_CPU if colour else WIDTH_ON_CPU
        if blocks is None:
            grey, photographs = (BLOCKS_ON_GPU, COLOUR_BLOCKS_ON_GPU) if cuda else (BLOCKS_ON_CPU, COLOUR_BLOCKS_ON_CPU)
            blocks = photographs if colour else grey
        if subpixel is None:
            subpixel = not (cuda or colour)  # what is computed at full size is most of the time there
        widths = [max(2 * width >> i, least_width or width // 2, 1) for i in range(doublings + 1)]
        self.first = nn.Linear(code_size + classes, widths[0] * start * start, bias=False)
        self.start = (widths[0], start, start)
        by_rule = cuda and colour and smooth is None and not subpixel
        resized, grain = (by_rule if one is None else one for one in (resized, grain))
        if smooth is None:
            smooth = not (subpixel or resized)
        subpixel = subpixel and doublings > 0
        self.size = {"width": width, "blocks": blocks, "subpixel": subpixel, "smooth": smooth}
        rarely = {"resized": resized, "grain": grain, "least_width": least_width}
        self.size |= {name: value for name, value in rarely.items() if value}
        layers: list[nn.Module] = [Residual(widths[0]) for _ in range(blocks)]
        for before, after in itertools.pairwise(widths[:-1] if subpixel else widths):
            layers += [nn.BatchNorm2d(before), nn.ReLU()]
            if resized:
                layers += [nn.Upsample(scale_factor=2), nn.Conv2d(before, after, 3, padding=1, bias=False)]
            else:
                plain = nn.ConvTranspose2d(before, after, 4, 2, 1, bias=False)
                layers += [SmoothDoubling(before, after) if smooth else plain]
            layers += [Grain(after)] if grain else []
            layers += [Residual(after) for _ in range(blocks)]
        last = widths[-2] if subpixel else widths[-1]
        to_image: nn.Module = NarrowConv2d(last, channels, 3)
        if subpixel:
            to_image = SmoothDoubling(last, channels, True) if smooth else nn.ConvTranspose2d(last, channels, 4, 2, 1)
        layers += [nn.BatchNorm2d(last), nn.ReLU(), to_image]
        self.net = Normed(*layers).to(memory_format=torch.channels_last)
        self.grains = [layer for layer in layers if isinstance(layer, Grain)]
        self.sides = [start * 2 ** (i + 1) for i in range(len(self.grains))]

    def code(self, count: int, generator: torch.Generator, device: torch.device | str) -> Tensor:
        """Standard normal; behind the code itself stands the noise of every place of every size."""
        size = self.code_size + sum(side * side for side in self.sides)
        return torch.randn(count, size, generator=generator, device=device)

    def forward(self, code: Tensor, labels: Tensor) -> Tensor:
        """(N, code_size and noise), (N,) → (N, C, H, W) in [0, 1]."""
        code, *noise = code.split([self.code_size, *(side * side for side in self.sides)], 1)
        for grain, side, values in zip(self.grains, self.sides, noise, strict=True):
            grain.noise = values.view(-1, 1, side, side)
        joined = torch.cat([code, one_hot(labels, self.classes)], 1)
        with torch.autocast(code.device.type, dtype=torch.bfloat16, enabled=code.device.type == "cuda"):
            begun = self.first(joined).unflatten(1, self.start)
            logits = self.net(begun.contiguous(memory_format=torch.channels_last))
        _, height, width = self.shape
        top, left = (logits.shape[2] - height) // 2, (logits.shape[3] - width) // 2
        return torch.sigmoid(logits.float())[:, :, top : top + height, left : left + width]


def grid_of(size: int) -> tuple[int, int]:
    """(u, s): s·2^u ≥ size with s from 4 to 7, or no doubling for images smaller than 8."""
    doublings = 0
    while size > 7 * 2**doublings:
        doublings += 1
    return doublings, -(-size // 2**doublings)
