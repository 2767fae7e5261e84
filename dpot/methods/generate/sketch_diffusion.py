"""A diffusion model that begins where the sketch ends: one release, any amount of training on it, then DP-SGD.

1. The sliced sketch (dpot/methods/sketch) with its share of the budget, for one record more or less: its generator and
   the classes' shares.
2. The diffusion model learns the images of that generator, as many as it likes: this touches no record.
3. DP-SGD on the private images (dpdm.py) with what is left of the budget. Averaging of the weights begins anew.

All releases are for the same neighbours and in one ledger; the noise of 3 is calibrated to what 1 has left.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from dpot.methods.generate.base import Problem
from dpot.methods.generate.dpdm import DPDM, _diffusion
from dpot.methods.sketch.method import Sketch
from dpot.models.diffusion import Diffusion
from dpot.models.generator import Generator, synthesize
from dpot.models.sketch_dcgan import SketchDCGAN
from dpot.precision import fast_products
from dpot.privacy.budget import Budget
from dpot.privacy.calibration import find_sigma
from dpot.privacy.events import Gaussian
from dpot.privacy.gaussian import gaussian_epsilon
from dpot.ranges import Count, Fraction, Positive
from dpot.training.ema import EMA
from dpot.training.engine import Outcome

SHARE, LEAST_SHARE = 0.2, 0.05
WARM_STEPS, WARM_STEPS_ON_CPU = 12_000, 300
WARM_BATCH, WARM_BATCH_ON_CPU = 512, 32


def share_of(epsilon: float) -> float:
    """How much of the budget (of μ², what the noise multipliers add up by) the sketch gets: less where ε is large."""
    return max(LEAST_SHARE, SHARE * min(1.0, epsilon**-0.6))


class SketchDiffusion(DPDM):
    """share: of the budget, for the sketch; None: by rule. warm: of the training on the sketch's images, which is free.

    sketch: settings of the sketch, by their names in conf/loss/sketch.yaml. sketch_width: of its generator.
    """

    def __init__(
        self,
        share: Fraction | None = None,
        warm_steps: Count | None = None,
        warm_batch: Count | None = None,
        warm_rate: Positive = 3e-4,
        sketch: dict[str, Any] | None = None,
        sketch_width: Count | None = None,
        steps: Count | None = None,
        batch: Count | None = None,
        copies: Count | None = None,
        clip: Positive = 1e-3,
        learning_rate: Positive = 3e-4,
        label_dropout: Fraction = 0.1,
        ema: Fraction = 0.999,
        at_once: Count | None = None,
        adjacency: Literal["add-remove", "replace-one"] = "add-remove",
        snapshots: Count | None = None,
    ) -> None:
        super().__init__(steps, batch, copies, clip, learning_rate, label_dropout, ema, at_once, adjacency, snapshots)
        self.share, self.warm_steps, self.warm_batch, self.warm_rate = share, warm_steps, warm_batch, warm_rate
        self.sketch, self.sketch_width = dict(sketch or {}), sketch_width
        self.shares: Tensor | None = None  # of the classes, once they are released

    def fit(self, problem: Problem) -> Outcome:
        """Release and fit the sketch, learn its images, then the private ones."""
        model = _diffusion(problem)
        drawn = self._sketched(problem)
        warm = self._warm_up(problem, model, drawn)
        outcome = self.private_engine(problem, "private").run()
        problem.settle()
        self._keep_weights(problem, model.state_dict(), outcome.steps)
        outcome.history = [
            *({**row, "part": 0.0} for row in warm.history),
            *({**row, "part": 1.0} for row in outcome.history),
        ]
        return outcome

    def draw(self, problem: Problem, count: int) -> tuple[Tensor, Tensor]:
        """Images whose labels have the released shares."""
        labels = None if self.shares is None else labels_of(self.shares, count, problem.random).to(problem.device)
        return synthesize(problem.generator, count, problem.random, problem.device, labels=labels)

    def _sketched(self, problem: Problem) -> Generator:
        """The sketch's generator, fitted; its releases are in the ledger."""
        whole = self.budget(problem)
        share = share_of(whole.epsilon or 1.0) if self.share is None else self.share
        assert whole.delta is not None
        part = gaussian_epsilon(find_sigma(Gaussian, 1, whole) / math.sqrt(share), whole.delta)
        budget = Budget(part, whole.delta, whole.bound, whole.conversion, whole.mode)
        generator = SketchDCGAN(problem.classes, problem.generator.shape, width=self.sketch_width).to(problem.device)
        own = replace(problem, generator=generator, budget=budget)
        method = Sketch(**{"neighbours": "add-remove", **self.sketch})
        method.fit(own)
        assert method.release is not None
        counts = method.release.counts.double().clamp(min=0)
        self.shares = counts / counts.sum()
        return own.generator.eval().requires_grad_(False)

    def _warm_up(self, problem: Problem, model: Diffusion, drawn: Generator) -> Outcome:
        cuda, random, device = problem.device.type == "cuda", problem.random, problem.device
        steps = problem.steps(self.warm_steps or (WARM_STEPS if cuda else WARM_STEPS_ON_CPU))
        batch = self.warm_batch or (WARM_BATCH if cuda else WARM_BATCH_ON_CPU)
        optimizer = torch.optim.Adam(model.parameters(), lr=self.warm_rate)
        assert self.shares is not None
        bounds = self.shares.cumsum(0)[:-1].float().to(device)
        low, high = drawn.pixel_range

        @fast_products()
        def step() -> dict[str, Tensor]:
            with torch.no_grad():
                labels = torch.bucketize(torch.rand(batch, generator=random, device=device), bounds)
                images = (drawn(drawn.code(batch, random, device), labels) - low) / (high - low) * 2 - 1
            loss = model.losses(images, labels, model.chance(batch, 1, random), self.label_dropout).mean()
            loss.backward()
            optimizer.step()
            return {"loss": loss}  # of generated images: post-processing

        outcome = problem.engine(step, steps=steps, optimizer=optimizer, ema=EMA(model, self.ema), part="warm-up").run()
        problem.settle()
        return outcome


def labels_of(shares: Tensor, count: int, random: torch.Generator) -> Tensor:
    """So many labels, each class with its share up to one, evenly mixed."""
    wanted = shares.cpu() * count
    counts = wanted.floor().long()
    order = (wanted - counts).argsort(descending=True)
    counts[order[: count - int(counts.sum())]] += 1
    places = torch.cat([(torch.arange(int(n)) + 0.5) / int(n) for n in counts if n])
    labels = torch.arange(len(counts)).repeat_interleave(counts)
    return labels[places.argsort(stable=True)]
