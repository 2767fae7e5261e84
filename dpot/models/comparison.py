"""A space to compare images in that no data have shaped: a random convolutional network."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpot.errors import UsageError

SEED = 0  # public: everybody can draw the same weights


class RandomEncoder(nn.Module):
    """(N, C, side, side) in [0, 1] → (N, 8192) without negative values, for a side of 16, 32, 64, ...

    Convolutions of side 4 and stride 2 halve the image until it is 4×4 with 512 channels, each followed by a ReLU, as
    the feature network of the distributional sliced Wasserstein generator does; there it is trained against the
    generator on the data, which would have to be paid for. Here its weights are drawn once, by He's rule, from a
    public seed, and its output is scaled such that a grey image (every pixel ½) has norm 1.
    """

    size = 8192

    def __init__(self, shape: tuple[int, int, int], seed: int = SEED) -> None:
        super().__init__()
        colours, height, width = shape
        halvings = (height // 4).bit_length() - 1
        if height != width or height < 8 or height != 4 * 2**halvings:
            raise UsageError(f"loss.space=encoder: the side of the images must be 8, 16, 32, ..., not {shape}")
        generator = torch.Generator().manual_seed(seed)
        channels = [colours, *(512 // 2 ** (halvings - 1 - i) for i in range(halvings))]
        self.weights = nn.ParameterList(
            nn.Parameter(torch.randn(b, a, 4, 4, generator=generator) * (2 / (16 * a)) ** 0.5, requires_grad=False)
            for a, b in itertools.pairwise(channels)
        )
        self.shape = shape
        self.register_buffer("scale", torch.ones(()))
        grey = torch.full((1, *shape), 0.5)
        self.scale = 1 / self(grey).norm()

    def forward(self, images: Tensor) -> Tensor:
        """The features of each image."""
        x = images
        for weight in self.weights:
            x = F.relu(F.conv2d(x, weight, stride=2, padding=1))
        return x.flatten(1) * self.scale

    def diameter(self) -> float:
        """A bound on the distance of the features of any two images.

        Each value lies between 0 and what the positive weights alone make of a white image.
        """
        x = self.weights[0].new_ones(1, *self.shape)
        for weight in self.weights:
            x = F.conv2d(x, weight.clamp(min=0), stride=2, padding=1)
        return float(x.norm() * self.scale)
