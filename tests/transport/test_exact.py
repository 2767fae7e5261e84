"""Exact transport and the measures in between: closed forms, POT's own values, geodesics."""

import ot
import pytest
import torch

from dpot.errors import UsageError
from dpot.transport import barycentric_interpolation, exact_plan, exact_wasserstein, interpolating_measure


def cloud(n, d, seed):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_translation_and_permutation(p):
    x = cloud(9, 4, 0)
    shift = torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64)
    torch.testing.assert_close(exact_wasserstein(x, x[torch.randperm(9)] + shift, p), shift.norm())
    moved = x[torch.randperm(9)].clone().requires_grad_()
    distance = exact_wasserstein(x, moved, p)
    assert distance == 0
    distance.backward()
    assert torch.equal(moved.grad, torch.zeros_like(moved))


@pytest.mark.parametrize(("p", "n", "m"), [(1.0, 10, 10), (2.0, 12, 7)])
def test_values_and_gradients_agree_with_pot(p, n, m):
    x, y = cloud(n, 3, 0).requires_grad_(), cloud(m, 3, 1).requires_grad_()
    a, b = torch.rand(n, dtype=torch.float64) + 0.1, torch.rand(m, dtype=torch.float64) + 0.1
    value = exact_wasserstein(x, y, p, a, b)
    reference = ot.emd2(a / a.sum(), b / b.sum(), torch.cdist(x, y) ** p) ** (1 / p)
    torch.testing.assert_close(value, reference, rtol=1e-9, atol=0)
    for mine, other in zip(torch.autograd.grad(value, (x, y)), torch.autograd.grad(reference, (x, y)), strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("scale", [1e-8, 1e-4, 1e6])
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_units_do_not_matter(p, scale):
    x, y = cloud(33, 5, 0), cloud(17, 5, 1) + 0.7
    torch.testing.assert_close(exact_wasserstein(scale * x, scale * y, p), scale * exact_wasserstein(x, y, p))


def test_plan_has_the_marginals():
    a = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    plan = exact_plan(cloud(3, 2, 0), cloud(5, 2, 1), x_weights=a * 8)
    torch.testing.assert_close(plan.sum(1), a)
    torch.testing.assert_close(plan.sum(0), torch.full((5,), 0.2, dtype=torch.float64))


def test_symmetry_and_triangle_inequality():
    x, y, z = cloud(8, 3, 0), cloud(11, 3, 1), cloud(6, 3, 2)
    torch.testing.assert_close(exact_wasserstein(x, y), exact_wasserstein(y, x))
    assert exact_wasserstein(x, z) <= exact_wasserstein(x, y) + exact_wasserstein(y, z)


@pytest.mark.parametrize("p", [1.0, 2.0])
@pytest.mark.parametrize("t", [0.0, 0.3, 1.0])
def test_mccann_interpolation_lies_on_the_geodesic(p, t):
    x, y = cloud(9, 3, 0), cloud(6, 3, 1) + 1
    middle, weights = interpolating_measure(x, y, t, p)
    assert len(middle) <= 9 + 6 - 1
    total = exact_wasserstein(x, y, p)
    torch.testing.assert_close(exact_wasserstein(x, middle, p, y_weights=weights), t * total)
    torch.testing.assert_close(exact_wasserstein(middle, y, p, x_weights=weights), (1 - t) * total)


def test_barycentric_interpolation_is_mccanns_for_a_permutation():
    x, y = cloud(7, 3, 0), cloud(7, 3, 1)
    middle, weights = barycentric_interpolation(x, y, 0.4)
    torch.testing.assert_close(weights, torch.full((7,), 1 / 7, dtype=torch.float64))
    assert exact_wasserstein(middle, interpolating_measure(x, y, 0.4).points) < 1e-12


def test_barycentric_interpolation_averages_what_a_point_is_sent_to():
    x, y = torch.zeros(1, 2), torch.tensor([[2.0, 0.0], [0.0, 4.0]])
    torch.testing.assert_close(barycentric_interpolation(x, y, 0.5).points, torch.tensor([[0.5, 1.0]]))


def test_nonsense_is_refused():
    x = cloud(3, 2, 0)
    for call in (
        lambda: exact_wasserstein(x, cloud(3, 3, 0)),
        lambda: exact_wasserstein(x, x[:0]),
        lambda: exact_wasserstein(x * float("nan"), x),
        lambda: exact_wasserstein(x, x, p=0.9),
        lambda: interpolating_measure(x, x, 1.2),
        lambda: barycentric_interpolation(x, x, -0.1),
    ):
        with pytest.raises(UsageError):
            call()
