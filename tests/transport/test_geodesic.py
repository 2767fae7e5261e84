"""Points on geodesics, distances through a third measure, scores of single points, labelled data as points."""

import math

import geomloss
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpot.errors import UsageError
from dpot.transport.geodesic import (
    calibrated_gradients,
    interpolate,
    measure,
    scaled_back,
    sinkhorn_potential,
    spread,
    triangle_error_bound,
    wasserstein,
)
from dpot.transport.otdd import augmented


def cloud(n, d, seed, shift=0.0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + shift


@given(
    t=st.floats(0.05, 0.95),
    p=st.sampled_from([1.0, 2.0]),
    n=st.integers(2, 8),
    m=st.integers(2, 8),
    seed=st.integers(0, 99),
)
@settings(max_examples=25, deadline=None)
def test_a_constant_reference_shrinks_every_distance_alike(t, p, n, m, seed):
    x, y = measure(cloud(n, 3, seed)), measure(cloud(m, 3, seed + 1, 1.0), torch.rand(m).double() + 0.1)
    gamma = measure(torch.full((5, 3), 0.7, dtype=torch.float64))
    shrunk = wasserstein(interpolate(x, gamma, t, p), interpolate(y, gamma, t, p), p)
    assert scaled_back(shrunk, t, p, "right") == pytest.approx(wasserstein(x, y, p), rel=1e-9, abs=1e-12)


@given(t=st.floats(0.05, 0.95), p=st.sampled_from([1.0, 2.0]), sigma=st.floats(1e-3, 10.0), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_the_proved_bound_holds_for_any_reference(t, p, sigma, seed):
    x, y = measure(cloud(7, 4, seed)), measure(cloud(5, 4, seed + 1, 0.5))
    gamma = measure(sigma * cloud(6, 4, seed + 2))
    found = wasserstein(interpolate(x, gamma, t, p), interpolate(y, gamma, t, p), p) / (1 - t)
    assert abs(found - wasserstein(x, y, p)) <= triangle_error_bound(t, gamma, p) + 1e-9


def test_the_printed_scale_agrees_at_one_point_only():
    assert scaled_back(3.0, 0.5, 1.0, "printed") == scaled_back(3.0, 0.5, 1.0, "right") == 6.0
    assert scaled_back(3.0, 0.5, 2.0, "printed") == 12.0
    with pytest.raises(UsageError):
        scaled_back(3.0, 1.0, 2.0, "right")


def test_spread_is_the_root_mean_power_of_the_distance_to_the_mean():
    x = measure(torch.tensor([[0.0, 0.0], [2.0, 0.0]]).double(), torch.tensor([3.0, 1.0]).double())
    assert spread(x, 2.0) == pytest.approx(math.sqrt(0.75 * 0.25 + 0.25 * 2.25))
    assert spread(x, 1.0) == pytest.approx(0.75)


@pytest.mark.parametrize("support", ["barycentric", "mccann"])
def test_weights_are_carried_along(support):
    x = measure(cloud(4, 2, 0), torch.tensor([0.1, 0.2, 0.3, 0.4]).double())
    y = measure(cloud(6, 2, 1, 3.0))
    middle = interpolate(x, y, 0.25, 2.0, support)
    assert float(middle.weights.sum()) == pytest.approx(1)
    if support == "mccann":  # exactly on the geodesic
        assert wasserstein(x, middle) == pytest.approx(0.25 * wasserstein(x, y))
    else:
        torch.testing.assert_close(middle.weights, x.weights)


def test_potentials_are_geomloss_debiased_ones():
    x, y = measure(cloud(40, 3, 0)), measure(cloud(50, 3, 1, 1.0))
    blur = 0.5
    loss = geomloss.SamplesLoss("sinkhorn", p=2, blur=blur, scaling=0.95, potentials=True, backend="tensorized")
    reference, _ = loss(x.points, y.points)
    mine = sinkhorn_potential(x, y, blur, scaling=0.95)
    torch.testing.assert_close(mine - mine.mean(), (reference - reference.mean()).flatten(), rtol=0.02, atol=0.02)


def test_calibrated_gradients_point_at_what_does_not_belong():
    x, y = cloud(60, 5, 0), cloud(60, 5, 1)
    x[:6] += 6.0
    score = calibrated_gradients(measure(x), measure(y))
    assert set(score.topk(6).indices.tolist()) == set(range(6))
    f = sinkhorn_potential(measure(x), measure(y), 0.1**0.5)
    torch.testing.assert_close(score, (f - f.mean()) * 60 / 59)
    with pytest.raises(UsageError, match="one point"):
        calibrated_gradients(measure(x[:1]), measure(y))


def test_augmented_points_have_the_distance_of_diagonal_gaussians():
    x, labels = cloud(30, 3, 0), torch.arange(30) % 2
    z = augmented(x, labels, "class")
    a, b = x[labels == 0], x[labels == 1]
    expected = (
        (x[0] - x[1]).square().sum() + (a.mean(0) - b.mean(0)).square().sum() + (a.std(0) - b.std(0)).square().sum()
    )
    assert float((z[0] - z[1]).square().sum()) == pytest.approx(float(expected))
    assert torch.equal(augmented(x, labels, "none"), x)
    everywhere = augmented(x, None, "global")[:, 3:]
    assert torch.equal(everywhere[0], everywhere[7])
    with pytest.raises(UsageError):
        augmented(x, None, "class")


def test_a_class_of_one_record_has_no_spread():
    z = augmented(cloud(3, 2, 0), torch.tensor([0, 0, 1]), "class")
    assert torch.isfinite(z).all()
    assert torch.equal(z[2, 4:], torch.zeros(2).double())
