"""The fused Sinkhorn beside its twins in double precision, on the CPU by Triton's interpreter."""

import pytest
import torch

from dpot.kernels import sinkhorn as kernels
from dpot.transport import annealed_temperatures, semi_debiased_sinkhorn, sinkhorn, solvers
from dpot.transport.sinkhorn import padded_debiased


def double(tensor):
    return None if tensor is None else tensor.double()


def log_weights(batch, n):
    weights = torch.rand(batch, n) + 0.05
    weights[:, 0] = 0  # a padded point
    return (weights / weights.sum(-1, keepdim=True)).log()


# resident (padded to at most 64×128) and streamed sizes, edges, one point, batches; few, since it is slow
PROBLEMS = [
    (1, 20, 20, 70, 0.0, False),
    (2, 7, 13, 33, 2.0, True),
    (2, 1, 5, 3, 1.0, False),
    (1, 65, 130, 5, 1.0, True),
]


@pytest.mark.parametrize(("batch", "n", "m", "d", "l1", "weighted"), PROBLEMS)
def test_sinkhorn_kernels_agree_with_their_twins(batch, n, m, d, l1, weighted):
    torch.manual_seed(n * m + d)
    x, y, slope = torch.rand(batch, n, d) * 2 - 1, torch.rand(batch, m, d) * 2 - 1, torch.randn(batch)
    log_a, log_b = (log_weights(batch, n), log_weights(batch, m)) if weighted else (None, None)
    temperatures = annealed_temperatures(2 * d**0.5, 0.5, scaling=0.25)

    cost = kernels.ground_cost(x, y, 1.0, l1)
    expected_cost = solvers.ground_cost(x.double(), y.double(), 1.0, l1)
    torch.testing.assert_close(cost.double(), expected_cost, rtol=1e-5, atol=1e-5)

    solution = solvers.Potentials(*kernels.annealed_potentials(cost, temperatures, log_a, log_b))
    expected = solvers.annealed_potentials(expected_cost, temperatures, double(log_a), double(log_b))
    for ours, twin in zip(solution, expected, strict=True):
        assert (ours - twin).norm() <= 1e-5 * twin.norm()

    constants = (temperatures[-1], 1.0, l1)
    for ours, twin in (
        (
            kernels.envelope_gradient(x, y, cost, solution.f, solution.g_before, *constants, log_a, log_b, slope),
            solvers.envelope_gradient(
                x.double(), y.double(), expected_cost, expected.f, expected.g_before, *constants,
                double(log_a), double(log_b), slope.double(),
            ),
        ),
        (
            kernels.envelope_gradient(y, x, cost.mT, solution.g, solution.f_before, *constants, log_b, log_a, slope),
            solvers.envelope_gradient(
                y.double(), x.double(), expected_cost.mT, expected.g, expected.f_before, *constants,
                double(log_b), double(log_a), slope.double(),
            ),
        ),
    ):  # fmt: skip
        assert (ours - twin).norm() <= 1e-4 * twin.norm()


@pytest.mark.parametrize("padded", [False, True])
def test_the_padded_loss_by_kernels_is_the_semi_debiased_one(padded, monkeypatch):
    monkeypatch.setattr(sinkhorn, "fits_kernel", lambda x, y: x.dtype == torch.float32)
    torch.manual_seed(0)
    n, renewed, d = 9, 4, 20
    x, fresh, real = torch.rand(n, d), torch.rand(renewed, d), torch.rand(n + 3 * padded, d)
    temperatures = annealed_temperatures(2 * d**0.5, 0.5, scaling=0.25)
    points = torch.cat([x, fresh]).requires_grad_()
    extra = {}
    if padded:  # two real rows and what fills X' up weigh nothing
        counted = torch.ones(2, n + 3)
        counted[0, 7:9] = counted[1, n:] = 0
        weights = torch.full((2, n), 1 / n).log(), (counted / counted.sum(1, keepdim=True)).log()
        extra = {"padding": torch.zeros(3, d), "log_weights": weights}
    loss = padded_debiased(points, n, real, temperatures, 1.0, 1.0, **extra)
    loss.backward()
    ours, again = x.double().requires_grad_(), fresh.double().requires_grad_()
    kept = real.double()[[0, 1, 2, 3, 4, 5, 6, 9, 10, 11]] if padded else real.double()
    expected = semi_debiased_sinkhorn(ours, again, kept, temperatures, 1.0, 1.0)
    expected.backward()
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-5)
    wanted = torch.cat([ours.grad, again.grad])
    assert (points.grad.double() - wanted).norm() <= 1e-4 * wanted.norm()


def test_one_cloud_against_many_needs_no_copy():
    x, y = torch.rand(1, 9, 12), torch.rand(3, 11, 12)
    expected = solvers.ground_cost(x.expand(3, 9, 12), y, 1.0, 1.0)
    torch.testing.assert_close(kernels.ground_cost(x.expand(3, 9, 12), y, 1.0, 1.0), expected)
