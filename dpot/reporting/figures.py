"""Pictures: grids of samples by class."""

from __future__ import annotations

import io

from PIL import Image
from torch import Tensor


def grid(images: Tensor, labels: Tensor, classes: int, per_class: int = 10, gap: int = 2) -> bytes:
    """One row per class, as PNG. images (N, C, H, W) in [0, 1]; at most ten classes are shown."""
    shown = min(classes, 10)
    _, _, height, width = images.shape
    canvas = images.new_ones(3, shown * (height + gap) + gap, per_class * (width + gap) + gap)
    for row in range(shown):
        mine = images[labels == row][:per_class].clamp(0, 1)
        for column, image in enumerate(mine.expand(-1, 3, -1, -1) if mine.shape[1] == 1 else mine):
            top, left = gap + row * (height + gap), gap + column * (width + gap)
            canvas[:, top : top + height, left : left + width] = image
    pixels = (canvas * 255).round().byte().permute(1, 2, 0).numpy()
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, format="PNG")
    return out.getvalue()
