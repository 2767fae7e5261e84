"""DP-Sinkhorn's generator for MNIST and Fashion-MNIST (957,969 parameters)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dpot.errors import UsageError
from dpot.models.generator import Generator
from dpot.models.layers import NarrowConv2d, Normed
from dpot.ranges import Count


class SinkhornDCGAN(Generator):
    """U(0,1)^16 and a learned label embedding of 8 → three transposed convolutions → conv3, tanh."""

    pixel_range = (-1.0, 1.0)

    def __init__(
        self,
        classes: int,
        shape: tuple[int, int, int],
        code_size: Count = 16,
        embedding: Count = 8,
        width: Count = 64,
        bfloat16: bool = False,
    ) -> None:
        """bfloat16: on a GPU matrix units work in it; weights, statistics and images stay in single precision."""
        super().__init__(code_size, classes, tuple(shape))  # type: ignore[arg-type]
        colours, height, side = shape
        if height != side or height % 4:
            raise UsageError(f"generator=sinkhorn_dcgan: images must be square with a side divisible by 4, not {shape}")
        self.in_bfloat16 = bfloat16
        self.embedding = nn.Embedding(classes, embedding)
        self.side = height // 4
        first = nn.ConvTranspose2d(code_size + embedding, 4 * width, self.side, bias=False)
        self.first = first.to(memory_format=torch.channels_last)  # as forward reads it

        def up(inputs: int, outputs: int) -> list[nn.Module]:
            convolution = nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, bias=False)
            return [convolution, nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2)]

        self.layers = Normed(
            nn.BatchNorm2d(4 * width),
            nn.LeakyReLU(0.2),
            *up(4 * width, 2 * width),
            *up(2 * width, width),
            NarrowConv2d(width, colours, 3),
        ).to(memory_format=torch.channels_last)

    def code(self, count: int, generator: torch.Generator, device: torch.device | str) -> Tensor:
        """Uniform on the unit cube."""
        return torch.rand(count, self.code_size, generator=generator, device=device)

    def forward(self, code: Tensor, labels: Tensor) -> Tensor:
        """Images in [-1, 1]."""
        joined = torch.cat([code, self.embedding(labels)], dim=1)
        # On a 1×1 image a transposed convolution is a matrix product. Its result is laid out with the channels last,
        # the layout that convolutions on a GPU compute in: otherwise each of them begins and ends with a transposition.
        weight = self.first.weight.permute(0, 2, 3, 1).flatten(1)
        with torch.autocast(code.device.type, dtype=torch.bfloat16, enabled=self.in_bfloat16 and code.is_cuda):
            start = (joined @ weight).view(-1, self.side, self.side, self.first.out_channels)
            images = self.layers(start.permute(0, 3, 1, 2))
        return torch.tanh(images.float()).contiguous()
