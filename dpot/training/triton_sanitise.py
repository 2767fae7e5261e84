"""Device code of clipping and noising a gradient, in Triton. Launched by sanitise.py, never imported before."""

# mypy: disable-error-code="no-untyped-def"
# Triton reads types off the arguments; only compile-time constants carry an annotation.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def clip_and_noise_kernel(
    rows, norms, noise, out, total, width, stride, clip, root,
    PER_ROW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out = rows·half² + noise, half = root/√norm where norm > clip and 1 elsewhere; a product that is NaN counts as 0.

    rows: `width` numbers each, `stride` apart, noise and out without gaps. norms, in double precision: of each row, or
    the one of all.
    """
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = place < total
    row = place // width
    norm = tl.load(norms + (row if PER_ROW else row * 0), mask=live, other=0.0)
    half = tl.where(norm <= clip, 1.0, root / tl.sqrt(norm)).to(tl.float32)
    value = tl.load(rows + row * stride + place % width, mask=live, other=0.0) * half * half
    value = tl.where(value != value, 0.0, value)
    tl.store(out + place, value + tl.load(noise + place, mask=live, other=0.0), mask=live)
