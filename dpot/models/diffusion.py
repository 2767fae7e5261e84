"""A diffusion model as a generator: noise in, an image out, by a fixed number of looks at the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dpot.models import edm
from dpot.models.generator import Generator, one_hot
from dpot.models.unet import UNet
from dpot.ranges import Count, Fraction, NonNegative

WIDTH_ON_GPU, WIDTH_ON_CPU = 32, 16
BLOCKS_ON_GPU, BLOCKS_ON_CPU = 2, 1  # at every size; a CPU has minutes for what a GPU does in seconds
SMALL = (1, 2)  # multipliers on a CPU
PATCH_ON_CPU, PATCHED = 2, 4  # there 2×2 pixels are one position, where that can be halved once more
STEPS_ON_GPU, STEPS_ON_CPU = 50, 16  # of the sampler
LARGE = 32  # from this size on the channels are doubled where the size is halved


class Examples(NamedTuple):
    """What the network is given and what it should answer, a row for every noisy copy."""

    inputs: Tensor  # (N, C, H, W)
    level: Tensor  # (N,): ln(σ)/4
    told: Tensor  # (N, classes): one-hot labels, or zeros
    target: Tensor  # (N, C, H, W)


class Chance(NamedTuple):
    """The random numbers of noisy copies, (images, copies, ...)."""

    share: Tensor  # of all noise levels, those below the copy's
    noise: Tensor  # standard normal, of the shape of an image
    told: Tensor  # uniform: decides whether the label is told

    def at(self, index: Tensor) -> Chance:
        """Those of some images."""
        return Chance(*(one.index_select(0, index) for one in self))


class Diffusion(Generator):
    """An EDM denoiser with its sampler. Images are in [-1, 1], the network works in bfloat16 on a GPU."""

    pixel_range = (-1.0, 1.0)

    def __init__(
        self,
        classes: int,
        shape: tuple[int, int, int],
        width: Count | None = None,
        multipliers: Sequence[Count] | None = None,
        blocks: Count | None = None,
        sampler: edm.Steps = "ddim",
        steps: Count | None = None,
        patch: Count | None = None,
        guidance: NonNegative = 0.0,
        bfloat16: bool = True,
    ) -> None:
        """guidance: the label's direction is followed so much further than the denoiser says (Ho & Salimans 2022)."""
        super().__init__(shape[0] * shape[1] * shape[2], classes, shape)
        cuda = torch.cuda.is_available()
        width = width or (WIDTH_ON_GPU if cuda else WIDTH_ON_CPU)
        blocks = blocks or (BLOCKS_ON_GPU if cuda else BLOCKS_ON_CPU)
        patch = patch or (PATCH_ON_CPU if not cuda and all(size % PATCHED == 0 for size in shape[1:]) else 1)
        by_rule = ((2, 4) if max(shape[1:]) >= LARGE else (2, 2)) if cuda else SMALL
        chosen = tuple(multipliers or by_rule)
        self.network: nn.Module = UNet(classes, shape, width, chosen, blocks, patch)
        self.sampler, self.guidance, self.in_half = sampler, guidance, bfloat16
        self.steps = steps or (STEPS_ON_GPU if cuda else STEPS_ON_CPU)

    def forward(self, code: Tensor, labels: Tensor) -> Tensor:
        """(N, C·H·W), (N,) → (N, C, H, W)."""
        told = one_hot(labels, self.classes)

        def denoiser(x: Tensor, sigma: Tensor) -> Tensor:
            found = self.denoised(x, sigma, told)
            if not self.guidance:
                return found
            return found + self.guidance * (found - self.denoised(x, sigma, torch.zeros_like(told)))

        return edm.sample(denoiser, code.unflatten(1, self.shape), self.steps, self.sampler).clamp(-1, 1)

    def denoised(self, x: Tensor, sigma: Tensor, told: Tensor) -> Tensor:
        """D(x, σ) given one-hot labels, or rows of zeros for none."""
        beside, behind, before, level = edm.scales(sigma)
        return _by_image(beside) * x + _by_image(behind) * self._network(_by_image(before) * x, level, told)

    def chance(self, images: int, copies: int, random: torch.Generator) -> Chance:
        """What is random about so many images with so many noisy copies each."""
        device = random.device
        noise = torch.randn(images, copies, *self.shape, generator=random, device=device)
        told = torch.rand(images, copies, 1, generator=random, device=device)
        return Chance(edm.even_shares(images, copies, random), noise, told)

    def losses(self, images: Tensor, labels: Tensor, chance: Chance, dropout: Fraction = 0.1) -> Tensor:
        """(N,): the weighted squared error of every image in [-1, 1], a mean over pixels and over its noisy copies.

        dropout: the share of the copies whose label is not told.
        """
        return self.errors(self.examples(images, labels, chance, dropout)).view(chance.share.shape).mean(1)

    def examples(self, images: Tensor, labels: Tensor, chance: Chance, dropout: Fraction = 0.1) -> Examples:
        """Noisy copies of images, those of one image one after the other."""
        copies = chance.share.shape[1]
        sigma = edm.training_sigmas(chance.share.flatten())
        beside, behind, before, level = edm.scales(sigma)
        clean = images.repeat_interleave(copies, 0)
        noisy = clean + _by_image(sigma) * chance.noise.flatten(0, 1)
        told = one_hot(labels, self.classes).repeat_interleave(copies, 0) * (chance.told.flatten(0, 1) >= dropout)
        target = (clean - _by_image(beside) * noisy) / _by_image(behind)
        return Examples(_by_image(before) * noisy, level, told, target)

    def errors(self, given: Examples) -> Tensor:
        """(N·copies,): the mean squared error of the network over pixels."""
        found = self._network(given.inputs, given.level, given.told)
        return (found - given.target).square().flatten(1).mean(1)

    def _network(self, x: Tensor, level: Tensor, told: Tensor) -> Tensor:
        half = self.in_half and x.is_cuda
        x = x.to(torch.bfloat16 if half else x.dtype, memory_format=torch.channels_last)
        made: Tensor = self.network(x, level, told)
        return made.float() if half else made


def _by_image(numbers: Tensor) -> Tensor:
    return numbers[:, None, None, None]
