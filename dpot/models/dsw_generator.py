"""The generator of the distributional sliced Wasserstein distance for CelebA at 64×64, which DP-SWD takes over."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from dpot.errors import UsageError
from dpot.models.generator import Generator, one_hot
from dpot.ranges import Count


class DSWGenerator(Generator):
    """N(0, I) of size 32 → 512×4×4 → four transposed convolutions of side 4, stride 2 → 3×64×64, sigmoid.

    BatchNorm and ReLU follow all but the last. The paper's faces have no labels (`conditional` joins them to the code).
    """

    def __init__(
        self,
        classes: int,
        shape: tuple[int, int, int],
        code_size: Count = 32,
        width: Count = 64,
        conditional: bool = False,
    ) -> None:
        super().__init__(code_size, classes, tuple(shape))  # type: ignore[arg-type]
        colours, height, side = shape
        doublings = (height // 4).bit_length() - 1
        if height != side or doublings < 1 or height != 4 * 2**doublings:
            raise UsageError(f"generator=dsw_generator: the side must be 8, 16, 32, ..., not {shape}")
        self.conditional = conditional
        channels = [width * 2 ** (doublings - 1 - i) for i in range(doublings)]

        def normed(*convolution: nn.Module, outputs: int) -> list[nn.Module]:
            return [*convolution, nn.BatchNorm2d(outputs), nn.ReLU()]

        inputs = code_size + (classes if conditional else 0)
        layers = normed(nn.ConvTranspose2d(inputs, channels[0], 4, bias=False), outputs=channels[0])
        for a, b in itertools.pairwise(channels):
            layers += normed(nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), outputs=b)
        layers += [nn.ConvTranspose2d(channels[-1], colours, 4, 2, 1), nn.Sigmoid()]
        self.layers = nn.Sequential(*layers)

    def forward(self, code: Tensor, labels: Tensor) -> Tensor:
        """Images in [0, 1]."""
        if self.conditional:
            code = torch.cat([code, one_hot(labels, self.classes)], dim=1)
        images: Tensor = self.layers(code[:, :, None, None])
        return images
