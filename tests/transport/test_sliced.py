"""Sliced distances against closed forms, POT and the properties of a distance."""

import math

import ot
import pytest
import torch

from dpot.errors import UsageError
from dpot.transport import (
    exact_wasserstein,
    gaussian_smoothed_sliced_wasserstein_power,
    max_sliced_wasserstein,
    project,
    projected_wasserstein_power,
    sliced_wasserstein,
    sliced_wasserstein_power,
    steepest_direction,
    uniform_directions,
    wasserstein_1d,
)
from dpot.transport.sliced import noisy_projections

ORDERS = [1.0, 1.5, 2.0, 3.0]


def cloud(n, d, seed, dtype=torch.float64):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def directions(k, d, seed=9, dtype=torch.float64):
    return uniform_directions(k, d, torch.Generator().manual_seed(seed), dtype=dtype)


def weights(n, seed):
    drawn = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.1
    return drawn / drawn.sum()


def test_noisy_projections_are_projections_plus_noise_with_the_gradient_of_projections():
    x, u = cloud(6, 5, 0).view(2, 3, 5).requires_grad_(), directions(40, 5)
    noise = torch.randn(40, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).view(40, 2, 3)
    ours = noisy_projections(x, u, 0.7, torch.Generator().manual_seed(3))
    expected = project(x, u) + 0.7 * noise
    torch.testing.assert_close(ours, expected)
    slope = torch.rand_like(expected)
    torch.testing.assert_close(torch.autograd.grad(ours, x, slope), torch.autograd.grad(expected, x, slope))


# closed forms


@pytest.mark.parametrize("q", ORDERS)
def test_two_diracs(q):
    x, y, u = cloud(1, 6, 0), cloud(1, 6, 1), directions(20, 6)
    expected = ((x - y) @ u.T).abs().pow(q).mean()
    torch.testing.assert_close(sliced_wasserstein_power(x, y, u, q), expected)


@pytest.mark.parametrize("q", ORDERS)
def test_translation_moves_every_projection_alike(q):
    x, u = cloud(17, 5, 0), directions(30, 5)
    shift = torch.linspace(-1, 2, 5, dtype=torch.float64)
    expected = (u @ shift).abs().pow(q).mean()
    torch.testing.assert_close(sliced_wasserstein_power(x, x + shift, u, q), expected)


@pytest.mark.parametrize("q", ORDERS)
def test_order_of_points_does_not_matter_and_equality_gives_zero(q):
    x, u = cloud(40, 7, 0), directions(25, 7)
    assert sliced_wasserstein_power(x[torch.randperm(40)], x, u, q) < 1e-12
    x, u = (8 * x).round(), torch.eye(7, dtype=torch.float64)  # whole numbers: the projections are exact
    shuffled = x[torch.randperm(40)].clone().requires_grad_()
    distance = sliced_wasserstein(shuffled, x, u, q)
    assert distance == 0
    distance.backward()
    assert torch.equal(shuffled.grad, torch.zeros_like(shuffled))


def test_gaussians_in_one_dimension():
    # W_2²(N(a, s²), N(b, t²)) = (a-b)² + (s-t)²; quantiles at (i-½)/n are samples without sampling error
    n = 20_000
    levels = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    normal = math.sqrt(2) * torch.erfinv(2 * levels - 1)
    value = wasserstein_1d(0.3 + 2 * normal, -0.5 + 0.7 * normal.flip(0), 2)
    assert abs(value - (0.8**2 + 1.3**2)) < 2e-3


def test_sliced_distance_between_isotropic_gaussians():
    # projections are Gaussian: SW_2² = ‖m‖²/d + (s-t)², by Monte Carlo over points and directions
    d, n = 4, 4000
    shift = torch.full((d,), 0.75, dtype=torch.float64)
    x, y = 1.5 * cloud(n, d, 0) + shift, 0.5 * cloud(n, d, 1)
    assert abs(sliced_wasserstein_power(x, y, directions(400, d)) - (shift.square().sum() / d + 1)) < 0.08


def test_unequal_sizes_by_hand():
    # {0, 1} against {0, 0, 3}: quantiles 0|0, then on (1/2, 2/3) 1|0, on (2/3, 1) 1|3
    x, y = torch.tensor([0.0, 1.0]), torch.tensor([3.0, 0.0, 0.0])
    torch.testing.assert_close(wasserstein_1d(x, y, 1), torch.tensor(1 / 6 + 2 / 3))
    torch.testing.assert_close(wasserstein_1d(x, y, 2), torch.tensor(1 / 6 + 4 / 3))


@pytest.mark.parametrize("q", ORDERS)
def test_repeating_points_equals_unequal_sizes_equals_weights(q):
    x, y, u = cloud(6, 3, 0), cloud(4, 3, 1), directions(15, 3)
    unequal = sliced_wasserstein_power(x, y, u, q)
    repeated = sliced_wasserstein_power(x.repeat(2, 1), y.repeat(3, 1), u, q)
    weighted = sliced_wasserstein_power(x, y, u, q, x_weights=torch.full((6,), 2.5, dtype=torch.float64))
    torch.testing.assert_close(unequal, repeated)
    torch.testing.assert_close(unequal, weighted)


def test_weight_zero_takes_a_point_out():
    x, y, u = cloud(6, 3, 0), cloud(5, 3, 1), directions(15, 3)
    without = sliced_wasserstein_power(x[:5], y, u)
    zero = torch.tensor([1.0, 1, 1, 1, 1, 0], dtype=torch.float64)
    torch.testing.assert_close(sliced_wasserstein_power(x, y, u, x_weights=zero), without)


# the reference library


@pytest.mark.parametrize("q", ORDERS)
@pytest.mark.parametrize(("n", "m", "weighted"), [(50, 50, False), (50, 33, False), (24, 31, True), (20, 20, True)])
def test_values_and_gradients_agree_with_pot(q, n, m, weighted):
    u = directions(40, 8)
    a, b = (weights(n, 3), weights(m, 4)) if weighted else (None, None)
    ours = [cloud(n, 8, 0).requires_grad_(), cloud(m, 8, 1).requires_grad_()]
    theirs = [z.detach().clone().requires_grad_() for z in ours]
    value = sliced_wasserstein(*ours, u, q, a, b)
    expected = ot.sliced_wasserstein_distance(*theirs, a, b, p=q, projections=u.T)
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=0)
    for mine, other in zip(torch.autograd.grad(value, ours), torch.autograd.grad(expected, theirs), strict=True):
        assert (mine - other).norm() <= 1e-4 * other.norm()


def test_float32_agrees_with_pot():
    x, y, u = cloud(64, 20, 0, torch.float32), cloud(64, 20, 1, torch.float32), directions(50, 20).float()
    expected = ot.sliced_wasserstein_distance(x, y, projections=u.T)
    torch.testing.assert_close(sliced_wasserstein(x, y, u), expected, rtol=1e-5, atol=0)


def test_max_sliced_agrees_with_pot():
    x, y, u = cloud(30, 6, 0), cloud(30, 6, 1) + 0.4, directions(50, 6)
    expected = ot.max_sliced_wasserstein_distance(x, y, projections=u.T)
    torch.testing.assert_close(max_sliced_wasserstein(x, y, u), expected, rtol=1e-5, atol=0)


# properties


@pytest.mark.parametrize("q", ORDERS)
@pytest.mark.parametrize("sizes", [(20, 20, 20), (20, 13, 7)])
def test_symmetry_and_triangle_inequality(q, sizes):
    u = directions(20, 4)
    for seed in range(5):
        x, y, z = (cloud(n, 4, 3 * seed + i) * (i + 1) for i, n in enumerate(sizes))
        xy, yz, xz = (sliced_wasserstein(a, b, u, q) for a, b in ((x, y), (y, z), (x, z)))
        torch.testing.assert_close(xy, sliced_wasserstein(y, x, u, q))
        assert xz <= xy + yz + 1e-12
        assert min(xy, yz, xz) > 0


@pytest.mark.parametrize("q", [1.0, 2.0, 2.5])
def test_sliced_below_exact_below_projected(q):
    x, y, u = cloud(15, 3, 0), cloud(15, 3, 1) + 0.5, directions(30, 3)
    exact = exact_wasserstein(x, y, q) ** q
    assert sliced_wasserstein_power(x, y, u, q) <= exact <= projected_wasserstein_power(x, y, u, q)


def test_projected_wasserstein_by_hand():
    # one direction, the first axis: the sorted coupling pairs (0,0)-(1,5) and (2,0)-(3,1)
    x, y = torch.tensor([[2.0, 0.0], [0.0, 0.0]]), torch.tensor([[1.0, 5.0], [3.0, 1.0]])
    value = projected_wasserstein_power(x, y, torch.tensor([[1.0, 0.0]]), 2)
    torch.testing.assert_close(value, torch.tensor((26.0 + 2.0) / 2))


def test_steepest_direction_finds_the_shifted_axis():
    x = cloud(200, 10, 0)
    y = cloud(200, 10, 1)
    y[:, 4] += 5
    start = directions(10, 10)
    best = steepest_direction(x, y, start)
    assert best[0, 4].abs() > 0.95
    assert max_sliced_wasserstein(x, y, best) >= max_sliced_wasserstein(x, y, start)


@pytest.mark.parametrize("q", ORDERS)
@pytest.mark.parametrize(("n", "m"), [(7, 7), (7, 4)])
def test_gradients_in_double_precision(q, n, m):
    x, y, u = cloud(n, 3, 0).requires_grad_(), cloud(m, 3, 1).requires_grad_(), directions(5, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, y, u: sliced_wasserstein_power(x, y, u, q), (x, y, u))
    assert torch.autograd.gradcheck(lambda x, y: sliced_wasserstein(x, y, u.detach(), q), (x, y))


def test_a_side_without_gradient_gets_none():
    x, y = cloud(5, 3, 0), cloud(5, 3, 1).requires_grad_()
    sliced_wasserstein_power(x, y, directions(4, 3)).backward()
    assert x.grad is None
    assert y.grad.abs().sum() > 0


def test_classes_are_solved_one_by_one_in_one_call():
    x, y, u = cloud(60, 5, 0).view(4, 15, 5), cloud(60, 5, 1).view(4, 15, 5), directions(12, 5)
    together = sliced_wasserstein_power(x.requires_grad_(), y, u)
    assert together.shape == (4,)
    alone = torch.stack([sliced_wasserstein_power(x[c], y[c], u) for c in range(4)])
    torch.testing.assert_close(together, alone)
    torch.testing.assert_close(torch.autograd.grad(together.sum(), x)[0], torch.autograd.grad(alone.sum(), x)[0])


# Gaussian smoothing (DP-SWD, Algorithm 1)


def test_smoothing_with_given_noise_is_the_distance_of_noisy_projections():
    x, y, u = cloud(20, 5, 0), cloud(20, 5, 1), directions(8, 5)
    v, w = cloud(8, 20, 2), cloud(8, 20, 3)
    value = gaussian_smoothed_sliced_wasserstein_power(x, y, u, 0.7, 2, noise=(v, w))
    expected = ot.wasserstein_1d((x @ u.T) + 0.7 * v.T, (y @ u.T) + 0.7 * w.T, p=2).mean()
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=0)
    assert gaussian_smoothed_sliced_wasserstein_power(x, y, u, 0.0) == sliced_wasserstein_power(x, y, u)


def test_smoothing_widens_two_diracs_to_two_gaussians():
    # n copies of one point, noise σ: the projected laws are N(⟨u,x⟩, σ²) and N(⟨u,y⟩, σ²), a pure translation
    x, y, u = torch.zeros(3000, 3), torch.tensor([[1.0, -2.0, 0.5]]).expand(3000, 3), directions(60, 3).float()
    drawn = gaussian_smoothed_sliced_wasserstein_power(x, y, u, 1.3, generator=torch.Generator().manual_seed(1))
    assert abs(drawn - (u @ y[0]).square().mean()) < 0.02
    again = gaussian_smoothed_sliced_wasserstein_power(x, y, u, 1.3, generator=torch.Generator().manual_seed(1))
    assert drawn == again


# refused input


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (torch.zeros(0, 3), torch.zeros(4, 3)),
        (torch.zeros(4, 3), torch.zeros(4, 2)),
        (torch.zeros(4), torch.zeros(4)),
        (torch.zeros(2, 4, 3), torch.zeros(3, 4, 3)),
        (torch.zeros(4, 3), torch.zeros(1, 4, 3)),
        (torch.zeros(4, 3, dtype=torch.long), torch.zeros(4, 3, dtype=torch.long)),
        (torch.zeros(4, 3), torch.zeros(4, 3, dtype=torch.float64)),
        (torch.tensor([[0.0, float("nan"), 0.0]]), torch.zeros(1, 3)),
        (torch.tensor([[0.0, float("inf"), 0.0]]), torch.zeros(1, 3)),
    ],
)
def test_points_that_do_not_fit_are_refused(x, y):
    with pytest.raises(UsageError):
        sliced_wasserstein_power(x, y, torch.eye(3))


def test_other_nonsense_is_refused():
    x = torch.zeros(4, 3)
    for call in (
        lambda: sliced_wasserstein_power(x, x, torch.eye(2)),
        lambda: sliced_wasserstein_power(x, x, torch.eye(3), q=0.5),
        lambda: sliced_wasserstein_power(x, x, torch.eye(3), q=float("nan")),
        lambda: sliced_wasserstein_power(x, x, torch.eye(3), x_weights=torch.ones(3)),
        lambda: sliced_wasserstein_power(x, x, torch.eye(3), x_weights=torch.tensor([1.0, 1, 1, -1])),
        lambda: sliced_wasserstein_power(x, x, torch.eye(3), x_weights=torch.zeros(4)),
        lambda: gaussian_smoothed_sliced_wasserstein_power(x, x, torch.eye(3), -1.0),
        lambda: gaussian_smoothed_sliced_wasserstein_power(x, x, torch.eye(3), 1.0, noise=(x, x)),
        lambda: projected_wasserstein_power(x, torch.zeros(5, 3), torch.eye(3)),
        lambda: wasserstein_1d(torch.zeros(2, 3), torch.zeros(3, 3)),
        lambda: wasserstein_1d(torch.zeros(0), torch.zeros(3)),
        lambda: project(x, torch.zeros(3)),
    ):
        with pytest.raises(UsageError):
            call()
