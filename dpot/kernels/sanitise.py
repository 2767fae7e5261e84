"""Clipping and noising a gradient, in one launch behind that of the norms."""

# mypy: disable-error-code="no-untyped-def"
# Triton reads types off the arguments; only compile-time constants carry an annotation.

from __future__ import annotations

import math

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 512  # numbers a program works on


def clip_and_noise(gradient: Tensor, noise: Tensor, clip: float, per: str) -> Tensor:
    """Rows (per="row") or the block of a float32 gradient clipped to C = clip, plus noise.

    Rows beyond those of the noise get none; as a block they are one by themselves. The kernel's numbers are of single
    precision: C is rounded down for it, and √(C·(1 - 2^-20)), to which the twin clips too, has room for that.
    """
    gradient = gradient if gradient[0].is_contiguous() else gradient.contiguous()
    norms = torch.linalg.vector_norm(gradient.flatten(1), dim=1, dtype=torch.float64)
    nearest = np.float32(clip)
    below = float(nearest if float(nearest) <= clip else np.nextafter(nearest, np.float32(0)))
    out = torch.empty_like(gradient, memory_format=torch.contiguous_format)
    clip_and_noise_kernel[-(-out.numel() // BLOCK),](
        gradient, norms, noise, out, len(out), len(noise), out[0].numel(), gradient.stride(0), below,
        math.sqrt(clip * (1 - 2.0**-20)), PER_ROW=per == "row", BLOCK=BLOCK, ROWS=1 << (len(out) - 1).bit_length(),
    )  # fmt: skip
    return out


@triton.jit
def clip_and_noise_kernel(
    rows, norms, noise, out, count, noised, width, stride, clip, root,
    PER_ROW: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """out = rows·half² + noise, half = root/√norm where norm > clip and 1 elsewhere; a product that is NaN counts as 0.

    rows: `count` of `width` numbers each, `stride` apart; out has no gaps, nor has the noise, of the first `noised`
    rows. norms are the rows', in double precision; without PER_ROW those that get noise are one block, the others one.
    """
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = place // width
    live = row < count
    if PER_ROW:
        norm = tl.load(norms + row, mask=live, other=0.0)
    else:
        each = tl.arange(0, ROWS)
        square = tl.load(norms + each, mask=each < count, other=0.0)
        square = square * square
        first = tl.sqrt(tl.sum(tl.where(each < noised, square, 0.0), axis=0))
        second = tl.sqrt(tl.sum(tl.where(each < noised, 0.0, square), axis=0))
        norm = tl.where(row < noised, first, second)
    half = tl.where(norm <= clip, 1.0, root / tl.sqrt(norm)).to(tl.float32)
    value = tl.load(rows + row * stride + place % width, mask=live, other=0.0) * half * half
    value = tl.where(value != value, 0.0, value)
    tl.store(out + place, value + tl.load(noise + place, mask=row < noised, other=0.0), mask=live)
