"""How much of a secret a guess recovers."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from torch import Tensor

from dpot.errors import UsageError


@dataclass(frozen=True)
class Recovery:
    """Share of rows recovered within the tolerance in every entry, the largest error, and PSNR in decibels."""

    rows: float
    max_error: float
    psnr: float

    def to_dict(self) -> dict[str, float]:
        """As data; an error of 0 has an infinite PSNR, written as 999."""
        return asdict(self) | {"psnr": min(self.psnr, 999.0)}


def recovery(guess: Tensor, secret: Tensor, tolerance: float = 1e-3, peak: float = 2.0) -> Recovery:
    """Compare row by row. PSNR = 10·log10(peak²/MSE), peak the width of the range of the values (2 for [-1, 1])."""
    if guess.shape != secret.shape:
        raise UsageError(f"the guess {tuple(guess.shape)} and the secret {tuple(secret.shape)} differ in shape")
    error = (guess - secret).abs()
    square = float(error.square().mean())
    psnr = math.inf if square == 0 else 10 * math.log10(peak**2 / square)
    return Recovery(float((error.amax(1) <= tolerance).double().mean()), float(error.max()), psnr)
