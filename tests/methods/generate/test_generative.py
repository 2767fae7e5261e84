"""Private labels, comparison spaces and real data: against what they claim."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from dpot.errors import UsageError
from dpot.methods.gate import Gate
from dpot.methods.generate import dp_swd
from dpot.methods.generate.base import Problem
from dpot.methods.generate.dp_sinkhorn import DPSinkhorn, Sinkhorn, _log_weights
from dpot.methods.generate.dp_swd import DPSWD, SWD, _Slots
from dpot.methods.generate.real_data import RealData
from dpot.methods.tape import Tape
from dpot.models.comparison import RandomEncoder
from dpot.models.dsw_generator import DSWGenerator
from dpot.models.linear import Linear
from dpot.models.sinkhorn_biggan import SinkhornBigGAN
from dpot.models.sinkhorn_dcgan import SinkhornDCGAN
from dpot.privacy.budget import Budget
from dpot.privacy.events import Gaussian, NonPrivate
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.training.ema import EMA
from dpot.transport.directions import uniform_directions
from dpot.transport.sinkhorn import annealed_temperatures, padded_debiased, sinkhorn_cost

CLASSES, PIXELS = 3, 16


def batch(seed, n):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 1, 4, 4, generator=generator) * torch.rand(n, 1, 1, 1, generator=generator) * 3
    return x.clamp(0, 1), torch.randint(CLASSES, (n,), generator=generator)


def moved(before, after):
    """Over orders of the slots within each class: the least Σ‖difference‖², and the least number of changed rows."""
    total, rows = 0.0, 0
    for a, b in zip(before, after, strict=True):
        cost = torch.cdist(a.double(), b.double(), compute_mode="donot_use_mm_for_euclid_dist").square().numpy()
        total += cost[linear_sum_assignment(cost)].sum()
        rows += int((cost > 1e-12)[linear_sum_assignment(cost > 1e-12)].sum())
    return total, rows


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(0, CLASSES - 1), st.booleans())
def test_one_record_moves_two_slots_by_no_more_than_the_noise_is_for(seed, label, crowded):
    method = SWD(labels="private", norm_bound=1.5)
    x, y = batch(seed, 12)
    if crowded:
        y[: 8 + seed % 4] = 0  # more of one class than it has slots
    other, y_other = x.clone(), y.clone()
    record = seed % 12
    other[record], y_other[record] = batch(seed + 1, 1)[0][0], label
    slots = _Slots(CLASSES, 4, torch.device("cpu"))
    filled = [slots.fill(method.vectors(a, b, CLASSES), b) for a, b in ((x, y), (other, y_other))]
    total, rows = moved(*filled)
    assert rows <= 2
    assert total <= 1.0


def test_slots_hold_each_row_of_a_class_until_it_is_full():
    rows, labels = torch.arange(1.0, 7.0)[:, None], torch.tensor([2, 0, 0, 2, 0, 0])
    filled = _Slots(3, 3, torch.device("cpu")).fill(rows, labels)[..., 0]
    assert filled.tolist() == [[2.0, 3.0, 5.0], [0.0, 0.0, 0.0], [1.0, 4.0, 0.0]]


@pytest.mark.parametrize("share", [0.5, 0.8, 1.0])
def test_two_moved_rows_reveal_no_more_than_one_moved_as_far(share):
    """E exp(c·uᵀZᵀZu), the projection mechanism's moment, over the ways to split ‖Z‖² between two rows."""
    u = np.random.default_rng(0).normal(size=(400_000, 6))
    u = u / np.linalg.norm(u, axis=1, keepdims=True)
    split = np.exp(3 * (share * u[:, 0] ** 2 + (1 - share) * u[:, 1] ** 2)).mean()
    single = np.exp(3 * u[:, 0] ** 2).mean()
    assert split <= single * (1 + 1e-3)
    if share == 0.5:
        assert split < 0.99 * single


def test_encoder_knows_no_data_and_stays_inside_its_bounds():
    first, again = RandomEncoder((3, 16, 16)), RandomEncoder((3, 16, 16))
    images = torch.rand(6, 3, 16, 16) * torch.rand(6, 1, 1, 1)
    images[0], images[1] = 1, 0
    features = first(images)
    assert features.shape == (6, RandomEncoder.size)
    assert torch.equal(features, again(images))
    assert features.min() >= 0
    assert float(first(torch.full((1, 3, 16, 16), 0.5)).norm()) == pytest.approx(1, rel=1e-5)
    assert float(torch.cdist(features, features).max()) <= first.diameter()


def test_dsw_generator_is_its_description():
    model = DSWGenerator(classes=2, shape=(3, 64, 64))
    sizes = [(32, 512), (512, 256), (256, 128), (128, 64)]
    expected = sum(16 * a * b + 2 * b for a, b in sizes) + 16 * 64 * 3 + 3
    assert sum(p.numel() for p in model.parameters()) == expected
    images = model(torch.randn(2, 32), torch.tensor([0, 1]))
    assert images.shape == (2, 3, 64, 64)


def problem(shape=(3, 16, 16), count=40, epsilon=10.0):
    generator = torch.Generator().manual_seed(0)
    return Problem(
        images=torch.rand(count, *shape, generator=generator),
        labels=torch.tensor([0] * 30 + [1] * 10),
        classes=2,
        generator=DSWGenerator(classes=2, shape=shape, width=4),
        budget=Budget(epsilon, 1e-5),
        ledger=Ledger(1e-5, epsilon),
        noise=NoiseSource(),
        random=generator,
        max_steps=2,
    )


@pytest.mark.parametrize("labels", ["none", "private"])
def test_sound_variants_train_in_the_encoders_space(labels):
    own = problem()
    method = DPSWD(labels=labels, space="encoder", batch=8, projections=10, norm_bound=1.0)
    outcome = method.fit(own)
    assert own.ledger.releases == outcome.steps == 2
    assert 0 < own.ledger.epsilon() <= 10
    rows = method._all_vectors(own)
    assert rows.shape == (40, RandomEncoder.size)
    assert float(torch.cdist(rows, rows).max()) <= 1


def test_dp_swds_directions_do_not_follow_the_seed(monkeypatch):
    """The exact bound averages over them: who knew them beforehand could bring a record that lies along them."""
    seen = []

    def spy(*arguments):
        seen.append(uniform_directions(*arguments))
        return seen[-1]

    monkeypatch.setattr(dp_swd, "uniform_directions", spy)
    for _ in range(2):
        DPSWD(labels="none", space="encoder", batch=8, projections=10, norm_bound=1.0).fit(problem())
    first, second, other = seen[:3]  # two of one training, and the first of another with the same seed
    for one in (second, other):
        assert float((first * one).sum(1).abs().max()) < 0.2  # in 8,192 dimensions directions are all but orthogonal


def test_real_data_are_given_back_once_each_or_by_turns():
    own = problem(epsilon=None)
    method = RealData()
    method.fit(own)
    images, labels = method.draw(own, 60)
    assert sorted(images.sum((1, 2, 3)).tolist()) == sorted(own.images.sum((1, 2, 3)).tolist())
    few, few_labels = method.draw(own, 8)
    assert torch.bincount(few_labels).tolist() == [4, 4]
    for image, label in zip(few, few_labels, strict=True):
        (row,) = (own.images == image).flatten(1).all(1).nonzero()[:, 0].tolist()
        assert own.labels[row] == label
    assert len(labels) == 40
    assert own.ledger.epsilon() == float("inf")


def test_drawn_rows_weigh_alike_and_none_drawn_is_all_padding():
    room, generated = 7, 4
    for drawn, (of_real, of_again) in enumerate(_log_weights(room, generated).exp()):
        present = (torch.arange(room) < (drawn or room)).double()
        torch.testing.assert_close(of_real, present / present.sum())
        torch.testing.assert_close(of_again, (torch.arange(room) < generated) / torch.tensor(4.0).double())


def two_classes(images, max_steps):
    torch.manual_seed(0)
    return Problem(
        images=images,
        labels=torch.arange(100) % 2,
        classes=2,
        generator=SinkhornDCGAN(2, (1, 8, 8), width=4),
        budget=Budget(2.0, 1e-5),
        ledger=Ledger(1e-5, None),
        noise=NoiseSource(1),
        random=torch.Generator().manual_seed(2),
        max_steps=max_steps,
    )


@pytest.mark.parametrize("perturb", ["images", "parameters"])
def test_before_the_first_noisy_gradient_dp_sinkhorn_shows_nothing_of_the_records(perturb):
    def shown(images):
        return DPSinkhorn(batch=6, perturb=perturb).prepare(two_classes(images, 1)).run().history

    assert shown(torch.zeros(100, 1, 8, 8)) == shown(torch.rand(100, 1, 8, 8)) != []


def test_dp_sinkhorn_releases_the_average_of_weights_that_averaging_leaves_alone():
    images = torch.rand(100, 1, 8, 8, generator=torch.Generator().manual_seed(3))
    plain, averaged = two_classes(images, 12), two_classes(images, 12)
    method = DPSinkhorn(batch=6, ema=0.999)
    DPSinkhorn(batch=6).fit(plain)
    engine, weights = method.prepare(averaged), averaged.generator.embedding.weight
    expected = weights.detach().clone()
    for step in range(1, 13):  # twelve steps are averaged after each
        engine.steps = step
        engine.run()
        expected += 9 / (step + 9) * (weights.detach() - expected)
    assert torch.equal(weights, plain.generator.embedding.weight)
    averaged.settle()
    torch.testing.assert_close(weights.detach(), expected)
    assert not torch.equal(weights, plain.generator.embedding.weight)
    assert averaged.ledger.epsilon() == plain.ledger.epsilon() > 0


def test_averaged_weights_are_given_statistics_of_their_own():
    problem = two_classes(torch.rand(100, 1, 8, 8), 1)
    problem.average = EMA(problem.generator, 0.9)
    with torch.no_grad():
        problem.average.module.first.weight.mul_(3)
    problem.settle()
    model = problem.generator
    norm = next(m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d))
    with torch.no_grad():
        joined = torch.cat([model.code(4000, problem.random, "cpu"), model.embedding(torch.arange(4000) % 2)], 1)
        seen = torch.einsum("ni,iohw->nohw", joined, model.first.weight)
    deviation = seen.std((0, 2, 3))
    assert (norm.running_mean - seen.mean((0, 2, 3))).abs().max() < 0.05 * deviation.min()
    torch.testing.assert_close(norm.running_var.sqrt(), deviation, rtol=0.03, atol=0)


def captured_on_a_gpu(method, generator, colours):
    device = torch.device("cuda:0")
    problem = Problem(
        images=torch.rand(100, colours, 8, 8, device=device),
        labels=torch.arange(100, device=device) % 2,
        classes=2,
        generator=generator.to(device),
        budget=Budget(2.0, 1e-5),
        ledger=Ledger(1e-5, None),
        noise=NoiseSource(1, device=device),
        random=torch.Generator(device).manual_seed(2),
        max_steps=20,
    )
    outcome = method.prepare(problem).run()
    return (outcome.mode, outcome.reason) == ("graph", "captured on CUDA")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("settings", [{}, {"debias": "none"}, {"perturb": "parameters"}, {"clip_per": "row"}])
def test_on_a_gpu_dp_sinkhorns_steps_are_captured(settings):
    assert captured_on_a_gpu(DPSinkhorn(batch=6, **settings), SinkhornDCGAN(2, (1, 8, 8), width=4), 1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("bfloat16", [True, False])
def test_on_a_gpu_dp_sinkhorns_steps_for_faces_are_captured(bfloat16):
    method = DPSinkhorn(batch=6, l1=0, debias="none", blur=5, power=2)
    assert captured_on_a_gpu(method, SinkhornBigGAN(2, (3, 8, 8), channels=8, bfloat16=bfloat16), 3)


@pytest.mark.parametrize("renewed", [0, 3, 6])
def test_the_padded_loss_is_twice_the_distance_to_the_data_less_that_among_generated_rows(renewed):
    n, room, d = 6, 9, 5
    random = torch.Generator().manual_seed(1)
    made = torch.rand(n + renewed, d, generator=random, dtype=torch.float64)
    drawn = torch.rand(room, d, generator=random, dtype=torch.float64)
    present = torch.arange(room) < 4
    counted = torch.stack([present, torch.arange(room) < n]).double()
    weights = torch.full((2, n), 1 / n, dtype=torch.float64).log(), (counted / counted.sum(1, keepdim=True)).log()
    schedule = annealed_temperatures(3.0, 0.5)
    points, again = made.clone().requires_grad_(), made.clone().requires_grad_()
    padding = torch.zeros(room - n, d, dtype=torch.float64)
    loss = padded_debiased(points, n, drawn, schedule, 1.0, 1.0, padding, weights)
    expected = 2 * sinkhorn_cost(again[:n], drawn[present], schedule, l1=1.0)
    expected = expected - sinkhorn_cost(again[:n], again[renewed:], schedule, l1=1.0)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(points.grad, again.grad)


def test_what_gets_no_noise_does_not_depend_on_the_records():
    """Neither on which were drawn nor on how many: the gradient at the fresh rows is used without noise."""
    n, renewed, room = 5, 3, 8
    random = torch.Generator().manual_seed(2)
    made, schedule = torch.rand(n + renewed, 4, generator=random), annealed_temperatures(3.0, 0.5)
    logs, uniform = _log_weights(room, n).float(), torch.full((2, n), 1 / n).log()

    def slopes(count):
        points, drawn = made.clone().requires_grad_(), torch.rand(room, 4, generator=random)
        drawn[count:] = 0
        padded_debiased(
            points, n, drawn, schedule, 1.0, 1.0, torch.zeros(room - n, 4), (uniform, logs[count])
        ).backward()
        return points.grad.split([n, renewed])

    first, second, none = slopes(4), slopes(7), slopes(0)
    assert torch.equal(first[1], second[1])
    assert torch.equal(first[1], none[1])
    assert not torch.equal(first[0], second[0])


@pytest.mark.parametrize("per", ["block", "row"])
def test_dp_sinkhorn_clips_the_gradient_of_its_whole_loss_at_the_batch_and_at_the_fresh_rows(per):
    method = DPSinkhorn(batch=4, clip=0.5, clip_per=per)
    images = torch.rand(6, 1, 2, 2, requires_grad=True)
    gate = Gate(ledger=Ledger(1e-5), noise=NoiseSource(1), tape=Tape(strength=0))
    slope = torch.randn(6, 1, 2, 2)
    (method.protect(images, gate.release(Gaussian(1.0))) * slope).sum().backward()
    parts = [slope[:4], slope[4:]] if per == "block" else list(slope.split(1))
    expected = torch.cat([part * min(1.0, 0.5 / float(part.norm())) for part in parts])
    torch.testing.assert_close(images.grad, expected, rtol=1e-5, atol=1e-6)


def test_without_noise_sinkhorn_clips_as_it_is_told_and_dp_sinkhorn_must():
    images, slope = torch.rand(6, 1, 2, 2, requires_grad=True), 9.0
    release = Gate(ledger=Ledger(1e-5), noise=NoiseSource(1)).release(NonPrivate())
    for clip, norm in ((None, slope * 4), (0.5, 0.5)):
        (found,) = torch.autograd.grad((Sinkhorn(batch=4, clip=clip).protect(images, release) * slope).sum(), images)
        assert float(found[:4].norm()) == pytest.approx(norm, rel=1e-5)
    with pytest.raises(UsageError, match=r"loss\.clip"):
        _ = DPSinkhorn(clip=None).sensitivity


@pytest.mark.parametrize(("method", "rate"), [(Sinkhorn, 1e-4), (DPSinkhorn, 1e-5 * 10**0.5)])
def test_a_shortened_training_keeps_its_way_by_larger_steps(method: type[Sinkhorn], rate: float) -> None:
    """As long a way with a tenth of the steps; a walk at random, which noise makes of it, is as √steps long."""
    trained = method(steps=1000, learning_rate=1e-5)
    assert trained.rate(100) == pytest.approx(rate)
    assert trained.rate(1000) == 1e-5
    assert trained.rate(1) <= 5e-4


def test_without_noise_a_linear_generator_finds_the_means_and_the_largest_component_of_its_classes():
    torch.manual_seed(0)
    axis, means, labels = torch.randn(9), 0.3 * torch.randn(2, 9), torch.arange(40) % 2
    axis /= axis.norm()
    rows = means[labels] + 0.5 * torch.linspace(-1, 1, 40)[torch.randperm(40), None] * axis
    images = (rows.view(-1, 1, 3, 3) + 1) / 2
    own = {"images": images, "labels": labels, "generator": Linear(2, (1, 3, 3), code_size=1)}
    given = replace(problem(), **own, ledger=Ledger(1e-5, None), max_steps=400)
    loss = {"l1": 0, "debias": "none", "blur": 0.1, "power": 2, "clip": None}
    Sinkhorn(batch=40, steps=400, learning_rate=0.02, **loss).fit(given)
    code = given.generator.code(2000, given.random, "cpu")
    for label in range(2):
        made = given.generator(code, torch.full((2000,), label)).detach().flatten(1)
        ours = rows[labels == label]
        assert float((made.mean(0) - ours.mean(0)).norm()) < 0.15 * float((means[0] - means[1]).norm())
        direction = torch.linalg.svd(made - made.mean(0), full_matrices=False)[2][0]
        assert abs(float(direction @ axis)) > 0.95
