"""SWD alignment: source and target features pulled together by a sliced Wasserstein distance, without noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpot.methods.adapt.base import AdaptationProblem, SourceThenAlign
from dpot.privacy.events import NonPrivate
from dpot.ranges import Count, NonNegative, NonNegativeInt, Positive
from dpot.training.backward import weighted_backward
from dpot.training.engine import Engine
from dpot.training.samplers import ShuffledEpochs
from dpot.transport.directions import uniform_directions
from dpot.transport.sliced import project, wasserstein_1d

LossScale = Literal["sum", "mean"]
SMALLEST = 1e-12


def root(power: Tensor, q: float) -> Tensor:
    """power^{1/q}."""
    return power.sqrt() if q == 2 else power ** (1 / q)


class SWDAdaptation(SourceThenAlign):
    """cross-entropy(source) + weight·SW_q(g(source), g(target)), with fresh directions at each step.

    loss_scale: the two revisions of the authors' code differ. `sum` adds |x_(i) - y_(i)|^q over the batch before the
    root, `mean` averages: √n apart for q = 2, 11 times for n = 128. Which one made Table 1 is not known.
    """

    private = False

    def __init__(
        self,
        batch: Count = 128,
        epochs: Count = 100,
        source_epochs: NonNegativeInt = 11,
        learning_rate: Positive = 5e-4,
        weight: NonNegative = 0.05,
        projections: Count = 200,
        q: Positive = 2.0,
        loss_scale: LossScale = "sum",
    ) -> None:
        super().__init__(batch, epochs, source_epochs, learning_rate, weight)
        self.projections, self.q, self.loss_scale = projections, q, loss_scale

    def alignment(
        self,
        problem: AdaptationProblem,
        extra: Mapping[str, nn.Module],
        optimizer: torch.optim.Optimizer,
        sampler: ShuffledEpochs,
        steps: int,
    ) -> Engine:
        """Both batches go through g together: half the launches of one after the other."""
        network = problem.network
        rows = min(self.batch, len(problem.target))
        private = ShuffledEpochs(len(problem.target), rows, problem.noise.generator)
        event = NonPrivate("features of the target are compared without noise")
        release = problem.release(event, sampler=private, steps=steps)
        factor = self.batch ** (1 / self.q) if self.loss_scale == "sum" else 1.0

        backward = weighted_backward(problem.device, 1.0, self.weight)

        def step() -> dict[str, Tensor]:
            drawn = sampler.draw()
            both = torch.cat([drawn.rows(problem.source), release(private.draw().rows(problem.target))])
            source, target = network.features(both).split([self.batch, rows])
            error = functional.cross_entropy(network.head(source), drawn.rows(problem.labels))
            directions = uniform_directions(self.projections, network.width, problem.random, problem.device)
            apart = wasserstein_1d(project(source, directions), project(target, directions), self.q).mean()
            distance = factor * root(apart + SMALLEST, self.q)  # the root has no slope at 0
            backward(error, distance)
            optimizer.step()
            return {"loss": error, "distance": distance}

        return problem.stage(
            "alignment",
            step,
            steps=steps,
            optimizer=optimizer,
            extra=extra,
            samplers=[sampler, private],
            before=release.charge,
        )
