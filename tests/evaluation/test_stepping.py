"""Epochs of steps: every row once, and captured steps equal to plain ones."""

import pytest
import torch
from torch import nn

from dpot.evaluation import classifiers
from dpot.evaluation.stepping import Epochs


def trained(device, optimiser, epochs=4, capture=True):
    torch.manual_seed(0)
    x = torch.randn(70, 5, generator=torch.Generator().manual_seed(1)).to(device)
    y = (x[:, 0] > 0).long()
    network = nn.Linear(5, 2).to(device)
    steps = Epochs(
        lambda rows: nn.functional.cross_entropy(network(x.index_select(0, rows)), y.index_select(0, rows)),
        optimiser(network.parameters()),
        16,  # four whole batches and a rest of six
        torch.device(device),
    )
    steps._captures = steps._captures and capture
    generator = torch.Generator().manual_seed(2)
    losses = [steps.run(torch.randperm(70, generator=generator).to(device)) for _ in range(epochs)]
    return losses, [p.detach().cpu() for p in network.parameters()], steps


def test_an_epoch_is_a_plain_loop_over_the_batches():
    losses, weights, _ = trained("cpu", lambda p: torch.optim.SGD(p, lr=0.1))
    torch.manual_seed(0)
    x = torch.randn(70, 5, generator=torch.Generator().manual_seed(1))
    y, network = (x[:, 0] > 0).long(), nn.Linear(5, 2)
    generator, expected = torch.Generator().manual_seed(2), []
    for _ in range(4):
        total = 0.0
        for rows in torch.randperm(70, generator=generator).split(16):
            loss = nn.functional.cross_entropy(network(x[rows]), y[rows])
            gradients = torch.autograd.grad(loss, list(network.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(network.parameters(), gradients, strict=True):
                    parameter -= 0.1 * gradient
            total += loss.item() * len(rows)
        expected.append(total / 70)
    assert losses == pytest.approx(expected, rel=1e-6)
    for ours, theirs in zip(weights, network.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs.detach())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    "optimiser",
    [
        lambda p: classifiers.adam(p, 1e-2, torch.device("cuda")),
        lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9),
    ],
)
def test_captured_steps_are_the_plain_ones(optimiser):
    captured, weights, steps = trained("cuda", optimiser)
    plain, expected, _ = trained("cuda", optimiser, capture=False)
    assert steps._graph is not None
    assert captured == pytest.approx(plain, rel=1e-5)
    for ours, theirs in zip(weights, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
