"""The samplers' Triton kernel against its plain-torch twin, bit for bit, on the CPU by Triton's interpreter.

Run with TRITON_INTERPRET=1 in a process of its own (test_samplers.py does): the switch must be set before Triton loads.
"""

from __future__ import annotations

import pytest
import torch

from dpot.training.samplers import _Distinct

CASES = [
    ([60_000], 100, [0]),
    ([6], 5, [0]),  # more draws than values: many repeats
    ([1], 1, [0]),
    ([40, 25, 60], 9, [0, 40, 65]),
    ([7_291], 128, [0]),
]


@pytest.mark.parametrize(("populations", "batch", "starts"), CASES)
def test_the_kernel_chooses_what_its_twin_chooses(populations: list[int], batch: int, starts: list[int]) -> None:
    distinct = _Distinct(populations, batch, torch.Generator().manual_seed(batch), starts)
    assert distinct.draws is not None
    for _ in range(3):
        bits = distinct._random(distinct.draws)
        assert torch.equal(distinct.first_distinct_fused(bits), distinct.first_distinct(bits))


def test_too_few_distinct_values_leave_the_first_one_in_the_free_slots() -> None:
    distinct = _Distinct([50, 50], 6, torch.Generator(), [0, 50])
    bits = torch.tensor([[3, 53, 4, 4, 3, 103, 5, 3], [1, 1, 1, 1, 1, 1, 1, 1]])
    expected = torch.tensor([[3, 4, 5, 3, 3, 3], [51, 51, 51, 51, 51, 51]])
    assert torch.equal(distinct.first_distinct(bits), expected)
    assert torch.equal(distinct.first_distinct_fused(bits), expected)
