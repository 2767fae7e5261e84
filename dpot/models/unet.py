"""A small U-Net for diffusion, conditional on a label (the family of DDPM++ that DPDM and its successors train).

Two residual blocks at every size, a third on the way up, blocks that halve and double, attention at half the size and
in the middle, norms by groups. With 32·multiplier channels it has 1.48 million parameters for 28×28 (multipliers 2, 2)
and 3.82 million for 32×32 in colour (2, 4). No layer mixes images, and each knows its rows (per_image.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpot.errors import UsageError
from dpot.models.per_image import Conv, Dense, Norm

Change = Literal["keep", "halve", "double"]
FREQUENCIES = (1.0, 100.0)  # of the noise level's embedding; ln(σ)/4 goes from -1.6 to 1.1


class Residual(nn.Module):
    """skip(x) + convolution(norm(convolution(norm(x)) + shift)), at the same, half or twice the size."""

    def __init__(self, inputs: int, outputs: int, embedding: int, change: Change = "keep") -> None:
        super().__init__()
        self.change = change
        self.norm1, self.conv1 = Norm(inputs), Conv(inputs, outputs, 3)
        self.shift = Dense(embedding, outputs)
        self.norm2, self.conv2 = Norm(outputs), Conv(outputs, outputs, 3, zero=True)
        self.skip = Conv(inputs, outputs, 1) if inputs != outputs or change != "keep" else None

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """(N, inputs, H, W), (N, embedding) → (N, outputs, H', W')."""
        h = self.conv1(self._sized(self.norm1(x)))
        h = self.conv2(self.norm2(h, self.shift(condition)))
        x = self._sized(x)
        return h + (x if self.skip is None else self.skip(x))

    def _sized(self, x: Tensor) -> Tensor:
        if self.change == "halve":
            return F.avg_pool2d(x, 2)
        return F.interpolate(x, scale_factor=2.0) if self.change == "double" else x


class Attention(nn.Module):
    """x + every position's mix of all others, one head."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.mix = Norm(channels, act=False), Conv(channels, 3 * channels, 1)
        self.out = Conv(channels, channels, 1, zero=True)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) → (N, C, H, W)."""
        mixed = self.mix(self.norm(x)).flatten(2).transpose(1, 2)
        query, key, value = mixed.chunk(3, dim=2)
        if self.mix.fused:
            found = F.scaled_dot_product_attention(*(one.unsqueeze(1) for one in (query, key, value))).squeeze(1)
        else:
            weights = torch.softmax(query @ key.transpose(1, 2) / math.sqrt(x.shape[1]), 2)
            found = weights @ value
        added: Tensor = x + self.out(found.transpose(1, 2).unflatten(2, x.shape[2:]))
        return added


class UNet(nn.Module):
    """(noisy image, ln(σ)/4, one-hot label or zeros) → an image."""

    def __init__(
        self,
        classes: int,
        shape: tuple[int, int, int],
        width: int = 32,
        multipliers: Sequence[int] = (2, 2),
        blocks: int = 2,
        patch: int = 1,
    ) -> None:
        """patch: so many pixels each way are one position with more channels."""
        super().__init__()
        channels, height, sideways = shape[0] * patch**2, *shape[1:]
        if any(size % (patch * 2 ** (len(multipliers) - 1)) for size in (height, sideways)):
            raise UsageError(
                f"generator: images of {height}×{sideways} cannot be halved {len(multipliers) - 1} times"
                + (f" after patches of {patch}" if patch > 1 else "")
                + "; give fewer generator.multipliers"
            )
        self.patch = patch
        embedding = 4 * width
        low, high = FREQUENCIES
        spread = torch.exp(torch.linspace(math.log(low), math.log(high), width // 2))
        self.register_buffer("frequencies", spread, persistent=False)
        self.level1, self.level2 = Dense(width, embedding), Dense(embedding, embedding)
        self.label = Dense(classes, embedding, bias=False)
        self.first = Conv(channels, width, 3)

        widths, now, passed = [width * m for m in multipliers], width, [width]
        self.down = nn.ModuleList()
        for level, own in enumerate(widths):
            for _ in range(blocks):
                self.down.append(_Stage(now, own, embedding, attention=level == 1))
                passed.append(now := own)
            if level < len(widths) - 1:
                self.down.append(_Stage(now, now, embedding, "halve"))
                passed.append(now)
        self.middle = nn.ModuleList([_Stage(now, now, embedding, attention=True), _Stage(now, now, embedding)])
        self.up = nn.ModuleList()
        for level, own in reversed(list(enumerate(widths))):
            for turn in range(blocks + 1):
                last = turn == blocks
                self.up.append(_Stage(now + passed.pop(), own, embedding, attention=level == 1 and last))
                now = own
            if level:
                self.up.append(_Stage(now, now, embedding, "double"))
        self.norm, self.last = Norm(now), Conv(now, channels, 3, bias=True, zero=True)

    def forward(self, x: Tensor, level: Tensor, labels: Tensor) -> Tensor:
        """(N, C, H, W) in the precision of the activations, (N,), (N, classes) → (N, C, H, W)."""
        exact = self.label.weight.dtype
        angles = level.to(exact)[:, None] * self.frequencies  # type: ignore[operator]
        condition = F.silu(self.level1(torch.cat([angles.cos(), angles.sin()], 1)))
        condition = F.silu(self.level2(condition) + self.label(labels.to(exact)))
        x = self.first(F.pixel_unshuffle(x, self.patch) if self.patch > 1 else x)
        passed = [x]
        for stage in self.down:
            passed.append(x := stage(x, condition))
        for stage in self.middle:
            x = stage(x, condition)
        for stage in self.up:
            if stage.block.change == "keep":  # type: ignore[union-attr]
                x = torch.cat([x, passed.pop()], 1)
            x = stage(x, condition)
        made: Tensor = self.last(self.norm(x))
        return F.pixel_shuffle(made, self.patch) if self.patch > 1 else made


class Least(nn.Module):
    """The least that can be asked what a U-Net is: one convolution and a level for each label. For audits."""

    def __init__(self, classes: int, channels: int) -> None:
        super().__init__()
        self.conv, self.label = Conv(channels, channels, 3), Dense(classes, channels, bias=False)

    def forward(self, x: Tensor, level: Tensor, labels: Tensor) -> Tensor:
        """(N, C, H, W), (N,), (N, classes) → (N, C, H, W)."""
        made: Tensor = self.conv(x) + self.label(labels)[:, :, None, None].to(x.dtype)
        return made


class _Stage(nn.Module):
    """A block, and attention behind it where there is some."""

    def __init__(
        self, inputs: int, outputs: int, embedding: int, change: Change = "keep", attention: bool = False
    ) -> None:
        super().__init__()
        self.block = Residual(inputs, outputs, embedding, change)
        self.attention = Attention(outputs) if attention else None

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """(N, inputs, H, W), (N, embedding) → (N, outputs, H', W')."""
        x = self.block(x, condition)
        return x if self.attention is None else self.attention(x)
