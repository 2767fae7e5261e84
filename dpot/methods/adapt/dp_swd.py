"""DP-SWD for domain adaptation: noisy projections of the target's features (Rakotomamonjy & Ralaivola, ICML 2021).

Each step projects the features of a target batch on k fresh directions, adds Gaussian noise, and compares them with
the noisy projections of a source batch. The release of a step is (U, g(X)U + V), priced exactly in
dpot/privacy/projection.py for the dimension of g's output.

What the paper did, and what is done here by default instead:

- rows: divided by twice the largest norm of the batch, which one record can set; here centred on the source batch's
  mean and clipped to its radius, both public;
- gradients: through g(x_target), which carries no noise; here only the noisy projections are used, detached;
- batches: of a shuffled loader; here a fresh random subset at each step;
- price: dimension 784, releases as if an epoch were a pass over the target, a bound that may fail; here the dimension
  projected, the releases made, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpot.errors import UsageError
from dpot.methods.adapt.base import AdaptationProblem, SourceThenAlign
from dpot.methods.adapt.swd import LossScale, root
from dpot.methods.gate import Release
from dpot.privacy import calibration
from dpot.privacy.accountants import own_epsilon
from dpot.privacy.events import Event, FixedSizeSampled, ProjectionGaussian
from dpot.privacy.failures import failure_of
from dpot.ranges import Count, NonNegative, NonNegativeInt, Positive
from dpot.training.backward import weighted_backward
from dpot.training.engine import Engine
from dpot.training.samplers import FixedSize, Sampler, ShuffledEpochs
from dpot.training.sanitise import clip_rows
from dpot.transport.directions import uniform_directions
from dpot.transport.sliced import noisy_projections, project, wasserstein_1d

ROUNDING = 1 + 1e-5  # clipped norms are off by float32 rounding: stay inside the diameter all the same
SMALLEST = 1e-6  # of a radius: features that have collapsed to a point


class DPSWDAdaptation(SourceThenAlign):
    """cross-entropy(source) + weight·(noisy sliced Wasserstein distance of bounded features), rescaled to g's units.

    loss_scale: `sum` adds over the batch and multiplies by the radius, `mean` averages and multiplies by twice the
    radius (the two revisions of the authors' code; √n/2 apart, 5.7 times for n = 128).
    """

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
        rows: Literal["centred", "batch_max"] = "centred",
        gradients: Literal["detached", "through"] = "detached",
        batches: Literal["fixed-size", "shuffled"] = "fixed-size",
        accounted_dimension: Count | None = None,
        accounted_releases: Literal["made", "target_epochs"] = "made",
    ) -> None:
        super().__init__(batch, epochs, source_epochs, learning_rate, weight)
        self.projections, self.q, self.loss_scale = projections, q, loss_scale
        self.rows, self.gradients, self.batches = rows, gradients, batches
        self.accounted_dimension, self.accounted_releases = accounted_dimension, accounted_releases

    def bounded(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Both batches as rows whose diameter is 1, and the radius they were divided by twice.

        centred: c and R, the mean and the largest distance from it of the *source* batch, are public; a target row is
        clipped to R around c, so two of them are at most 2R apart whatever the records. batch_max: R is the largest
        norm of both batches, so that one target record can rescale all rows: no bound on what it moves.
        """
        if self.rows == "batch_max":
            radius = torch.maximum(source.norm(dim=1).max(), target.norm(dim=1).max()).detach().clamp(min=SMALLEST)
            return source / (2 * radius), target / (2 * radius), radius
        centre = source.detach().mean(0)
        around = source - centre
        radius = around.detach().norm(dim=1).max().clamp(min=SMALLEST)
        unit = radius * (2 * ROUNDING)
        near = clip_rows((target - centre) / unit, 0.5)
        return around / unit, near, radius

    def alignment(
        self,
        problem: AdaptationProblem,
        extra: Mapping[str, nn.Module],
        optimizer: torch.optim.Optimizer,
        sampler: ShuffledEpochs,
        steps: int,
    ) -> Engine:
        """Every step is one release of the target."""
        network, random = problem.network, problem.random
        private = self._private_batches(problem)
        release = self._mechanism(problem, private, steps)
        factor = self.batch ** (1 / self.q) if self.loss_scale == "sum" else 2.0
        through = self.gradients == "through"

        backward = weighted_backward(problem.device, 1.0, self.weight)

        def step() -> dict[str, Tensor]:
            drawn = sampler.draw()
            public, secret = drawn.rows(problem.source), private.draw().rows(problem.target)
            if through:
                source, target = network.features(torch.cat([public, secret])).split([self.batch, private.batch])
            else:
                with torch.no_grad():
                    target = network.features(secret)
                source = network.features(public)
            error = functional.cross_entropy(network.head(source), drawn.rows(problem.labels))
            # the exact bound is an average over directions that nobody knows beforehand: not those of a published seed
            directions = uniform_directions(self.projections, network.width, problem.noise.generator, problem.device)
            source_rows, target_rows, radius = self.bounded(source, target)
            # the release; detached, all below is post-processing
            real = release(project(target_rows, directions), bounded=target_rows, public={"directions": directions})
            fake = noisy_projections(source_rows, directions, release.deviation(), random)
            distance = root(wasserstein_1d(fake, real, self.q).mean(), self.q) * (factor * radius)
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

    def _private_batches(self, problem: AdaptationProblem) -> Sampler:
        kind = FixedSize if self.batches == "fixed-size" else ShuffledEpochs
        return kind(len(problem.target), min(self.batch, len(problem.target)), problem.noise.generator)

    def _mechanism(self, problem: AdaptationProblem, private: Sampler, steps: int) -> Release:
        """The release each step really makes, with σ as it is calibrated."""
        budget, width, population = problem.budget, problem.network.width, len(problem.target)

        def event(sigma: float, dimension: int) -> Event:
            mechanism = ProjectionGaussian(dimension, self.projections, sigma)
            return FixedSizeSampled(mechanism, private.batch, population)

        dimension = self.accounted_dimension or width
        by_epochs = self.epochs * (population // self.batch + 1)
        releases = steps if self.accounted_releases == "made" else by_epochs
        reasons = self._unsound()
        if dimension != width or releases != steps:
            reasons.append("")  # priced below, once σ is known
        if reasons and budget.mode == "sound":
            raise UsageError(
                "this loss takes liberties that no proof covers (loss.rows, loss.gradients, loss.batches, "
                "loss.accounted_*): use loss=dp_swd, or privacy.mode=paper to do what the paper did"
            )
        left = budget.less(releases * failure_of(private.facts()))
        sigma = calibration.find_sigma(lambda s: event(s, dimension), releases, left)
        for reason in filter(None, reasons):
            problem.ledger.note_unsound(reason)
        if dimension != width or releases != steps:
            delta = budget.pricing.delta if budget.bound == "exact" else budget.delta
            assert delta is not None
            same = own_epsilon({event(sigma, width): steps}, delta, budget.bound, budget.conversion)
            exact = own_epsilon({event(sigma, width): steps}, delta, "exact", budget.conversion)
            problem.ledger.note_unsound(
                f"the noise (σ = {sigma:.4g}) was calibrated to ε = {_epsilon(budget.epsilon)} for {releases} releases "
                f"in dimension {dimension}; {steps} are made in dimension {width}, worth ε = {_epsilon(same)} by the "
                f"same formula and ε = {_epsilon(exact)} exactly, were the rows bounded and the gradients detached"
            )
        return problem.release(event(sigma, width), sampler=private, steps=steps)

    def _unsound(self) -> list[str]:
        reasons = []
        if self.rows == "batch_max":
            reasons.append(
                "rows are divided by the largest norm of the batch: one record can move every row, and its own row is "
                "not bounded by anything it does not choose"
            )
        if self.gradients == "through":
            reasons.append("gradients flow through the features of the target, which carry no noise: no finite ε")
        if self.batches == "shuffled":
            reasons.append("the target is read in shuffled epochs, which no subsampling bound covers")
        return reasons


def _epsilon(value: float | None) -> str:
    return "none" if value is None or not math.isfinite(value) else f"{value:.4g}"
