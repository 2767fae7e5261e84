"""DP-CGAN: a conditional GAN whose discriminator learns by DP-SGD (Torkzadehmahani, Kairouz & Paten, 2019).

Of the two networks only the discriminator sees private records. The gradient of its loss at each real record is clipped
to C, and their sum gets noise; that at each generated one touches no record and is clipped alike, without noise. The
generator learns from the discriminator alone: post-processing.

`clipping="coded"` is what the authors' code does. It clips each of the discriminator's four tensors by itself, so that
one record moves them by up to 2C together; its accountant is given noise × C for the noise multiplier; its batches
come from a shuffled order; and what is generated, for the generator's own steps too, has the labels of the batch at
hand, which nothing protects.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from dpot.errors import UsageError
from dpot.methods.gate import Release
from dpot.methods.generate.base import Method, Problem
from dpot.models.cgan_mlp import layers
from dpot.privacy import calibration
from dpot.privacy.accountants import own_epsilon
from dpot.privacy.events import Adjacency, Event, Gaussian, PoissonSampled
from dpot.privacy.failures import failure_of
from dpot.ranges import Count, Positive
from dpot.training.clipped_sum import clipped_sum
from dpot.training.engine import Engine
from dpot.training.samplers import Poisson, Sampler, ShuffledEpochs
from dpot.transport.sinkhorn import joint_points


def summed_doubt(scores: Tensor, is_real: Tensor) -> Tensor:
    """Cross-entropy, summed: the gradient of the sum is the sum of the records' gradients."""
    return F.binary_cross_entropy_with_logits(scores, is_real, reduction="sum")


class DPCGAN(Method):
    """noise_multiplier null: calibrated to the budget. The discriminator's rate falls over `falling` steps."""

    def __init__(
        self,
        batch: Count = 600,
        steps: Count = 30_300,
        clip: Positive = 1.1,
        noise_multiplier: Positive | None = None,
        rate: Positive = 0.1,
        last_rate: Positive = 0.052,
        falling: Count = 10_000,
        generator_rate: Positive = 1e-3,
        hidden: Count = 128,
        clipping: Literal["global", "coded"] = "global",
    ) -> None:
        self.batch, self.steps, self.clip, self.noise_multiplier = batch, steps, clip, noise_multiplier
        self.rate, self.last_rate, self.falling = rate, last_rate, falling
        self.generator_rate, self.hidden, self.clipping = generator_rate, hidden, clipping

    def prepare(self, problem: Problem) -> Engine:
        """The engine; one of its steps is one of each network."""
        model, random, device, classes = problem.generator, problem.random, problem.device, problem.classes
        steps = problem.steps(self.steps)
        sampler, release, sensitivity = self._mechanism(problem, steps)
        private = joint_points(problem.images, problem.labels, classes, 1.0)
        judge = layers(private.shape[1], self.hidden, 1).to(device)
        weights = dict(judge.named_parameters())
        optimizer = torch.optim.Adam(model.parameters(), lr=self.generator_rate)
        low, high = model.pixel_range
        coded = self.clipping == "coded"
        is_real = torch.cat([torch.ones(sampler.batch, 1), torch.zeros(self.batch, 1)]).to(device)
        everyone, deceived = torch.ones(self.batch, device=device), torch.ones(self.batch, 1, device=device)
        done = torch.zeros(1, device=device)  # steps, for the rate

        def generated(labels: Tensor) -> Tensor:
            images = model(model.code(self.batch, random, device), labels)
            return joint_points((images - low) / (high - low), labels, classes, 1.0)

        def step() -> dict[str, Tensor]:
            drawn = sampler.draw()
            labels = torch.randint(classes, (self.batch,), generator=random, device=device)
            labels = problem.labels.index_select(0, drawn.index) if coded else labels
            with torch.no_grad():
                seen = torch.cat([drawn.rows(private), generated(labels)])
            counted = None if drawn.mask is None else torch.cat([drawn.mask.to(everyone), everyone])
            total = clipped_sum(judge, summed_doubt, self.clip, seen, is_real, counted, coded)
            noisy = release(total, sensitivity)
            fallen = torch.clamp(done / self.falling, max=1.0)
            rate = (self.rate + (self.last_rate - self.rate) * fallen) / self.batch
            with torch.no_grad():
                for name, weight in weights.items():
                    weight.sub_(noisy[name] * rate)
                done.add_(1)
            loss = F.binary_cross_entropy_with_logits(judge(generated(labels)), deceived)
            loss.backward(inputs=list(model.parameters()))
            optimizer.step()
            return {"loss": loss}  # of the generator: post-processing

        tensors, every = {"done": done}, {}
        if isinstance(sampler, ShuffledEpochs):
            tensors, every = tensors | sampler.tensors, {sampler.period: sampler.reshuffle}
        return problem.build_engine(
            step,
            modules={"generator": model, "discriminator": judge},
            steps=steps,
            optimizer=optimizer,
            tensors=tensors,
            every=every,
            before=release.charge,
        )

    def _mechanism(self, problem: Problem, steps: int) -> tuple[Sampler, Release, float]:
        """How the records of a step are drawn, what a step releases, and how far one record is said to move it."""
        records, secret, budget = len(problem.images), problem.noise.generator, problem.budget
        if self.batch >= records:
            raise UsageError(f"loss.batch={self.batch}: there are {records} records; take fewer of them a step")
        rate = self.batch / records

        def event(multiplier: float) -> Event:
            return PoissonSampled(Gaussian(multiplier, Adjacency.ADD_REMOVE), rate)

        if self.clipping == "global":
            sampler: Sampler = Poisson(records, rate, secret)
            multiplier = self.noise_multiplier or 0.0
            if not multiplier or steps < self.steps:  # a noise that was given belongs to all the steps
                left = budget.less(steps * failure_of(sampler.facts()))
                multiplier = calibration.find_sigma(event, steps, left)
            return sampler, problem.release(event(multiplier), sampler=sampler, steps=steps), self.clip
        if budget.mode == "sound" or self.noise_multiplier is None:
            raise UsageError("loss.clipping=coded is the authors' code: it needs privacy.mode=paper and its noise")
        true = own_epsilon({event(self.noise_multiplier / 2): steps}, budget.pricing.delta, "exact", "tight")
        worth = f"ε = {true:.4g}" if math.isfinite(true) else "no finite ε"
        problem.ledger.note_unsound(
            "each of four tensors is clipped by itself, so that one record moves them by up to twice the clip, and the "
            f"noise multiplier is stated as noise × clip; were batches drawn by Poisson sampling, that is {worth}"
        )
        problem.ledger.note_unsound("the labels of each batch of records are used without noise")
        sampler = ShuffledEpochs(records, self.batch, secret)
        return sampler, problem.release(event(self.noise_multiplier * self.clip), sampler=sampler, steps=steps), 1.0
