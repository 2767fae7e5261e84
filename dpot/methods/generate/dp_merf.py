"""DP-MERF: one noisy mean embedding, then any amount of training (Harder, Adamczewski & Park, AISTATS 2021).

The private data are touched once: μ = (1/N) Σ φ(x_i) ⊗ one-hot(y_i) by random Fourier features of norm 1, so that
replacing a record (image and label) moves μ by at most 2/N. The generator then minimises ‖μ̃ − μ_generated‖².
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dpot.methods.generate.base import Method, Problem
from dpot.models.generator import one_hot
from dpot.privacy import calibration
from dpot.privacy.events import Gaussian
from dpot.ranges import Count, Positive
from dpot.training.backward import weighted_backward
from dpot.training.engine import Engine
from dpot.training.schedules import StepDecay
from dpot.transport.mmd import fourier_frequencies, mean_embedding, squared_mmd

ROUNDING = 1 + 1e-5  # the features' norm is 1 up to float32 rounding


class DPMERF(Method):
    """Gaussian noise on the mean embedding of image and label together; adjacency: replace one record."""

    def __init__(
        self,
        features: Count = 10_000,
        kernel_variance: Positive = 105.0,
        batch: Count = 500,
        epochs: Count = 5,
        learning_rate: Positive = 1e-2,
        rate_decay: Positive = 0.9,
        least_steps: Count = 600,
    ) -> None:
        self.features, self.kernel_variance, self.batch, self.epochs = features, kernel_variance, batch, epochs
        self.learning_rate, self.rate_decay, self.least_steps = learning_rate, rate_decay, least_steps

    def prepare(self, problem: Problem) -> Engine:
        """Release the embedding; the engine trains against it."""
        target, frequencies = self._release(problem)
        model, random = problem.generator, problem.random
        optimizer = torch.optim.Adam(model.parameters(), lr=self.learning_rate)
        low, high = model.pixel_range
        backward = weighted_backward(problem.device, 1.0)

        def step() -> dict[str, Tensor]:
            labels = torch.randint(problem.classes, (self.batch,), generator=random, device=problem.device)
            images = model(model.code(self.batch, random, problem.device), labels)
            if (low, high) != (0.0, 1.0):
                images = (images - low) / (high - low)
            classes = one_hot(labels, problem.classes)
            loss = squared_mmd(mean_embedding(images.flatten(1), frequencies, classes), target)
            backward(loss)
            optimizer.step()
            return {"loss": loss}

        # An epoch of few records is drawn out: on 9,000 images five would be 90 steps, on MNIST they are 600.
        per_epoch = math.ceil(max(len(problem.images) / self.batch, self.least_steps / self.epochs))
        # Steps here are free of budget: a small profile cuts them only where the paper's own number is larger.
        steps = problem.steps(self.epochs * per_epoch)
        schedule = StepDecay(every=per_epoch, factor=self.rate_decay)
        return problem.engine(step, steps=steps, optimizer=optimizer, schedule=schedule)

    def _release(self, problem: Problem) -> tuple[Tensor, Tensor]:
        """(μ + N(0, (z·2/N)²), frequencies), z the noise multiplier. A resumed run must find the same one: it is kept.

        The frequencies follow the experiment seed (they are public); the noise does not. To draw the noise a
        second time after a kill would be a second release, hence the file.
        """
        images = problem.images.flatten(1)
        release = problem.release(Gaussian(calibration.find_sigma(Gaussian, 1, problem.budget)))

        def make() -> dict[str, Tensor]:
            frequencies = fourier_frequencies(
                self.features, images.shape[1], math.sqrt(self.kernel_variance), problem.random, problem.device
            )
            total = torch.zeros(self.features, problem.classes, device=problem.device)
            for rows, labels in zip(images.split(5000), problem.labels.split(5000), strict=True):
                total += mean_embedding(rows, frequencies, labels, problem.classes) * len(rows)
            sensitivity = 2 * ROUNDING / len(images)
            noisy = release(total / len(images), sensitivity, public={"frequencies": frequencies})
            return {"embedding": noisy, "frequencies": frequencies}

        kept = problem.keep_release("embedding", [release], make)
        return kept["embedding"], kept["frequencies"]
