"""DP-Sinkhorn's generator for MNIST and Fashion-MNIST (957,969 parameters)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dpot.errors import UsageError
from dpot.models.generator import Generator
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
    ) -> None:
        super().__init__(code_size, classes, tuple(shape))  # type: ignore[arg-type]
        colours, height, side = shape
        if height != side or height % 4:
            raise UsageError(f"generator=sinkhorn_dcgan: images must be square with a side divisible by 4, not {shape}")
        self.embedding = nn.Embedding(classes, embedding)

        def up(inputs: int, outputs: int, kernel: int, stride: int, padding: int) -> list[nn.Module]:
            return [
                nn.ConvTranspose2d(inputs, outputs, kernel, stride, padding, bias=False),
                nn.BatchNorm2d(outputs),
                nn.LeakyReLU(0.2),
            ]

        self.layers = nn.Sequential(
            *up(code_size + embedding, 4 * width, height // 4, 1, 0),
            *up(4 * width, 2 * width, 4, 2, 1),
            *up(2 * width, width, 4, 2, 1),
            nn.Conv2d(width, colours, 3, padding=1),
            nn.Tanh(),
        )

    def code(self, count: int, generator: torch.Generator, device: torch.device | str) -> Tensor:
        """Uniform on the unit cube."""
        return torch.rand(count, self.code_size, generator=generator, device=device)

    def forward(self, code: Tensor, labels: Tensor) -> Tensor:
        """Images in [-1, 1]."""
        return self.layers(torch.cat([code, self.embedding(labels)], dim=1)[:, :, None, None])
