"""Device code of the samplers, in Triton: the first distinct ones of many draws, in one launch instead of a dozen."""

# mypy: disable-error-code="no-untyped-def"
# Triton reads types off the arguments; only compile-time constants carry an annotation.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def first_distinct_kernel(
    bits, populations, starts, chosen, draws, batch,
    BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """chosen[g, :] = the first `batch` distinct ones of starts[g] + bits[g, i] mod populations[g], one row per program.

    Twin: _Distinct.first_distinct in samplers.py. A value is a repeat if an earlier draw has it; the others go
    to the slot of their rank. Slots that stay free, which has a probability below 2^-64, hold the first value.
    """
    group = tl.program_id(0)
    population = tl.load(populations + group)
    start = tl.load(starts + group)
    lane = tl.arange(0, BLOCK)
    live = lane < draws
    row = bits + group.to(tl.int64) * draws
    value = tl.load(row + lane, mask=live, other=0) % population + start
    repeats = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, draws, TILE):
        other = first + tl.arange(0, TILE)
        earlier = tl.load(row + other, mask=other < draws, other=0) % population + start
        same = (value[:, None] == earlier[None, :]) & (other[None, :] < lane[:, None])
        repeats += tl.sum(same.to(tl.int32), axis=1)
    new = live & (repeats == 0)
    slot = tl.cumsum(new.to(tl.int32), axis=0) - 1
    found = tl.sum(new.to(tl.int32), axis=0)
    out = chosen + group.to(tl.int64) * batch
    tl.store(out + slot, value, mask=new & (slot < batch))
    tl.store(out + lane, tl.load(row) % population + start, mask=(lane >= found) & (lane < batch))
