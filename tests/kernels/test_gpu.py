"""Kernels and their twins on a CUDA device. Needs torch and Triton only.

Those of the layers are tested with them (tests/models/test_generators.py, tests/evaluation/test_evaluation.py).
"""

import pytest
import torch
from torch import nn

from dpot import kernels
from dpot.training import clip_block, clip_rows
from dpot.transport import annealed_temperatures, sliced, solvers

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def error(ours, reference):
    ours, reference = ours.detach().double().cpu(), reference.detach()
    return float((ours - reference).norm() / reference.norm())


def random_shapes(count):
    source = torch.Generator().manual_seed(4)
    draw = lambda high: int(torch.randint(1, high + 1, (1,), generator=source))  # noqa: E731
    return [(1, 50, 50, 794), (2, 200, 200, 794), (1, 256, 256, 33)] + [
        (draw(4), draw(256), draw(256), draw(900)) for _ in range(count)
    ]


@pytest.mark.parametrize(("batch", "n", "m", "d"), random_shapes(12))
@pytest.mark.parametrize("weighted", [False, True])
def test_sinkhorn_kernels_agree_with_their_twins(batch, n, m, d, weighted):
    torch.manual_seed(n + m)
    x, y, slope = torch.rand(batch, n, d) * 2 - 1, torch.rand(batch, m, d) * 2 - 1, torch.randn(batch)
    log_a, log_b = ((torch.rand(batch, size) + 0.1).log_softmax(-1) if weighted else None for size in (n, m))
    to = lambda t, *where: None if t is None else t.to(*where)  # noqa: E731
    cuda = [to(t, "cuda") for t in (x, y, log_a, log_b, slope)]
    cpu = [to(t, torch.float64) for t in (x, y, log_a, log_b, slope)]
    temperatures = annealed_temperatures(2 * d**0.5, 0.5)
    results = []
    for module, (a, b, first, second, scale) in ((kernels.sinkhorn, cuda), (solvers, cpu)):
        cost = module.ground_cost(a, b, 1.0, 1.0)
        solution = solvers.Potentials(*module.annealed_potentials(cost, temperatures, first, second))
        constants = (temperatures[-1], 1.0, 1.0)
        to_x = module.envelope_gradient(a, b, cost, solution.f, solution.g_before, *constants, first, second, scale)
        to_y = module.envelope_gradient(b, a, cost.mT, solution.g, solution.f_before, *constants, second, first, scale)
        results.append((cost, *solution, to_x, to_y))
    tolerances = [1e-5] * 6 + [3e-4] * 2
    for mine, other, tolerance in zip(*results, tolerances, strict=True):
        assert error(mine, other) < tolerance


@pytest.mark.parametrize("n", [1, 2, 10, 100, 128, 500, 1000, 1024])
@pytest.mark.parametrize("q", [1.0, 1.5, 2.0, 3.0])
def test_sorting_kernel_agrees_with_its_twin(n, q):
    torch.manual_seed(n)
    x, y = torch.randn(37, n), torch.randn(37, n) * 2
    ours = kernels.sliced.sorted_difference(x.cuda(), y.cuda(), q, True, True)
    for mine, other in zip(ours, sliced.sorted_difference(x.double(), y.double(), q, True, True), strict=True):
        assert error(mine, other) < 1e-5


@pytest.mark.parametrize("per", ["row", "block"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e30])
def test_the_sanitiser_clips_as_plain_torch_does(per, scale):
    wide = torch.randn(50, 794, device="cuda") * scale
    wide[3, 5] = float("nan") if scale == 1 else scale
    rows = wide[:, :784].unflatten(1, (1, 28, 28))
    found = kernels.sanitise.clip_and_noise(rows, torch.zeros(50, 1, 28, 28, device="cuda"), 0.1, per)
    twin = (clip_rows if per == "row" else clip_block)(rows.cpu(), 0.1)
    torch.testing.assert_close(found.cpu(), twin, rtol=1e-6, atol=1e-12)
    norms = found.double().flatten(1).norm(dim=1) if per == "row" else found.double().norm()
    assert float(norms.max()) <= 0.1


def test_steps_of_adam_are_torchs():
    torch.manual_seed(0)
    ours = [nn.Parameter(torch.randn(300, 200, device="cuda")), nn.Parameter(torch.randn(5, device="cuda"))]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    options = {"weight_decay": 1e-2, "capturable": True, "fused": True}
    mine, other = (torch.optim.Adam(p, lr=torch.tensor(1e-2, device="cuda"), **options) for p in (ours, theirs))
    kernels.adam.spread(mine)
    for _ in range(5):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        mine.step()
        other.step()
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(mine.state[p]["exp_avg_sq"], other.state[q]["exp_avg_sq"])
