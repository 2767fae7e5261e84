"""The transport losses on CUDA, beside double precision on the CPU, and inside CUDA graphs.

Needs torch and Triton only (no geomloss, no POT), so that it runs on a bare GPU machine.
"""

import math

import pytest
import torch

from dpot.errors import UsageError
from dpot.transport import (
    Converged,
    annealed_temperatures,
    fourier_frequencies,
    gaussian_smoothed_sliced_wasserstein_power,
    joint_points,
    localised_directions,
    mean_embedding,
    semi_debiased_sinkhorn,
    sinkhorn_cost,
    sinkhorn_divergence,
    sliced_wasserstein,
    sliced_wasserstein_power,
    smoothed_directions,
    squared_mmd,
    uniform_directions,
)
from dpot.transport.sinkhorn import padded_debiased

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

MNIST = annealed_temperatures(math.sqrt(4 * 784 + 15**2 * 10), 0.05)


def cloud(n, d, seed, scale=1.0):
    return (torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1) * scale


def digits(n, seed):
    source = torch.Generator().manual_seed(seed)
    pixels = (torch.rand(n, 784, generator=source, dtype=torch.float64) * 6 - 4).clamp(-1, 1)
    return joint_points(pixels, torch.randint(10, (n,), generator=source), 10)


def error(ours, reference):
    ours, reference = ours.detach().double().cpu(), reference.detach()
    return float((ours - reference).norm() / reference.norm())


def compare(loss, *clouds, value_tolerance=1e-5, gradient_tolerance=1e-4):
    """Value and gradients of `loss` in single precision on CUDA, beside double precision on the CPU."""
    here = [c.double().requires_grad_() for c in clouds]
    there = [c.float().cuda().requires_grad_() for c in clouds]
    reference, value = loss(*here), loss(*there)
    assert error(value, reference) < value_tolerance
    expected, gradients = torch.autograd.grad(reference.sum(), here), torch.autograd.grad(value.sum(), there)
    for mine, other in zip(gradients, expected, strict=True):
        assert error(mine, other) < gradient_tolerance


def on(x, tensor):
    """A constant of the loss on the device and in the type of x."""
    return tensor.to(x.device, x.dtype)


# losses


@pytest.mark.parametrize("q", [1.0, 2.0, 3.0])
@pytest.mark.parametrize(("n", "m"), [(100, 100), (1024, 1024), (1500, 1500), (100, 70)])
def test_sliced_wasserstein(q, n, m):
    u = uniform_directions(64, 50, torch.Generator().manual_seed(0), dtype=torch.float64)
    loss = lambda x, y: sliced_wasserstein(x, y, on(x, u), q)  # noqa: E731
    # single precision swaps points that are almost tied, which moves the gradient by about 1e-3 (a sign at q = 1)
    compare(loss, cloud(n, 50, 0), cloud(m, 50, 1, 2.0), gradient_tolerance=2e-2 if q == 1 else 5e-3)


def test_sliced_wasserstein_with_weights_and_classes():
    u = uniform_directions(40, 20, torch.Generator().manual_seed(0), dtype=torch.float64)
    a = torch.rand(60, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    weighted = lambda x, y: sliced_wasserstein_power(x, y, on(x, u), 2, on(x, a))  # noqa: E731
    compare(weighted, cloud(60, 20, 0), cloud(45, 20, 1, 2.0), gradient_tolerance=5e-3)
    classes = lambda x, y: sliced_wasserstein_power(x, y, on(x, u))  # noqa: E731
    compare(classes, cloud(60, 20, 0).view(6, 10, 20), cloud(60, 20, 1, 2.0).view(6, 10, 20), gradient_tolerance=5e-3)


def test_smoothed_sliced_wasserstein():
    u = uniform_directions(30, 12, torch.Generator().manual_seed(0), dtype=torch.float64)
    noise = [torch.randn(30, 80, generator=torch.Generator().manual_seed(s), dtype=torch.float64) for s in (1, 2)]
    loss = lambda x, y: gaussian_smoothed_sliced_wasserstein_power(  # noqa: E731
        x, y, on(x, u), 0.7, noise=(on(x, noise[0]), on(x, noise[1]))
    )
    compare(loss, cloud(80, 12, 0), cloud(80, 12, 1, 2.0), gradient_tolerance=5e-3)


@pytest.mark.parametrize("m", [1.0, 3.0])
@pytest.mark.parametrize("n", [50, 200])
def test_dp_sinkhorns_loss(m, n):
    # ε = .05 under costs of a few thousand: single precision itself moves the gradient by a few 1e-4
    compare(lambda x, y: sinkhorn_cost(x, y, MNIST, l1=m), digits(n, 0), digits(n, 1), gradient_tolerance=1e-3)


def test_sinkhorn_beyond_the_kernels_limit():
    temperatures = annealed_temperatures(12.0, 0.5)
    compare(lambda x, y: sinkhorn_cost(x, y, temperatures, l1=1), cloud(300, 30, 0), cloud(280, 30, 1))


def test_sinkhorn_divergences():
    temperatures = annealed_temperatures(12.0, 0.5)
    x, y, fresh = cloud(40, 30, 0), cloud(40, 30, 1, 0.5), cloud(8, 30, 2)
    compare(lambda x, y: sinkhorn_divergence(x, y, temperatures), x, y, value_tolerance=1e-4)
    compare(
        lambda x, fresh, y: semi_debiased_sinkhorn(x, fresh, y, temperatures, l1=1), x, fresh, y, value_tolerance=1e-4
    )
    both = torch.cat([x, fresh])  # of a loss whose real rows need no gradient
    compare(lambda rows: padded_debiased(rows, 40, on(rows, y), temperatures, l1=1), both, value_tolerance=1e-4)
    compare(lambda x, y: sinkhorn_cost(x, y, Converged(2.0, 1e-4)), x, y, value_tolerance=1e-4, gradient_tolerance=1e-3)


def test_padding_by_weight_zero():
    temperatures = annealed_temperatures(12.0, 0.5)
    x, y = cloud(40, 30, 0).float().cuda(), cloud(50, 30, 1).float().cuda()
    weights = torch.cat((torch.ones(33), torch.zeros(17))).cuda()
    padded = sinkhorn_cost(x, y, temperatures, y_weights=weights)
    torch.testing.assert_close(padded, sinkhorn_cost(x, y[:33], temperatures), rtol=1e-5, atol=0)


def test_mmd():
    w = fourier_frequencies(200, 30, 3.0, torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.arange(50) % 5
    embed = lambda x: mean_embedding(x, on(x, w), labels.to(x.device), 5)  # noqa: E731
    compare(lambda x, y: squared_mmd(embed(x), embed(y)), cloud(50, 30, 0), cloud(50, 30, 1, 2.0))


# CUDA graphs


def capture(function, *static):
    """Warm up on a side stream, then capture function(*static) once; returns the graph and its output."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            function(*static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = function(*static)
    return graph, output


U = uniform_directions(100, 794, torch.Generator().manual_seed(0), dtype=torch.float64)
LOSSES = {
    "sliced, fused sort": (lambda x, y, u: sliced_wasserstein_power(x, y, u), 100),
    "sliced, torch sort": (lambda x, y, u: sliced_wasserstein_power(x, y, u), 1500),
    "sliced, unequal": (lambda x, y, u: sliced_wasserstein_power(x, y[:30], u), 60),
    "sinkhorn, resident": (lambda x, y, u: sinkhorn_cost(x, y, MNIST, l1=1), 50),
    "sinkhorn, streamed": (lambda x, y, u: sinkhorn_cost(x, y, MNIST, l1=1), 200),
    "sinkhorn, twin": (lambda x, y, u: sinkhorn_cost(x, y, MNIST, l1=1), 300),
    "semi-debiased": (lambda x, y, u: semi_debiased_sinkhorn(x, y[:10], y, MNIST, l1=1), 50),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_captured_loss_is_right_on_new_input(name):
    loss, n = LOSSES[name]
    x, y = digits(n, 0).float().cuda().requires_grad_(), digits(n, 1).float().cuda()
    u = U.float().cuda()

    def step(x, y):
        value = loss(x, y, u)
        return value, torch.autograd.grad(value, x)[0]

    graph, (value, gradient) = capture(step, x, y)
    for seed in (2, 5):
        new_x, new_y = digits(n, seed), digits(n, seed + 1)
        with torch.no_grad():
            x.copy_(new_x)
            y.copy_(new_y)
        graph.replay()
        torch.cuda.synchronize()
        reference_x = new_x.requires_grad_()
        reference = loss(reference_x, new_y, U)
        assert error(value, reference) < 1e-4
        assert error(gradient, torch.autograd.grad(reference, reference_x)[0]) < 5e-3


@pytest.mark.parametrize(
    "sample",
    [
        lambda g: uniform_directions(50, 784, g, "cuda"),
        lambda g: smoothed_directions(50, (1, 28, 28), 1.5, g, "cuda"),
        lambda g: localised_directions(50, (1, 28, 28), 1.0, 3.0, 4.0, g, "cuda"),
    ],
)
def test_captured_directions_differ_at_every_replay(sample):
    generator = torch.Generator("cuda").manual_seed(0)
    sample(generator)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        directions = sample(generator)
    draws = []
    for _ in range(3):
        graph.replay()
        draws.append(directions.clone())
        torch.testing.assert_close(directions.norm(dim=1), torch.ones(50, device="cuda"))
    assert not torch.allclose(draws[0], draws[1])
    assert not torch.allclose(draws[1], draws[2])


def test_losses_never_wait_for_the_device():
    x, y = digits(50, 0).float().cuda().requires_grad_(), digits(50, 1).float().cuda()
    u = U.float().cuda()

    def losses():
        semi_debiased_sinkhorn(x, y[:10], y, MNIST, l1=1).backward()
        sliced_wasserstein_power(x, y, u).backward()
        sliced_wasserstein_power(x, y[:30], uniform_directions(20, 794, device="cuda")).backward()

    losses()
    torch.cuda.set_sync_debug_mode("error")
    try:
        losses()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_constants_missing_at_capture_are_asked_for():
    x = cloud(10, 4, 0).float().cuda()
    unseen = annealed_temperatures(9.87, 0.123)
    sinkhorn_cost(x, x, annealed_temperatures(9.0, 0.5))  # compiles the kernels for this shape
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(UsageError, match="before capturing"), torch.cuda.graph(graph):
        sinkhorn_cost(x, x, unseen)
