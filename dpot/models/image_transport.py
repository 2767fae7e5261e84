"""A label-preserving map of images with few parameters: where things are, how sharp and how dark they are."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class ImageTransport(nn.Module):
    """Affine warp, Gaussian blur, contrast curve; the identity (up to a slight blur) at the start.

    Pixels in [-1, 1]. x ↦ tone(blur(warp(x))): warp samples at θ·(row, column, 1), blur has a standard deviation of
    exp(log_blur) pixels, tone is v ↦ (v^exp(log_gamma))·exp(log_gain), kept within [0, 1].
    """

    REACH = 3  # of the blur's window, in pixels

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
        self.log_blur = nn.Parameter(torch.tensor(-1.0))
        self.log_gamma = nn.Parameter(torch.tensor(0.0))
        self.log_gain = nn.Parameter(torch.tensor(0.0))
        self.register_buffer("offsets", torch.arange(-self.REACH, self.REACH + 1, dtype=torch.float32))

    def forward(self, images: Tensor) -> Tensor:
        """The moved images."""
        ink = (images + 1) / 2
        grid = functional.affine_grid(self.theta.expand(len(ink), 2, 3), list(ink.shape), align_corners=False)
        ink = functional.grid_sample(ink, grid, align_corners=False)
        offsets = self.get_buffer("offsets")
        window = torch.softmax(-0.5 * (offsets / self.log_blur.exp()) ** 2, 0)
        channels = ink.shape[1]
        column = window.view(1, 1, -1, 1).expand(channels, 1, -1, 1)
        row = window.view(1, 1, 1, -1).expand(channels, 1, 1, -1)
        ink = functional.conv2d(ink, column, padding=(self.REACH, 0), groups=channels)
        ink = functional.conv2d(ink, row, padding=(0, self.REACH), groups=channels)
        # v^γ·gain through logarithms: the derivative of a power by its exponent takes two dozen kernels
        ink = torch.addcmul(self.log_gain, ink.clamp(min=1e-3).log(), self.log_gamma.exp()).exp()
        return ink.clamp(0, 1) * 2 - 1
