"""The sanitiser's Triton kernel against its plain-torch twin, on the CPU by Triton's interpreter."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dpot.kernels.sanitise import clip_and_noise
from dpot.training import clip_block, clip_rows

NAN, INFINITE = float("nan"), float("inf")


def exact_norm(rows: Tensor) -> float:
    return math.sqrt(math.fsum(float(v) ** 2 for v in rows.flatten()))


@pytest.mark.parametrize("per", ["row", "block"])
@pytest.mark.parametrize("scale", [1e-30, 0.01, 1.0, 1e30, 3e38])
@pytest.mark.parametrize("clip", [0.1, 0.5, 3.0])
def test_clipped_rows_are_the_twins_and_within_the_bound(per: str, scale: float, clip: float) -> None:
    torch.manual_seed(0)
    wide = torch.rand(7, 40) * scale
    rows = wide[:, :36].unflatten(1, (1, 6, 6))  # with gaps between them
    twin = clip_rows(rows, clip) if per == "row" else clip_block(rows, clip)
    found = clip_and_noise(rows, torch.zeros(7, 1, 6, 6), clip, per)
    torch.testing.assert_close(found, twin, rtol=1e-6, atol=0)
    for bounded in found if per == "row" else [found]:
        assert exact_norm(bounded) <= clip
    if exact_norm(rows) < clip:
        assert torch.equal(found, rows)


@pytest.mark.parametrize("per", ["row", "block"])
def test_rows_without_noise_are_clipped_by_themselves(per: str) -> None:
    torch.manual_seed(0)
    rows, noise = torch.randn(9, 30) * torch.linspace(1, 9, 9)[:, None], torch.randn(5, 30)
    twin = [clip_rows(part, 2.0) if per == "row" else clip_block(part, 2.0) for part in (rows[:5], rows[5:])]
    found = clip_and_noise(rows, noise, 2.0, per)
    torch.testing.assert_close(found, torch.cat([twin[0] + noise, twin[1]]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("clip", [0.1, 0.3, 0.7])  # rounded to single precision the first two are larger
def test_a_norm_between_the_bound_and_its_rounding_is_clipped(clip: float) -> None:
    for steps in range(-3, 4):
        one = torch.tensor([[clip]])
        for _ in range(abs(steps)):
            one = torch.nextafter(one, torch.tensor(math.copysign(INFINITE, steps)))
        assert exact_norm(clip_and_noise(one, torch.zeros(1, 1), clip, "row")) <= clip


@pytest.mark.parametrize("per", ["row", "block"])
@pytest.mark.parametrize("bad", [NAN, INFINITE, -INFINITE])
def test_what_is_not_finite_becomes_zero_and_the_noise_is_added(per: str, bad: float) -> None:
    torch.manual_seed(0)
    rows, noise = torch.rand(5, 600), torch.randn(5, 600)
    rows[2, 17] = bad
    found = clip_and_noise(rows, noise, 1.0, per)
    twin = clip_rows(rows, 1.0) if per == "row" else clip_block(rows, 1.0)
    torch.testing.assert_close(found, twin + noise, rtol=1e-6, atol=1e-7)
    assert torch.equal(found[2], noise[2])
