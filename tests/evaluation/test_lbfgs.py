"""L-BFGS against solved problems and scipy's."""

import numpy as np
import pytest
import scipy.optimize
import torch

from dpot.evaluation.lbfgs import direction, minimise
from dpot.evaluation.stepping import side_by_side


def found(loss, start, **options):
    settings = {"max_iter": 2000, "tolerance": 1e-7} | options
    return side_by_side([minimise(loss, start, **settings)], start.device)[0]


@pytest.mark.parametrize("condition", [1.0, 1e2, 1e4])
def test_quadratics_are_solved(condition):
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(30, 30, generator=generator, dtype=torch.float64))[0]
    matrix = basis @ torch.diag(torch.logspace(0, np.log10(condition), 30, dtype=torch.float64)) @ basis.T
    target = torch.randn(30, generator=generator, dtype=torch.float64)
    solution = found(lambda w: 0.5 * w @ matrix @ w - target @ w, torch.zeros(30, dtype=torch.float64))
    torch.testing.assert_close(solution, torch.linalg.solve(matrix, target), atol=1e-6, rtol=0)


def test_rosenbrock_ends_where_scipy_ends():
    def loss(w):
        return (100 * (w[1:] - w[:-1] ** 2) ** 2 + (1 - w[:-1]) ** 2).sum()

    start = torch.full((6,), -1.2, dtype=torch.float64)
    theirs = scipy.optimize.minimize(scipy.optimize.rosen, start.numpy(), method="BFGS")
    ours = found(loss, start)
    assert scipy.optimize.rosen(ours.numpy()) <= theirs.fun + 1e-8


def test_the_direction_is_minus_the_inverse_hessian_estimate_times_the_gradient():
    rng = np.random.default_rng(0)
    memory, size = 3, 5
    root = rng.normal(size=(size, size))
    steps = rng.normal(size=(memory, size))
    changes = steps @ (root @ root.T + np.eye(size))  # of a quadratic: s·y > 0
    gradient = rng.normal(size=size)
    rows = np.vstack([steps, changes, gradient])
    slots = [1, 2, 0]  # oldest first
    newest = slots[-1]
    inverse = np.eye(size) * (steps[newest] @ changes[newest]) / (changes[newest] @ changes[newest])
    for slot in slots:  # the BFGS update itself
        s, y = steps[slot], changes[slot]
        left = np.eye(size) - np.outer(s, y) / (y @ s)
        inverse = left @ inverse @ left.T + np.outer(s, s) / (y @ s)
    mix = direction(rows @ rows.T, slots, memory)
    np.testing.assert_allclose(mix @ rows, -inverse @ gradient, rtol=1e-9)
    np.testing.assert_allclose(direction(rows @ rows.T, [], memory) @ rows, -gradient)


def test_it_ends_at_the_tolerance_the_number_of_iterations_or_where_rounding_hides_all_progress():
    def loss(w):
        return (w - 3).square().sum()

    start = torch.zeros(4)
    assert torch.equal(found(loss, start, max_iter=0), start)
    assert (found(loss, start, tolerance=100.0) == start).all()
    assert (found(lambda w: loss(w) + 1e6, start, tolerance=0.0) - 3).abs().max() < 1
    torch.testing.assert_close(found(loss, start, tolerance=0.0), torch.full((4,), 3.0))
