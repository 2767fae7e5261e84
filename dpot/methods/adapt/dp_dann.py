"""DP-DANN: DANN whose discriminator sees the target through clipped and noised gradients (DP-SGD).

The source is public, so its gradients go in as they are. The gradient of the domain loss of a target record, over g
and the discriminator together, is clipped to C; the sum over a Poisson batch gets Gaussian noise once.

`clipping="coded"` is what the authors' code does: each tensor is clipped by itself, and what comes out is clipped and
noised again, `passes` times. The noise of the first pass is far longer than C, so that the second clip shrinks signal
and noise together and then adds noise of full length: nothing of the target is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpot.errors import UsageError
from dpot.methods.adapt.base import AdaptationProblem
from dpot.methods.adapt.dann import DANN, SOURCE, TARGET
from dpot.methods.gate import Release
from dpot.models.adaptation import Reversal
from dpot.privacy import calibration
from dpot.privacy.events import Adjacency, Event, FixedSizeSampled, Gaussian, PoissonSampled
from dpot.privacy.failures import failure_of
from dpot.ranges import Count, NonNegative, NonNegativeInt, Positive
from dpot.training.backward import weighted_backward
from dpot.training.clipped_sum import clipped_sum
from dpot.training.engine import Engine
from dpot.training.samplers import Poisson, Sampler, ShuffledEpochs
from dpot.training.sanitise import clip_block


class DPDANN(DANN):
    """noise_multiplier null: calibrated to the budget."""

    private = True

    def __init__(
        self,
        batch: Count = 128,
        epochs: Count = 100,
        source_epochs: NonNegativeInt = 11,
        learning_rate: Positive = 1e-3,
        weight: NonNegative = 0.05,
        clip: Positive = 1.0,
        noise_multiplier: Positive | None = None,
        clipping: Literal["global", "coded"] = "global",
        passes: Count = 2,
    ) -> None:
        super().__init__(batch, epochs, source_epochs, learning_rate, weight)
        self.clip, self.noise_multiplier, self.clipping, self.passes = clip, noise_multiplier, clipping, passes

    def alignment(
        self,
        problem: AdaptationProblem,
        extra: Mapping[str, nn.Module],
        optimizer: torch.optim.Optimizer,
        sampler: ShuffledEpochs,
        steps: int,
    ) -> Engine:
        """Public gradients by one backward pass, private ones record by record."""
        network, tell = problem.network, extra["discriminator"]
        private, release = self._mechanism(problem, steps)
        both = nn.Sequential(network.features, Reversal(), tell)
        parameters = dict(both.named_parameters())
        expected = private.rate * private.population
        is_source = torch.full((self.batch,), SOURCE, device=problem.device)
        is_target = torch.full((private.batch,), TARGET, device=problem.device)

        doubt = partial(functional.cross_entropy, reduction="sum")
        coded = self.clipping == "coded"
        backward = weighted_backward(problem.device, 1.0, 0.5 * self.weight)

        def step() -> dict[str, Tensor]:
            drawn, secret = sampler.draw(), private.draw()
            features = network.features(drawn.rows(problem.source))
            error = functional.cross_entropy(network.head(features), drawn.rows(problem.labels))
            confusion = functional.cross_entropy(tell(both[1](features)), is_source)
            backward(error, confusion)
            total = clipped_sum(both, doubt, self.clip, secret.rows(problem.target), is_target, secret.mask, coded)
            noisy = self._noisy(total, release)
            public = [cast(Tensor, parameters[name].grad) for name in noisy]
            torch._foreach_add_(public, list(noisy.values()), alpha=0.5 * self.weight / expected)
            optimizer.step()
            return {"loss": error, "domain loss": confusion}

        return problem.stage(
            "alignment",
            step,
            steps=steps,
            optimizer=optimizer,
            extra=extra,
            samplers=[sampler, private],
            before=release.charge,
        )

    def _noisy(self, total: dict[str, Tensor], release: Release) -> dict[str, Tensor]:
        """The clipped sum with its noise; as the authors coded it, clipped and noised again."""
        noisy = release(total, self.clip)
        for _ in range(self.passes - 1 if self.clipping == "coded" else 0):
            noisy = release.again({name: clip_block(one, self.clip) for name, one in noisy.items()}, self.clip)
        return noisy

    def _mechanism(self, problem: AdaptationProblem, steps: int) -> tuple[Sampler, Release]:
        budget, population, secret = problem.budget, len(problem.target), problem.noise.generator
        rows = min(self.batch, population)
        if self.clipping == "coded":
            if budget.mode == "sound" or self.noise_multiplier is None:
                raise UsageError("loss.clipping=coded is the authors' code: it needs privacy.mode=paper and its noise")
            tensors = "each tensor is clipped by itself, so that one record moves all of them by more than the clip"
            problem.ledger.note_unsound(f"{tensors}; the noise is stated as if it moved them by the clip")
            event: Event = FixedSizeSampled(Gaussian(self.noise_multiplier), rows, population)
            sampler: Sampler = ShuffledEpochs(population, rows, secret)
            return sampler, problem.release(event, sampler=sampler, steps=steps)

        def one(multiplier: float) -> Event:
            return PoissonSampled(Gaussian(multiplier, Adjacency.ADD_REMOVE), rows / population)

        sampler = Poisson(population, rows / population, secret)
        left = budget.less(steps * failure_of(sampler.facts()))
        multiplier = self.noise_multiplier or calibration.find_sigma(one, steps, left)
        return sampler, problem.release(one(multiplier), sampler=sampler, steps=steps)
