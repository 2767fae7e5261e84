"""The weighted backward pass against that of the sum itself."""

import torch

from dpot.training.backward import weighted_backward


def test_it_leaves_the_gradients_of_the_weighted_sum():
    weight, bias = torch.randn(3, 4, requires_grad=True), torch.randn(3, requires_grad=True)
    x = torch.randn(5, 4)

    def losses():
        out = x @ weight.T + bias
        return out.square().mean(), out.sigmoid().sum()

    weighted_backward(torch.device("cpu"), 1.0, 0.05)(*losses())
    first, second = losses()
    expected = torch.autograd.grad(first + 0.05 * second, [weight, bias])
    torch.testing.assert_close([weight.grad, bias.grad], list(expected))
