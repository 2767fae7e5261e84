"""The diffusion model against closed forms, and its gradients per image against a loop over the images."""

import math

import pytest
import torch
from torch import nn

from dpot.models import edm
from dpot.models.diffusion import Diffusion
from dpot.models.generator import synthesize
from dpot.models.per_image import Dense, one_row_per_image
from dpot.models.unet import UNet

S = edm.SIGMA_DATA


def small(**options):
    """A network none of whose layers is zero."""
    torch.manual_seed(0)
    model = Diffusion(4, (1, 8, 8), width=8, blocks=1, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.2)
    return model


@pytest.mark.parametrize(
    ("shape", "multipliers", "published"), [((1, 28, 28), (2, 2), 1.485e6), ((3, 32, 32), (2, 4), 3.836e6)]
)
def test_parameters_are_those_of_the_published_networks_but_for_biases(shape, multipliers, published):
    count = sum(p.numel() for p in UNet(10, shape, 32, multipliers, 2).parameters())
    assert count == pytest.approx(published, rel=2e-3)


def test_a_network_of_zeros_denoises_gaussian_images_exactly():
    """Images ~ N(0, s²): the posterior mean of one seen with noise σ is x·s²/(s² + σ²)."""
    model = Diffusion(4, (1, 8, 8), width=8, blocks=1)  # its last layer begins at zero
    x, sigma = torch.randn(5, 1, 8, 8), torch.tensor([0.01, 0.1, 1.0, 10.0, 80.0])
    found = model.denoised(x, sigma, torch.zeros(5, 4))
    torch.testing.assert_close(found, x * (S**2 / (S**2 + sigma**2))[:, None, None, None])


def test_what_the_network_sees_and_should_say_has_variance_one():
    model, random = small(), torch.Generator().manual_seed(0)
    images = S * torch.randn(400, 1, 8, 8, generator=random)
    given = model.examples(images, torch.zeros(400, dtype=torch.int64), model.chance(400, 8, random))
    for numbers in (given.inputs, given.target):
        parts = numbers.view(400, 8, -1).transpose(0, 1).flatten(1)  # by part of the noise levels
        torch.testing.assert_close(parts.var(1), torch.ones(8), atol=0.05, rtol=0)


def test_the_loss_is_the_weighted_error_of_the_denoiser():
    """(σ² + s²)/(σs)²·|D(image + σ·noise) − image|², as EDM states it."""
    model, images = small(), torch.rand(3, 1, 8, 8) * 2 - 1
    labels = torch.tensor([0, 3, 1])
    chance = model.chance(3, 2, torch.Generator().manual_seed(3))
    given = model.examples(images, labels, chance, dropout=0.0)
    sigma = torch.exp(4 * given.level)
    noisy = given.inputs * (sigma**2 + S**2).sqrt()[:, None, None, None]
    found = model.denoised(noisy, sigma, torch.eye(4)[labels].repeat_interleave(2, 0))
    error = (found - images.repeat_interleave(2, 0)).square().flatten(1).mean(1)
    expected = (error * (sigma**2 + S**2) / (sigma * S) ** 2).view(3, 2).mean(1)
    losses = model.losses(images, labels, chance, dropout=0.0)
    torch.testing.assert_close(losses, expected, rtol=1e-3, atol=1e-4)


def test_noise_levels_of_training_are_lognormal_and_each_image_has_one_in_every_part():
    sigma = edm.training_sigmas(edm.even_shares(5000, 4, torch.Generator().manual_seed(0))).log()
    assert sigma.mean() == pytest.approx(-1.2, abs=0.02)
    assert sigma.std() == pytest.approx(1.2, abs=0.02)
    bounds = -1.2 + 1.2 * torch.special.ndtri(torch.tensor([0.25, 0.5, 0.75]))
    assert (torch.bucketize(sigma, bounds) == torch.arange(4)).all()


@pytest.mark.parametrize(("kind", "steps", "error"), [("ddim", 400, 0.03), ("heun", 80, 0.01)])
def test_samplers_follow_the_known_path_of_a_gaussian(kind, steps, error):
    """For images ~ N(m, v²) the path from x at σ_0 ends at m + (x − m)·v/√(v² + σ_0²)."""
    mean, deviation = 0.3, 0.4

    def denoiser(x, sigma):
        assert (sigma > 0).all()
        share = (deviation**2 / (deviation**2 + sigma**2))[:, None, None, None]
        return mean + share * (x - mean)

    code = torch.randn(200, 1, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    made = edm.sample(denoiser, code, steps, kind)
    high = edm.SIGMA_MAX
    expected = mean + (high * code - mean) * deviation / math.sqrt(deviation**2 + high**2)
    assert (made - expected).abs().max() < error


def test_heun_gains_more_from_smaller_steps_than_euler():
    """Errors fall as 1/steps² and 1/steps."""

    def denoiser(x, sigma):
        return x * (0.16 / (0.16 + sigma**2))[:, None, None, None]

    code = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    exact = edm.SIGMA_MAX * 0.4 / math.sqrt(0.16 + edm.SIGMA_MAX**2)

    def error(kind, steps):
        return abs(float(edm.sample(denoiser, code, steps, kind)) - exact)

    assert error("ddim", 100) / error("ddim", 200) == pytest.approx(2, rel=0.15)
    assert error("heun", 100) / error("heun", 200) > 3.3


def test_synthesized_images_are_unit_pixels_of_the_asked_labels():
    model = small(steps=3)
    images, labels = synthesize(model, 8, torch.Generator().manual_seed(0), "cpu")
    assert images.shape == (8, 1, 8, 8)
    assert images.min() >= 0
    assert images.max() <= 1
    assert torch.bincount(labels).tolist() == [2] * 4


def test_guidance_moves_along_what_the_label_changes():
    model, x, sigma = small(steps=1), torch.randn(2, 64), torch.full((2,), 80.0)
    labels, told = torch.tensor([1, 2]), torch.eye(4)[[1, 2]]
    start = 80 * x.view(2, 1, 8, 8)
    with_label, without = (model.denoised(start, sigma, one) for one in (told, 0 * told))
    model.guidance = 1.5
    torch.testing.assert_close(
        model(x, labels), (with_label + 1.5 * (with_label - without)).clamp(-1, 1), rtol=0, atol=1e-4
    )


@pytest.fixture(scope="module")
def bench(script):
    return script("bench_diffusion")


@pytest.mark.parametrize("way", ["Opacus", "vmap", "rows"])
def test_one_gradient_per_image_is_that_of_a_loop(way, bench):
    if way == "Opacus":
        pytest.importorskip("opacus")
    model = small()
    images, labels = torch.rand(3, 1, 8, 8) * 2 - 1, torch.tensor([0, 3, 1])
    given = model.examples(images, labels, model.chance(3, 4, torch.Generator().manual_seed(1)))
    expected = bench.by_loop(model, given, 3)
    found = bench.WAYS[way](model, given, 3)
    assert bench.distance(found, expected) < 1e-5
    assert all(p.grad is None for p in model.parameters())


def test_rows_need_layers_that_know_them():
    network = nn.Sequential(Dense(3, 2), nn.Linear(2, 1))
    with (
        pytest.raises(ValueError, match="every parameter must be one of a layer"),
        one_row_per_image(network, torch.zeros(2, 11)),
    ):
        pass
    assert network[0].places is None
