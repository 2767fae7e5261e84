"""The real data themselves in the place of synthetic ones: the first row of DP-Sinkhorn's tables.

Classifiers are trained on the training images, and FID compares them with the test images: what a perfect generator
would reach. Nothing is trained and nothing is private.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dpot.methods.generate.base import Method, Problem
from dpot.privacy.events import NonPrivate
from dpot.training.engine import Outcome


class RealData(Method):
    """Gives back the training images with their own labels."""

    private = False

    def fit(self, problem: Problem) -> Outcome:
        """Note that the data are shown as they are."""
        problem.release(NonPrivate("the training images are shown as they are")).bare(problem.images)
        return Outcome(0, 0.0, "none", "the real data are not generated")

    def draw(self, problem: Problem, count: int) -> tuple[Tensor, Tensor]:
        """All images if `count` is as many, else `count` of them with the classes in turn."""
        order = torch.randperm(len(problem.images), generator=problem.random, device=problem.device)
        labels = problem.labels[order]
        if count < len(order):
            rank = torch.zeros_like(order)  # how many of the same class come before
            for label in range(problem.classes):
                mine = labels == label
                rank[mine] = torch.arange(int(mine.sum()), device=order.device)
            order = order[rank.argsort(stable=True)[:count]]
        return problem.images[order], problem.labels[order]
