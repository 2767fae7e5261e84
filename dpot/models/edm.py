"""Diffusion as Karras et al. 2022 (EDM) write it: what is learned of images with noise, and images made from noise.

A denoiser D(x, σ) is the mean of the images that x = image + σ·noise may have been. With s = σ_data,

    D(x, σ) = s²/(σ² + s²)·x + σs/√(σ² + s²)·F(x/√(σ² + s²), ln(σ)/4)

where F is the network: its input and its target have variance 1 at every σ, and at F = 0 the denoiser is exact for
images that are Gaussian with variance s². The loss, weighted by (σ² + s²)/(σs)², is the squared error of F. Images are
made by following dx/dσ = (x − D(x, σ))/σ from σ = 80 down to 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

SIGMA_DATA = math.sqrt(1 / 3)  # of pixels that are uniform in [-1, 1]
LOG_MEAN, LOG_DEVIATION = -1.2, 1.2  # of ln σ in training
SIGMA_MIN, SIGMA_MAX, RHO = 0.002, 80.0, 7.0
Denoiser = Callable[[Tensor, Tensor], Tensor]  # (images, σ of each) → images
Steps = Literal["ddim", "heun"]


def scales(sigma: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What multiplies x beside the network, the network, its input, and what it is told of σ."""
    total = (sigma.square() + SIGMA_DATA**2).sqrt()
    return (SIGMA_DATA / total).square(), sigma * SIGMA_DATA / total, 1 / total, sigma.log() / 4


def training_sigmas(share: Tensor) -> Tensor:
    """The noise level that this share of all levels of training lies below: ln σ ~ N(-1.2, 1.2²)."""
    return torch.exp(LOG_MEAN + LOG_DEVIATION * torch.special.ndtri(share.clamp(1e-6, 1 - 1e-6)))


def even_shares(images: int, copies: int, random: torch.Generator) -> Tensor:
    """(images, copies): one in each of `copies` parts of [0, 1] for every image; without copies, of `images` parts.

    The average over an image's copies is that of independent ones, with less spread.
    """
    jitter = torch.rand(images, copies, generator=random, device=random.device)
    count = copies if copies > 1 else images
    parts = torch.arange(count, device=random.device)
    return (parts.view((1, -1) if copies > 1 else (-1, 1)) + jitter) / count


def noise_levels(steps: int) -> list[float]:
    """σ_0 = 80 > … > σ_{steps-1} = 0.002 > σ_steps = 0, evenly spaced in σ^(1/7)."""
    high, low = SIGMA_MAX ** (1 / RHO), SIGMA_MIN ** (1 / RHO)
    return [(high + i / max(1, steps - 1) * (low - high)) ** RHO for i in range(steps)] + [0.0]


def sample(denoiser: Denoiser, code: Tensor, steps: int, kind: Steps = "ddim") -> Tensor:
    """Images from standard normal noise `code` (N, C, H, W).

    ddim: Euler's steps, one look at the network each (DDIM of Song et al. 2021 in these coordinates). heun: second
    order, two looks each but for the last.
    """
    levels = noise_levels(steps)
    x = code * levels[0]

    def slope(at: Tensor, level: float) -> Tensor:
        return (at - denoiser(at, at.new_full((len(at),), level))) / level

    for now, then in itertools.pairwise(levels):
        first = slope(x, now)
        moved = x + (then - now) * first
        if kind == "heun" and then > 0:
            moved = x + (then - now) * (first + slope(moved, then)) / 2
        x = moved
    return x
