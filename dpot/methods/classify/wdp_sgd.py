"""The training of WDP's Table 2, as its authors ran it: noisy SGD that is **not** DP-SGD.

The gradient of the batch mean is clipped to C as one vector, noise N(0, (σC)²) is added, and a fresh random mask zeroes
90% of its coordinates. What the accountants are given are the distances d_t of 8 leave-one-out gradients, each clipped
to C, under one shared mask: 28 pairs a step. No record's own gradient is bounded, the batches are those of shuffled
epochs, and BatchNorm keeps means and variances of private batches without noise: no (ε, δ) guarantee exists.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dpot.errors import PrivacyError, UsageError
from dpot.methods.classify.base import Budgets, Classification, Trainer
from dpot.privacy.events import NonPrivate
from dpot.privacy.gaussian import gaussian_epsilon
from dpot.privacy.wdp.accountants import BayesianAccountant, MomentsAccountant, WassersteinAccountant
from dpot.privacy.wdp.budget import Beside
from dpot.ranges import Count, Fraction, Positive, Probability
from dpot.training.engine import Engine
from dpot.training.samplers import ShuffledEpochs
from dpot.training.sanitise import clip_block, clip_rows

NO_GUARANTEE = (
    "BatchNorm keeps means and variances of private batches without noise, and a record's own gradient is not bounded"
)


class WDPSGD(Trainer):
    """Paper mode only: what ran, with the budgets the paper's accountants give it.

    delta: of the Bayesian and the Wasserstein budget, as Table 2 prints it; coded_delta: what the authors' code
    computed with, and the moments accountant's.
    """

    keeps_epsilon = False

    def __init__(
        self,
        clip: Positive = 1.0,
        zeroed: Fraction = 0.9,
        left_out: Count = 8,
        order: Count = 16,
        beta: Positive = 32.0,
        delta: Probability = 1e-10,
        coded_delta: Probability = 1e-5,
    ) -> None:
        if left_out < 3:
            raise UsageError(f"loss.left_out={left_out}: the Bayesian accountant needs at least 3")
        self.clip, self.zeroed, self.left_out = clip, zeroed, left_out
        self.order, self.beta, self.delta, self.coded_delta = order, beta, delta, coded_delta
        self.distances = torch.zeros(0)

    def prepare(self, problem: Classification) -> Engine:
        """The engine; it fills `distances`, one row of pairs per step."""
        if problem.budget.mode != "paper":
            raise PrivacyError(
                f"loss=wdp_sgd has no (ε, δ) guarantee ({NO_GUARANTEE}): add privacy=wdp_paper to run it as the paper "
                "did, or train with loss=dp_sgd"
            )
        if self.left_out >= problem.batch or problem.batch > len(problem.images):
            raise UsageError(
                f"task.batch={problem.batch} must exceed loss.left_out and not the {len(problem.images)} records"
            )
        network, device = problem.network.train(), problem.device
        parameters = list(network.parameters())
        sizes = [p.numel() for p in parameters]
        sampler = ShuffledEpochs(len(problem.images), problem.batch, problem.random)
        optimizer = torch.optim.SGD(parameters, lr=problem.learning_rate)
        first, second = torch.triu_indices(self.left_out, self.left_out, 1, device=device)
        self.distances = torch.zeros(problem.steps, len(first), device=device)
        position = torch.zeros(1, dtype=torch.int64, device=device)
        release = problem.release(
            NonPrivate(NO_GUARANTEE), sampler=sampler, steps=problem.steps, unaccounted=problem.noise_multiplier
        )

        def flat(loss: Tensor) -> Tensor:
            return torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters, retain_graph=True)])

        def keep() -> Tensor:
            """1 for the coordinates that stay; public, so it follows the experiment seed."""
            drawn = torch.empty(sum(sizes), device=device).uniform_(generator=problem.random)
            return (drawn >= self.zeroed).to(torch.float32)

        def step() -> dict[str, Tensor]:
            drawn = sampler.draw()
            outputs = network(drawn.rows(problem.images))
            losses = F.cross_entropy(outputs, problem.labels.index_select(0, drawn.index), reduction="none")
            # the mean without record j has the gradient (B·g − g_j)/(B − 1), g_j being that of its loss alone
            alone = torch.stack([flat(losses[j]) for j in range(self.left_out)])
            loss = losses.mean()
            whole = flat(loss)
            without = clip_rows((problem.batch * whole - alone) / (problem.batch - 1), self.clip) * keep()
            pairs = torch.linalg.vector_norm(without[first] - without[second], dim=1)
            self.distances.index_copy_(0, position, pairs.unsqueeze(0))
            position.add_(1)
            update = release(clip_block(whole, self.clip), self.clip) * keep()
            for parameter, piece in zip(parameters, update.split(sizes), strict=True):
                parameter.grad = piece.view_as(parameter)
            optimizer.step()
            return {"loss": loss, "distance": pairs.max()}

        problem.ledger.note_unsound(self._without_batchnorm(problem, sampler.steps_per_epoch))
        return problem.engine(
            step,
            optimizer=optimizer,
            before=release.charge,
            every={sampler.period: sampler.reshuffle},
            tensors=sampler.tensors | {"distances": self.distances, "position": position},
        )

    def _without_batchnorm(self, problem: Classification, steps_per_epoch: int) -> str:
        """What the noisy gradients alone would be worth: clipped as one vector, so a record moves them by at most 2C.

        Within an epoch a record is in one batch only; over the epochs the Gaussian releases add up.
        """
        if not problem.noise_multiplier:
            return "no noise was added at all"
        uses = -(-problem.steps // steps_per_epoch)
        epsilon = gaussian_epsilon(problem.noise_multiplier / 2 / math.sqrt(uses), self.coded_delta)
        return (
            "the noisy gradients alone, without the statistics of BatchNorm, have the sensitivity 2C under noise "
            f"{problem.noise_multiplier:g}·C, which proves ε = {epsilon:.4g} at δ = {self.coded_delta:g} and no less"
        )

    def budgets(self, problem: Classification, steps: Sequence[int]) -> Budgets:
        """As the paper has them: Wasserstein and Bayesian of the measured distances, moments of sensitivity C."""
        distances = self.distances.double().cpu().numpy()
        count, rate = len(distances), problem.rate
        noise = np.full(count, problem.noise_multiplier * self.clip)
        wasserstein, at = WassersteinAccountant(self.order, self.beta), np.asarray(steps) - 1
        wasserstein.accumulate(distances, noise, rate)
        running = {
            "wasserstein": wasserstein.history(self.delta)[at].tolist(),
            "wasserstein_as_coded": wasserstein.history(self.coded_delta)[at].tolist(),
        }
        beside = Beside.none(NO_GUARANTEE)
        if not problem.noise_multiplier:
            return Budgets(running, [wasserstein.budget(self.delta, beside)])
        bayesian, moments = BayesianAccountant(count, self.order), MomentsAccountant((self.order,))
        bayesian.accumulate(distances, noise, rate)
        moments.accumulate(np.full(count, self.clip), noise, rate)
        running |= {
            "bayesian": bayesian.history(self.delta)[at].tolist(),
            "moments": moments.history(self.coded_delta)[at].tolist(),
        }
        return Budgets(running, [wasserstein.budget(self.delta, beside), bayesian.budget(self.delta, beside)])
