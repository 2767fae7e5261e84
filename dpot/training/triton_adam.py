"""Device code of a step of Adam, in Triton. Launched by adam.py, never imported before."""

# mypy: disable-error-code="no-untyped-def"
# Triton reads types off the arguments; only compile-time constants carry an annotation.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def adam_kernel(
    weight, slope, mean, square, step, rate, total, beta1, beta2, log1, log2, eps, decay,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """weight −= rate·m̂/(√v̂ + eps), of gradients with decay·weight in them; log = ln β; the step is counted already."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = place < total
    own = tl.load(weight + place, mask=live, other=0.0)
    gradient = tl.load(slope + place, mask=live, other=0.0) + decay * own
    first = tl.load(mean + place, mask=live, other=0.0)
    first += (1 - beta1) * (gradient - first)
    second = beta2 * tl.load(square + place, mask=live, other=0.0) + (1 - beta2) * gradient * gradient
    # in double precision: 1 − β^t cancels in the first steps
    steps = tl.load(step).to(tl.float64)
    rest1 = (1 - tl.exp(steps * log1)).to(tl.float32)
    rest2 = (1 - tl.exp(steps * log2)).to(tl.float32)
    own -= tl.load(rate) / rest1 * first / (tl.sqrt(second) / tl.sqrt(rest2) + eps)
    tl.store(weight + place, own, mask=live)
    tl.store(mean + place, first, mask=live)
    tl.store(square + place, second, mask=live)
