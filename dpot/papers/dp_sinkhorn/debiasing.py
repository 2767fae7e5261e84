"""What the share p of fresh points does to the gradient of DP-Sinkhorn's loss (its Figure 4c).

The loss 2·W(X, Y) − W(X, X') compares the generated batch X with a batch X' that shares (1 − p)·n points with it.
p = 1 makes X' independent of X: without bias, but with the variance of another batch. For a generator trained a
little, without privacy, the gradient with respect to its weights is computed on many batches, the same ones for each p:

    variance(p) = E‖g_p − E g_p‖²,   bias(p) = ‖E g_p − E g_1‖²

the squared bias less what the finite number of batches adds to it on average. A measurement on private data without
noise: nothing of it is a release.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from dpot.data.base import Dataset, unit_range
from dpot.methods.generate.base import Problem
from dpot.methods.generate.dp_sinkhorn import Sinkhorn
from dpot.models.sinkhorn_dcgan import SinkhornDCGAN
from dpot.papers.computed import Computed, Context, Table
from dpot.papers.plots import blank, png
from dpot.privacy.budget import Budget
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.ranges import Count, Fraction, Positive
from dpot.training.progress import Progress
from dpot.transport.sinkhorn import annealed_temperatures, fresh_rows, joint_points, semi_debiased_sinkhorn


def figure_4c(
    context: Context,
    dataset: str = "mnist",
    shares: Sequence[Fraction] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
    batches: Count = 400,
    steps: Count = 2000,  # of training without privacy before anything is measured
    batch: Count = 50,
    learning_rate: Positive = 2e-4,
    width: Count = 64,  # of the generator; the small profiles take 16
) -> Computed:
    """Bias and variance of the semi-debiased gradient over p: train a little, measure, draw."""
    data: Dataset = context.data(dataset)
    small = context.profile.name in ("quick", "smoke")
    batches, width = (min(batches, 10), min(width, 16)) if small else (batches, width)
    problem = _problem(context, data, width)
    Sinkhorn(steps=steps, learning_rate=learning_rate, batch=batch, clip=None).fit(problem)
    points = measure(problem, shares, batches, batch)
    numbers = {"points": points, "batches": batches, "steps": problem.steps(steps)}
    table = Table("DP-Sinkhorn, Figure 4c: the gradient by the share p of fresh points, in units of ‖E g‖²", points)
    return Computed(numbers, [table], {"": picture(points)}, [data])


def _problem(context: Context, data: Dataset, width: int) -> Problem:
    device = torch.device(context.device if context.device != "cuda" else "cuda:0")
    torch.manual_seed(context.seed)
    model = SinkhornDCGAN(data.classes, data.shape, width=width)  # type: ignore[arg-type]
    budget = Budget(epsilon=None, delta=1e-5)
    assert data.train.y is not None
    return Problem(
        images=unit_range(data.train.x).to(device),
        labels=data.train.y.to(device),
        classes=data.classes,
        generator=model.to(device),
        budget=budget,
        ledger=Ledger.of(budget),
        noise=NoiseSource(device=device),
        random=torch.Generator(device).manual_seed(context.seed),
        max_steps=context.profile.steps,
        progress=Progress("auto"),
    )


def measure(problem: Problem, shares: Sequence[float], batches: int, n: int) -> list[dict[str, float]]:
    """For each p the variance of the gradient and its squared bias, both in units of ‖E g_1‖²."""
    weight = 15.0
    schedule = annealed_temperatures(
        math.sqrt(4 * problem.images[0].numel() + problem.classes * weight**2), blur=0.05, power=1.0
    )
    model, random, device = problem.generator, problem.random, problem.device
    gradients: list[list[Tensor]] = [[] for _ in [*shares, 1.0]]
    for _ in range(batches):
        rows = torch.randint(len(problem.images), (n,), generator=random, device=device)
        real = joint_points(problem.images[rows] * 2 - 1, problem.labels[rows], problem.classes, weight)
        labels = torch.randint(problem.classes, (n,), generator=random, device=device).repeat(2)
        # the 2n images are the same for each p; how many of the second half are used is not
        points = joint_points(model(model.code(2 * n, random, device), labels), labels, problem.classes, weight)
        for found, share in zip(gradients, [*shares, 1.0], strict=True):
            fresh = points[n : n + fresh_rows(n, share)]
            loss = semi_debiased_sinkhorn(points[:n], fresh if len(fresh) else None, real, schedule, 1.0, 1.0)
            slopes = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
            found.append(torch.cat([slope.flatten() for slope in slopes]).cpu())
    stacked = [torch.stack(found).double() for found in gradients]
    unbiased = stacked.pop()
    scale = float(unbiased.mean(0).square().sum())
    points_found = []
    for share, all_of_it in zip(shares, stacked, strict=True):
        variance = float(all_of_it.var(0).sum())
        difference = all_of_it - unbiased
        chance = float(difference.var(0).sum()) / batches  # E‖mean of the differences‖² is the bias and this
        bias = max(0.0, float(difference.mean(0).square().sum()) - chance)
        points_found.append({"p": share, "bias": bias / scale, "variance": variance / scale})
    return points_found


def picture(points: Sequence[dict[str, float]]) -> bytes:
    """Both over p."""
    figure = blank(4.4, 3.4)
    axis = figure.subplots()
    for name in ("bias", "variance"):
        axis.plot([p["p"] for p in points], [p[name] for p in points], marker="o", label=name)
    axis.set_yscale("symlog", linthresh=1e-3)
    axis.set_xlabel("share p of fresh points")
    axis.set_ylabel("of the gradient, in units of ‖E g‖²")
    axis.legend()
    return png(figure)
