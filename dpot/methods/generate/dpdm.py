"""DP-SGD on a diffusion model (Dockhorn et al. 2023, DPDM), from scratch.

Each step draws images by Poisson sampling, makes K noisy copies of each, and takes one gradient per image, averaged
over its copies. It is clipped to C, in effect normalised since C is small, the sum gets N(0, (σC)²), and Adam takes the
sum over the expected batch. One image more or less moves the sum by at most C, so a step is a Gaussian mechanism of
noise multiplier σ under Poisson sampling and add-remove adjacency.

What is random about an image's copies depends on its place among the records and on the public seed, never on which
other images are drawn: were it dealt by the place in the batch, one image more would move the gradients of others.
So neighbours keep their places: an image that is not there leaves its place empty, and the number of places is public.
Were the images behind it to move up, their copies would change, and this proof would not hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from safetensors.torch import save_file
from torch import Tensor

from dpot.errors import UsageError
from dpot.methods.generate.base import Method, Problem
from dpot.models.diffusion import Diffusion
from dpot.models.per_image import one_row_per_image
from dpot.models.unet import Least
from dpot.precision import fast_products
from dpot.privacy.accountants import own_epsilon, renyi_epsilon
from dpot.privacy.budget import Budget
from dpot.privacy.calibration import least_sigma, private_root
from dpot.privacy.errors import PROBABILITY, number
from dpot.privacy.events import Adjacency, Event, Gaussian, PoissonSampled
from dpot.privacy.failures import failure_of
from dpot.ranges import Count, Fraction, Positive
from dpot.training.ema import EMA
from dpot.training.engine import Engine, Outcome
from dpot.training.samplers import Poisson
from dpot.training.sanitise import sum_of_clipped

STEPS, STEPS_ON_CPU = 500, 100
BATCH, LARGEST_BATCH, LARGEST_RATE, BATCH_ON_CPU = 1024, 4096, 1 / 8, 64
COPIES, FEWER_COPIES, COPIES_ON_CPU = 32, 16, 2
MANY_COPIES_BELOW = 3.0  # of ε
COPIES_AT_ONCE, COPIES_AT_ONCE_ON_CPU = 2048, 256  # whose activations are held
OVERFLOW = 1e-12  # the chance that a draw has more images than a step has room for; taken off δ
ROOM = 0.3  # of log σ: how far below the curve's a loss distribution's noise is looked for
HAIR = 1 + 1e-8  # more noise: the ledger adds up step by step what is calibrated at once


@dataclass(frozen=True)
class Plan:
    """How long, how many images a step, how many copies of each."""

    steps: int
    batch: int
    copies: int


def plan(records: int, epsilon: float, cuda: bool) -> Plan:
    """By rule: at ε = 1 a batch of 1,024 costs hardly more noise than a larger one; at ε = 10 a larger one pays.

    500 steps are a quarter of what the published trainings take: calibrated to them, the noise is half of theirs.
    """
    batch = round(BATCH * min(LARGEST_BATCH / BATCH, max(1.0, epsilon**0.6)))
    most = max(1, int(records * LARGEST_RATE))
    if not cuda:
        return Plan(STEPS_ON_CPU, min(BATCH_ON_CPU, most), COPIES_ON_CPU)
    return Plan(STEPS, min(batch, most), COPIES if epsilon < MANY_COPIES_BELOW else FEWER_COPIES)


class DPDM(Method):
    """Everything that is None is set by rule (`plan`) from the number of records, ε and the device.

    adjacency: replace-one calibrates to half of ε (and of δ, by 1 + e^(ε/2)) for one image more or less, of which a
    replacement is two. snapshots: so many states of the averaged weights are written beside the record, evenly spaced.
    """

    def __init__(
        self,
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
        self.steps, self.batch, self.copies, self.at_once = steps, batch, copies, at_once
        self.clip, self.learning_rate, self.label_dropout, self.ema = clip, learning_rate, label_dropout, ema
        self.adjacency, self.snapshots = Adjacency(adjacency), snapshots
        self.multiplier = 0.0  # set when it is calibrated

    def smallest(self, classes: int, shape: tuple[int, int, int]) -> Diffusion:
        """The least generator that this method can train, for audits: it is behind the noise."""
        model = Diffusion(classes, shape, width=4, multipliers=(1,), blocks=1)
        model.network = Least(classes, shape[0])
        return model

    def plan(self, problem: Problem) -> Plan:
        """The rule's, with whatever was given replaced."""
        made = plan(len(problem.images), problem.budget.epsilon or math.inf, problem.device.type == "cuda")
        return Plan(problem.steps(self.steps or made.steps), self.batch or made.batch, self.copies or made.copies)

    def fit(self, problem: Problem) -> Outcome:
        """Train on the private images with all of the budget."""
        outcome = self.private_engine(problem).run()
        problem.settle()
        self._keep_weights(problem, problem.generator.state_dict(), outcome.steps)
        return outcome

    def budget(self, problem: Problem) -> Budget:
        """What may be spent on one image more or less."""
        budget = problem.budget
        if self.adjacency is Adjacency.ADD_REMOVE or budget.epsilon is None or budget.delta is None:
            return budget
        half = budget.epsilon / 2
        problem.ledger.note_uncovered(
            f"replacing an image by another one is removing one and adding one: for that relation this run keeps "
            f"ε = {budget.epsilon:g} at δ = {budget.delta:g}, and the ε above is that of one image more or less"
        )
        return Budget(half, budget.delta / (1 + math.exp(half)), budget.bound, budget.conversion, budget.mode)

    def private_engine(self, problem: Problem, part: str | None = None) -> Engine:
        """The engine of the private steps; whether all fit what the ledger has left is known before the first."""
        model, made = _diffusion(problem), self.plan(problem)
        records, random, device = len(problem.images), problem.random, problem.device
        if made.batch >= records:
            raise UsageError(f"loss.batch={made.batch}: there are {records} records; take fewer of them a step")
        rate = made.batch / records
        sampler = Poisson(records, rate, problem.noise.generator, OVERFLOW)
        self.multiplier = self._calibrated(problem, rate, made.steps, failure_of(sampler.facts()))
        release = problem.release(_event(self.multiplier, rate), sampler=sampler, steps=made.steps)

        problem.ledger.note_uncovered(
            "the order of the images: the random copies of an image go by its place among them, and what is guaranteed "
            "of one image more or less is guaranteed where the others keep their places"
        )
        private = problem.images * 2 - 1
        parameters = list(model.parameters())
        sizes = [p.numel() for p in parameters]
        optimizer = torch.optim.Adam(parameters, lr=self.learning_rate)
        at_once = min(sampler.batch, self._at_once(made.copies, device))
        rows = torch.zeros(at_once, sum(sizes), device=device)
        total = torch.zeros(sum(sizes), device=device)

        @fast_products()
        def step() -> dict[str, Tensor]:
            drawn = sampler.draw()
            assert drawn.mask is not None
            images = drawn.rows(private)
            labels = torch.where(drawn.mask, problem.labels.index_select(0, drawn.index), 0)
            chance = model.chance(sampler.batch, made.copies, random)
            turn = torch.randint(sampler.batch, (1,), generator=random, device=device)
            places = (drawn.index + turn) % sampler.batch
            total.zero_()
            # those that count come first; a captured step cannot ask how many they are
            for mine in _parts(sampler.batch if device.type == "cuda" else int(drawn.mask.sum()), at_once):
                own = rows[: mine.stop - mine.start]
                with one_row_per_image(model, own):
                    losses = model.losses(images[mine], labels[mine], chance.at(places[mine]), self.label_dropout)
                    losses.sum().backward()
                total.add_(sum_of_clipped({"all": own}, self.clip, drawn.mask[mine])["all"])
            noisy = release(total, self.clip) / (self.clip * made.batch)
            for parameter, piece in zip(parameters, noisy.split(sizes), strict=True):
                parameter.grad = piece.view_as(parameter)
            optimizer.step()
            return {"noisy_gradient": noisy.norm()}  # post-processing of the release; the loss would be another

        average = EMA(model, self.ema)
        every = {}
        if self.snapshots:
            apart = max(1, made.steps // self.snapshots)
            every[apart] = lambda at: self._keep_weights(problem, average.module.state_dict(), at)
        return problem.engine(
            step,
            steps=made.steps,
            optimizer=optimizer,
            ema=average,
            every=every,
            before=release.charge,
            part=part,
        )

    def _calibrated(self, problem: Problem, rate: float, steps: int, failure: float) -> float:
        """The least noise multiplier of so many steps, beside what the ledger has already."""
        budget = self.budget(problem)
        if budget.epsilon is None:
            raise UsageError("privacy.epsilon: this training calibrates its noise to a budget; there is none")
        before, left = problem.ledger.spending(), budget.less(problem.ledger.failure + steps * failure)
        delta = number("delta", left.delta, PROBABILITY)

        epsilon, terms = budget.epsilon, (delta, left.bound)

        def by_curve(sigma: float) -> float:
            return renyi_epsilon({**before, _event(sigma, rate): steps}, *terms, left.conversion)

        sigma = least_sigma(by_curve, epsilon) * HAIR
        if left.conversion != "pld":
            return sigma

        def gap(log_sigma: float) -> float:
            every = {**before, _event(math.exp(log_sigma), rate): steps}
            return own_epsilon(every, *terms, left.conversion) / epsilon - 1

        return math.exp(private_root(gap, math.log(sigma) - ROOM, math.log(sigma), "sigma", 1e-4)) * HAIR

    def _at_once(self, copies: int, device: torch.device) -> int:
        held = COPIES_AT_ONCE if device.type == "cuda" else COPIES_AT_ONCE_ON_CPU
        return self.at_once or max(1, held // copies)

    def _keep_weights(self, problem: Problem, weights: dict[str, Tensor], at: int) -> None:
        """Averages of what was released: they cost nothing and may be shown."""
        if self.snapshots and problem.checkpoints:
            folder = problem.checkpoints.parent / "snapshots"
            folder.mkdir(parents=True, exist_ok=True)
            save_file(
                {name: w.detach().cpu().contiguous() for name, w in weights.items()}, folder / f"{at:06d}.safetensors"
            )


def _event(multiplier: float, rate: float) -> Event:
    return PoissonSampled(Gaussian(multiplier, Adjacency.ADD_REMOVE), rate)


def _diffusion(problem: Problem) -> Diffusion:
    if not isinstance(problem.generator, Diffusion):
        raise UsageError("this loss trains a diffusion model: choose generator=diffusion")
    return problem.generator.train()


def _parts(rows: int, most: int) -> list[slice]:
    """The rows of a step in parts of about the same size; none for no rows."""
    size = -(-rows // max(1, -(-rows // most)))
    return [slice(begin, min(rows, begin + size)) for begin in range(0, rows, max(1, size))]
