"""Device code of the blur behind a doubling, in Triton: one launch each way, no copies of what it reads."""

# mypy: disable-error-code="no-untyped-def"
# Triton reads types off the arguments; only compile-time constants carry an annotation.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def blur_kernel(
    x, y, total,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHANNELS: tl.constexpr,
    MARGIN: tl.constexpr, BLOCK: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """y[n, i, j, c] = Σ_ab k[a]·k[b]·x[n, i + a - MARGIN, j + b - MARGIN, c] with k = (1, 3, 3, 1)/4, zero beyond x.

    Both are channels last, x with HEIGHT × WIDTH pixels, y with ROWS × COLUMNS, of which `total` in all images.
    """
    flat = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    image = (flat // (ROWS * COLUMNS)).to(tl.int64)
    row = (flat % (ROWS * COLUMNS)) // COLUMNS - MARGIN
    column = flat % COLUMNS - MARGIN
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    live = (flat < total)[:, None] & (channel < CHANNELS)[None, :]
    corner = ((image * HEIGHT + row) * WIDTH + column)[:, None] * CHANNELS + channel[None, :]
    summed = tl.zeros((BLOCK, BLOCK_C), tl.float32)
    for a in tl.static_range(4):
        for b in tl.static_range(4):
            inside = (row + a >= 0) & (row + a < HEIGHT) & (column + b >= 0) & (column + b < WIDTH)
            value = tl.load(x + corner + (a * WIDTH + b) * CHANNELS, mask=live & inside[:, None], other=0.0)
            across = 1.0 if a == 0 or a == 3 else 3.0
            along = 1.0 if b == 0 or b == 3 else 3.0
            summed += (across * along / 16) * value.to(tl.float32)
    out = flat.to(tl.int64)[:, None] * CHANNELS + channel[None, :]
    tl.store(y + out, summed.to(y.dtype.element_ty), mask=live)
