"""The fused sort beside its twin in double precision, on the CPU by Triton's interpreter."""

import pytest
import torch

from dpot.kernels.sliced import sorted_difference
from dpot.transport import sliced


@pytest.mark.parametrize(("n", "q"), [(1, 2.0), (2, 1.0), (16, 1.5), (17, 2.0), (33, 3.0)])
def test_sorted_difference_agrees_with_its_twin(n, q):
    torch.manual_seed(n)
    x, y = torch.randn(2, 1, n), torch.randn(2, 1, n) * 2
    y[0, 0] = x[0, 0].flip(-1)  # equal up to order: value and gradient zero
    ours = sorted_difference(x, y, q, True, True)
    twin = sliced.sorted_difference(x.double(), y.double(), q, True, True)
    for mine, other in zip(ours, twin, strict=True):
        torch.testing.assert_close(mine.double(), other, rtol=2e-5, atol=1e-6)
    assert ours[0][0, 0] == 0
    assert torch.equal(sorted_difference(x, y, q, False, False)[0], ours[0])


def test_gradients_that_are_not_needed_are_not_made_and_nan_is_passed_on():
    x, y = torch.randn(2, 5), torch.randn(2, 5)
    x[1, 2] = float("nan")
    value, grad_x, grad_y = sorted_difference(x, y, 2.0, False, True)
    assert grad_x is None
    assert torch.isfinite(value[0])
    assert torch.isnan(value[1])
    assert torch.isfinite(grad_y[0]).all()
    assert torch.isnan(grad_y[1]).any()
