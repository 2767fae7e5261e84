"""Small trainings: every row once, captured steps equal to plain ones, none disturbed by those beside it."""

import pytest
import torch
from torch import nn

from dpot.evaluation import classifiers
from dpot.evaluation.downstream import Downstream
from dpot.evaluation.stepping import TURN, Epochs, Fit, side_by_side

ROWS = 16 * (2 * TURN + 3) + 6  # whole turns of batches, three batches more, and a rest


def trained(device, optimiser, epochs=4, capture=True):
    torch.manual_seed(0)
    x = torch.randn(ROWS, 5, generator=torch.Generator().manual_seed(1)).to(device)
    y = (x[:, 0] > 0).long()
    network = nn.Linear(5, 2).to(device)
    steps = Epochs(
        lambda rows: nn.functional.cross_entropy(network(x.index_select(0, rows)), y.index_select(0, rows)),
        optimiser(network.parameters()),
        16,
        torch.device(device),
    )
    for part in (steps.next, steps.turn):
        part.captures = part.captures and capture
    generator = torch.Generator().manual_seed(2)

    def fit() -> Fit[list[float]]:
        losses = []
        for _ in range(epochs):
            losses.append((yield from steps.run(torch.randperm(ROWS, generator=generator).to(device))))
        return losses

    (losses,) = side_by_side([fit()], torch.device(device))
    return losses, [p.detach().cpu() for p in network.parameters()], steps


def test_an_epoch_is_a_plain_loop_over_the_batches():
    losses, weights, _ = trained("cpu", lambda p: torch.optim.SGD(p, lr=0.1))
    torch.manual_seed(0)
    x = torch.randn(ROWS, 5, generator=torch.Generator().manual_seed(1))
    y, network = (x[:, 0] > 0).long(), nn.Linear(5, 2)
    generator, expected = torch.Generator().manual_seed(2), []
    for _ in range(4):
        total = 0.0
        for rows in torch.randperm(ROWS, generator=generator).split(16):
            loss = nn.functional.cross_entropy(network(x[rows]), y[rows])
            gradients = torch.autograd.grad(loss, list(network.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(network.parameters(), gradients, strict=True):
                    parameter -= 0.1 * gradient
            total += loss.item() * len(rows)
        expected.append(total / ROWS)
    assert losses == pytest.approx(expected, rel=1e-6)
    for ours, theirs in zip(weights, network.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs.detach())


def test_results_come_in_order_and_fits_are_asked_for_when_there_is_room():
    asked = []

    def fits():
        for number in range(3):
            asked.append(number)
            yield drawing(number)

    def drawing(number) -> Fit[tuple[int, float]]:
        torch.manual_seed(number)
        yield
        assert asked == list(range(number + 1))  # on a CPU the next is asked for when this one is done
        return number, float(torch.rand(()))

    torch.manual_seed(9)
    expected = torch.rand(2)[1]
    torch.manual_seed(9)
    torch.rand(1)
    results = side_by_side(fits(), torch.device("cpu"))
    assert torch.rand(()) == expected  # what a fit does to the global generator stays with it
    for number, drawn in results:
        torch.manual_seed(number)
        assert drawn == float(torch.rand(()))
    assert [number for number, _ in results] == [0, 1, 2]


def judged(device, kinds, passes, seeds, count=500):
    x = torch.rand(700, 1, 8, 8, generator=torch.Generator().manual_seed(0)).to(device)
    y = (x.mean((1, 2, 3)) > 0.5).long() + 2 * (x[:, 0, 0, 0] > 0.5).long()
    protocols = [Downstream("gs_wgan", kinds, count, passes) for _ in seeds]
    exams = [p.exams(lambda n: (x[:n], y[:n]), x[500:], y[500:], 4, s) for p, s in zip(protocols, seeds, strict=True)]
    results = side_by_side([exam for mine in exams for exam in mine], torch.device(device))
    size = passes * len(kinds)
    return [p.gather(results[i * size : (i + 1) * size]) for i, p in enumerate(protocols)]


def test_exams_of_several_are_those_of_each():
    kinds = ["logreg", "mlp", "cnn"]
    together = judged("cpu", kinds, 2, [3, 4], 50)
    alone = [judged("cpu", kinds, 2, [seed], 50)[0] for seed in (3, 4)]
    assert together == alone
    assert all(len(found[kind]) == 2 for found in together for kind in kinds)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_side_by_side_on_a_gpu_they_learn_what_they_learn_alone():
    kinds = ["logreg", "mlp", "cnn"]
    together = judged("cuda", kinds, 3, [3, 4, 5])
    alone = [judged("cuda", kinds, 3, [seed])[0] for seed in (3, 4, 5)]
    for many, one in zip(together, alone, strict=True):
        for kind in kinds:  # captured at another moment, a convolution may be another algorithm
            assert many[kind] == pytest.approx(one[kind], abs=3)
    assert min(together[0]["logreg"]) > 60


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
    assert steps.next.graph is not None
    assert steps.turn.graph is not None
    assert captured == pytest.approx(plain, rel=1e-5)
    for ours, theirs in zip(weights, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
