"""DANN: features that a discriminator cannot tell apart by domain (Ganin et al. 2016)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpot.methods.adapt.base import AdaptationProblem, SourceThenAlign
from dpot.models.adaptation import Reversal, discriminator
from dpot.privacy.events import NonPrivate
from dpot.ranges import Count, NonNegative, NonNegativeInt, Positive
from dpot.training.backward import weighted_backward
from dpot.training.engine import Engine
from dpot.training.samplers import ShuffledEpochs

SOURCE, TARGET = 0, 1


class DANN(SourceThenAlign):
    """cross-entropy(source) + weight·cross-entropy(domain | reversed features), both domains in equal parts."""

    private = False

    def __init__(
        self,
        batch: Count = 128,
        epochs: Count = 100,
        source_epochs: NonNegativeInt = 11,
        learning_rate: Positive = 1e-3,
        weight: NonNegative = 0.05,
    ) -> None:
        super().__init__(batch, epochs, source_epochs, learning_rate, weight)

    def extra_modules(self, problem: AdaptationProblem) -> dict[str, nn.Module]:
        """The discriminator, width-100-2."""
        return {"discriminator": discriminator(problem.network.width).to(problem.device)}

    def alignment(
        self,
        problem: AdaptationProblem,
        extra: Mapping[str, nn.Module],
        optimizer: torch.optim.Optimizer,
        sampler: ShuffledEpochs,
        steps: int,
    ) -> Engine:
        """Gradient reversal: one backward pass trains the discriminator and confuses it."""
        network, reverse, tell = problem.network, Reversal(), extra["discriminator"]
        rows = min(self.batch, len(problem.target))
        private = ShuffledEpochs(len(problem.target), rows, problem.noise.generator)
        event = NonPrivate("the discriminator sees features of the target without noise")
        release = problem.release(event, sampler=private, steps=steps)
        domain = torch.tensor([SOURCE] * self.batch + [TARGET] * rows, device=problem.device)

        backward = weighted_backward(problem.device, 1.0, self.weight)

        def step() -> dict[str, Tensor]:
            drawn = sampler.draw()
            both = torch.cat([drawn.rows(problem.source), release(private.draw().rows(problem.target))])
            features = network.features(both)
            error = functional.cross_entropy(network.head(features[: self.batch]), drawn.rows(problem.labels))
            confusion = functional.cross_entropy(tell(reverse(features)), domain)
            backward(error, confusion)
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
