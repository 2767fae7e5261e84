"""The Gaussian floor: what is drawn has the mean of each class and the covariance within them, under its budget."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import norm

from dpot.methods.generate.base import Problem
from dpot.methods.generate.gaussian_floor import GaussianFloor
from dpot.models.linear import Linear
from dpot.privacy.budget import Budget
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.transport.directions import cosine_directions

SHAPE = (3, 6, 6)


def problem(images: torch.Tensor, labels: torch.Tensor, epsilon: float) -> Problem:
    budget = Budget(epsilon, 1e-5)
    return Problem(
        images=images,
        labels=labels,
        classes=2,
        generator=Linear(2, SHAPE),
        budget=budget,
        ledger=Ledger.of(budget),
        noise=NoiseSource(),
        random=torch.Generator().manual_seed(0),
    )


def gaussians(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Smooth images: the deviation of frequency (a, b) is 0.3/(1 + a + b), and class 1 is 0.6 brighter in its mean."""
    random = torch.Generator().manual_seed(1)
    basis = cosine_directions(SHAPE, 2)
    deviations = torch.tensor([0.3, 0.15, 0.15, 0.1]).repeat(3)
    labels = torch.arange(count) % 2
    coefficients = torch.randn(count, 12, generator=random) * deviations
    coefficients[labels == 1, 0] += 0.6
    return (0.5 + coefficients @ basis).view(-1, *SHAPE), labels, basis


def test_samples_have_the_means_and_the_covariance_of_the_records():
    images, labels, basis = gaussians(20_000)
    task, method = problem(images, labels, 200.0), GaussianFloor(frequencies=2)
    method.fit(task)
    fake, drawn = method.draw(task, 20_000)
    for label in (0, 1):
        real, made = ((x[y == label].flatten(1) - 0.5) @ basis.T for x, y in ((images, labels), (fake, drawn)))
        torch.testing.assert_close(made.mean(0), real.mean(0), atol=0.02, rtol=0)
        torch.testing.assert_close(torch.cov(made.T), torch.cov(real.T), atol=0.006, rtol=0)


def test_three_releases_are_one_gaussian_mechanism_of_the_budget():
    images, labels, _ = gaussians(400)
    task = problem(images, labels, 3.0)
    GaussianFloor(frequencies=2).fit(task)
    entries = task.ledger.entries
    assert len(entries) == 3
    mu = math.sqrt(sum(entry.event.noise_multiplier**-2 for entry in entries))
    delta = norm.cdf(mu / 2 - 3 / mu) - math.exp(3) * norm.cdf(-mu / 2 - 3 / mu)
    assert 0.99e-5 < delta <= 1e-5
    assert task.ledger.epsilon() == pytest.approx(3, rel=1e-3)
