"""Sinkhorn losses against geomloss (the annealed schedule), POT and closed forms (at convergence)."""

import itertools
import math

import ot
import pytest
import torch
from geomloss import SamplesLoss

from dpot.errors import UsageError
from dpot.transport import (
    Converged,
    annealed_temperatures,
    bounding_box_diameter,
    exact_wasserstein,
    fresh_rows,
    joint_points,
    semi_debiased_sinkhorn,
    sinkhorn_cost,
    sinkhorn_divergence,
)

MNIST_DIAMETER = math.sqrt(4 * 784 + 15**2 * 10)


def cloud(n, d, seed, dtype=torch.float64):
    return torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype) * 2 - 1


def digits(n, seed, dtype=torch.float64):
    """Points as DP-Sinkhorn joins them: sparse bright pixels on a background of -1, and 15·onehot."""
    source = torch.Generator().manual_seed(seed)
    pixels = (torch.rand(n, 784, generator=source, dtype=dtype) * 6 - 4).clamp(min=-1, max=1)
    return joint_points(pixels.view(n, 1, 28, 28), torch.randint(10, (n,), generator=source), 10)


def mixed_cost(l2, l1):
    """The ground cost as geomloss takes it, written out on the tensor of differences."""

    def cost(x, y):
        difference = x.unsqueeze(-2) - y.unsqueeze(-3)
        return l2 * difference.square().sum(-1) + l1 * difference.abs().sum(-1)

    return cost


def geomloss_value_and_gradients(x, y, a=None, b=None, **options):
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    loss = SamplesLoss("sinkhorn", backend="tensorized", **options)
    value = loss(x, y) if a is None else loss(a, x, b, y)
    return value.detach(), torch.autograd.grad(value, (x, y))


def value_and_gradients(loss, x, y):
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    value = loss(x, y)
    return value.detach(), torch.autograd.grad(value, (x, y))


def assert_same(ours, theirs, value_tolerance=1e-5, gradient_tolerance=1e-4):
    torch.testing.assert_close(ours[0], theirs[0], rtol=value_tolerance, atol=0)
    for mine, other in zip(ours[1], theirs[1], strict=True):
        assert (mine - other).norm() <= gradient_tolerance * other.norm()


# the annealed schedule, against geomloss


@pytest.mark.parametrize(("diameter", "blur", "power", "steps"), [(73.4, 0.05, 1, 13), (113.0, 5.0, 2, 7)])
def test_number_of_steps_is_that_of_the_papers_settings(diameter, blur, power, steps):
    temperatures = annealed_temperatures(diameter, blur, power)
    assert len(temperatures) == steps
    assert temperatures[:2] == pytest.approx([diameter**power] * 2)
    assert temperatures[-1] == blur**power
    assert all(a / b == pytest.approx(2**power) for a, b in itertools.pairwise(temperatures[1:-1]))


@pytest.mark.parametrize("m", [1.0, 3.0])
def test_dp_sinkhorns_loss_agrees_with_geomloss(m):
    x, y = digits(50, 0), digits(50, 1)
    diameter = bounding_box_diameter(x, y)
    assert diameter <= MNIST_DIAMETER + 1e-9
    theirs = geomloss_value_and_gradients(x, y, p=1, blur=0.05, debias=False, cost=mixed_cost(1, m))
    temperatures = annealed_temperatures(diameter, 0.05)
    ours = value_and_gradients(lambda x, y: sinkhorn_cost(x, y, temperatures, l1=m), x, y)
    assert_same(ours, theirs)
    single = sinkhorn_cost(x.float(), y.float(), temperatures, l1=m)
    torch.testing.assert_close(single.double(), theirs[0], rtol=3e-4, atol=0)


def test_a_fixed_diameter_gives_geomloss_with_that_diameter():
    x, y = digits(30, 0), digits(20, 1)
    theirs = geomloss_value_and_gradients(
        x, y, p=1, blur=0.05, debias=False, cost=mixed_cost(1, 1), diameter=MNIST_DIAMETER
    )
    temperatures = annealed_temperatures(MNIST_DIAMETER, 0.05)
    assert_same(value_and_gradients(lambda x, y: sinkhorn_cost(x, y, temperatures, l1=1), x, y), theirs)


def test_half_the_squared_distance_is_geomloss_own_cost():
    x, y = cloud(40, 12, 0), cloud(25, 12, 1)
    theirs = geomloss_value_and_gradients(x, y, p=2, blur=0.3, debias=False)
    temperatures = annealed_temperatures(bounding_box_diameter(x, y), 0.3, power=2)
    assert_same(value_and_gradients(lambda x, y: sinkhorn_cost(x, y, temperatures, l2=0.5), x, y), theirs)


def test_weights_agree_with_geomloss_and_zero_removes_a_point():
    x, y = cloud(20, 6, 0), cloud(15, 6, 1)
    a, b = (torch.rand(n, generator=torch.Generator().manual_seed(n), dtype=torch.float64) + 0.1 for n in (20, 15))
    a, b = a / a.sum(), b / b.sum()
    theirs = geomloss_value_and_gradients(x, y, a, b, p=2, blur=0.3, debias=False)
    temperatures = annealed_temperatures(bounding_box_diameter(x, y), 0.3, power=2)
    ours = value_and_gradients(
        lambda x, y: sinkhorn_cost(x, y, temperatures, l2=0.5, x_weights=a * 7, y_weights=b), x, y
    )
    assert_same(ours, theirs)
    padded = torch.cat((x, torch.full((3, 6), 9.0, dtype=torch.float64)))
    ones = torch.tensor([1.0] * 20 + [0.0] * 3, dtype=torch.float64)
    torch.testing.assert_close(
        sinkhorn_cost(padded, y, temperatures, x_weights=ones), sinkhorn_cost(x, y, temperatures)
    )


@pytest.mark.parametrize(("n", "m"), [(30, 30), (30, 17)])
def test_debiased_divergence_agrees_with_geomloss(n, m):
    x, y = cloud(n, 10, 0), cloud(m, 10, 1) * 0.5
    theirs = geomloss_value_and_gradients(x, y, p=2, blur=0.5, debias=True)
    temperatures = annealed_temperatures(bounding_box_diameter(x, y), 0.5, power=2)
    assert_same(value_and_gradients(lambda x, y: sinkhorn_divergence(x, y, temperatures, l2=0.5), x, y), theirs)


@pytest.mark.parametrize("fraction", [0.0, 0.2, 0.4, 1.0])
@pytest.mark.parametrize("real_rows", [20, 14])
def test_semi_debiased_loss_is_two_geomloss_terms(fraction, real_rows):
    n = 20
    renewed = fresh_rows(n, fraction)
    generated, real = cloud(n + renewed, 12, 0), cloud(real_rows, 12, 1)
    loss = SamplesLoss(
        "sinkhorn", p=1, blur=0.05, debias=False, backend="tensorized", diameter=9.0, cost=mixed_cost(1, 2)
    )
    g = generated.clone().requires_grad_()
    expected = 2 * loss(g[:n], real) - loss(g[:n], g[renewed:])
    (expected_gradient,) = torch.autograd.grad(expected, g)
    fresh = generated[n:].clone().requires_grad_() if renewed else None
    mine = generated[:n].clone().requires_grad_()
    value = semi_debiased_sinkhorn(mine, fresh, real, annealed_temperatures(9.0, 0.05), l1=2)
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=0)
    gradients = torch.autograd.grad(value, (mine, fresh) if renewed else (mine,))
    assert (torch.cat(gradients) - expected_gradient).norm() <= 1e-4 * expected_gradient.norm()


def test_semi_debiasing_leaves_the_real_rows_out_of_the_debias_term():
    # the whole dependence on the real batch is 2·W(X, Y): this is what makes sanitising one term enough
    generated, fresh, temperatures = cloud(10, 4, 0), cloud(4, 4, 3), annealed_temperatures(6.0, 0.5)
    values = [
        semi_debiased_sinkhorn(generated, fresh, real, temperatures) - 2 * sinkhorn_cost(generated, real, temperatures)
        for real in (cloud(10, 4, 1), cloud(10, 4, 2))
    ]
    torch.testing.assert_close(values[0], values[1])


# convergence, against POT and closed forms


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_converged_value_and_gradient_agree_with_pot(epsilon):
    x, y = cloud(25, 3, 0), cloud(18, 3, 1)
    cost = torch.cdist(x, y) ** 2
    a, b = torch.full((25,), 1 / 25, dtype=torch.float64), torch.full((18,), 1 / 18, dtype=torch.float64)
    plan = ot.bregman.sinkhorn_log(a, b, cost, epsilon, numItermax=100_000, stopThr=1e-12)
    divergence = (plan * (plan / (a[:, None] * b)).log()).nan_to_num().sum()
    expected = (plan * cost).sum() + epsilon * divergence
    gradient_x = 2 * (plan.sum(1, keepdim=True) * x - plan @ y)
    gradient_y = 2 * (plan.sum(0)[:, None] * y - plan.T @ x)
    rule = Converged(epsilon, tolerance=1e-10, max_iterations=100_000)
    ours = value_and_gradients(lambda x, y: sinkhorn_cost(x, y, rule), x, y)
    assert_same(ours, (expected, (gradient_x, gradient_y)))


@pytest.mark.parametrize("schedule", [annealed_temperatures(20.0, 0.1), Converged(0.1)])
def test_two_diracs_cost_their_distance(schedule):
    x, y = cloud(1, 5, 0), cloud(1, 5, 1)
    expected = (x - y).square().sum() + 3 * (x - y).abs().sum()
    torch.testing.assert_close(sinkhorn_cost(x, y, schedule, l1=3), expected)


def test_permutation_and_translation_at_low_temperature():
    # far apart points: the plan is the permutation, so KL = log n, which cancels in the debiased sum
    x = 10 * torch.eye(6, dtype=torch.float64)
    shift = torch.full((6,), 0.5, dtype=torch.float64)
    y = x[torch.randperm(6)] + shift
    rule = Converged(0.05)
    torch.testing.assert_close(sinkhorn_divergence(x, y, rule), shift.square().sum())
    torch.testing.assert_close(sinkhorn_cost(x, y, rule), shift.square().sum() + 0.05 * math.log(6))


def test_low_temperature_tends_to_exact_transport():
    x, y = cloud(12, 2, 0), cloud(12, 2, 1)
    exact = exact_wasserstein(x, y) ** 2
    errors = [abs(sinkhorn_divergence(x, y, Converged(e, 1e-4)) - exact) / exact for e in (0.3, 0.1, 0.01)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.02


def test_entropic_cost_between_gaussians():
    # Janati et al. 2020, Theorem 1 in one dimension, N(0, s²) and N(m, t²), ε = 2σ², D = √(4s²t² + σ⁴):
    # W = m² + s² + t² - D + σ²(1 - log 2σ² + log(D + σ²)); quantile points stand for the laws
    n, s, t, mean, epsilon = 400, 1.0, 0.6, 0.7, 0.5
    levels = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    normal = (math.sqrt(2) * torch.erfinv(2 * levels - 1)).unsqueeze(1)
    variance = epsilon / 2
    d = math.sqrt(4 * s**2 * t**2 + variance**2)
    expected = mean**2 + s**2 + t**2 - d + variance * (1 - math.log(2 * variance) + math.log(d + variance))
    value = sinkhorn_cost(s * normal, t * normal + mean, Converged(epsilon, 1e-8))
    assert abs(value - expected) < 5e-3 * expected


@pytest.mark.parametrize("l1", [0.0, 1.0])
def test_divergence_is_symmetric_positive_and_zero_at_equality(l1):
    rule = Converged(0.5, 1e-9)
    x, y = cloud(14, 4, 0), cloud(14, 4, 1)
    forward, backward = sinkhorn_divergence(x, y, rule, l1=l1), sinkhorn_divergence(y, x, rule, l1=l1)
    torch.testing.assert_close(forward, backward)
    assert forward > 0
    assert abs(sinkhorn_divergence(x, x[torch.randperm(14)], rule, l1=l1)) < 1e-7
    temperatures = annealed_temperatures(8.0, 0.3)
    torch.testing.assert_close(sinkhorn_cost(x, y, temperatures, 1, l1), sinkhorn_cost(y, x, temperatures, 1, l1))


@pytest.mark.parametrize("l1", [0.0, 0.7])
def test_envelope_gradient_is_the_derivative_at_convergence(l1):
    rule = Converged(0.4, 1e-12, 100_000)
    x, y = cloud(6, 3, 0).requires_grad_(), cloud(5, 3, 1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, y: sinkhorn_cost(x, y, rule, l1=l1), (x, y))
    assert torch.autograd.gradcheck(lambda x, y: sinkhorn_divergence(x, y, rule, l1=l1), (x, y))


def test_a_batch_is_solved_as_its_problems_one_by_one():
    x, y = cloud(24, 5, 0).view(3, 8, 5), cloud(30, 5, 1).view(3, 10, 5)
    temperatures = annealed_temperatures(9.0, 0.1)
    together = sinkhorn_cost(x.requires_grad_(), y, temperatures, l1=1)
    alone = torch.stack([sinkhorn_cost(x[i], y[i], temperatures, l1=1) for i in range(3)])
    torch.testing.assert_close(together, alone)
    slope = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    torch.testing.assert_close(torch.autograd.grad(together @ slope, x)[0], torch.autograd.grad(alone @ slope, x)[0])


def test_joint_points_put_different_labels_far_apart():
    images = torch.zeros(3, 1, 2, 2)
    points = joint_points(images, torch.tensor([0, 1, 1]), 4)
    assert points.shape == (3, 8)
    torch.testing.assert_close(torch.cdist(points, points)[0], torch.tensor([0, 1, 1]) * 15 * math.sqrt(2))


def test_diameter_of_the_bounding_box():
    x, y = torch.tensor([[0.0, 0.0], [1.0, 2.0]]), torch.tensor([[3.0, -2.0]])
    assert bounding_box_diameter(x, y) == 5


# refused input


def test_nonsense_is_refused():
    x, good = torch.zeros(4, 3), annealed_temperatures(2.0, 0.1)
    for call in (
        lambda: sinkhorn_cost(torch.zeros(0, 3), x, good),
        lambda: sinkhorn_cost(torch.full((4, 3), float("nan")), x, good),
        lambda: sinkhorn_cost(torch.zeros(4, 2), x, good),
        lambda: sinkhorn_cost(x, x, ()),
        lambda: sinkhorn_cost(x, x, (1.0, -1.0)),
        lambda: sinkhorn_cost(x, x, (1.0, float("nan"))),
        lambda: sinkhorn_cost(x, x, good, l2=0, l1=0),
        lambda: sinkhorn_cost(x, x, good, l1=-1),
        lambda: sinkhorn_cost(x, x, good, x_weights=torch.ones(5)),
        lambda: sinkhorn_cost(cloud(5, 3, 0), cloud(5, 3, 1), Converged(1e-3, 1e-12, max_iterations=3)),
        lambda: semi_debiased_sinkhorn(x, torch.zeros(5, 3), x, good),
        lambda: fresh_rows(10, 1.5),
        lambda: annealed_temperatures(0.0, 0.1),
        lambda: annealed_temperatures(1.0, 0.0),
        lambda: annealed_temperatures(1.0, 0.1, scaling=1.0),
        lambda: joint_points(torch.zeros(3, 4), torch.zeros(2), 10),
    ):
        with pytest.raises(UsageError):
            call()
