"""DP-Sinkhorn: a generator trained on the noisy image gradient of a Sinkhorn loss (Cao et al., NeurIPS 2021).

Each step draws a Poisson batch Y of private images, generates X, and takes the semi-debiased loss
2·W(X, Y) − W(X, X'), X' being X with some rows generated afresh. Its gradient at X, of both terms, is clipped and
noised before it reaches the generator. That at the fresh rows touches no private record; it is clipped alike, without
noise. Were −W(X, X') left out of the clipping, which privacy would allow, it would outweigh what is clipped, and drive
the images apart until nearly every pixel is black or white.

Where paper and code differ, the choice has a name: clip = "row" (paper: sensitivity 2C√n) or "block" (code: 2C);
the noise is always noise_multiplier × sensitivity. debias = "none" is the Sinkhorn divergence, X' = X: so the code runs
without its switch for debiasing, and on CelebA.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from dpot.errors import UsageError
from dpot.methods.gate import Release
from dpot.methods.generate.base import Method, Problem
from dpot.privacy import calibration
from dpot.privacy.events import Adjacency, Event, Gaussian, NonPrivate, PoissonSampled
from dpot.privacy.failures import failure_of
from dpot.ranges import Count, Fraction, NonNegative, Positive
from dpot.training.backward import weighted_backward
from dpot.training.ema import EMA
from dpot.training.engine import Engine
from dpot.training.samplers import FixedSize, Poisson, Sampler
from dpot.training.sanitise import sanitise_images, sanitise_parameters
from dpot.training.streams import SideStream
from dpot.transport.sinkhorn import annealed_temperatures, fresh_rows, joint_points, padded_debiased

LARGEST_RATE = 5e-4  # of a shortened training
AVERAGINGS = 1000  # of the weights, about; in a training of millions of steps more
OPTIMIZERS = {"adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop, "sgd": torch.optim.SGD}


class Sinkhorn(Method):
    """The same training without noise, and with clip=None without clipping: the non-private rows of the tables."""

    private = False

    def __init__(
        self,
        batch: Count = 50,
        steps: Count = 480_000,
        learning_rate: Positive = 1e-5,
        weight_decay: NonNegative = 1e-5,
        l1: NonNegative = 1.0,
        l2: NonNegative = 1.0,
        debias: Literal["none", "semi", "full"] = "semi",
        fraction: Fraction = 0.4,
        blur: Positive = 0.05,
        power: Positive = 1.0,
        label_weight: NonNegative = 15.0,
        clip: Positive | None = 0.5,
        clip_per: Literal["row", "block"] = "block",
        perturb: Literal["images", "parameters"] = "images",
        noise_multiplier: Positive | None = None,
        optimizer: Literal["adam", "rmsprop", "sgd"] = "adam",
        ema: Fraction | None = None,
    ) -> None:
        """From `perturb` to `noise_multiplier`: how the private variant sanitises; null noise is calibrated.

        ema: what is released is a moving average of the weights, over about the last tenth of the training. Ours.
        """
        self.optimizer, self.ema = optimizer, ema
        self.batch, self.steps, self.l1, self.l2 = batch, steps, l1, l2
        self.learning_rate, self.weight_decay, self.label_weight = learning_rate, weight_decay, label_weight
        self.fraction = {"none": 0.0, "semi": fraction, "full": 1.0}[debias]
        self.blur, self.power = blur, power
        self.clip, self.clip_per, self.perturb, self.noise_multiplier = clip, clip_per, perturb, noise_multiplier

    def prepare(self, problem: Problem) -> Engine:
        """The engine whose steps train the generator."""
        model, random, device = problem.generator, problem.random, problem.device
        low, high = model.pixel_range
        if (low, high) != (-1.0, 1.0):
            raise UsageError("loss=dp_sinkhorn compares pixels in [-1, 1]: choose a generator that ends in a tanh")
        if self.batch < 2:
            raise UsageError("loss.batch: must be 2 or more; generated images are normalised and compared in a batch")
        steps = problem.steps(self.steps)
        private = joint_points(problem.images * 2 - 1, problem.labels, problem.classes, self.label_weight)
        pixels = problem.images[0].numel()
        # The annealing starts at the diameter of the box all data must lie in, never at that of the data.
        diameter = math.sqrt(4 * pixels + problem.classes * self.label_weight**2)
        schedule = annealed_temperatures(diameter, self.blur, self.power)
        sampler, release = self._mechanism(problem, steps)
        renewed = fresh_rows(self.batch, self.fraction)
        # Adam with its weight decay in the gradient, as published; the others are for Figure 4a
        optimizer = OPTIMIZERS[self.optimizer](model.parameters(), lr=self.rate(steps), weight_decay=self.weight_decay)

        # W(X, X') is solved beside W(X, Y): X' is padded to the size of Y with points of weight 0, which take no part
        padding = private.new_zeros(sampler.batch - self.batch, private.shape[1])
        logs = _log_weights(sampler.batch, self.batch).to(private)
        uniform = private.new_full((2, self.batch), -math.log(self.batch))
        backward = weighted_backward(device, 1.0)
        side = SideStream(device)

        def step() -> dict[str, Tensor]:
            with side.fork():
                drawn = sampler.draw()
                real, weights = drawn.rows(private), None
                if drawn.mask is not None:  # those that count come first: their number tells the weights
                    weights = uniform, logs.index_select(0, drawn.mask.sum(0, keepdim=True))[0]
            labels = torch.randint(problem.classes, (self.batch,), generator=random, device=device)
            labels = torch.cat([labels, labels[:renewed]])  # the fresh rows reuse those of the first ones
            images = model(model.code(self.batch + renewed, random, device), labels)
            points = joint_points(self.protect(images, release), labels, problem.classes, self.label_weight)
            side.join()
            loss = padded_debiased(points, self.batch, real, schedule, self.l2, self.l1, padding, weights)
            backward(loss)
            self.protect_parameters(model, release)
            optimizer.step()
            return self.shown(loss, images)

        return problem.engine(
            step,
            steps=steps,
            optimizer=optimizer,
            ema=EMA(model, self.ema, every=min(500, steps // AVERAGINGS + 1)) if self.ema else None,
            before=release.charge,
        )

    def rate(self, steps: int) -> float:
        """The learning rate, larger where a profile cuts the steps, up to LARGEST_RATE; never called comparable.

        Adam's way is about rate × steps long; under noise that drowns the gradient, a random walk, rate × √steps. It is
        kept, so that a short training by a method made for millions of small steps gets somewhere.
        """
        longer = (self.steps / steps) ** (0.5 if self.private else 1.0)
        return max(self.learning_rate, min(LARGEST_RATE, self.learning_rate * longer))

    def shown(self, loss: Tensor, images: Tensor) -> dict[str, Tensor]:
        """What a step puts on the progress line and on record."""
        return {"loss": loss}

    def protect(self, images: Tensor, release: Release) -> Tensor:
        """What stands between the loss and the generated images: clipping of the gradient that comes back, if any."""
        if self.clip is None:
            return images
        return sanitise_images(images, self.clip, release, self.clip_per, self.batch)

    def protect_parameters(self, model: torch.nn.Module, release: Release) -> None:
        """What stands between the gradient and the weights; nothing here."""

    def _mechanism(self, problem: Problem, steps: int) -> tuple[Sampler, Release]:
        sampler = FixedSize(len(problem.images), self.batch, problem.noise.generator)
        event = NonPrivate("the gradient is used without noise")
        return sampler, problem.release(event, sampler=sampler, steps=steps)


def _log_weights(room: int, generated: int) -> Tensor:
    """[k]: the logarithms of the weights of Y, when k of its `room` rows were drawn, and of X' padded to that size.

    Should none be drawn, padding rows of zeros stand in: a step must not fail on private data.
    """
    drawn = torch.arange(room + 1, dtype=torch.float64)
    drawn[0] = room
    counts = torch.stack([drawn, torch.full_like(drawn, generated)], 1).unsqueeze(2)
    return torch.where(torch.arange(room) < counts, -counts.log(), -math.inf)


class DPSinkhorn(Sinkhorn):
    """With clipping and noise, on the image gradient or on the parameter gradient.

    The private batch is drawn by Poisson sampling; the generated batch has a fixed size, so that nothing but the
    noisy gradient depends on how many records were drawn.
    """

    private = True

    @property
    def bound(self) -> float:
        """The norm that is clipped to; without one no noise would do."""
        if self.clip is None:
            raise UsageError("loss.clip: a private training needs one, a positive number")
        return self.clip

    @property
    def sensitivity(self) -> float:
        """How far one record moves the clipped gradient: both lie in the same ball, so its diameter."""
        rows = math.sqrt(self.batch) if self.clip_per == "row" and self.perturb == "images" else 1.0
        return 2 * self.bound * rows

    def shown(self, loss: Tensor, images: Tensor) -> dict[str, Tensor]:
        """How far a generated image is from the next. The loss is computed on private records: it would be released."""
        made = images.detach()
        return {"spread": F.mse_loss(made[1:], made[:-1])}

    def protect(self, images: Tensor, release: Release) -> Tensor:
        """Clip and noise the gradient that comes back to the batch, clip that of the rows behind it."""
        if self.perturb == "parameters":
            return images
        noising = partial(release, sensitivity=self.sensitivity)
        return sanitise_images(images, self.bound, noising, self.clip_per, self.batch)

    def protect_parameters(self, model: torch.nn.Module, release: Release) -> None:
        """Clip and noise the gradient of the weights."""
        if self.perturb == "parameters":
            sanitise_parameters(model.parameters(), self.bound, partial(release, sensitivity=self.sensitivity))

    def _mechanism(self, problem: Problem, steps: int) -> tuple[Sampler, Release]:
        if self.batch > len(problem.images):
            raise UsageError(f"loss.batch={self.batch}: there are {len(problem.images)} records")
        rate = self.batch / len(problem.images)

        def event(multiplier: float) -> Event:
            return PoissonSampled(Gaussian(multiplier, Adjacency.ADD_REMOVE), rate)

        sampler = Poisson(len(problem.images), rate, problem.noise.generator)
        multiplier = self.noise_multiplier
        if multiplier is None or steps < self.steps:  # a noise that was given belongs to all the steps
            left = problem.budget.less(steps * failure_of(sampler.facts()))
            multiplier = calibration.find_sigma(event, steps, left)
        return sampler, problem.release(event(multiplier), sampler=sampler, steps=steps)
