"""Directions: unit length, the law they claim, reproducible from a generator, refused when impossible."""

import math

import pytest
import torch

from dpot.errors import UsageError
from dpot.transport import (
    gabor_directions,
    given_directions,
    localised_directions,
    smoothed_directions,
    uniform_directions,
)

SHAPE = (1, 28, 28)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    "sample",
    [
        lambda g: uniform_directions(64, 30, g),
        lambda g: smoothed_directions(64, SHAPE, 1.5, g),
        lambda g: smoothed_directions(64, (3, 8, 12), 0.0, g),
        lambda g: localised_directions(64, SHAPE, 1.0, 3.0, 4.0, g),
        lambda g: gabor_directions(64, SHAPE, 3.0, 4.0, g),
        lambda g: gabor_directions(64, (3, 9, 12), 2.0, 0.0, g),
    ],
)
def test_rows_have_unit_length_and_follow_the_generator(sample):
    first, again, other = sample(generator()), sample(generator()), sample(generator(1))
    torch.testing.assert_close(first.norm(dim=1), torch.ones(64))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


def test_uniform_directions_have_the_beta_law_of_a_squared_coordinate():
    # ⟨z, u⟩² ~ Beta(1/2, (d-1)/2) for a fixed unit z: mean 1/d, variance 2(d-1)/(d²(d+2))
    d, k = 12, 40_000
    squares = uniform_directions(k, d, generator(), dtype=torch.float64)[:, 3].square()
    variance = 2 * (d - 1) / (d**2 * (d + 2))
    assert abs(squares.mean() - 1 / d) < 4 * math.sqrt(variance / k)
    assert abs(squares.var() - variance) < 0.1 * variance


def test_smoothing_correlates_neighbours_as_the_filter_says():
    # white noise through exp(-t²/2s²) has autocorrelation exp(-t²/4s²) away from the borders
    s, k = 1.5, 4000
    images = smoothed_directions(k, SHAPE, s, generator()).view(k, 28, 28)
    centre = images[:, 14, 14]
    for lag in (1, 2, 4):
        neighbour = images[:, 14, 14 + lag]
        correlation = (centre * neighbour).mean() / (centre.square().mean() * neighbour.square().mean()).sqrt()
        assert abs(correlation - math.exp(-(lag**2) / (4 * s**2))) < 0.05


def test_localised_directions_keep_their_energy_in_the_window_and_off_the_margin():
    images = localised_directions(200, SHAPE, 1.0, 2.0, 8.0, generator()).view(200, 28, 28)
    energy = images.square()
    rows = torch.arange(28.0)
    centre = (energy.sum(2) * rows).sum(1)
    spread = ((energy.sum(2) * (rows - centre[:, None]).square()).sum(1)).sqrt()
    assert spread.max() < 2.5  # a window of 2 pixels, energy is its square
    assert centre.min() > 6
    assert centre.max() < 21
    assert centre.std() > 1  # centres move


def test_gabor_directions_see_no_constant_and_one_frequency():
    window = 3.0
    drawn = gabor_directions(200, SHAPE, window, 6.0, generator()).view(200, 28, 28).double()
    assert float(drawn.sum((1, 2)).abs().max()) < 1e-4
    power = torch.fft.fft2(drawn).abs().square()
    cycles = torch.fft.fftfreq(28, dtype=torch.float64)
    speed = (cycles[:, None] ** 2 + cycles[None, :] ** 2).sqrt()
    mean = (power * speed).sum((1, 2)) / power.sum((1, 2))
    # waves of 1/8w to 1/2w cycles a pixel, widened by the window's own spectrum of about 1/(2πw)
    assert float(mean.min()) > 1 / (8 * window)
    assert float(mean.max()) < 1 / (2 * window) + 1 / (2 * math.pi * window)


def test_given_directions_are_scaled_and_keep_zero_rows():
    given = given_directions(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    torch.testing.assert_close(given, torch.tensor([[0.6, 0.8], [0.0, 0.0]]))


@pytest.mark.parametrize(
    "call",
    [
        lambda: uniform_directions(0, 3),
        lambda: uniform_directions(3, 0),
        lambda: smoothed_directions(3, SHAPE, -1.0),
        lambda: localised_directions(3, SHAPE, 1.0, 0.0),
        lambda: localised_directions(3, SHAPE, 1.0, 1.0, margin=14.0),
        lambda: given_directions(torch.full((2, 3), float("nan"))),
        lambda: given_directions(torch.ones(3)),
    ],
)
def test_impossible_directions_are_refused(call):
    with pytest.raises(UsageError):
        call()
