"""Schedules against their closed forms."""

from __future__ import annotations

import math

import torch

from dpot.training import Constant, Cosine, StepDecay, Warmup

STEPS = torch.arange(0, 40, dtype=torch.float64)


def test_constant_is_one() -> None:
    assert torch.equal(Constant()(STEPS), torch.ones_like(STEPS))


def test_step_decay_is_the_schedule_of_torch() -> None:
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    reference = torch.optim.lr_scheduler.StepLR(optimizer, step_size=7, gamma=0.9)
    ours = StepDecay(every=7, factor=0.9)(STEPS)
    for factor in ours.tolist():
        assert math.isclose(factor, optimizer.param_groups[0]["lr"], rel_tol=1e-12)
        optimizer.step()
        reference.step()


def test_cosine_at_its_ends_and_middle() -> None:
    factors = Cosine(steps=20, final=0.2)(STEPS)
    assert factors[0] == 1.0
    assert math.isclose(factors[10], 0.6, rel_tol=1e-12)
    assert torch.allclose(factors[20:], torch.full((20,), 0.2, dtype=torch.float64))
    assert torch.all(factors[1:21] < factors[:20])


def test_warmup_rises_linearly_and_hands_over() -> None:
    factors = Warmup(steps=4, then=StepDecay(every=10, factor=0.5))(STEPS)
    assert factors[:4].tolist() == [0.25, 0.5, 0.75, 1.0]
    assert torch.all(factors[4:14] == 1.0)
    assert torch.all(factors[14:24] == 0.5)
