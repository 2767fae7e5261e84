"""Photographs on a CPU: the generator's size, and as many steps as the time allows, the same after a kill."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from dpot.methods.generate.base import Problem
from dpot.methods.sketch import fit
from dpot.methods.sketch import method as sketch
from dpot.methods.sketch.method import Sketch
from dpot.methods.sketch.rules import COLOUR_STEPS_ON_CPU, STEPS_ON_CPU, plan
from dpot.models.sketch_dcgan import SketchDCGAN
from dpot.privacy.budget import Budget
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource

needs_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="the rule of a machine without CUDA")


def problem(channels: int, folder: Path | None = None) -> Problem:
    budget = Budget(10.0, 1e-5)
    return Problem(
        images=torch.rand(400, channels, 8, 8),
        labels=torch.arange(400) % 2,
        classes=2,
        generator=SketchDCGAN(2, (channels, 8, 8), width=4),
        budget=budget,
        ledger=Ledger.of(budget),
        noise=NoiseSource(),
        random=torch.Generator().manual_seed(0),
        checkpoints=folder,
    )


@needs_cpu
def test_colour_has_the_gpus_generator_and_grey_the_small_one():
    colour, grey = SketchDCGAN(2, (3, 32, 32)), SketchDCGAN(2, (1, 28, 28))
    assert colour.size == {"width": 24, "blocks": 1, "subpixel": False, "smooth": True}
    assert grey.size == {"width": 16, "blocks": 0, "subpixel": True, "smooth": False}


def test_the_plan_has_fewer_steps_for_colour():
    found = [plan(3510, 3, 0.8, True, cuda=False, colour=colour) for colour in (True, False)]
    assert [(one.steps, one.second_steps) for one in found] == [COLOUR_STEPS_ON_CPU, STEPS_ON_CPU]


def test_steps_are_as_many_as_fit_into_the_time(monkeypatch):
    clock = itertools.count(0, 0.25)  # every look at it is a quarter of a second later
    monkeypatch.setattr(fit.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(fit, "fit_step", lambda *_: dict)
    model, random = SketchDCGAN(2, (3, 8, 8), width=4), torch.Generator().manual_seed(0)
    before = random.get_state()
    assert fit.steps_in(100.0, [], model, torch.ones(2), 2, random) == 400
    assert fit.steps_in(1.0, [], model, torch.ones(2), 2, random) == fit.LEAST_TIMED
    assert torch.equal(random.get_state(), before)


def test_a_run_that_goes_on_has_the_steps_it_began_with(tmp_path, monkeypatch):
    task = problem(3, tmp_path)
    method, weights = Sketch(), torch.ones(2)
    chosen = plan(400, 2, 2.0, True, cuda=False, colour=True)
    monkeypatch.setattr(sketch, "steps_in", lambda *_: 321)
    assert method._in_time(task, [], weights, chosen, 1) == 321
    monkeypatch.setattr(sketch, "steps_in", lambda *_: pytest.fail("measured again"))
    assert method._in_time(task, [], weights, chosen, 1) == 321
    assert Sketch(steps=700)._in_time(task, [], weights, chosen, 1) == chosen.steps  # who asks for steps gets them
    assert method._in_time(problem(1), [], weights, chosen, 1) == chosen.steps
