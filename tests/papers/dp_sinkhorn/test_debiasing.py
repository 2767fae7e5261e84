"""Bias and variance of the semi-debiased gradient."""

import torch

from dpot.methods.generate.base import Problem
from dpot.models.sinkhorn_dcgan import SinkhornDCGAN
from dpot.papers.dp_sinkhorn.debiasing import measure
from dpot.privacy.budget import Budget
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource


def test_sharing_points_biases_the_gradient_and_independent_ones_do_not():
    torch.manual_seed(0)
    random = torch.Generator().manual_seed(0)
    problem = Problem(
        images=torch.rand(60, 1, 8, 8, generator=random),
        labels=torch.arange(60) % 3,
        classes=3,
        generator=SinkhornDCGAN(classes=3, shape=(1, 8, 8), width=2),
        budget=Budget(None, 1e-5),
        ledger=Ledger(1e-5, None),
        noise=NoiseSource(),
        random=random,
    )
    none, half, all_fresh = measure(problem, [0.0, 0.5, 1.0], batches=60, n=8)
    assert all_fresh["bias"] == 0
    assert none["bias"] > half["bias"] > 0
    assert all(point["variance"] > 0 for point in (none, half, all_fresh))
