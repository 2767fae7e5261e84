"""DP-SGD (Abadi et al. 2016), and the same training without privacy.

Each step draws its records by Poisson sampling, clips the gradient of every record to C, adds N(0, (σC)²) to their sum
and divides by the *expected* batch. One record moves the sum by at most C, so a step is a Gaussian mechanism of noise
multiplier σ under Poisson sampling and add-remove adjacency. The network's norm is by group: a BatchNorm would make
the gradient of one record depend on the others, and keep their statistics without noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dpot.errors import PrivacyError
from dpot.methods.classify.base import Budgets, Classification, Trainer
from dpot.privacy import calibration
from dpot.privacy.accountants import own_epsilon
from dpot.privacy.events import Adjacency, Event, Gaussian, NonPrivate, PoissonSampled
from dpot.privacy.failures import failure_of
from dpot.privacy.wdp.accountants import MomentsAccountant, WassersteinAccountant
from dpot.privacy.wdp.budget import Beside
from dpot.ranges import Count, Fraction, Positive, Probability
from dpot.training.clipped_sum import clipped_sum
from dpot.training.engine import Engine
from dpot.training.samplers import Poisson, ShuffledEpochs


def summed_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy, summed: the gradient of the sum is the sum of the records' gradients."""
    return F.cross_entropy(scores, labels, reduction="sum")


class SGD(Trainer):
    """Plain SGD on shuffled batches with BatchNorm: the non-private accuracy of Table 2."""

    private = False

    def __init__(self, momentum: Fraction = 0.0) -> None:
        self.momentum = momentum

    def prepare(self, problem: Classification) -> Engine:
        """The engine; its ledger says that nothing protects the data."""
        network = problem.network.train()
        sampler = ShuffledEpochs(len(problem.images), min(problem.batch, len(problem.images)), problem.random)
        optimizer = torch.optim.SGD(network.parameters(), lr=problem.learning_rate, momentum=self.momentum)
        event = NonPrivate("the gradient is used without noise")
        release = problem.release(event, sampler=sampler, steps=problem.steps)

        def step() -> dict[str, Tensor]:
            drawn = sampler.draw()
            images, labels = release(drawn.rows(problem.images)), problem.labels.index_select(0, drawn.index)
            loss = F.cross_entropy(network(images), labels)
            loss.backward()
            optimizer.step()
            return {"loss": loss}

        return problem.engine(
            step,
            optimizer=optimizer,
            before=release.charge,
            every={sampler.period: sampler.reshuffle},
            tensors=sampler.tensors,
        )

    def budgets(self, problem: Classification, steps: Sequence[int]) -> Budgets:
        """None: there is nothing to account."""
        return Budgets()


class DPSGD(Trainer):
    """With per-record clipping and noise calibrated to privacy.epsilon over all steps.

    order, beta, formula_delta: of the paper's Wasserstein formula, which is shown beside the ε of the run.
    """

    norm: ClassVar[Literal["batch", "group"]] = "group"

    def __init__(
        self,
        clip: Positive = 1.0,
        learning_rate: Positive = 0.05,
        momentum: Fraction = 0.9,
        order: Count = 16,
        beta: Positive = 32.0,
        formula_delta: Probability = 1e-10,
    ) -> None:
        self.clip, self.learning_rate, self.momentum = clip, learning_rate, momentum
        self.order, self.beta, self.formula_delta = order, beta, formula_delta
        self.multiplier = 0.0  # set when it is calibrated

    def event(self, multiplier: float, rate: float) -> Event:
        """What one step is."""
        return PoissonSampled(Gaussian(multiplier, Adjacency.ADD_REMOVE), rate)

    def prepare(self, problem: Classification) -> Engine:
        """The engine; whether all steps fit the budget is known before the first."""
        network = problem.network.train()
        rate, steps = problem.rate, problem.steps
        if rate >= 1:
            raise PrivacyError(f"task.batch={problem.batch} is all of the data: take a smaller batch")
        sampler = Poisson(len(problem.images), rate, problem.noise.generator)
        left = problem.budget.less(steps * failure_of(sampler.facts()))
        self.multiplier = calibration.find_sigma(lambda sigma: self.event(sigma, rate), steps, left)
        release = problem.release(self.event(self.multiplier, rate), sampler=sampler, steps=steps)
        optimizer = torch.optim.SGD(network.parameters(), lr=self.learning_rate, momentum=self.momentum)
        parameters = dict(network.named_parameters())

        def step() -> dict[str, Tensor]:
            drawn = sampler.draw()
            assert drawn.mask is not None
            labels = torch.where(drawn.mask, problem.labels.index_select(0, drawn.index), 0)
            total = clipped_sum(network, summed_loss, self.clip, drawn.rows(problem.images), labels, drawn.mask)
            noisy = release(total, self.clip)
            for name, parameter in parameters.items():
                parameter.grad = noisy[name] / problem.batch
            length = torch.cat([one.flatten() for one in noisy.values()]).norm() / problem.batch
            optimizer.step()
            return {"noisy_gradient": length}  # post-processing of the release; the loss would be another

        return problem.engine(
            step,
            optimizer=optimizer,
            before=release.charge,
        )

    def budgets(self, problem: Classification, steps: Sequence[int]) -> Budgets:
        """ε after each epoch; the paper's moments accountant and Wasserstein formula at the true sensitivity.

        In units of the mean gradient: one record moves it by C/B, the noise on it is σC/B.
        """
        budget, rate = problem.budget, problem.rate
        assert budget.delta is not None
        delta, event = budget.delta, self.event(self.multiplier, rate)
        moved, noise = self.clip / problem.batch, self.multiplier * self.clip / problem.batch
        count = problem.steps
        wasserstein, moments = WassersteinAccountant(self.order, self.beta), MomentsAccountant((self.order,))
        wasserstein.accumulate(np.full((count, 1), moved), np.full(count, noise), rate)
        moments.accumulate(np.full(count, moved), np.full(count, noise), rate)
        at = np.asarray(steps) - 1
        running = {
            "epsilon": [own_epsilon({event: n}, delta, budget.bound, budget.conversion) for n in steps],
            "moments": moments.history(delta)[at].tolist(),
            "wasserstein": wasserstein.history(self.formula_delta)[at].tolist(),
        }
        beside = Beside.of(problem.ledger.spending(), delta)
        return Budgets(running, [wasserstein.budget(self.formula_delta, beside)])
